"""CIDEr-D (Vedantam et al. 2015, arXiv:1411.5726), equal to pycocoevalcap's, with document frequencies of one's own."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from rlnlp import metrics
from workbook.scores import family, tokens

ORDERS = (1, 2, 3, 4)
SIGMA = 6.0  # of the Gaussian in the difference of lengths, in bigrams


@dataclass(frozen=True)
class Frequencies:
    """counts: n-gram -> in how many reference sets it occurs; sets: how many there are."""

    counts: Counter
    sets: int


def document_frequencies(references: list[list[str]]) -> Frequencies:
    """Document frequencies of reference sets, those of the training part where CIDEr is a reward."""
    counts = Counter()
    for row in references:
        counts.update({gram for text in row for n in ORDERS for gram in metrics.ngrams(tokens.split_13a(text), n)})
    return Frequencies(counts, len(references))


def _vectors(text: str, known: Frequencies) -> tuple[int, list[tuple[dict, float]]]:
    """Number of bigrams; for each order the weights of its n-grams (count x idf) and the length of that vector."""
    words, orders = tokens.split_13a(text), []
    for n in ORDERS:
        counts = Counter(metrics.ngrams(words, n))
        weights = {g: c * (math.log(known.sets) - math.log(max(1, known.counts[g]))) for g, c in counts.items()}
        orders.append((weights, math.sqrt(sum(weight**2 for weight in weights.values()))))
    return max(0, len(words) - 1), orders


def _similarity(ours: tuple, theirs: tuple) -> float:
    """Mean over orders of the cosine, of which no n-gram counts more often than the reference has it, times the
    Gaussian in the difference of lengths; in [0, 1]."""
    total = 0.0
    for (a, a_length), (b, b_length) in zip(ours[1], theirs[1]):
        if a_length and b_length:
            total += sum(min(weight, b[g]) * b[g] for g, weight in a.items() if g in b) / (a_length * b_length)
    return total / len(ORDERS) * math.exp(-((ours[0] - theirs[0]) ** 2) / (2 * SIGMA**2))


def cider(predictions: list[str], references: list[list[str]], frequencies: Frequencies | None = None) -> list[float]:
    """10 x the mean similarity to an example's references. Without ``frequencies``, those of the references given
    here: then one example by itself has idf 0 and CIDEr 0.0 whatever it says. Examples are told apart by their place
    (pycocoevalcap's copy in RL4LMs by the prompt's text, so that duplicates overwrite each other)."""
    known = frequencies or document_frequencies(references)
    out = []
    for text, row in zip(predictions, references):
        ours = _vectors(text, known)
        out.append(10 * sum(_similarity(ours, _vectors(given, known)) for given in row) / len(row))
    return out


def _usable(frequencies: Frequencies | None = None) -> None:
    if frequencies is not None and not isinstance(frequencies, Frequencies):
        raise family.ScoreError(
            f"score cider: expected frequencies of cider.document_frequencies(references), got {frequencies!r:.80}"
        )


SCORES = (
    family.Score(
        "cider",
        "CIDEr-D",
        cider,
        unit="of 10",
        range=(0.0, 10.0),
        scale=10.0,
        alone=False,
        alone_with="frequencies",
        settings=("frequencies",),
        check=_usable,
        note="one example by itself has 0.0: its words' document frequencies are those of the set it is scored in",
    ),
)


class Cider(family.Family):
    """CIDEr-D, 0 to 10, words cut by 13a and case kept: mean over responses, idf from the references given, or from
    ``frequencies``."""

    scores = SCORES
