"""PARENT (Dhingra et al. 2019, arXiv:1906.01081), as ToTTo's evaluation computes it, in this process."""

from __future__ import annotations

import functools
import math
from collections import Counter

from rlnlp import metrics
from workbook.scores import family, tokens

SMALL = 1e-5  # stands for a precision or recall of 0 in a geometric mean
Words = list[str]


def longest_common(a: Words, b: Words) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0  # the cell up and to the left
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if word == other else max(row[j], row[j - 1])
    return row[-1]


def mentioned(cells: list[Words], text: Words) -> float:
    """Mean over cells of the share of a cell that the text says in order."""
    return sum(longest_common(cell, text) / len(cell) for cell in cells) / len(cells)


def parent(text: Words, references: list[Words], cells: list[Words], table: list[Words]) -> tuple[float, float, float]:
    """(precision, recall, F) in [0, 1], of the reference with the highest F.

    For n = 1..4, w(g) = share of g's words that are in ``table``, r(g) = min(1, count in the other text / count here):
    P_n = mean over the text's n-grams of r + (1 - r) w; R_n = mean over the reference's of r, weighted by w; geometric
    means P and E of them. Recall = E^(1 - l) M^l, M = ``mentioned(cells, text)``, l = 1 - ``mentioned(cells,
    reference)``. Without n-grams of an order, P_n counts as ``SMALL`` and R_n as 1: a text of fewer than four words has a
    low precision whatever it says. Raises: ZeroDivisionError without a cell.
    """
    known = {word for cell in table for word in cell}
    counts = [Counter(metrics.ngrams(text, n)) for n in (1, 2, 3, 4)]
    said = mentioned(cells, text) or SMALL
    return max(
        (_against(counts, reference, known, said, cells) for reference in references), key=lambda found: found[2]
    )


def _against(counts: list[Counter], reference: Words, known: set[str], said: float, cells: list[Words]):
    precisions, recalls = [], []
    for n, ours in enumerate(counts, 1):
        theirs = Counter(metrics.ngrams(reference, n))
        weight = {g: sum(word in known for word in g) / n for g in ours.keys() | theirs.keys()}
        found = sum(min(c, theirs[g]) + (c - min(c, theirs[g])) * weight[g] for g, c in ours.items())
        there = sum(c * weight[g] for g, c in theirs.items())
        precisions.append(found / ours.total() if ours else 0.0)
        recalls.append(sum(min(c, ours[g]) * weight[g] for g, c in theirs.items()) / there if there else 1.0)
    precision = _geometric(precisions)
    share = 1 - mentioned(cells, reference)
    recall = math.exp((1 - share) * math.log(_geometric(recalls) or SMALL) + share * math.log(said))
    return precision, recall, 2 * precision * recall / (precision + recall + 1e-8)


def _geometric(values: list[float]) -> float:
    """0 if the first one, of single words, is; a later 0 counts as ``SMALL``."""
    return math.exp(sum(math.log(value or SMALL) for value in values) / len(values)) if values[0] else 0.0


def _values(cells: list) -> tuple[str, ...]:
    """The values of (value, header) pairs, without those that are empty."""
    return tuple(value for value, _ in cells if value.strip())


@functools.lru_cache(2**13)
def _scored(text: str, references: tuple[str, ...], cells: tuple[str, ...], table: tuple[str, ...]):
    """``parent`` of texts, lower-cased and cut by 13a; remembered, because three scores are read off it."""
    text, *references = (tokens.split_13a(each.lower()) for each in (text, *references))
    cells, table = ([tokens.split_13a(value.lower()) for value in values] for values in (cells, table))
    return parent(text, references, cells, table)


def found(predictions: list[str], references: list[list[str]], cells: list, table: list | None = None) -> list[tuple]:
    """[B] of (precision, recall, F). cells: what the response is to say, (value, header) pairs, titles among them;
    table: all that it may say; None: the cells. A "|" in a value is a character as any other. "<null>" is no
    reference: an example has as many as there are."""
    asked = [_values(row) for row in cells]
    empty = [f"row {row}" for row, values in enumerate(asked) if not values]
    if empty:
        raise family.ScoreError(f"score parent: no cell with a value in {', '.join(empty[:8])}; nothing to recall")
    allowed = asked if table is None else [_values(row) for row in table]
    rows = zip(predictions, references, asked, allowed)
    return [_scored(text, tuple(row), need, may) for text, row, need, may in rows]


def _part(place: int):
    return lambda *args, **columns: [100 * values[place] for values in found(*args, **columns)]


OPTIONS = {"unit": "points", "range": (0.0, 100.0), "scale": 100.0, "optional": ("table",)}
READS = ("references", "cells")
SCORES = (
    family.Score("parent", "PARENT", _part(2), columns=READS, **OPTIONS),
    family.Score("parent_precision", "PARENT precision", _part(0), columns=READS, **OPTIONS),
    family.Score("parent_recall", "PARENT recall", _part(1), columns=READS, **OPTIONS),
)


class Parent(family.Family):
    """PARENT F, precision and recall in points, averaged; columns cells and, where there is one, table: B lists of
    (value, header) pairs."""

    scores = SCORES
