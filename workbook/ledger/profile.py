"""A profile's ledger from its committed table: judged, written, drawn. No run is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbook.ledger import beside, checks, forest, judge, listed, one_model, page
from workbook.results import results as tables


def check(params) -> None:
    """What the ledger would refuse when all runs are done. Raises: ClaimError naming each listed claim that the
    profile's runs cannot decide, and every problem of claims.yaml."""
    known = checks.load(params.folder / params.root / "claims.yaml")
    listed.check(known, params.claims, params.all_runs, params.profile)


def write(params) -> list[dict[str, Any]]:
    """Judge the profile's claims on reports/<profile>/per_seed.csv into reports/<profile>/claims; the rows of the
    ledger, with the words of a registered design whose first draws these are.

    Raises: ReportError where no table is, ClaimError where a listed claim cannot be decided.
    """
    known = checks.load(params.folder / params.root / "claims.yaml")
    results = tables.load(params, judge.runs_of(known, params))
    rows, folder = judge.ledger(known, results, params.claims), params.reports_folder / "claims"
    rows = beside.put(listed.told(rows, listed.lacking(known, params.all_runs)), params)
    if one_model.shared(params):
        rows = [{**row, "one_model": True} for row in rows]
    keep(rows, params.profile, folder)
    return rows


def keep(rows: list[dict[str, Any]], profile: str, folder: Path) -> None:
    """The ledger's files and, where there are published effects, its forest plots."""
    page.write(rows, folder)
    forest.keep({profile: rows}, folder)
