"""Diversity metrics against values worked out by hand."""

import math

import pytest

from rlnlp import metrics

TEXTS = ["a b a b", "a b c"]  # words a3 b3 c1; bigrams ab3 ba1 bc1


def test_ngrams():
    assert metrics.ngrams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert metrics.ngrams(["a"], 2) == []
    with pytest.raises(ValueError, match="n >= 1"):
        metrics.ngrams(["a"], 0)


def test_distinct():
    assert metrics.distinct(TEXTS, 1) == 3 / 7
    assert metrics.distinct(TEXTS, 2) == 3 / 5  # no bigram across the two responses
    assert metrics.distinct(["x x x"], 1) == 1 / 3
    assert metrics.distinct(["x"], 2) == metrics.distinct([], 1) == 0.0


def test_entropy_in_bits():
    assert metrics.entropy(["a b c d"], 1) == pytest.approx(2.0)
    assert metrics.entropy(["a a a"], 1) == 0.0
    expected = -(3 / 5 * math.log2(3 / 5) + 2 / 5 * math.log2(1 / 5))  # 1.37095
    assert metrics.entropy(TEXTS, 2) == pytest.approx(expected) == pytest.approx(1.370951, abs=1e-6)
    assert metrics.entropy([], 2) == 0.0


def test_unique_counts_what_occurs_once():
    assert metrics.unique(TEXTS, 1) == 1
    assert metrics.unique(TEXTS, 2) == 2
    assert metrics.unique(["a a"], 1) == 0


def test_msttr():
    assert metrics.msttr(["a b a", "c c c", "d"], window=3) == (2 / 3 + 1 / 3) / 2  # 'd' is left out
    assert metrics.msttr(["a b", "a c"], window=4) == 3 / 4  # segments run across responses
    assert metrics.msttr(["a b a"]) == 2 / 3  # less than a segment: plain ratio
    assert metrics.msttr([]) == 0.0
    assert metrics.msttr(["x " * 250]) == 0.01
    with pytest.raises(ValueError, match="window >= 1"):
        metrics.msttr(["a"], 0)


def test_repetition():
    assert metrics.repetition(["a b c a b c"]) == 1 / 4  # abc bca cab abc
    assert metrics.repetition(["a b c", "a b c"]) == 0.0  # within a response, not across
    assert metrics.repetition(["x x x x x x", "a b"]) == (3 / 4 + 0) / 2
    assert metrics.repetition([]) == 0.0


def test_shared_5grams():
    same, own = "a b c d e", "{} f g h i"
    texts = [same, same + " z"] + [own.format(f"w{i}") for i in range(98)]
    assert metrics.shared(texts) == 0.02  # 1 of 99 others is 1.01 %: more than 1 %
    texts = [same, same + " z"] + [own.format(f"w{i}") for i in range(99)]
    assert metrics.shared(texts) == 0.0  # 1 of 100 is not more than 1 %
    assert metrics.shared([same] * 3) == 1.0
    assert metrics.shared(["a b c d"] * 3) == 0.0  # no 5-gram
    assert metrics.shared([same]) == metrics.shared([]) == 0.0


def test_lengths_and_row():
    assert metrics.lengths(["a b", ""]) == [2, 0]
    assert metrics.words(["a b", ""]) == 1.0
    row = metrics.diversity(TEXTS)
    assert row["distinct_2"] == 3 / 5 and row["unique_2"] == 2 and row["words"] == 3.5
    assert all(math.isfinite(value) for value in metrics.diversity([""]).values())


def test_what_does_not_depend_on_length_is_of_all_texts():
    """A budget of the first text's six words: beyond it are two copies of it, and ten a's."""
    row = metrics.diversity(["a b c d e f"] * 3 + ["a " * 10], budget=6)
    assert row["distinct_1"] == row["distinct_2"] == 1.0 and row["unique_1"] == 6 and row["unique_2"] == 5
    assert row["entropy_1"] == pytest.approx(math.log2(6)) and row["entropy_2"] == pytest.approx(math.log2(5))
    assert row["msttr"] == 6 / 28 and row["words"] == 7.0
    assert row["repetition"] == (7 / 8) / 4 and row["shared_5gram"] == 3 / 4
