"""The benchmark on several machines and in two editions: what is counted, on planted tables, and the committed page."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from workbook.grue import again, settings
from workbook.ledger.ruling import ELSEWHERE
from workbook.results.tables import join

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


def page(**runs: pd.DataFrame) -> str:
    """Of runs that say what the first does, but for these."""
    return again.page({name: runs.get(name, table()) for name in again.RUNS})


def compared(second: pd.DataFrame, today: pd.DataFrame) -> list[str]:
    """What the page says below its first two headings; the two runs before said what ``today`` says."""
    *said, third, fourth = page(second=second, third=today, fourth=today, today=today).split("\n## ")[1:]
    assert all("\n\nOf " in same and " 0 have another one and 0 a difference" in same for same in (third, fourth))
    return said


def test_equal_runs_have_equal_words():
    for said in compared(table(), table()):
        assert "Of 2 claims with a word 0 have another one, none from *holds* to" in said
        assert (
            "Of 3 tests that have a word in both 0 have another one and 0 a difference of another sign; 0 diff" in said
        )
        assert "| claim |" not in said


def test_what_differs_is_counted_and_named():
    other = [
        ("P01", "too small", "a", 0.2, 0.1, 0.3, "holds"),  # beyond the first's interval, the same word
        ("P01", "too small", "b", 0.01, -0.1, 0.12, "too small"),  # another sign and word, and beyond
        ("P02", "open", "c", 0.02, -0.1, 0.14, "open"),
        ("P03", "not testable here", None, None, None, None, None),
    ]
    said, equal = compared(table(*other), table())
    assert "Of 2 claims with a word 1 have another one (P01), P01 from *holds* to *too small* or *opposite* or" in said
    assert "Of 3 tests that have a word in both 1 have another one and 1 a difference of another sign; 2 diff" in said
    assert "| P01 | b | −0.100 [−0.200, 0.000] open | +0.010 [−0.100, 0.120] too small |" in said
    assert "| claim |" not in equal
    assert compared(table(), table(*other))[1].partition("\n")[2] == said.partition("\n")[2].replace("second", "today")


def test_a_word_that_only_became_open_is_not_turned():
    other = [("P01", "open", "a", 0.05, -0.05, 0.15, "open"), *FIRST[1:]]
    assert "(P01), none from *holds*" in compared(table(*other), table())[0]


def test_claims_and_tests_that_only_one_edition_has_a_word_for_are_shown_and_not_counted():
    today = [FIRST[2], ("P03", "holds", "d", 0.1, 0.05, 0.15, "holds")]
    said = compared(table(), table(*today))[1]
    assert "Of 1 claims with a word 0 have" in said and "Of 1 tests that have a word in both 0 have" in said
    none = "not testable here | " * 4
    assert f"| P03 | {none}holds |" in page(today=table(*today))
    unstarted = [FIRST[0], (*FIRST[1][:6], "no supervised start"), *FIRST[2:]]
    assert "Of 2 tests that have a word in both 0 have" in compared(table(*unstarted), table())[0]


def test_the_committed_page_is_that_of_the_committed_tables(tmp_path):
    for name in again.RUNS.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    made = again.write(tmp_path).read_text()
    assert made == (ROOT / "reports/grue_again/again.md").read_text()
    told = (ROOT / "docs/findings/grue.md").read_text()
    for section in made.split("\n## ")[1:]:
        claims, moved = re.search(r"Of (\d+) claims with a word (\d+) have", section).groups()
        tests, others = re.search(r"Of (\d+) tests that have a word in both (\d+) have", section).groups()
        assert re.search(rf"{moved} (words )?of {claims} and {others} (tests )?of {tests}", told), section


def test_the_words_that_every_run_agrees_on_are_those_that_the_page_of_findings_names():
    words: dict[str, set[str]] = {}
    for table in again.RUNS.values():
        for claim, word in pd.read_csv(ROOT / table).groupby("id").word.first().items():
            words.setdefault(claim, set()).add(word)
    same = [claim for claim, said in words.items() if len(said - {ELSEWHERE}) == 1]
    told = " ".join((ROOT / "docs/findings/grue.md").read_text().split())
    assert f"The words of {join(sorted(same))} were the same in every run that tested them" in told


def test_the_machines_of_todays_edition_are_compared_one_after_the_other():
    other = [("P01", "too small", "a", 0.2, 0.15, 0.3, "too small"), *FIRST[1:]]
    *_, third, fourth = page(third=table(*other), fourth=table(*other)).split("\n## ")
    assert third.startswith("Today's edition on another machine") and "| claim | test |" not in third
    assert fourth.startswith("Today's edition on a third machine")
    assert "Of 2 claims with a word 1 have another one (P01), P01 from *holds*" in fourth
    assert "| claim | test | fourth | today |" in fourth
    assert "| P01 | a | +0.200 [0.150, 0.300] too small | +0.100 [0.050, 0.150] holds |" in fourth
    assert "1 differences lie outside the 95 % interval of *fourth*." in fourth


def test_what_the_page_says_of_todays_edition_is_so():
    ours = settings.load(ROOT / "grue" / "params.yaml")
    said = " ".join(again.HEAD.split())
    assert f"seeds are others ({ours.seeds[0]} to {ours.seeds[-1]})" in said
    imitated = [f"{ours.rows_of(name).supervised:,}" for name in ("wmt16", "cnn_dailymail")]
    assert f"{imitated[0]} references of translations and {imitated[1]} of summaries" in said
    assert f"a run {ours.learner['updates']} updates" in said
