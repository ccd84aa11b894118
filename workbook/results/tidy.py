"""The finished runs of a profile as the tables that are committed: whatever reports, figures and the ledger are made
from.

    python -m workbook.results.tidy params.yaml        -> reports/<profile>/{per_seed,curves}.csv, conditions.json, ...

per_seed.csv: a row per condition, seed, split and decoding, a column per metric (docs/reference/metrics.md); a cell is
empty where a metric was not measured. curves.csv: a row per condition, seed and update, what reports read of training,
six digits. conditions.json: what each run is. samples.jsonl: the first seed's texts and a few of every other,
unselected, and of their prompts the last words: a real review is not ours. episodes.json: one episode of each run.
facts.json: models of every seed, and what the search chose. metrics.json: condition -> metric -> mean over seeds on the
test prompts, plain decoding: the few numbers that DVC compares between versions.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from workbook.results.files import (
    CONDITIONS,
    CURVES,
    EPISODES,
    FACTS,
    LEARNING_CURVES,
    METRICS,
    PER_SEED,
    SAMPLES,
    TEXTS_OF_A_SEED,
    read_rows,
)
from workbook.results.tables import short
from workbook.store.files import atomic_json, atomic_write
from workbook.store.tables import read_table, write_table

COMPARED = ("score", "judge", "generation_log_perplexity", "kl_deployed")
OF_CURVES = (
    "condition", "seed", "update", "objective/score", "objective/kl", "objective/kl_coef", "episodes/length",
    "policy/first_ratio_error", "nlpo/synced", "dqn/gradient_steps", "sac/gradient_steps",
)  # fmt: skip


def collect(folders: Iterable[Path], name: str = PER_SEED) -> list[dict[str, Any]]:
    """The rows of all runs, every one with the same columns; a folder without results (its run failed) has no rows."""
    tables = [read_table(folder / name) for folder in folders if (folder / name).is_file()]
    columns = dict.fromkeys(name for table in tables for row in table[:1] for name in row)
    return [{name: row.get(name) for name in columns} for table in tables for row in table]


def thinned(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What reports read of curves, six digits."""
    rows = list(rows)
    shown = [name for name in OF_CURVES if any(name in row for row in rows)]
    return [{k: float(f"{v:.6g}") if isinstance(v := row.get(k), float) else v for k in shown} for row in rows]


def mean_scores(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean training score over seeds, for DVC's plot: a row per update, a column per condition."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.get("objective/score") is not None:
            found.setdefault((row["condition"], row["update"]), []).append(row["objective/score"])
    conditions = dict.fromkeys(condition for condition, _ in found)
    updates = sorted({update for _, update in found})
    mean = {place: float(f"{sum(values) / len(values):.6g}") for place, values in found.items()}
    return [{"update": u, **{c: mean.get((c, u)) for c in conditions}} for u in updates]


def means(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """condition -> metric -> mean over seeds, six digits; left out where a seed has no number, or none that is
    finite."""
    found: dict[str, dict[str, list]] = {}
    for row in rows:
        if (row["split"], row["decoding"]) == ("test", "plain"):
            for name in COMPARED:
                found.setdefault(row["condition"], {}).setdefault(name, []).append(row.get(name))
    return {
        condition: {name: float(f"{sum(v) / len(v):.6g}") for name, v in values.items() if all(map(_is_number, v))}
        for condition, values in found.items()
    }


def facts(folder: Path, seeds: Iterable[int]) -> dict[str, dict[str, Any]]:
    """What `models`, `variants` and `tune` of a profile's folder say of themselves."""
    found: dict[str, dict[str, Any]] = {"models": {}, "variants": {}, "tune": {}}
    for kind in ("models", "variants"):
        for seed in seeds:
            if (path := folder / kind / f"draw{seed}" / f"{kind}.json").is_file():
                found[kind][str(seed)] = _json(path)
    found["tune"] = {path.stem: _json(path) for path in sorted((folder / "tune").glob("*.json"))}
    return found


def write(folder: Path, conditions: Iterable[str], seeds: Iterable[int], out: Path) -> None:
    """The tables of the runs that `folder` has of the conditions."""
    seeds = sorted(seeds)
    done = {c: folder / "runs" / c for c in conditions if (folder / "runs" / c / PER_SEED).is_file()}
    rows = collect(done.values())
    write_table(out / PER_SEED, rows)
    atomic_json(out / METRICS, means(rows))
    curves = thinned(collect(done.values(), CURVES))
    write_table(out / CURVES, curves)
    write_table(out / LEARNING_CURVES, mean_scores(curves))
    atomic_json(out / CONDITIONS, {c: _json(run / "config.json") for c, run in done.items()})
    episodes = {c: run / "episode.json" for c, run in done.items()}
    atomic_json(out / EPISODES, {c: shown(_short(_json(path))) for c, path in episodes.items() if path.is_file()})
    texts = [text for run in done.values() for text in _texts(run / SAMPLES, seeds[0])]
    atomic_write(out / SAMPLES, "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts))
    atomic_json(out / FACTS, facts(folder, seeds))


def _texts(path: Path, first: int) -> Iterator[dict[str, Any]]:
    """All of the first seed's, and as many of every other's as pages show."""
    of_seed: Counter[int] = Counter()
    for sample in read_rows(path):
        of_seed[sample["seed"]] += 1
        if sample["seed"] == first or of_seed[sample["seed"]] <= TEXTS_OF_A_SEED:
            yield shown(sample)


def shown(sample: dict[str, Any]) -> dict[str, Any]:
    """A text or an episode with the last words of its prompt."""
    return {**sample, "prompt": short(sample["prompt"])}


def _short(value: Any) -> Any:
    """Four digits are enough for colours."""
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def main(argv: list[str]) -> int:
    """PARAMS has been checked by the first stage, so it is only read here (a full check imports torch)."""
    if len(argv) != 1:
        print("usage: python -m workbook.results.tidy params.yaml", file=sys.stderr)
        return 2
    path = Path(argv[0])
    values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    conditions = {**values["runs"], **(values.get("continued") or {})}
    out = path.parent / values["root"] / "reports" / values["profile"]
    write(path.parent, conditions, values["seeds"], out)
    return 0


def asked(argv: list[str] | None = None) -> list[str]:
    """What a command line asks `main` for; apart from it, as `main` is part of what DVC knows the stage by."""
    parser = argparse.ArgumentParser(
        prog="python -m workbook.results.tidy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("params", help="a profile's params.yaml")
    found = parser.parse_args(argv).params
    if not Path(found).is_file():
        parser.error(f"argument params: no such file: {found}")
    return [found]


if __name__ == "__main__":
    sys.exit(main(asked()))
