"""The profiles whose tables are committed, with what each of their conditions is: read from settings, not from names.

for source in sources(root): source.settings["ppo_gamma_100"]["gamma"], source.results.values(...)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger import looks, one_model
from workbook.ledger.claim import repetitions
from workbook.ledger.combine import NO_EVIDENCE
from workbook.results import results as tables
from workbook.results.design import plain
from workbook.results.files import DRAWS, per_seed, table_of
from workbook.results.results import Results

NOT_DESIGN = ("decodings", "breaks", "learning_rate")  # how it is measured, what follows from it, what a search chose
MEASURED = ("kl_coef", "kl_target", "updates")  # settings that the table of seeds holds too
WHOLE = ("task", "language_model", "reward_model", "bring")  # sections that say what a draw is


@dataclass(frozen=True)
class Source:
    """A profile. results: of the seeds that every condition has; settings: condition -> what it is (its learner's
    settings and its run's), of those whose rows agree with them; stale: condition -> in what its rows were made
    otherwise, so that they are left out; registered: it is a registered design; more: then, of the draws that only some
    conditions have (a settled claim takes its own away), most draws first."""

    profile: str
    params: Any
    results: Results
    settings: dict[str, dict[str, Any]]
    stale: dict[str, str]
    registered: bool = False
    more: tuple[Results, ...] = ()

    @property
    def task(self) -> str:
        return self.params.task_name.replace("_", " ")

    def draw(self) -> dict[str, Any]:
        """What a draw of this profile is made of: equal in two profiles, the same seeds are the same draws."""
        values = self.params.model_dump(mode="json")
        return {name: values[name] for name in WHOLE}

    def of(self, conditions: Collection[str]) -> Results:
        """The results with the most seeds that have all of these conditions that the profile has, and as many
        repetitions of each."""
        runs = self.results.params.all_runs
        wanted = {again for c in conditions for again in repetitions(runs, c)} & {*runs}
        return next((found for found in self.more if wanted <= {*found.params.all_runs}), self.results)


def sources(root: Path, without: Collection[str] = NO_EVIDENCE) -> list[Source]:
    """Every profile below `root` that counts, in the order of their names."""
    from workbook.runs.checks import load  # brings torch

    found = []
    for path in [root / "params.yaml", *sorted(root.glob("profiles/*/params.yaml"))]:
        if path.is_file() and counts(params := load(path), without):
            found.append(source(params))
    return sorted(found, key=lambda s: s.profile)


def counts(params, without: Collection[str] = NO_EVIDENCE) -> bool:
    """Whether a profile has a table of seeds, and decides claims: draws on which settings were chosen are no evidence,
    and a profile that lists no claim is of such draws; seeds that share one base model are no draws."""
    if one_model.shared(params):
        return False
    return bool(table_of(params.reports_folder)) and bool(params.claims) and params.profile not in without


def source(params) -> Source:
    """A profile and the rows of its conditions that were made with today's settings."""
    if (params.reports_folder / DRAWS).is_file():
        results = looks.results(params)
        settings = {c: described(params, c) for c in results.params.runs}
        return Source(params.profile, results.params, results, settings, {}, True, tuple(growing(params)))
    table = tables.read_per_seed(per_seed(params.reports_folder))
    rows = {c: found for c, found in table.groupby("condition", sort=False) if c in params.all_runs}
    settings = {c: described(params, c) for c in rows}
    stale = {c: said for c in rows if (said := otherwise(rows[c], settings[c], params.seeds))}
    kept = {c: v for c, v in settings.items() if c not in stale}
    return Source(params.profile, params, tables.load(params, list(kept)), kept, stale)


def growing(params) -> list[Results]:
    """The committed draws of a registered design as often as some condition has other draws than the rest: most draws
    first, each with the conditions that have all of them."""
    table = tables.read_per_seed(params.reports_folder / DRAWS)
    plain_rows = table[(table.split == "test") & (table.decoding == "plain")]
    draws = {frozenset(map(int, seeds)) for seeds in plain_rows.groupby("condition").seed.unique()}
    return [looks.results_of(table, sorted(own), params) for own in sorted(draws, key=len, reverse=True)]


def described(params, condition: str) -> dict[str, Any]:
    """Setting -> value of a condition, numbers as JSON has them."""
    config, run = params.learner_config(condition), params.run(condition)
    values = {**config.model_dump(mode="json"), **run.model_dump(mode="json")}
    return {k: plain(v) for k, v in values.items() if k not in NOT_DESIGN}


def otherwise(rows: pd.DataFrame, settings: Mapping[str, Any], seeds: Collection[int]) -> str:
    """In what the rows of a condition were made otherwise than its settings say; "" if in nothing that they tell."""
    said = [f"{name} {v:g}" for name in MEASURED if (v := _only(rows, name)) is not None and v != settings.get(name, v)]
    record = " ".join(map(str, rows[rows.decoding == "plain"].get("decoding_record", pd.Series(dtype=str)).unique()))
    for name in ("min_new_tokens", "max_new_tokens"):
        found = {float(v) for v in re.findall(rf"\b{name}=([0-9]+)", record)}
        if name in settings and found and found != {settings[name]}:
            said.append(f"{name} {', '.join(f'{v:g}' for v in sorted(found))}")
    if set(rows.seed) != set(seeds):
        said.append(f"seeds {', '.join(str(s) for s in sorted(set(rows.seed)))}")
    return "; ".join(said)


def _only(rows: pd.DataFrame, name: str) -> float | None:
    """The one number that a column has; None without it, or with several."""
    found = rows[name].dropna().unique() if name in rows else []
    return float(found[0]) if len(found) == 1 else None
