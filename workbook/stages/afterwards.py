"""Pages that no stage makes, as they are of several stages' results: made when the stages are done, and by the next
command where one is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from workbook.stages.pipeline import COLLECT, kind

TEXTS = "careful/verdict.md"  # in the profile's reports: what a careful reader sees
LEDGERS = "claims.json"  # in the folder of all reports, with pages and figures of its name


def make(folder: Path, values: Mapping[str, Any], stages: Collection[str], missing: bool = False) -> dict[str, str]:
    """Write the pages of stages that are done; page -> what went wrong with it. missing: only those that are not there.

    An old page is taken away first, so that none is left of older tables by a failure or a stop.
    """
    wrong = {}
    for page, write in _pages(folder, values, stages).items():
        if not missing or not page.exists():
            page.unlink(missing_ok=True)
            if why := write(folder, values):
                wrong[os.path.relpath(page, folder / values["root"])] = why
    return wrong


def _pages(folder: Path, values: Mapping[str, Any], stages: Collection[str]) -> dict[Path, Callable[..., str]]:
    from workbook.ledger.combine import NO_EVIDENCE  # it brings pandas

    reports, found = reports_of(folder, values), {}
    if not {*COLLECT}.isdisjoint(map(kind, stages)):
        found[reports / TEXTS] = read_carefully
    if "claims" in stages and values["profile"] not in NO_EVIDENCE:
        found[reports.parent / LEDGERS] = side_by_side
    return found


def reports_of(folder: Path, values: Mapping[str, Any]) -> Path:
    return (folder / values["root"] / "reports" / values["profile"]).resolve()


def read_carefully(folder: Path, values: Mapping[str, Any]) -> str:
    """Write what a careful reader sees, to which every report leads, from the profile's tables; what went wrong, empty
    if nothing did."""
    from workbook.ledger import careful  # it brings pandas
    from workbook.results.results import ReportError
    from workbook.runs import checks

    try:
        print(f"texts: {os.path.relpath(careful.make(checks.load(folder / 'params.yaml')))}", flush=True)
    except ReportError as error:
        return str(error)
    return ""


def side_by_side(folder: Path, values: Mapping[str, Any]) -> str:
    """Put the ledgers of all profiles into reports/claims.* and reports/forest.*; what went wrong, empty if nothing
    did."""
    from workbook.ledger import forest  # it brings pandas, scipy and matplotlib
    from workbook.ledger.claim import ClaimError
    from workbook.ledger.combine import combine, find_ledgers

    reports = reports_of(folder, values).parent
    paths = find_ledgers(reports)
    try:
        combine(paths, reports)
    except ClaimError as error:
        return str(error)
    rows = {profile: json.loads(path.read_text(encoding="utf-8"))["rows"] for profile, path in paths.items()}
    forest.keep(rows, reports)
    print(f"all profiles: {os.path.relpath(reports / 'claims.md')}", flush=True)
    return ""


def tell_again(folder: Path) -> None:
    """Print how the profile's rows compare with the committed ones of the same draws, where there are any."""
    from workbook.synthesis import again  # it brings pandas

    if told := again.told(folder / "params.yaml"):
        print(told, flush=True)
