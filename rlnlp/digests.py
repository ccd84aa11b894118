"""What each report and the ledger depend on: one small file each, that changes when a run they show does.

    python -m rlnlp.digests params.yaml build/digests

DVC cannot take a list of dependencies from params.yaml, and a report that depended on the folder of all runs would be made
again for every one of them. So build/digests/<report>.json holds {condition: digest of its files}, and the report depends on
that; claims.json is the same for every run that a listed claim compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlnlp.runs import atomic_json, digest, file_hash

FILES = ("per_seed.csv", "curves.csv", "samples.jsonl", "episode.json", "config.json")  # those that reports read
LEDGER = "claims"
MISSING = "missing"


def run_digest(folder: Path) -> str:
    """Digest of what reports read of one run, hex; "missing" without its per_seed.csv (as `results.load` sees it)."""
    if not (folder / FILES[0]).is_file():
        return MISSING
    return digest({name: file_hash(folder / name) for name in FILES if (folder / name).is_file()})


def shown(values: Mapping[str, Any], compared: Mapping[str, tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Report (or "claims") -> the conditions it reads, in the order of the file: those it shows, and those that the listed
    claims of this report compare (the yardstick's runs, for one).

    values: params.yaml; compared: claim id -> (its report, the conditions it compares). A listed claim that is not in
    `compared`, and conditions that this profile has not got, are for the ledger to complain about.
    """
    runs = {**values["runs"], **(values.get("continued") or {})}
    judged: dict[str, set[str]] = {LEDGER: set()}
    for name in values.get("claims") or ():
        report, conditions = compared.get(name, ("", ()))
        for place in (report, LEDGER):
            judged.setdefault(place, set()).update(conditions)
    found = {
        name: [*report["conditions"], *(c for c in runs if c in judged.get(name, ()) and c not in report["conditions"])]
        for name, report in values["reports"].items()
    }
    return {**found, LEDGER: [c for c in runs if c in judged[LEDGER]]}


def lists(values: Mapping[str, Any], folder: Path) -> dict[str, list[str]]:
    """`shown` for the params.yaml in `folder`."""
    compared: dict[str, tuple[str, Iterable[str]]] = {}
    if values.get("claims"):
        from rlnlp import entries  # brings scipy

        names = {**values["runs"], **(values.get("continued") or {})}
        known = entries.load(folder / values["root"] / "claims.yaml", also=names)
        compared = {name: (claim.report, entries.conditions_of(claim)) for name, claim in known.items()}
    return shown(values, compared)


def write(lists: dict[str, Iterable[str]], runs: Path, out: Path) -> None:
    """One file per report in `out`; files of reports that are no more are removed."""
    for name, conditions in lists.items():
        atomic_json(out / f"{name}.json", {c: run_digest(runs / c) for c in conditions})
    for path in out.glob("*.json"):
        if path.stem not in lists:
            path.unlink()


def main(argv: list[str]) -> int:
    """`PARAMS OUT`: PARAMS has been checked by the first stage, so it is only read here (a full check imports torch)."""
    if len(argv) != 2:
        print("usage: python -m rlnlp.digests params.yaml build/digests", file=sys.stderr)
        return 2
    path, out = Path(argv[0]), Path(argv[1])
    values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    write(lists(values, path.parent), path.parent / "runs", out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
