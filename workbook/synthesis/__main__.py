"""The synthesis of all profiles from the command line: `python -m workbook.synthesis` writes reports/synthesis."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workbook.ledger import checks
from workbook.synthesis import page
from workbook.synthesis.sources import sources


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.synthesis", description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("."), help="the repository")
    parser.add_argument("--claims", nargs="*", default=[], help="claims with a forest (default: specifications.yaml's)")
    args = parser.parse_args(argv)
    try:
        print(page.write(args.root, checks.load(args.root / "claims.yaml"), sources(args.root), args.claims))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
