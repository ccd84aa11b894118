"""PARENT: one example worked out by hand, the official script's values on real rows, hostile tables."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from workbook.grue import scores as front
from workbook.scores.family import ScoreError
from workbook.scores.parent import parent

NAMES = ("parent_precision", "parent_recall", "parent")


def test_a_small_example_worked_out_by_hand():
    """text "ann ran", reference "ann ran home", cells "ann", "home run"; the table has "ran" too.

    P_1 = P_2 = 1 (both n-grams are in the reference), P_3, P_4: no n-gram, 1e-5. R_1: weights ann 1, ran 1, home 1:
    2/3; R_2: "ann ran" weight 1, "ran home" weight 1: 1/2; R_3: 1e-5 for 0; R_4: no n-gram, 1. The reference mentions
    1 and 1/2 of the cells: l = 1/4. The text mentions 1 and 0: M = 1/2.
    """
    cells, table = [["ann"], ["home", "run"]], [["ann"], ["home", "run"], ["ran"]]
    precision, recall, f = parent.parent(["ann", "ran"], [["ann", "ran", "home"]], cells, table)
    expected = (1e-5**2) ** 0.25
    reference = (2 / 3 * 1 / 2 * 1e-5) ** 0.25
    assert precision == pytest.approx(expected)
    assert recall == pytest.approx(reference**0.75 * 0.5**0.25)
    assert f == pytest.approx(2 * precision * recall / (precision + recall), rel=1e-4)
    given = {"cells": [[("Ann", "name"), ("home run", "what"), ("", "x")]]}
    given["table"] = [given["cells"][0] + [("ran", "verb")]]
    assert [front.score(name).each(["ann RAN"], [["Ann ran home"]], **given)[0] for name in NAMES] == pytest.approx(
        [100 * precision, 100 * recall, 100 * f]
    )


def test_what_the_table_says_is_as_good_as_what_the_reference_says():
    """The text's number is in the table only: its words count fully in precision."""
    cells = [[("ann", "name"), ("seven", "goals")]]
    said = front.score("parent_precision").each(["ann shot seven"], [["ann shot some"]], cells=cells)
    made_up = front.score("parent_precision").each(["ann shot eight"], [["ann shot some"]], cells=cells)
    assert said[0] > made_up[0]
    allowed = front.score("parent_precision").each(
        ["ann shot eight"], [["ann shot some"]], cells=cells, table=[cells[0] + [("eight", "goals")]]
    )
    assert allowed == pytest.approx(said)


def test_trap_15_parent_runs_here_and_knows_no_null_references(monkeypatch):
    """Trap 15: bash and a Python process for every episode; references padded with "<null>"."""
    import subprocess

    def refuse(*args, **options):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    cells = [[("ann", "name")]] * 2
    pay = front.reward({"parent": 1.0})
    given = [["ann ran home ."], ["ann ran home .", "x"]]
    total, _ = pay(["", ""], ["ann ran home .", ""], given, [{"cells": row} for row in cells])
    assert total[0] > 0.9 and total[1] == 0.0
    with pytest.raises(ScoreError, match="placeholder reference in row 0"):
        front.score("parent").each(["ann"], [["ann ran", "<null>"]], cells=cells[:1])


def test_hostile_tables():
    score, one = front.score("parent"), [["ann ran home"]]
    with pytest.raises(ScoreError, match="parent: no cells in e7"):
        score.each(["ann"], one, cells=[[]], id=["e7"])
    with pytest.raises(ScoreError, match="no cell with a value in row 0"):
        score.each(["ann"], one, cells=[[(" ", "name")]])
    for value in ("a | b", "\x00", "\t\u200b", "<null>", "x " * 500):
        assert 0.0 <= score.each(["ann | ran"], one, cells=[[(value, "name")]])[0] <= 100.0


def tables(row) -> tuple[list, list]:
    """(cells, table) of a row in the hub's columns, as the official script writes them: its titles among them."""
    titles = [(row.table_page_title, "page_title"), (row.table_section_title, "section_title")]
    titles = [(value.replace("|", "-"), header) for value, header in titles if value]
    whole = [(cell["value"].replace("|", "-"), "cell") for line in row.table for cell in line]
    asked = [(row.table[i][j]["value"].replace("|", "-"), "cell") for i, j in row.highlighted_cells]
    text = [(row.table_section_text, "text")] if row.table_section_text else []
    return asked + titles, whole + titles + text


def test_real_rows_have_the_official_scripts_values(real_mirror):
    """The five dev rows of the genuine sample: the third human sentence against the first two, then the highlighted
    cells and titles copied, then the next row's sentence. Values of google-research/language totto_parent_eval.py."""
    folder = real_mirror / "datasets" / "totto-genuine-sample"
    if not folder.is_dir():
        pytest.skip("the mirror has no datasets/totto-genuine-sample")
    rows = [row for row in pd.read_parquet(folder / "train.parquet").itertuples()][3:8]
    cells, table = map(list, zip(*map(tables, rows)))
    given = [list(row.sentence_annotations["final_sentence"]) for row in rows]
    references = [row[:2] for row in given]
    golden = {
        "third": (
            [row[2] for row in given],
            (92.5053, 77.4079, 83.9412),
            (98.4808, 87.7554, 90.6728, 62.4247, 80.3722),
        ),
        "copied": (
            [" ".join(value for value, _ in row) for row in cells],
            (100.0, 30.2971, 42.7303),
            (1.1115, 25.1306, 57.44, 65.2464, 64.723),
        ),
        "next": (
            [given[(i + 1) % 5][0] for i in range(5)],
            (20.9847, 0.6897, 1.2032),
            (0.0149, 1.0575, 0.0115, 4.6108, 0.3216),
        ),
    }
    for texts, corpus, each in golden.values():
        found = [front.score(name).corpus(texts, references, cells=cells, table=table) for name in NAMES]
        assert found == pytest.approx(corpus, abs=1e-4)
        assert front.score("parent").each(texts, references, cells=cells, table=table) == pytest.approx(each, abs=1e-4)


def test_the_longest_common_subsequence():
    assert parent.longest_common(list("abcbdab"), list("bdcaba")) == 4
    assert parent.longest_common([], ["a"]) == parent.longest_common(["a"], []) == 0
    assert math.isclose(parent.mentioned([["a", "b"], ["c"]], ["b", "a"]), 0.25)
