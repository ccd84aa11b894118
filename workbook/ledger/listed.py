"""Which claims a profile may list, asked of its settings before any run, and what those that it may not list lack.

check(claims, params.claims, params.all_runs, params.profile)     # raises, naming each claim and what it lacks
told(rows, lacking(claims, params.all_runs))                      # a ledger's rows that would say "list it"

`judge.check_listed` asks for the runs; a spread takes repetitions of them besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbook.ledger.claim import FEWEST_REPETITIONS, Claim, ClaimError, repetitions
from workbook.ledger.judge import check_listed
from workbook.results.tables import join

UNLISTED = "its id in `claims`"  # in the ledger's words, what a claim lacks that the profile could judge


def check(claims: Mapping[str, Claim], listed: Sequence[str], runs: Mapping[str, Any], profile: str) -> None:
    """Raises ClaimError naming each listed claim that these runs cannot decide, and what it lacks."""
    few = [f"{n}: needs {join(gone)}" for n in listed if n in claims and (gone := unrepeated(claims[n], runs))]
    said = f"{profile}: claims lists what it cannot decide"
    try:
        check_listed(claims, listed, runs, profile)
    except ClaimError as error:
        said, few = str(error), few or [""]
    if few:
        raise ClaimError("\n  ".join([said, *filter(None, few)]))


def unrepeated(claim: Claim, runs: Mapping[str, Any]) -> list[str]:
    """What its deciding spreads lack of these runs (condition: entry) though they are there: repetitions."""
    named = dict.fromkeys(c for test in claim.deciding if test.kind == "spread" for c in test.conditions if c in runs)
    few = [c for c in named if len(repetitions(runs, c)) < FEWEST_REPETITIONS]
    return [f"{FEWEST_REPETITIONS} or more repetitions (runs a seed, by `replicate`) of {join(few)}"] * bool(few)


def lacking(claims: Mapping[str, Claim], runs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Claim -> what it takes beside being listed, and that; of those that could not be listed with these runs."""
    return {name: [*few, UNLISTED] for name, claim in claims.items() if (few := unrepeated(claim, runs))}


def told(rows: Sequence[dict[str, Any]], lacking: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The rows of a ledger; one that says of its claim no more than to list it says what the claim lacks (id -> that),
    where that is more."""

    def more(row: dict[str, Any]) -> dict[str, Any]:
        gone = [*lacking.get(row["id"], ())] if row["lacks"] == [UNLISTED] else []
        return {**row, **({"lacks": gone, "sentence": f"Not testable here: needs {'; '.join(gone)}."} if gone else {})}

    return [more(row) for row in rows]
