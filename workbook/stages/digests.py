"""What each report and the ledger depend on: one small file each, that changes when a run they show does.

    python -m workbook.stages.digests params.yaml build/digests

DVC cannot take a list of dependencies from params.yaml, and a report that depended on the folder of all runs would be
made again for every one of them. So build/digests/<report>.json holds {condition: digest of its rows in the committed
tables}, and the report depends on that; claims.json is the same for every run that a listed claim compares.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from workbook.results.files import CONDITIONS, CURVES, EPISODES, FACTS, PER_SEED, REGISTERED, SAMPLES, lines_of
from workbook.store.files import atomic_json, file_hash

LEDGER = "claims"
MISSING = "missing"


def run_digests(folder: Path) -> dict[str, str]:
    """Condition -> digest of what reports read of it, hex, in the tables of a profile's reports."""
    parts: dict[str, list[str]] = {}
    for name in (PER_SEED, CURVES):
        with open(folder / name, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                parts.setdefault(row["condition"], []).append(f"{name} {json.dumps(row)}")
    for line in lines_of(folder / SAMPLES):
        parts.setdefault(json.loads(line)["condition"], []).append(line)
    for name in (CONDITIONS, EPISODES):
        for condition, value in json.loads((folder / name).read_text(encoding="utf-8")).items():
            parts.setdefault(condition, []).append(f"{name} {json.dumps(value, sort_keys=True)}")
    return {c: hashlib.sha256("\n".join(texts).encode()).hexdigest() for c, texts in parts.items()}


def shown(values: Mapping[str, Any], compared: Mapping[str, tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Report (or "claims") -> the conditions it reads, in the order of the file: those it shows, and those that the
    listed claims of this report compare (the yardstick's runs, for one).

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
        from workbook.ledger.checks import load  # brings scipy
        from workbook.ledger.claim import conditions_of

        known = load(folder / values["root"] / "claims.yaml")
        compared = {name: (claim.report, conditions_of(claim)) for name, claim in known.items()}
    return shown(values, compared)


def registered(values: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Digest of the words that a registered design has for this profile's draws; empty where none has any."""
    if not values.get("claims"):
        return {}
    from workbook.ledger.beside import words_for  # brings pandas

    words = words_for(folder / values["root"] / "reports", values["seeds"])
    return {REGISTERED: hashlib.sha256(json.dumps(words).encode()).hexdigest()} if words else {}


def write(lists: dict[str, Iterable[str]], tables: Path, out: Path, more: Mapping[str, str] = {}) -> None:
    """One file per report in `out`, with `more` in each; files of reports that are no more are removed."""
    found, all_read = run_digests(tables), {FACTS: file_hash(tables / FACTS), **more}
    for name, conditions in lists.items():
        atomic_json(out / f"{name}.json", {c: found.get(c, MISSING) for c in conditions} | all_read)
    for path in out.glob("*.json"):
        if path.stem not in lists:
            path.unlink()


def main(argv: list[str]) -> int:
    """`PARAMS OUT`: PARAMS has been checked by the first stage, so it is only read here (a full check imports
    torch)."""
    if len(argv) != 2:
        print("usage: python -m workbook.stages.digests params.yaml build/digests", file=sys.stderr)
        return 2
    path, out = Path(argv[0]), Path(argv[1])
    values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    tables = path.parent / values["root"] / "reports" / values["profile"]
    write(lists(values, path.parent), tables, out, registered(values, path.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
