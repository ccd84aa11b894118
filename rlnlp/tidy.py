"""Every run of a profile in one tidy table, and the few numbers that DVC compares between versions.

    python -m rlnlp.tidy params.yaml        -> reports/<profile>/per_seed.csv, reports/<profile>/metrics.json

per_seed.csv: a row per condition, seed, split and decoding, a column per metric (README, "Metrics"); a cell is empty where a
metric was not measured. metrics.json: condition -> metric -> mean over seeds on the test prompts, plain decoding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlnlp.runs import atomic_json, read_table, write_table

COMPARED = ("score", "judge", "generation_log_perplexity", "kl_deployed")
FILE = "per_seed.csv"


def collect(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of all runs, every one with the same columns; a folder without results (its run failed) has no rows."""
    tables = [read_table(folder / FILE) for folder in folders if (folder / FILE).is_file()]
    columns = dict.fromkeys(name for table in tables for row in table[:1] for name in row)
    return [{name: row.get(name) for name in columns} for table in tables for row in table]


def means(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """condition -> metric -> mean over seeds, six digits; left out where a seed has no number, or none that is finite."""
    found: dict[str, dict[str, list]] = {}
    for row in rows:
        if (row["split"], row["decoding"]) == ("test", "plain"):
            for name in COMPARED:
                found.setdefault(row["condition"], {}).setdefault(name, []).append(row.get(name))
    return {
        condition: {name: float(f"{sum(v) / len(v):.6g}") for name, v in values.items() if all(map(_is_number, v))}
        for condition, values in found.items()
    }


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def main(argv: list[str]) -> int:
    """PARAMS has been checked by the first stage, so it is only read here (a full check imports torch)."""
    if len(argv) != 1:
        print("usage: python -m rlnlp.tidy params.yaml", file=sys.stderr)
        return 2
    path = Path(argv[0])
    values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    rows = collect(path.parent / "runs" / name for name in {**values["runs"], **(values.get("continued") or {})})
    out = path.parent / values["root"] / "reports" / values["profile"]
    write_table(out / FILE, rows)
    atomic_json(out / "metrics.json", means(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
