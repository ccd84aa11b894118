"""Entropy of a word given the words before it, over all responses (GEM's diversity metrics have it too)."""

from __future__ import annotations

import math
from collections import Counter

from rlnlp import metrics
from workbook.scores import family


def conditional_entropy(texts: list[str], n: int = 2) -> float:
    """- sum over n-grams g of p(g) log2 p(g) / p(context of g), in bits, n >= 2; context: the first n - 1 words of g.

    Words are split at blanks. p(context) is taken over the contexts of the n-grams, so that it is an entropy; GEM takes
    it over all (n - 1)-grams, which the last words of each response enlarge.
    Limiting cases: 0 if a context has one continuation only, or there is no n-gram; log2 V if every one of V words
    follows every other equally often. Raises: ValueError for n < 2.
    """
    if n < 2:
        raise ValueError(f"conditional_entropy: expected n >= 2, got {n}")
    counts = Counter(gram for text in texts for gram in metrics.ngrams(text.split(), n))
    contexts = Counter()
    for gram, count in counts.items():
        contexts[gram[:-1]] += count
    bits = sum(count * math.log2(contexts[gram[:-1]] / count) for gram, count in sorted(counts.items()))
    return bits / counts.total() if counts else 0.0


def _each(predictions: list[str], n: int = 2) -> list[float]:
    return [conditional_entropy([text], n) for text in predictions]


def _usable(n: int = 2) -> None:
    if n < 2:
        raise family.ScoreError(f"score conditional_entropy: expected n >= 2, got {n}")


SCORES = (
    family.Score(
        "conditional_entropy",
        "conditional entropy",
        _each,
        conditional_entropy,
        unit="bits",
        range=(0.0, float("inf")),
        columns=(),
        alone=False,
        settings=("n",),
        check=_usable,
        note="of all responses together; depends on how much text there is: compare equal numbers of responses",
    ),
)


class ConditionalEntropy(family.Family):
    """Entropy in bits of a word given the n - 1 before it, pooled over all responses."""

    scores = SCORES
