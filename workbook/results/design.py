"""What the runs of a report are, told apart by their settings, never by their names, and the numbers that are compared.

lines(results, "gamma")                          # which of them differ in gamma alone, for each algorithm
measure(results, "bandit", "gain:score")         # one number per seed
compare(results, pairs, ("score", "judge"))      # paired differences, for a table
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from workbook.results import training
from workbook.results.results import ReportError, Results, once
from workbook.statistics import paired

QUALITY = ("score", "judge", "judge_2", "generation_log_perplexity", "human_log_perplexity", "kl_deployed")
OF_TRAINING = (  # the same whatever the decoding
    "first_ratio_error", "clip_fraction", "approx_kl", "gradient_norm", "wobble", "drop", "diverged", "rollout_score",
    "tokens_per_gradient_step", "last_cycle", "dip",
)  # fmt: skip
LOGARITHMIC = ("first_ratio_error",)  # spans decades: its mean is geometric
NOT_DESIGN = {
    "decodings",
    "test_prompts",
    "breaks",
    "learning_rate",
}  # how it is measured, what follows, what was chosen
COLLAPSED = 0.5  # of the untrained model's distinct-2: below it, a model writes the same text over and over


@dataclass(frozen=True)
class Series:
    """Conditions that belong together in a figure, in the order of x.

    x: the value each has of what is varied (inf: never); decoding: how they are decoded; base: the conditions that a
    gain is measured from, one each (same decoding), or empty; joined: whether a line connects them.
    """

    label: str
    conditions: tuple[str, ...]
    x: tuple[float, ...]
    decoding: str = "plain"
    base: tuple[str, ...] = ()
    joined: bool = True


@dataclass(frozen=True)
class Pair:
    """first - second, as words say it; each may have a decoding of its own."""

    label: str
    first: str
    second: str
    decoding: str = "plain"
    other: str = ""  # second's decoding; empty: the same


@dataclass(frozen=True)
class Compared:
    """A row of a report's headline: what is compared, in which metric, and the difference over seeds."""

    label: str
    metric: str
    difference: paired.Paired


# what the runs are ---------------------------------------------------------------------------------------------------


@once
def design(results: Results) -> pd.DataFrame:
    """What each condition is: a row per condition, a column per field of its run and its learner (None: has no such
    field).

    Columns that stand for what several fields say: refresh (updates between mask refreshes; inf: never), share (of the
    labelled reviews: that the reward was trained on or, supervised, that were shown), rate (of dropout; 0 where it is
    off), world ("": reviews), payment (the reward of another world; None in reviews).
    """
    shares = {
        "reward": 1.0,
        "reversed": 1.0,
        **{f"reward_{100 * f:g}": float(f) for f in results.params.variants.label_fractions},
    }
    rows = {}
    for condition in results.conditions:
        row = {**results.configs[condition]["learner"], **results.configs[condition]["run"]}
        source, every = row.pop("mask_source", None), row.pop("sync_every", None)
        row["refresh"] = math.inf if source == "initial" else every
        row["mask"] = {"initial": "policy", "lagged": "policy"}.get(source, source)
        fraction, reward = row.pop("data_fraction", None), row.pop("reward", "reward")
        row["world"] = row.get("world", "")
        row["payment"] = reward if row["world"] else None
        row["share"] = (1.0 if fraction is None else fraction) * (1.0 if row["world"] else shares[reward])
        row["rate"] = row.get("rate") or 0.0
        rows[condition] = {k: v for k, v in row.items() if k not in NOT_DESIGN}
    return pd.DataFrame.from_dict(rows, orient="index").astype(object).pipe(lambda t: t.where(t.notna(), None))


def is_untrained(results: Results) -> pd.Series:
    """Condition -> whether it is a base model as it is: no update, and no choice among n samples either (best of n)."""
    learners = {c: results.configs[c]["learner"] for c in results.conditions}
    return pd.Series({c: not learner["updates"] and "n" not in learner for c, learner in learners.items()}, dtype=bool)


def untrained(results: Results, vocabulary: int = 0, world: str = "") -> str | None:
    """The condition that is the base model of a world as it is, with that many tokens (0 = all), if it is there."""
    table = design(results)[is_untrained(results)]
    if not len(table):
        return None
    same = table[(table.vocabulary == vocabulary) & (table.base == "policy") & (table.world == world)]
    return same.index[0] if len(same) else None


