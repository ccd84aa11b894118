"""Real film reviews by role: what a base model reads, what rewards, what judges and what prompts are other reviews.

For one base model that many runs start from, so that there are no draws here: a review has one role for good.

=============================  ==========================================================================
split of the data set          parts, in the order in which they are cut; the last takes what is left
=============================  ==========================================================================
unsupervised                   language_model_burn (chooses the model), language_model_validation (reports it),
                               language_model
train, one half                reward_validation, reward
train, the other half          evaluator (a language model), judge (both judges)
test                           prompts_validation, prompts_test, human_reviews, prompts_train
=============================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from rlnlp.settings import nearest
from workbook.texts.hub import DataError
from workbook.texts.tasks import halves, normalised

ROLES = {
    "unsupervised": ("language_model_burn", "language_model_validation", "language_model"),
    "train, one half": ("reward_validation", "reward"),
    "train, the other half": ("evaluator", "judge"),
    "test": ("prompts_validation", "prompts_test", "human_reviews", "prompts_train"),
}
SIZES = {
    "language_model_burn": 500,
    "language_model_validation": 1000,
    "reward_validation": 1500,
    "evaluator": 5000,
    "prompts_validation": 512,
    "prompts_test": 4096,
    "human_reviews": 2000,
}


def by_role(splits: Mapping[str, Sequence[dict]], sizes: Mapping[str, int] = SIZES) -> dict[str, list[dict]]:
    """Part -> its reviews {id, text[, label]}; of the parts of prompts {id, prompt, reference[, label]}.

    splits: of the data set, without repeated texts, as ``tasks.imdb.splits_of`` returns them; sizes: part -> number of
    reviews; the last part of each row of ``ROLES`` takes what is left. The same reviews give the same parts. ``train``
    is halved label by label, so that both halves have the same share of positive reviews.
    Raises: DataError for an unknown part, for a size below 1, where nothing would be left, and for a text that is in
    two splits.
    """
    _check(sizes)
    sources = {name: _shuffled(name, splits[name]) for name in ("unsupervised", "test")}
    sources["train, one half"], sources["train, the other half"] = _halved(splits["train"])
    parts: dict[str, list[dict]] = {}
    for source, names in ROLES.items():
        rows, taken = sources[source], [sizes[name] for name in names[:-1]]
        if sum(taken) >= len(rows):
            asked = " + ".join(f"{name} {n}" for name, n in zip(names, taken))
            raise DataError(f"imdb: {source} holds {len(rows)} different reviews; {asked} leave none for {names[-1]}")
        begin = 0
        for name, n in zip(names, [*taken, len(rows)]):
            parts[name] = list(rows[begin : begin + n])
            begin += n
    check_disjoint(parts)
    return {name: [halves(r) for r in rows] if name.startswith("prompts") else rows for name, rows in parts.items()}


def check_disjoint(parts: Mapping[str, Sequence[dict]]) -> None:
    """Raises: DataError for a text (lower case, blanks as one) that stands twice, naming both places."""
    home: dict[str, str] = {}
    for name, rows in parts.items():
        for row in rows:
            key, here = normalised(row["text"]), f"{name} ({row['id']})"
            if home.setdefault(key, here) != here:
                raise DataError(f"imdb: one review has two roles: {home[key]} and {here}")


def _check(sizes: Mapping[str, int]) -> None:
    wanted = [name for names in ROLES.values() for name in names[:-1]]
    for name in sizes:
        if name not in wanted:
            raise DataError(f"sizes: expected {', '.join(wanted)}, found {name!r}{nearest(name, wanted)}")
    for name in wanted:
        if sizes.get(name, 0) < 1:
            raise DataError(f"sizes: {name}: expected at least 1 review, found {sizes.get(name, 'nothing')}")


def _shuffled(name: str, rows: Sequence[dict]) -> list[dict]:
    return Random(f"reviews {name}").sample(list(rows), len(rows))


def _halved(rows: Sequence[dict]) -> tuple[list[dict], list[dict]]:
    """Two halves with the same share of each label, each in an order of its own."""
    one, other = [], []
    for label in sorted({row.get("label", -1) for row in rows}):
        shuffled = _shuffled(f"train {label}", [row for row in rows if row.get("label", -1) == label])
        middle = len(shuffled) // 2
        one += shuffled[:middle]
        other += shuffled[middle:]
    return _shuffled("one half", one), _shuffled("other half", other)
