"""Every page of a profile and its ledger from the committed tables: no run, no kernel, a minute or two.

python -m workbook.stages.reports mini
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rlnlp.settings import ConfigError
from workbook.ledger import careful, profile
from workbook.ledger.claim import ClaimError
from workbook.ledger.combine import NO_EVIDENCE
from workbook.reports import pages
from workbook.results.results import ReportError
from workbook.runs import checks
from workbook.stages.afterwards import side_by_side


def make(params) -> list[Path]:
    """Write the pages that the profile names, what a careful reader sees, its ledger and that of all profiles; the
    pages.

    Raises: ReportError where no table is, ClaimError where a ledger is none.
    """
    made = []
    for name in params.reports:
        folder = params.reports_folder / name
        pages.write(pages.load(params, name), folder)
        made.append(folder / "verdict.md")
        print(f"report: {os.path.relpath(made[-1])}", flush=True)
    profile.write(params)
    print(f"texts: {os.path.relpath(careful.make(params))}", flush=True)
    print(f"ledger: {os.path.relpath(params.reports_folder / 'claims/claims.md')}", flush=True)
    values = {"root": params.root, "profile": params.profile}
    if params.profile not in NO_EVIDENCE and (wrong := side_by_side(params.folder, values)):
        raise ClaimError(wrong)
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.reports", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "profile", nargs="?", default="mini", help="mini (top level) or the name of a folder in profiles/"
    )
    name = parser.parse_args(argv).profile
    folder = Path(".") if name == "mini" else Path("profiles") / name
    try:
        make(checks.load(folder / "params.yaml"))
    except (ConfigError, ReportError, ClaimError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
