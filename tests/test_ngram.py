"""The 5-gram yardstick: hand-worked numbers, an independent count-everything version, sums to one, size."""

import math
import random
import time
from collections import Counter, defaultdict

import numpy as np
import pytest

from workbook.texts.ngram import KneserNey, _discounts

END = 0


def plain_kneser_ney(documents, vocabulary, order):
    """The same model from its definition, with dictionaries and loops: p(token | context) as a function."""
    counts = [Counter() for _ in range(order + 1)]
    for document in documents:
        row = [END] * (order - 1) + list(document) + [END]
        for t in range(order - 1, len(row)):
            for n in range(1, order + 1):
                counts[n][tuple(row[t - n + 1 : t + 1])] += 1
    used = [None, *[Counter() for _ in range(order)]]
    for n in range(1, order + 1):
        left = defaultdict(set)
        if n < order:
            for gram in counts[n + 1]:
                left[gram[1:]].add(gram[0])
        for gram, count in counts[n].items():
            keeps = n == order or (n > 1 and gram[0] == END)
            used[n][gram] = count if keeps else len(left[gram])
    discount = [None] + [_discounts(np.array(list(used[n].values()))) for n in range(1, order + 1)]

    def probability(token, context):
        p = 1 / vocabulary
        for n in range(1, order + 1):
            before = tuple(context[len(context) - n + 1 :])
            row = {g[-1]: c for g, c in used[n].items() if g[:-1] == before}
            if not row:
                continue
            taken = {w: discount[n][min(c, 3)] for w, c in row.items()}
            p = (max(row.get(token, 0) - taken.get(token, 0), 0) + sum(taken.values()) * p) / sum(row.values())
        return p

    return probability


def random_documents(seed, number, vocabulary):
    rng = random.Random(seed)
    weights = [1 / k for k in range(1, vocabulary)]
    return [rng.choices(range(1, vocabulary), weights, k=rng.randint(0, 9)) for _ in range(number)]


def test_bigram_by_hand():
    # documents "1 2" and "1": bigrams (0,1) x2, (1,2), (2,0), (1,0); all discounts .75 (too few counts to estimate)
    model = KneserNey([[1, 2], [1]], vocabulary=3, end=END, order=2)
    # continuation counts: 0 follows {2, 1} -> 2, 1 follows {0} -> 1, 2 follows {1} -> 1; total 4, freed 3 * .75
    unigram = [(2 - 0.75) / 4 + 2.25 / 4 / 3, (1 - 0.75) / 4 + 2.25 / 4 / 3, (1 - 0.75) / 4 + 2.25 / 4 / 3]
    after_one = [(1 - 0.75) / 2 + 0.75 * unigram[0], 0.75 * unigram[1], (1 - 0.75) / 2 + 0.75 * unigram[2]]
    assert model.distribution([1]) == pytest.approx(after_one)
    first = [(0.75 / 2) * unigram[0], (2 - 0.75) / 2 + (0.75 / 2) * unigram[1], (0.75 / 2) * unigram[2]]
    assert model.distribution([]) == pytest.approx(first)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_equals_the_definition(order):
    documents, vocabulary = random_documents(order, 60, 7), 7
    model, plain = KneserNey(documents, vocabulary, END, order), plain_kneser_ney(documents, vocabulary, order)
    for document in random_documents(99, 12, vocabulary):
        row = [END] * max(order - 1, 1) + document + [END]
        start = max(order - 1, 1)
        expected = [plain(row[t], row[t - order + 1 : t] if order > 1 else []) for t in range(start, len(row))]
        assert model.token_probabilities([document])[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sums_to_one_in_seen_and_unseen_contexts(seed):
    vocabulary = 6
    model = KneserNey(random_documents(seed, 300, vocabulary - 1), vocabulary, END, order=5)  # id 5 never occurs
    for context in ([], [1], [1, 2, 1], [4, 4, 4, 4, 4, 4], [5], [5, 5, 1], [1, 2, 3, 4, 5]):
        row = model.distribution(context)
        assert row.sum() == pytest.approx(1, abs=1e-12)
        assert (row > 0).all()


def test_estimated_discounts():
    counts = np.repeat([1, 2, 3, 4], [40, 16, 8, 5])
    y = 40 / (40 + 32)
    assert _discounts(counts) == pytest.approx([0, 1 - 2 * y * 16 / 40, 2 - 3 * y * 8 / 16, 3 - 4 * y * 5 / 8])


def test_bits_per_byte_counts_the_end_but_gives_it_no_bytes():
    documents = random_documents(3, 50, 5)
    model = KneserNey(documents, 5, END)
    held_out = [[1, 2, 1], [3]]
    bits = -sum(math.log2(p) for row in model.token_probabilities(held_out) for p in row)
    assert sum(len(row) for row in model.token_probabilities(held_out)) == 6
    assert model.bits_per_byte(held_out, ["aé a", "b"]) == pytest.approx(bits / 6)


def test_longer_context_helps_where_there_is_structure():
    documents = [[1, 2, 3, 4] * 5, [2, 1, 4, 3] * 5] * 20
    bits = [KneserNey(documents, 5, END, n).bits_per_byte(documents[:2], ["a" * 20] * 2) for n in (1, 2, 3)]
    assert bits[0] > bits[1] > bits[2]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="no documents"):
        KneserNey([], 5, END)
    with pytest.raises(ValueError, match=r"\[0, 5\)"):
        KneserNey([[7]], 5, END)
    with pytest.raises(ValueError, match="inside a document"):
        KneserNey([[1, END, 2]], 5, END)


def test_a_quarter_million_tokens_in_seconds():
    tokens = np.random.default_rng(0).zipf(1.3, 250_000) % 1999 + 1
    begun = time.process_time()
    KneserNey(np.split(tokens, 1000), 2000, END)
    assert time.process_time() - begun < 5
