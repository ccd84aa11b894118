"""A count-based language model: the yardstick that a trained model must beat on the same text.

Interpolated modified Kneser-Ney (Chen and Goodman 1999, "An empirical study of smoothing techniques for language
modeling", section 4.2), on token ids, with numpy sorting in place of hash tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class KneserNey:
    """p(w|h) = max(c(h,w) - D, 0) / c(h) + gamma(h) p(w|h without its oldest token), down to the uniform 1/V.

    The longest n-grams use counts; shorter ones use continuation counts (how many different tokens precede the
    n-gram), except n-grams that begin with the padding in front of a document, which keep their counts. D has three
    values per order (count 1, 2, 3 and more), estimated from the counts of counts.

    documents: lists of token ids in [0, vocabulary), without end tokens; end: the id that closes each document and,
    repeated, stands in front of it; order: n. A document of L tokens gives L + 1 predictions (its tokens, then end).
    Raises ValueError on ids outside the vocabulary, an end id inside a document, or no documents.
    Limits: an unseen context gives the next shorter context's probability; order 1 with no data left is uniform.
    """

    def __init__(self, documents: Sequence[Sequence[int]], vocabulary: int, end: int, order: int = 5):
        if not len(documents):
            raise ValueError("KneserNey: no documents")
        if order < 1:
            raise ValueError(f"KneserNey: order must be at least 1, got {order}")
        self.vocabulary, self.end, self.order = vocabulary, end, order
        stream, predicted = self._stream(documents)
        ids, tables, starts = stream.copy(), [], []
        for n in range(1, order + 1):  # ids[t] = number of the n-gram that ends at t, in the order of `keys`
            if n > 1:
                keys = np.full(len(stream), -1, dtype=np.int64)
                keys[1:] = np.where(ids[:-1] >= 0, ids[:-1] * vocabulary + stream[1:], -1)
                known, inverse = np.unique(keys, return_inverse=True)
                ids = inverse - 1 if known[0] < 0 else inverse  # -1: no n-gram can end here (start of the stream)
                tables.append(known[known >= 0])
            starts.append(ids)
        self._keys = tables  # for n = 2..order: sorted (number of the first n-1 tokens) * vocabulary + last token
        self._levels = []
        for n in range(1, order + 1):
            size = vocabulary if n == 1 else len(tables[n - 2])
            counts = np.bincount(starts[n - 1][predicted], minlength=size)
            if n < order:
                counts = self._continuations(counts, starts, predicted, n, stream)
            contexts = 1 if n == 1 else (vocabulary if n == 2 else len(tables[n - 3]))
            context = np.zeros(size, np.int64) if n == 1 else tables[n - 2] // vocabulary
            discounts = _discounts(counts)
            taken = discounts[np.minimum(counts, 3)]
            total = np.bincount(context, weights=counts, minlength=contexts)
            freed = np.bincount(context, weights=taken, minlength=contexts)
            seen = np.maximum(total, 1)
            self._levels.append(((counts - taken) / seen[context], np.where(total > 0, freed / seen, 1.0)))

    def _stream(self, documents) -> tuple[np.ndarray, np.ndarray]:
        """All documents in one row, each behind order-1 ends; and the positions that are predicted."""
        pad = [self.end] * max(self.order - 1, 1)
        rows = [np.asarray([*pad, *document, self.end], dtype=np.int64) for document in documents]
        stream = np.concatenate(rows)
        if stream.min() < 0 or stream.max() >= self.vocabulary:
            raise ValueError(f"KneserNey: token ids must be in [0, {self.vocabulary})")
        first = np.zeros(len(stream), dtype=bool)
        begin = np.concatenate([[0], np.cumsum([len(row) for row in rows])[:-1]])
        for offset in range(len(pad)):
            first[begin + offset] = True
        if (stream[~first] == self.end).sum() != len(documents):
            raise ValueError(f"KneserNey: the end id {self.end} occurs inside a document")
        return stream, np.flatnonzero(~first)

    def _continuations(self, counts, starts, predicted, n, stream) -> np.ndarray:
        longer = starts[n][predicted]
        _, where = np.unique(longer, return_index=True)
        found = np.bincount(starts[n - 1][predicted[where]], minlength=len(counts))
        if n == 1:
            return found
        padded = np.zeros(len(counts), dtype=bool)
        padded[starts[n - 1][predicted[stream[predicted - n + 1] == self.end]]] = True
        return np.where(padded, counts, found)

    def token_probabilities(self, documents: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """For each document of L ids, float64 [L + 1]: the probability of each token, then of the end."""
        stream, predicted = self._stream(documents)
        ids, probability = stream, np.full(len(stream), 1.0 / self.vocabulary)
        for n, (direct, back_off) in enumerate(self._levels, start=1):
            before = np.zeros(len(stream), np.int64) if n == 1 else np.concatenate([[-1], ids[:-1]])
            if n > 1:
                ids = self._find(n, before, stream)
            share = np.where(ids >= 0, direct[ids], 0.0)
            probability = share + np.where(before >= 0, back_off[before], 1.0) * probability
        lengths = [len(document) + 1 for document in documents]
        return np.split(probability[predicted], np.cumsum(lengths)[:-1])

    def _find(self, n: int, before: np.ndarray, last: np.ndarray) -> np.ndarray:
        keys, wanted = self._keys[n - 2], before * self.vocabulary + last
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((before >= 0) & (keys[place] == wanted), place, -1)

    def distribution(self, context: Sequence[int]) -> np.ndarray:
        """float64 [V], sums to 1: the next token after a document that began with ``context`` (ids without end)."""
        options = [token for token in range(self.vocabulary) if token != self.end]
        rows = self.token_probabilities([[*context, token] for token in options])
        out = np.zeros(self.vocabulary)
        out[options] = [row[len(context)] for row in rows]
        out[self.end] = self.token_probabilities([list(context)])[0][-1]
        return out

    def bits_per_byte(self, documents: Sequence[Sequence[int]], texts: Sequence[str]) -> float:
        """Bits of all tokens and of the end of each document, divided by the utf-8 bytes of the texts (end: none)."""
        bits = -sum(np.log2(row).sum() for row in self.token_probabilities(documents))
        return float(bits / sum(len(text.encode()) for text in texts))


def _discounts(counts: np.ndarray) -> np.ndarray:
    """float64 [4]: what is taken from n-grams with count 0, 1, 2, 3+; .75 (capped by the count) if not estimable."""
    n1, n2, n3, n4 = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    if min(n1, n2, n3) == 0:
        return np.array([0.0, 0.75, 0.75, 0.75])
    y = n1 / (n1 + 2 * n2)
    raw = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return np.clip(raw, [0, 0.05, 0.05, 0.05], [0, 1, 2, 3])
