"""The forest on a page: published effects beside those of the registered design, a row each, the headlines open and the
rest folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workbook.results.tables import markdown
from workbook.site import effects
from workbook.site.committed import DESIGN, Committed, deciding

Row = tuple[str, Mapping[str, Any]]  # claim, test
HEADLINES = {  # claim: the test that stands for it
    "P01": "ppo score",
    "P03": "ppo distinct bigrams",
    "P04": "equal beta and decoding",
    "P07": "score",
    "P10": "ppo score",
    "P20": "ppo human perplexity",
    "P22": "ppo score",
    "P40": "ppo from the better start",
}


def split(found: Committed) -> tuple[list[Row], list[Row]]:
    """(the headlines, all others): deciding tests with a published effect. Raises: ValueError for a headline that is
    none."""
    rows = [
        (claim, test)
        for claim, row in found.ledgers[DESIGN].items()
        for test in deciding(row)
        if test["unit"] == effects.YARDSTICKS and test["published"] is not None and test["effect"] is not None
    ]
    first = [(claim, test) for claim, test in rows if HEADLINES.get(claim) == test["name"]]
    if lost := HEADLINES.keys() - {claim for claim, _ in first}:
        raise ValueError(f"headlines of the forest: no published effect beside one of {DESIGN} in {', '.join(lost)}")
    return first, [row for row in rows if row not in first]


def table(found: Committed, rows: Sequence[Row], far: float) -> str:
    """A row per test, its claim in words; far: of the axis, in yardsticks, the same for tables that are compared."""
    return markdown(
        pd.DataFrame(
            {
                "claim": f"[{claim}](/claims/{claim}/index.md) {' '.join(found.claims[claim]['claim'].split())}",
                "word of this test": effects.verdict(test["word"]),
                "test": test["name"],
                "published": effects.raw_published(test),
                "here": effects.raw(test),
                "unit": effects.unit(test),
                "published ◇, here ●": effects.row(test, far),
            }
            for claim, test in rows
        )
    )
