"""The ledger's words as reports tell them: of learners by name, and of claims that only need to be listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from workbook.ledger.listed import UNLISTED
from workbook.ledger.ruling import ELSEWHERE
from workbook.runs.algorithms import label
from workbook.runs.algorithms import names as algorithms


def only_unlisted(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether there are claims without a word among these rows of the ledger, and all of them are not listed."""
    without = [row for row in rows if row["word"] == ELSEWHERE]
    return bool(without) and all(UNLISTED in row["lacks"] for row in without)


def in_words(tested: pd.DataFrame) -> pd.DataFrame:
    """The table of tests with learners called as elsewhere, and a claim that only needs to be listed said to be so."""
    known = "|".join(algorithms())

    def said(test: str) -> str:
        whole = "not on this profile's list" if test == UNLISTED else test.replace(UNLISTED, "a place on its list")
        return re.sub(rf"^({known})(?![\w-])", lambda found: label(found[0]), whole)

    return tested.assign(test=tested.test.map(said)) if len(tested) else tested
