"""Diversity of a set of responses: pure functions on whitespace tokens.

x is a response, g an n-gram (n neighbouring words of one response; never across two), c(g) how often g occurs in all
responses together, N = sum of c(g). Words are taken as they are (no lower-casing, no stemming). All but ``msttr``,
``repetition`` and ``words`` depend on how much text there is: compare equal numbers of responses. A value that is
not defined because there is no such n-gram (or no response) is 0.0.

``diversity`` gives the lot.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, islice

Gram = tuple[str, ...]
BUDGET = 1500  # words of all responses together that `diversity` looks at: fewer than the shortest-spoken policy writes


def ngrams(words: list[str], n: int) -> list[Gram]:
    """The len(words) - n + 1 n-grams of a list, in order; none if it is shorter than n. Raises: ValueError, n < 1."""
    if n < 1:
        raise ValueError(f"metrics.ngrams: expected n >= 1, got {n}")
    return list(zip(*(islice(words, i, None) for i in range(n))))


def _counts(texts: list[str], n: int) -> Counter:
    return Counter(chain.from_iterable(ngrams(text.split(), n) for text in texts))


def distinct(texts: list[str], n: int = 2) -> float:
    """Distinct-n (Li et al. 2016) = |{g}| / N, in (0, 1].

    Limiting cases: 1 if no n-gram occurs twice; 1 / N if all are the same.
    """
    counts = _counts(texts, n)
    return len(counts) / counts.total() if counts else 0.0


def entropy(texts: list[str], n: int = 2) -> float:
    """Entropy-n = - sum over g of p(g) log2 p(g), p = c(g) / N, in bits, of the pooled n-grams (as GEM's metrics).

    Limiting cases: 0 if all n-grams are the same; log2 N if no n-gram occurs twice.
    """
    counts = _counts(texts, n)
    total = counts.total()
    return abs(-sum(c / total * math.log2(c / total) for c in sorted(counts.values()))) if counts else 0.0


def unique(texts: list[str], n: int = 2) -> int:
    """Unique-n = |{g: c(g) = 1}|, a count: n-grams that occur once in all responses together (as GEM's metrics).

    Limiting cases: N if no n-gram occurs twice; 0 if each occurs twice.
    """
    return sum(c == 1 for c in _counts(texts, n).values())


def msttr(texts: list[str], window: int = 100) -> float:
    """Mean segmental type-token ratio (Johnson 1944): mean over segments of |types| / window, in (0, 1].

    The responses' words are joined in order and cut into segments of ``window`` words; the last, shorter one is left
    out. Where there is not one whole segment, the type-token ratio of what there is (GEM's metrics: not a number).
    Limiting cases: 1 if no segment repeats a word; 1 / window if there is one word only.
    Raises: ValueError for window < 1.
    """
    if window < 1:
        raise ValueError(f"metrics.msttr: expected window >= 1, got {window}")
    words = [word for text in texts for word in text.split()]
    if len(words) < window:
        return len(set(words)) / len(words) if words else 0.0
    segments = [words[i : i + window] for i in range(0, len(words) - window + 1, window)]
    return sum(len(set(segment)) for segment in segments) / (window * len(segments))


def repetition(texts: list[str], n: int = 3) -> float:
    """Mean over responses of 1 - |{g in x}| / |g in x|: the share of x's n-grams that repeat an earlier one of x.

    A response with fewer than n words counts 0. Limiting cases: 0 if no response repeats itself; (m - 1) / m if each
    is one word m + n - 1 times.
    """
    rates = [1 - len(set(grams)) / len(grams) if (grams := ngrams(text.split(), n)) else 0.0 for text in texts]
    return sum(rates) / len(rates) if rates else 0.0


def shared(texts: list[str], n: int = 5, share: float = 0.01) -> float:
    """Share of responses that have an n-gram which more than ``share`` of the *other* responses have too.

    = mean over x of [max over g in x of (d(g) - 1) / (B - 1) > share], d(g) = number of responses with g, B = number of
    responses. The measure of "generic phrases regardless of the prompt".
    Limiting cases: 0 if no two responses share an n-gram, or B = 1; 1 if all are the same and have n words or more.
    """
    if len(texts) < 2:
        return 0.0
    grams = [set(ngrams(text.split(), n)) for text in texts]
    spread = Counter(chain.from_iterable(grams))
    others = len(texts) - 1
    return sum(any((spread[g] - 1) / others > share for g in own) for own in grams) / len(texts)


def lengths(texts: list[str]) -> list[int]:
    """Words of each response, [B]. Limiting case: an empty response has 0."""
    return [len(text.split()) for text in texts]


def words(texts: list[str]) -> float:
    """Mean number of words of a response. Limiting case: 0.0 without responses."""
    return sum(lengths(texts)) / len(texts) if texts else 0.0


def first_words(texts: list[str], budget: int) -> list[str]:
    """The texts cut where ``budget`` words are reached; all of them if they have fewer."""
    out, left = [], budget
    for text in texts:
        if left <= 0:
            break
        cut = text.split()[:left]
        left -= len(cut)
        out.append(" ".join(cut))
    return out


def diversity(texts: list[str], budget: int = BUDGET) -> dict[str, float]:
    """All of the above at their usual settings, as one row of a table.

    distinct, entropy and unique depend on how much text there is, and a policy can change that by its length: they are
    taken over the first ``budget`` words of all texts together (over all words, if there are fewer).
    """
    everything, texts = texts, first_words(texts, budget)
    return {
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
        "msttr": msttr(everything),
        "entropy_1": entropy(texts, 1),
        "entropy_2": entropy(texts, 2),
        "unique_1": unique(texts, 1),
        "unique_2": unique(texts, 2),
        "repetition": repetition(everything),
        "shared_5gram": shared(everything),
        "words": words(everything),
    }
