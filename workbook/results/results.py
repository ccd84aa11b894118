"""The results of a profile, as its committed tables hold them (`tidy` writes them): the named conditions in, numbers
out.

results = load(params, params.reports["gamma"].conditions)     # never a glob
results.values("ppo_gamma_100", "score")                       # [n seeds], in the order of results.seeds

No run is needed, only the folder reports/<profile>: everything that a report or the ledger says can be made from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbook.results.files import (
    CONDITIONS,
    CURVES,
    EPISODES,
    FACTS,
    SAMPLES,
    per_seed,
    read_rows,
    read_text,
    standing,
)

NEEDED = ("condition", "algorithm", "kl_coef", "kl_target", "updates", "seed", "split", "decoding", "score")
WHAT = {  # table: what is not shown without it
    CURVES: "curves of training",
    CONDITIONS: "the settings of the runs as they were; below, those of params.yaml",
    FACTS: "what the models are, and what the search chose",
    SAMPLES: "texts",
    EPISODES: "an episode token by token",
}


class ReportError(ValueError):
    """A result is missing or does not fit; the message names the condition, the file and the command."""


@dataclass(frozen=True)
class Results:
    """per_seed, curves: tables over all conditions that are there, in the order asked for.

    configs: condition -> what the run is ({"run": ..., "learner": ...}); samples: condition -> list of {seed,
    example_id, prompt, response, score}; episodes: condition -> dict; tune: algorithm -> dict; models, variants: seed
    -> facts of its models; missing: condition -> why it is not there; lacking: table that the folder has not -> what
    cannot be shown.
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
    variants: dict[int, dict] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        return sorted(int(s) for s in self.params.seeds)

    @property
    def conditions(self) -> list[str]:
        """Those that are there, in the order asked for."""
        return list(self.per_seed.condition.unique()) if len(self.per_seed) else []

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
                f"{condition}: {metric} ({decoding}, {split}) is missing for seed {lost}; "
                f"run the stage {stage_of(self.params, condition)} again"
            )
        return rows[metric].to_numpy(dtype=float)

    def independent(self, metric: str) -> bool:
        """Whether a metric comes from models that took no part: a brought model is its own evaluator (one
        tokenizer)."""
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
    """Read the results of the conditions from the profile's folder of reports.

    A condition without rows is named in `missing` (its run failed or has not happened), a table that is not there in
    `lacking`; rows that do not fit (a seed or column lacks) are an error.
    Raises: ReportError naming condition, path and the command that makes it; also if there is no table of seeds at all.
    """
    folder = params.reports_folder
    table = read_per_seed(path := per_seed(folder))
    there = dict(tuple(table.groupby("condition", sort=False)))
    missing = {
        c: f"{path}: no rows of {c}; run the stage {stage_of(params, c)} (make reproduce)"
        for c in conditions
        if c not in there
    }
    found = [c for c in conditions if c in there]
    for condition in found:
        _check(there[condition], condition, path, params.seeds)
    lacking = {name: what for name, what in WHAT.items() if not standing(folder, name).is_file()}
    curves = pd.DataFrame() if CURVES in lacking else pd.read_csv(standing(folder, CURVES), low_memory=False)
    samples: dict[str, list[dict]] = {c: [] for c in found}
    for sample in [] if SAMPLES in lacking else read_rows(standing(folder, SAMPLES)):
        samples.get(sample["condition"], []).append(sample)
    episodes, configs, facts = (_json(standing(folder, name)) for name in (EPISODES, CONDITIONS, FACTS))
    configs = {c: _as_stated(params, c, there[c]) for c in found} if CONDITIONS in lacking else configs
    if lost := [c for c in found if c not in configs]:
        raise ReportError(
            f"{folder / CONDITIONS}: nothing of {', '.join(lost)}; write the tables again (make reproduce)"
        )
    return Results(
        params,
        pd.concat([there[c] for c in found], ignore_index=True) if found else pd.DataFrame(columns=NEEDED),
        curves[curves.condition.isin(found)] if len(curves) else curves,
        samples,
        {c: episodes[c] for c in found if c in episodes},
        {c: configs[c] for c in found if c in configs},
        facts.get("tune", {}),
        {int(s): fact for s, fact in facts.get("models", {}).items() if int(s) in set(params.seeds)},
        missing,
        {int(s): fact for s, fact in facts.get("variants", {}).items() if int(s) in set(params.seeds)},
        lacking,
    )


def with_settings(results: Results) -> Results:
    """The results, of those made without them with the settings that params.yaml states."""
    rows = dict(tuple(results.per_seed.groupby("condition", sort=False)))
    return replace(results, configs={c: _as_stated(results.params, c, rows[c]) for c in results.conditions})


def _as_stated(params, condition: str, rows: pd.DataFrame) -> dict[str, dict]:
    """What params.yaml says that a run is, in the form of conditions.json, with the learning rate of the table of
    seeds, which a search may have chosen. Raises: ReportError where that table is of a run with other settings."""
    parts = {"run": params.run(condition), "learner": params.learner_config(condition)}
    found = {name: part.model_dump(mode="json") for name, part in parts.items()}
    for name in ("kl_coef", "kl_target", "updates"):
        stated, there = found["learner"].get(name), rows[name].iloc[0]
        if stated is not None and pd.notna(there) and float(there) != float(stated):
            raise ReportError(
                f"{params.path}: {condition}: {name} is {stated:g}, but the committed table is of a run with {there:g}"
            )
    rate = rows["learning_rate"].iloc[0] if "learning_rate" in rows else None
    for part in found.values():
        if part.get("learning_rate") is not None and pd.notna(rate):
            part["learning_rate"] = float(rate)
    return found


def read_per_seed(path: Path) -> pd.DataFrame:
    """The table of seeds. Raises: ReportError if it is not there, is empty or lacks a column."""
    if not path.is_file():
        raise ReportError(f"{path}: no such file; run the pipeline (make reproduce)")
    try:
        table = pd.read_csv(path, low_memory=False)
    except ValueError as error:  # an empty file
        raise ReportError(f"{path}: {error}; run the pipeline (make reproduce)") from error
    if lost := [c for c in NEEDED if c not in table]:
        raise ReportError(f"{path}: no column {lost}")
    return table


def _json(path: Path) -> dict:
    return json.loads(read_text(path)) if path.is_file() else {}


def _check(rows: pd.DataFrame, condition: str, path: Path, seeds) -> None:
    test = rows[(rows.split == "test") & (rows.decoding == "plain")]
    if sorted(test.seed) != sorted(seeds):
        raise ReportError(
            f"{path}: {condition}: expected one plain test row for each seed of {sorted(seeds)}, "
            f"found seeds {sorted(test.seed)}"
        )
    if rows.duplicated(["seed", "split", "decoding"]).any():
        raise ReportError(f"{path}: {condition}: two rows for one seed, split and decoding")
