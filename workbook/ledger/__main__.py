"""The ledger of claims from the command line.

python -m workbook.ledger check params.yaml      does a profile run what its claims need?
python -m workbook.ledger judge params.yaml      a profile's committed table judged again, without a run or its pages
python -m workbook.ledger calibrate profiles/settle/params.yaml    how often each word where the answer is known
python -m workbook.ledger combine                reports/*/claims/claims.json side by side, in reports/claims.*
python -m workbook.ledger readme                 their summary into docs/findings/ledger.md
python -m workbook.ledger further                tests of a registered design's claims that only other profiles can make
python -m workbook.ledger invented params.yaml   words of a profile's texts that no real review has, into its table
python -m workbook.ledger submit mine.csv        a table of your own judged by the same rule
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workbook.ledger.checks import check, load, profiles
from workbook.ledger.claim import ClaimError
from workbook.ledger.combine import NO_EVIDENCE, combine, find_ledgers, readme
from workbook.ledger.listed import check as check_listed
from workbook.ledger.ruling import rule_hash
from workbook.store.files import atomic_write


def profile_of(path: Path):
    """The checked parameters of a profile. Raises: ConfigError."""
    from workbook.runs import checks  # brings torch, which half of the commands do without

    return checks.load(path)


def checked(params) -> str:
    """What a profile can decide, in a line. Raises: ClaimError."""
    root = (params.folder / params.root).resolve()
    known = load(root / "claims.yaml")
    check(known, [*profiles(root).values(), {"runs": params.all_runs, "reports": params.reports}])
    check_listed(known, params.claims, params.all_runs, params.profile)
    return f"{params.profile}: {len(params.claims)} of {len(known)} claims can be decided; rule {rule_hash(known)[:12]}"


def invented(params) -> Path:
    """The table of invented words of a profile on real film reviews, which are looked up; its path.

    Raises: ClaimError for a profile on other texts or without committed ones, DataError where the reviews are not.
    """
    from workbook.ledger import careful
    from workbook.texts.tasks import imdb, task

    texts = careful.samples(params.reports_folder)
    if not task(params.task.name).hub or not texts:
        raise ClaimError(
            f"{params.path}: expected a task on real film reviews (imdb, reviews) and committed texts, found the task "
            f"{params.task.name!r} and texts of {len(texts)} runs"
        )
    human, known = careful.of_people(imdb.splits_of(params))
    return careful.keep(careful.invented(texts, human, known), params.reports_folder)


def submitted(table: Path, params, out: Path | None) -> str:
    """The ledger of somebody's table as Markdown; with `out`, written there too.

    Raises: ClaimError, also for an `out` that nothing can be written into.
    """
    from workbook.ledger import page
    from workbook.ledger.submitted import judged, read

    rows = judged(load((params.folder / params.root).resolve() / "claims.yaml"), read(table, params))
    if out is not None:
        try:
            page.write(rows, out)
        except OSError as error:
            found = "a file" if out.is_file() else error
            raise ClaimError(
                f"{out}: expected a folder for claims.json, claims.csv and claims.md, found {found}"
            ) from None
    tested = [row for row in rows if row["components"]]
    return page.markdown(tested)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.ledger", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="does a profile run what its claims need?")
    check.add_argument("params", nargs="?", type=Path, default=Path("params.yaml"))
    again = commands.add_parser("judge", help="a profile's committed table judged again, without a run or its pages")
    again.add_argument("params", nargs="?", type=Path, default=Path("params.yaml"))
    sharp = commands.add_parser("calibrate", help="how often its claims would get each word where the answer is known")
    sharp.add_argument("params", nargs="?", type=Path, default=Path("params.yaml"))
    together = commands.add_parser("combine", help="reports/*/claims/claims.json side by side, in reports/claims.*")
    together.add_argument("--reports", type=Path, default=Path("reports"), help="the folder of profiles' reports")
    together.add_argument("--without", nargs="*", default=NO_EVIDENCE, help="profiles that are no evidence")
    summarise = commands.add_parser("readme", help="reports/claims.json as the summary in docs/findings/ledger.md")
    summarise.add_argument("--reports", type=Path, default=Path("reports"), help="the folder that `combine` wrote into")
    summarise.add_argument("--file", type=Path, default=Path("docs/findings/ledger.md"), help="the page to renew")
    commands.add_parser("further", help="tests of a registered design's claims that only other profiles can make")
    words = commands.add_parser("invented", help="words of a profile's texts that no real review has, into its table")
    words.add_argument("params", type=Path)
    submit = commands.add_parser("submit", help="a table of your own judged by the same rule")
    submit.add_argument("table", type=Path, help="CSV: condition, seed, metrics (docs/reference/metrics.md)")
    submit.add_argument("--params", type=Path, default=Path("params.yaml"), help="whose names of conditions it uses")
    submit.add_argument("--out", type=Path, help="a folder for claims.json, claims.csv and claims.md")
    args = parser.parse_args(argv)
    try:
        if args.command == "readme":
            if not args.file.is_file():
                raise ClaimError(f"{args.file}: no such file; expected the page with the ledger's two marks")
            atomic_write(args.file, readme(args.file.read_text(encoding="utf-8"), args.reports / "claims.json"))
            print(f"{args.file}: up to date")
        elif args.command == "combine":
            rows = combine(find_ledgers(args.reports, args.without), args.reports)
            print(f"{args.reports / 'claims.md'}: {len(rows)} claims")
        elif args.command == "judge":
            from workbook.ledger import profile  # brings matplotlib

            params = profile_of(args.params)
            profile.write(params)
            print(params.reports_folder / "claims/claims.md")
        elif args.command == "further":
            from workbook.ledger import further

            print(further.write(Path(".")))
        elif args.command == "invented":
            print(invented(profile_of(args.params)))
        elif args.command == "calibrate":
            from workbook.ledger import calibration

            print(calibration.write(profile_of(args.params)))
        elif args.command == "submit":
            print(submitted(args.table, profile_of(args.params), args.out))
        else:
            print(checked(profile_of(args.params)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
