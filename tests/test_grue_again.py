"""The benchmark on two machines and in two editions: what is counted, on planted tables, and the committed page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbook.grue import again

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("id", "word", "name", "difference", "low", "high", "test_word")
FIRST = [
    ("P01", "holds", "a", 0.1, 0.05, 0.15, "holds"),
    ("P01", "holds", "b", -0.1, -0.2, 0.0, "open"),
    ("P02", "open", "c", 0.01, -0.1, 0.12, "open"),
    ("P03", "not testable here", None, None, None, None, None),
]


def table(*rows: tuple) -> pd.DataFrame:
    return pd.DataFrame(rows or FIRST, columns=COLUMNS)


def test_equal_runs_have_equal_words():
    said = again.page(table(), table(), table())
    assert said.count("of 2 claims with a word 0 have another one, none from for") == 2
    assert (
        "Of 3 tests 0 have another word and 0 a difference of another sign; 0 second" in said and "## Tests" not in said
    )


def test_what_differs_is_counted_and_named():
    other = [
        ("P01", "too small", "a", 0.2, 0.1, 0.3, "holds"),  # beyond the first's interval, the same word
        ("P01", "too small", "b", 0.01, -0.1, 0.12, "too small"),  # another sign and word, and beyond
        ("P02", "open", "c", 0.02, -0.1, 0.14, "open"),
        ("P03", "not testable here", None, None, None, None, None),
    ]
    said = again.page(table(), table(*other), table())
    assert "machines, of 2 claims with a word 1 have another one (P01), from for to against or back: P01." in said
    assert "Of 3 tests 1 have another word and 1 a difference of another sign; 2 second differences lie outside" in said
    assert "| P01 | b | −0.100 [−0.200, 0.000] open | +0.010 [−0.100, 0.120] too small |" in said


def test_a_word_that_only_became_open_is_not_turned():
    other = [("P01", "open", "a", 0.05, -0.05, 0.15, "open"), *FIRST[1:]]
    assert "(P01), none from for to against" in again.page(table(), table(*other), table())


def test_claims_that_only_one_edition_has_a_word_for_are_shown_and_not_counted():
    today = [FIRST[2], *(("P03", "holds", "d", 0.1, 0.05, 0.15, "holds") for _ in range(2))]
    said = again.page(table(), table(), table(*today))
    assert "today's, of 1 claims with a word 0 have" in said and "machines, of 2 claims" in said
    assert "| P03 | not testable here | not testable here | holds |" in said


def test_the_committed_page_is_that_of_the_committed_tables(tmp_path):
    for name in (again.FIRST, again.SECOND, again.TODAY):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    made = again.write(tmp_path).read_text()
    assert made == (ROOT / "reports/grue_again/again.md").read_text()
    told = (ROOT / "docs/findings/grue.md").read_text()
    assert "five of ten (P09, P14, P15, P32, P36)" in told
    assert "of 10 claims with a word 5 have another one (P09, P14, P15, P32 and P36), none from for" in made
    assert "three words of ten are others" in told and "of 10 claims with a word 3 have another one" in made
    assert (
        "13 of 99 tests have another word, 6 a difference" in told and "Of 99 tests 13 have another word and 6" in made
    )
