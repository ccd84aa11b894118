"""What a test takes from what, by the names of the runs: its own name is a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbook.figures.names import decoded, digits

MOST = 4  # runs that a reader can follow in a line; those of larger sums stand in the page's table of runs


def bracketed(name: str) -> str:
    """A name as a part of a sum: in brackets where it has a comma, or is itself written as a sum."""
    return f"({name})" if "," in name or " + " in name else name


def written(parts: Iterable[tuple[float, str]]) -> str:
    """ "NLPO − 0.5 PPO": of (weight, name), in this order."""
    said = []
    for weight, name in parts:
        size = "" if abs(weight) == 1 else f"{digits(round(abs(weight), 3))} "
        said.append(f"{'−' if weight < 0 else '+'} {size}{name}")
    return " ".join(said).removeprefix("+ ")


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
        parts.append((weight, bracketed(name)))
    return written(parts)
