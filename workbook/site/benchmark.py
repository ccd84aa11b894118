"""What the benchmark said of a claim, on the claim's page: its word and its tests, from reports/grue/claims.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbook.results.tables import markdown, number, signed
from workbook.site import effects
from workbook.statistics.rule import FOR

NAME = "grue"
ABOUT = "the benchmark's tasks, generated rows"  # of a column or row beside profiles
TABLE, PAGES = "reports/grue/claims.csv", ("reports/grue/leaderboard", "reports/grue/claims")
READ = (
    "Each seed is a draw of rows and a raw model of its own; every deciding test is needed. Differences are of scores "
    "that run from 0 to 1, with 95 % intervals over seeds; the contrasts were fixed before the runs. "
    "[All claims on the benchmark](/reports/grue/claims.md), [the leaderboard](/reports/grue/leaderboard.md), "
    "[what it is](/docs/findings/grue.md). Again: `make grue`."
)


def read(root: Path) -> dict[str, pd.DataFrame]:
    """Claim -> its tests, a row each, of those that have a word or lack it though something that decides was run; empty
    where the benchmark was not run."""
    if not (root / TABLE).is_file():
        return {}
    table = pd.read_csv(root / TABLE)
    decides = table[(table.role == "decides") & table.n.notna() & (table.n > 0)]
    return {claim: tests for claim, tests in table[table.id.isin(decides.id)].groupby("id")}


def word(told: Mapping[str, pd.DataFrame], claim: str) -> str:
    """The claim's word, or a dash."""
    return effects.verdict(told[claim].word.iloc[0]) if claim in told else "–"


def seeds(told: Mapping[str, pd.DataFrame], claim: str) -> int:
    return int(told[claim].n.max())


def section(tests: pd.DataFrame) -> str:
    """A table of the claim's tests, those that decide first, and how to read it."""
    lines = [
        {
            "test": test["name"] + ("" if test["role"] == "decides" else " (beside)"),
            "claimed": test["direction"] + (f", {test['stated']:g}" if test["stated"] else ""),
            "difference": signed(test["difference"], test["low"], test["high"]),
            "p": number(test["p"]),
            "word": effects.verdict(test["test_word"]),
        }
        for test in tests.sort_values("role", key=lambda role: role != "decides", kind="stable").to_dict("records")
        if test["n"]
    ]
    said = [tests.said.iloc[0]] if isinstance(tests.said.iloc[0], str) else []
    if tests.word.iloc[0] in FOR:
        said.insert(0, f"q = {number(tests.q.iloc[0])}, over the claims that the benchmark tested.")
    return "\n\n".join([markdown(pd.DataFrame(lines)), *said, READ])