def trained(results: Results, world: str | None = None, **fixed: Any) -> pd.DataFrame:
    """`design` of the conditions that were changed from the base model; of a world (None: all), with these values."""
    table = design(results)[~is_untrained(results)]
    for key, value in {**({} if world is None else {"world": world}), **fixed}.items():
        table = table[table[key].map(lambda v, value=value: v == value).astype(bool)] if key in table else table[:0]
    return table


def world_of(results: Results, condition: str) -> str:
    """What a condition writes: "" for reviews; of a missing run, what params.yaml says."""
    if condition in results.configs:
        return results.configs[condition]["run"].get("world", "")
    return results.params.all_runs[condition].get("world", "")


def worlds(results: Results) -> list[str]:
    """The worlds of the report's conditions, those that are missing too, reviews ("") first."""
    return sorted({world_of(results, c) for c in [*results.conditions, *results.missing]})


def one_world(results: Results, conditions: Sequence[str]) -> str:
    """The world that all of them are of ("" for none). Raises: ValueError for several, whose scores do not compare."""
    found = sorted({world_of(results, c) for c in conditions})
    if len(found) > 1:
        firsts = ", ".join(
            f"{next(c for c in conditions if world_of(results, c) == w)} ({w or 'reviews'})" for w in found
        )
        raise ValueError(f"scores of different worlds do not compare: {firsts}")
    return found[0] if found else ""


def usual(results: Results, field: str) -> Any:
    """The value of a setting that a run on reviews has unless it says otherwise (params.yaml)."""
    params = results.params
    for section in (params.learner, params.nlpo, dict(params.sampling)):
        if field in section:
            return section[field]
    raise KeyError(field)


def plainest(results: Results, algorithm: str, world: str = "") -> str | None:
    """The run of a learner in a world whose entry sets least that is not usual; the first listed of several."""

    def unusual(condition: str) -> int:
        entry = results.params.all_runs[condition]
        sections = (results.params.learner, results.params.nlpo, dict(results.params.sampling))
        given = {k: v for k, v in entry.items() if k not in ("algorithm", "world", "decodings")}
        return sum(not any(k in s and s[k] == v for s in sections) for k, v in given.items())

    return min(trained(results, world, algorithm=algorithm).index, key=unusual, default=None)


def differing(results: Results, first: str, second: str) -> dict[str, tuple[Any, Any]]:
    """Setting -> (first's value, second's) of those that differ between two runs; the search's learning rate aside."""
    a, b = (design(results).loc[c] for c in (first, second))
    return {k: (a[k], b[k]) for k in a.index if plain(a[k]) != plain(b[k])}


def change(results: Results, first: str, second: str) -> str:
    """`differing` in words: "head logits, not mlp; n_step 24, not 1"."""
    return "; ".join(f"{k} {said(a)}, not {said(b)}" for k, (a, b) in differing(results, first, second).items())


def lines(
    results: Results, field: str, label: Callable[[pd.Series], str] | None = None, world: str = "", **fixed: Any
) -> list[Series]:
    """Groups of trained conditions of a world that are alike in everything but `field`, each sorted by it.

    label: design row -> name of the group (default: its algorithm); fixed: only conditions with these values.
    """
    table = trained(results, world, **fixed)
    if field not in table:
        return []
    table = table[table[field].map(lambda v: v is not None).astype(bool)]
    alike = [json.dumps({k: plain(v) for k, v in r.items() if k != field}, sort_keys=True) for _, r in table.iterrows()]
    found = []
    for key in dict.fromkeys(alike):
        group = table[[a == key for a in alike]]
        group = group.loc[sorted(group.index, key=lambda c, g=group: float(g.loc[c, field]))]
        name = (label or (lambda row: row.algorithm))(group.iloc[0])
        found.append(Series(name, tuple(group.index), tuple(float(v) for v in group[field])))
    return found


def sweeps(results: Results, field: str, label: Callable[[pd.Series], str] | None = None, **fixed: Any) -> list[Series]:
    """Those of `lines` with two conditions or more."""
    return [s for s in lines(results, field, label, **fixed) if len(s.conditions) > 1]


def with_decoding(series: Sequence[Series], **names: str) -> list[Series]:
    """Each series once per decoding: `plain="decoded plainly"` appends ", decoded plainly" to its label."""
    return [
        Series(f"{s.label}, {name}", s.conditions, s.x, decoding, s.base, s.joined)
        for s in series
        for decoding, name in names.items()
    ]


