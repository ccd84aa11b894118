"""What finished runs left, as tables: the named conditions in, one number per seed out.

    results = load(params, params.reports["gamma"].conditions)     # never a glob
    results.values("ppo_gamma_100", "score")                       # [n seeds], in the order of results.seeds
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlnlp.runs import read_table

NEEDED = ("condition", "algorithm", "kl_coef", "kl_target", "updates", "seed", "split", "decoding", "score")


class ReportError(ValueError):
    """A result is missing or does not fit; the message names the condition, the file and the command."""


@dataclass(frozen=True)
class Results:
    """per_seed, curves: tables over all conditions that are there, in the order asked for.

    configs: condition -> what the run is ({"run": ..., "learner": ...}); samples: condition -> list of {seed, example_id,
    prompt, response, score}; episodes: condition -> dict; tune: algorithm -> dict; models: seed -> dict (empty if the file
    is missing); missing: condition -> why it is not there.
    """

    params: Any
    per_seed: pd.DataFrame
    curves: pd.DataFrame
    samples: dict[str, list[dict]]
    episodes: dict[str, dict]
    configs: dict[str, dict]
    tune: dict[str, dict]
    models: dict[int, dict]
    missing: dict[str, str]

    @property
    def seeds(self) -> list[int]:
        return sorted(int(s) for s in self.params.seeds)

    @property
    def conditions(self) -> list[str]:
        """Those that are there, in the order asked for."""
        return list(self.per_seed.condition.unique()) if len(self.per_seed) else []

    @property
    def zero_shot(self) -> str | None:
        """The base model as it is: the condition without training or any other change, if it is there."""
        untrained = self.per_seed[(self.per_seed.updates == 0) & (self.per_seed.algorithm == "ppo")]
        names = list(untrained.condition.unique())
        return "zero_shot" if "zero_shot" in names else names[0] if names else None

    def values(self, condition: str, metric: str, decoding: str = "plain", split: str = "test") -> np.ndarray | None:
        """One number per seed, in the order of `seeds`; None if the metric was not measured there.

        Raises: ReportError where some seeds have it and others have not.
        """
        rows = _cells_of(self).get((condition, decoding, split))
        if rows is None or metric not in rows or rows[metric].isna().all():
            return None
        if rows[metric].isna().any():  # never averaged away, and no claim judged without it
            lost = ", ".join(f"{s}" for s in rows.index[rows[metric].isna()])
            raise ReportError(
                f"{condition}: {metric} ({decoding}, {split}) is missing for seed {lost}; run the stage {stage_of(self.params, condition)} again"
            )
        return rows[metric].to_numpy(dtype=float)

    def independent(self, metric: str) -> bool:
        """Whether a metric comes from models that took no part: a brought model is its own evaluator (one tokenizer)."""
        return metric != "generation_log_perplexity" or not self.params.bring.model


def once(make: Callable[[Results], Any]) -> Callable[[Results], Any]:
    """Compute a table once per Results (its tables do not change after loading)."""

    @wraps(make)
    def get(results: Results) -> Any:
        if make.__name__ not in results.__dict__:
            results.__dict__[make.__name__] = make(results)
        return results.__dict__[make.__name__]

    return get


@once
def _cells_of(results: Results) -> dict[tuple[str, str, str], pd.DataFrame]:
    """(condition, decoding, split) -> rows by seed."""
    if not len(results.per_seed):
        return {}
    keys = ["condition", "decoding", "split"]
    return {k: rows.set_index("seed").reindex(results.seeds) for k, rows in results.per_seed.groupby(keys)}


def stage_of(params, condition: str) -> str:
    """The pipeline's stage that makes a condition."""
    return f"{'continued' if condition in params.continued else 'runs'}@{condition}"


def load(params, conditions: Sequence[str]) -> Results:
    """Read the results of the conditions.

    A condition whose folder is not there is named in `missing` (its run failed or has not happened); a folder that does
    not fit (a seed or column lacks, rows of another condition) is an error.
    Raises: ReportError naming condition, path and the command that makes it.
    """
    tables, curves, samples, episodes, configs, missing = [], [], {}, {}, {}, {}
    for condition in conditions:
        folder, stage = params.folder / "runs" / condition, stage_of(params, condition)
        if not (folder / "per_seed.csv").is_file():
            missing[condition] = f"{folder / 'per_seed.csv'}: no such file; run the stage {stage} (make reproduce)"
            continue
        rows = pd.DataFrame(read_table(folder / "per_seed.csv"))
        _check(rows, condition, folder / "per_seed.csv", params.seeds)
        tables.append(rows)
        trained = bool((rows.updates > 0).any())
        curves.append(pd.DataFrame(read_table(_file(folder / "curves.csv", stage)) if trained else []))
        lines = _file(folder / "samples.jsonl", stage).read_text(encoding="utf-8").splitlines()
        samples[condition] = [json.loads(line) for line in lines if line]
        if (folder / "episode.json").exists() and trained:
            episodes[condition] = json.loads((folder / "episode.json").read_text(encoding="utf-8"))
        configs[condition] = json.loads(_file(folder / "config.json", stage).read_text(encoding="utf-8"))
    per_seed = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=NEEDED)
    full = [c for c in curves if len(c)]
    models = {
        int(s): json.loads(path.read_text(encoding="utf-8"))
        for s in params.seeds
        if (path := params.folder / "models" / f"draw{s}" / "models.json").is_file()
    }
    tune = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for a in ("ppo", "nlpo")
        if a in set(per_seed.algorithm[per_seed.updates > 0]) and (path := params.folder / "tune" / f"{a}.json").is_file()
    }
    return Results(
        params, per_seed, pd.concat(full, ignore_index=True) if full else pd.DataFrame(), samples, episodes, configs, tune,
        models, missing,
    )


def _file(path: Path, stage: str) -> Path:
    if not path.is_file():
        raise ReportError(f"{path}: no such file; the report names it, so run the stage {stage} first (make reproduce)")
    return path


def _check(rows: pd.DataFrame, condition: str, path: Path, seeds) -> None:
    if lacking := [c for c in NEEDED if c not in rows]:
        raise ReportError(f"{path}: no column {lacking}")
    if set(rows.condition) != {condition}:
        raise ReportError(f"{path}: expected rows of condition {condition!r}, found {sorted(set(rows.condition))}")
    test = rows[(rows.split == "test") & (rows.decoding == "plain")]
    if sorted(test.seed) != sorted(seeds):
        raise ReportError(
            f"{path}: expected one plain test row for each seed of {sorted(seeds)}, found seeds {sorted(test.seed)}"
        )
    if rows.duplicated(["seed", "split", "decoding"]).any():
        raise ReportError(f"{path}: two rows for one seed, split and decoding")
