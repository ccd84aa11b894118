"""What a test of the ledger takes from what, by the names of the runs: its own name is a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbook.figures.names import decoded, digits

MOST = 4  # runs that a reader can follow in a line; those of larger sums stand in the page's table of runs


def of(test: Mapping[str, Any], called: Mapping[str, str]) -> str:
    """ "NLPO − PPO": a contrast of claims.yaml, each run by its name (called; where it is missing, its id), the first
    one's sign plus; "" for a test of another kind and for a sum of more than `MOST` runs."""
    terms = test.get("terms") or {}
    if not 0 < len(terms) <= MOST:
        return ""
    parts = []
    for term, weight in sorted(terms.items(), key=lambda each: each[1] < 0):
        condition, _, how = term.partition("@")
        name = decoded(called.get(condition, f"`{condition}`"), how or test.get("decoding", "plain"))
        size = "" if abs(weight) == 1 else f"{digits(round(abs(weight), 3))} "
        parts.append(f"{'−' if weight < 0 else '+'} {size}{f'({name})' if ', ' in name else name}")
    return " ".join(parts).removeprefix("+ ")