def collapsed(results: Results, condition: str, decoding: str = "plain") -> bool:
    """Whether a run's texts have fewer than half as many different word pairs as the untrained model's, decoded
    alike."""
    zero = untrained(results, int(design(results).vocabulary[condition] or 0), world_of(results, condition))
    own, start = (results.values(c, "distinct_2", decoding) if c else None for c in (condition, zero))
    if own is None or start is None:
        return False
    return bool(own.mean() < COLLAPSED * start.mean())


# numbers -------------------------------------------------------------------------------------------------------------


def measure(
    results: Results, condition: str, metric: str, decoding: str = "plain", base: str = ""
) -> np.ndarray | None:
    """One number per seed, or None where it was not measured: `Results.values`, and

    gain:<metric>: minus the base's, same decoding and seed; spread:<metric>: the metric (its spread is `estimate`'s);
    kept: the share of its distribution that a run's own mask lets through (1 without one); last_cycle: mean training
    score over the last mask cycle (its own refresh period; the report's longest finite one where there is none); dip:
    training score of the update right after a refresh minus that of the update before, mean over refreshes.
    """
    metric = metric.removeprefix("spread:")
    if metric.startswith("gain:"):
        row = design(results).loc[condition]
        base = base or untrained(results, int(row.vocabulary or 0), row.world) or ""
        own = results.values(condition, metric[5:], decoding)
        start = results.values(base, metric[5:], decoding) if base and base != condition else None
        return None if own is None or start is None else own - start
    if metric == "kept":
        found = results.values(condition, "kept_mass", "own")
        return np.ones(len(results.seeds)) if found is None and condition in results.conditions else found
    if metric == "last_cycle":
        refresh = [v for v in design(results).refresh if v is not None and math.isfinite(v)]
        own = design(results).refresh[condition]
        cycle = own if own is not None and math.isfinite(own) else max(refresh, default=1)
        return training.last_cycle(results, condition, int(cycle))
    if metric == "dip":
        return training.dip(results, condition)
    try:
        return results.values(condition, metric, decoding)
    except ReportError:  # a run that may diverge can end before there is anything to measure; its share says so
        if metric in OF_TRAINING and "finite" in results.configs[condition]["learner"].get("breaks", ()):
            return None
        raise


def estimate(values: np.ndarray, metric: str) -> paired.Interval:
    """Mean and 95 % interval over seeds [n]; of the logarithm for a quantity spanning decades, so the mean is
    geometric.

    A share of diverged runs has the exact binomial interval (Clopper-Pearson); a spread ("spread:<metric>") is the
    standard deviation with its chi-square interval, for normal values.
    """
    n = len(values)
    if metric == "diverged":
        k = float(values.sum())
        low = scipy.stats.beta.ppf(0.025, k, n - k + 1) if k else 0.0
        return paired.Interval(k / n, float(low), float(scipy.stats.beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0, n)
    if metric.startswith("spread:"):
        spread = float(values.std(ddof=1)) if n > 1 else 0.0
        if n < 2:
            return paired.Interval(spread, None, None, n)
        low, high = (spread * math.sqrt((n - 1) / scipy.stats.chi2.ppf(q, n - 1)) for q in (0.975, 0.025))
        return paired.Interval(spread, low, high, n)
    if metric in LOGARITHMIC and (values > 0).all():
        found = paired.mean_interval(np.log(values))
        return paired.Interval(
            *(None if v is None else math.exp(v) for v in (found.estimate, found.low, found.high)), n
        )
    return paired.mean_interval(values)


def gap(results: Results, pair: Pair, metric: str) -> np.ndarray | None:
    """first - second of a metric, one number per seed; None where one of them was not run or not measured."""
    if not {pair.first, pair.second} <= set(results.conditions):
        return None
    a = measure(results, pair.first, metric, pair.decoding)
    b = measure(results, pair.second, metric, pair.other or pair.decoding)
    return None if a is None or b is None else a - b


def compare(results: Results, pairs: Sequence[Pair], metrics: Sequence[str]) -> list[Compared]:
    """A row per pair and metric, as far as both were run and measured."""
    gaps = [(p.label, m, gap(results, p, m)) for p in pairs for m in metrics]
    return [Compared(label, m, paired.one_sample(values)) for label, m, values in gaps if values is not None]


def plain(value: Any) -> Any:
    """Numbers as JSON has them (1 and 1.0 are one value), tuples as lists."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return float(value) if isinstance(value, (int, float, np.number)) else value


def said(value: Any) -> str:
    """A setting in words; none or missing is a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "∞" if value == math.inf else f"{value:g}" if isinstance(value, float) else str(value)
