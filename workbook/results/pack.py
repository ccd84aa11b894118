"""Keep the tables of a long profile packed, so that a clone stays small: what reads them takes them either way.

    python -m workbook.results.pack PROFILE [TABLE ...]   # reports/PROFILE: per_seed.csv -> per_seed.csv.xz, and so on;
                                                          # texts, samples.jsonl -> samples.jsonl.bz2

For a profile whose runs are finished; the same tables give the same bytes. A run of the pipeline writes the tables as
they are beside the packed ones, and goes before them; with this command `git diff` says whether they are equal.
"""

from __future__ import annotations

import argparse
import bz2
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path

from rlnlp.settings import nearest
from workbook.results.files import CONDITIONS, CURVES, EPISODES, PER_SEED, SAMPLES, packed
from workbook.store.files import atomic_write

ROOT = Path(__file__).resolve().parents[2]
LARGE = (PER_SEED, CURVES, SAMPLES, EPISODES, CONDITIONS)


def pack(reports: Path, tables: Sequence[str] = LARGE) -> list[Path]:
    """The packed tables that were made of those in a profile's folder of reports; the tables are taken away."""
    made = []
    for file in (reports / name for name in tables):
        if file.is_file():
            made.append(reports / packed(file.name))
            write_packed(made[-1], file.read_bytes())
            file.unlink()
    return made


def write_packed(file: Path, content: bytes) -> None:
    """Write a packed table, by the end of its name; the same content gives the same bytes."""
    atomic_write(file, bz2.compress(content) if file.suffix == ".bz2" else lzma.compress(content, preset=9))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.results.pack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(LARGE)}; none = all of them")
    asked = parser.parse_args(argv)
    profile, tables = asked.profile, asked.tables or LARGE
    there = sorted(path.name for path in (ROOT / "reports").iterdir() if (path / "metrics.json").is_file())
    if profile not in there:
        instead = nearest(profile, there) or f"; expected one of {', '.join(there)}"
        print(f"profile {profile}: no tables in reports{instead}", file=sys.stderr)
        return 2
    if unknown := {*tables} - {*LARGE}:
        print(f"{min(unknown)}: expected a table of {', '.join(LARGE)}{nearest(min(unknown), LARGE)}", file=sys.stderr)
        return 2
    made = pack(ROOT / "reports" / profile, tables)
    print("\n".join(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes" for path in made) or "nothing to pack")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
