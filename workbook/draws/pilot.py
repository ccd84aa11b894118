"""Which shape, vocabulary and number of reviews a base model should have: candidates at equal, small budgets.

A budget is a number of steps, chosen beforehand from the speed that was measured (``speed``), so that no result depends
on the clock of the day; a candidate that computes slowly gets fewer steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from workbook.draws.prose import Prose, Shop, train

WARM, FEW = 3, 200  # steps that are not timed; reviews to time with


def rows(
    shop: Shop, candidates: Mapping[str, Prose], shares: Sequence[float], minutes: float, held_out: Sequence[str]
) -> list[dict]:
    """A row per candidate and share of the budget: what it is, how much it read, bits per byte of the held-out texts.

    shares: of each candidate's steps, each a training of its own with the whole schedule, so that their curve can be
    read on to a larger budget; minutes: that the whole budget was chosen to take; held_out: no text that any number is
    reported of.
    """
    made = []
    for name, candidate in candidates.items():
        five_gram = shop.five_gram(candidate.vocabulary, candidate.reviews, held_out)
        for share in sorted(shares):
            settings = candidate.replace(steps=max(1, round(share * candidate.steps)))
            found = shop.bits(settings, held_out, f"{name}, {share:g} of the budget")
            made.append(
                {
                    "candidate": name,
                    "minutes": share * minutes,
                    **{key: getattr(settings, key) for key in ("layers", "width", "heads", "context", "vocabulary")},
                    "reviews": len(shop.read(settings.reviews)),
                    "weights": settings.weights,
                    "half_precision_mb": settings.megabytes,
                    "batch_size": settings.batch_size,
                    "learning_rate": settings.learning_rate,
                    "precision": settings.precision,
                    "steps": settings.steps,
                    "tokens_seen": settings.tokens,
                    "bits_per_byte": found,
                    "five_gram_bits_per_byte": five_gram,
                }
            )
    return made


def best(rows: Sequence[dict]) -> dict:
    """The row with the fewest bits per byte among those of the largest budget; of equal ones the first."""
    whole = max(row["minutes"] for row in rows)
    return min((row for row in rows if row["minutes"] == whole), key=lambda row: row["bits_per_byte"])


def speed(shop: Shop, settings: Prose, steps: int = 10) -> float:
    """Tokens per second of training, measured over ``steps`` steps of the real loop (its start is taken off)."""
    texts, tokenizer = shop.read(min(FEW, len(shop.texts))), shop.tokenizer(settings.vocabulary, settings.reviews)
    taken = []
    for number in (WARM, WARM, WARM + steps):  # the first pays for what is only done once in a process, and is dropped
        begun = time.perf_counter()
        train(texts, tokenizer, settings.replace(steps=number), shop.seed, device=shop.device)
        taken.append(time.perf_counter() - begun)
    return steps * settings.batch_size * settings.context / max(taken[-1] - taken[-2], 1e-9)


def steps_within(tokens_per_second: float, settings: Prose, minutes: float) -> int:
    """Whole steps that fit into so many minutes."""
    return max(1, int(60 * minutes * tokens_per_second / (settings.batch_size * settings.context)))
