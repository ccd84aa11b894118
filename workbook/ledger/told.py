"""The ledger's words as reports tell them: of learners by name, and of claims that only need to be listed."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from workbook.ledger.ruling import ELSEWHERE
from workbook.runs.algorithms import label
from workbook.runs.algorithms import names as algorithms

UNLISTED = "its id in `claims`"  # in the ledger's words, what a claim lacks that the profile could judge
FEW, LEFT = (
    "This profile has too few runs or seeds for a word; ",
    "This profile does not judge the claims behind it; ",
)


def unlisted(said: str, rows: list[dict[str, Any]]) -> str:
    """An answer that gives few runs or seeds as the reason why there is no word, with the reason that there is where
    the profile only does not list the claims."""
    lacks = {what for r in rows if r["word"] == ELSEWHERE for what in r["lacks"]}
    return said.replace(FEW, LEFT) if lacks == {UNLISTED} else said


def in_words(tested: pd.DataFrame) -> pd.DataFrame:
    """The table of tests with learners called as elsewhere, and a claim that only needs to be listed said to be so."""
    known = "|".join(algorithms())

    def said(test: str) -> str:
        whole = "not on this profile's list" if test == UNLISTED else test
        return re.sub(rf"^({known})(?![\w-])", lambda found: label(found[0]), whole)

    return tested.assign(test=tested.test.map(said)) if len(tested) else tested
