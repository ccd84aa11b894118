"""What the runs of an ablation report are: read, told apart by their configs, and grouped into what a figure joins by a line.

    results = load(params, "gamma")                  # the conditions that params.reports["gamma"] names, never a glob
    gamma_lines(results)                             # which of them differ in gamma alone, for each algorithm
    measure(results, "bandit", "gain:score")         # one number per seed

What a condition is comes from its config.json, never from its name; the few names below are the controls of the claims.
A listed condition that is not there is left out of the figures, and named first in the answer (`answers`). Texts, tables
and files: `ablation_report`; figures: `plots`.
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

from rlnlp import curves, stats
from rlnlp import results as run_results
from rlnlp.results import ReportError, Results, once

NAMES = ("gamma", "dropout", "mask", "budget", "warm_start", "sampling", "vocabulary")
ALGORITHM = {
    "ppo": "PPO", "nlpo": "NLPO", "bandit": "bandit", "dropout": "PPO with dropout", "mismatch": "PPO, sampling not scored",
    "supervised": "supervised", "filtered": "filtered by the reward", "best_of_n": "best of n", "masked": "PPO under a mask",
    "a2c": "A2C", "trpo": "TRPO", "reinforce": "REINFORCE", "rloo": "RLOO", "grpo": "GRPO", "dqn": "DQN", "sac": "SAC",
}  # fmt: skip
QUALITY = ("score", "judge", "judge_2", "generation_log_perplexity", "human_log_perplexity", "kl_deployed")
START = ("sup_ppo", "sup_nlpo")  # continue from supervised training; the same learner without it:
WITHOUT = {"sup_ppo": "ppo_kl_default", "sup_nlpo": "nlpo_kl_default"}
LONGER = {"sup_ppo": ("ppo_long", "supervised_long"), "sup_nlpo": ("supervised_long",)}  # equal compute
STARTS = ("supervised", "ppo_kl_default", "nlpo_kl_default", *START, "ppo_long", "supervised_long")
CONTROLS = (
    "ppo_kl_default",
    "ppo_top_p",
    "mismatch_top_p",
    "nlpo_kl_default",
    "nlpo_initial",
    "nlpo_random",
    "nlpo_min_100",
)
PARTS = (  # what separates the mask in training from the mask in decoding and from likelihoods of another distribution
    ("the mask, both decoded plainly", "nlpo_kl_default", "ppo_kl_default", "plain", "plain"),
    ("the mask, both decoded as trained", "nlpo_kl_default", "ppo_kl_default", "own", "own"),
    ("decoding NLPO through its mask", "nlpo_kl_default", "nlpo_kl_default", "own", "plain"),
    ("decoding PPO by top-p", "ppo_kl_default", "ppo_kl_default", "top_p", "plain"),
    ("a lagged mask, not the current policy's", "nlpo_kl_default", "ppo_top_p", "plain", "plain"),
    ("refreshing the mask", "nlpo_kl_default", "nlpo_initial", "plain", "plain"),
    ("what the mask knows (against a random one)", "nlpo_kl_default", "nlpo_random", "plain", "plain"),
    ("truncated sampling in PPO's training", "ppo_top_p", "ppo_kl_default", "plain", "plain"),
    ("scoring what is not sampled (mismatch)", "mismatch_top_p", "ppo_top_p", "plain", "plain"),
)
IMITATION = "supervised on the positive ones"  # a line of the data budget
OF_TRAINING = ("first_ratio_error", "clip_fraction", "approx_kl", "gradient_norm", "wobble", "drop")
RATIO_LIMIT = 1e-3  # the invariant: how far the first minibatch's ratio may be from 1
NOT_DESIGN = {"decodings", "breaks", "learning_rate"}  # how it is measured, what follows from it, what the search chose


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


# what the runs are ---------------------------------------------------------------------------------------------------


def load(params, name: str) -> Results:
    """The results of the conditions of report `name`. Raises: ReportError for a report that the profile does not have,
    or if none of its runs is there."""
    if name not in params.reports:
        raise ReportError(f"params.yaml: reports: no report is called {name!r} (reports: {', '.join(params.reports)})")
    found = run_results.load(params, params.reports[name].conditions)
    if not found.conditions:
        raise ReportError("; ".join(found.missing.values()))
    return found


@once
def design(results: Results) -> pd.DataFrame:
    """What each condition is: a row per condition, a column per field of its run and its learner (None: has no such field).

    Columns that stand for what several fields say: refresh (updates between mask refreshes; inf: never), share (of the
    labelled reviews: that the reward was trained on or, supervised, that were shown), rate (of dropout; 0 where it is off),
    world ("": reviews), payment (the reward of another world; None in reviews).
    """
    shares = {"reward": 1.0, **{f"reward_{100 * f:g}": float(f) for f in results.params.variants.label_fractions}}
    rows = {}
    for condition in results.conditions:
        row = {**results.configs[condition]["learner"], **results.configs[condition]["run"]}
        source = row.pop("mask_source", None)
        every = row.pop("sync_every", None)
        row["refresh"] = math.inf if source == "initial" else every
        row["mask"] = {"initial": "policy", "lagged": "policy"}.get(source, source)
        fraction, reward = row.pop("data_fraction", None), row.pop("reward", "reward")
        row["world"] = row.get("world", "")
        row["payment"] = reward if row["world"] else None
        row["share"] = fraction if row["algorithm"] == "supervised" else 1.0 if row["world"] else shares[reward]
        row["rate"] = row.get("rate") or 0.0
        rows[condition] = {k: v for k, v in row.items() if k not in NOT_DESIGN}
    return pd.DataFrame.from_dict(rows, orient="index").astype(object).pipe(lambda t: t.where(t.notna(), None))


def untrained(results: Results, vocabulary: int = 0, world: str = "") -> str | None:
    """The condition that is the base model of a world as it is, with that many tokens (0 = all), if it is there."""
    table = design(results)
    same = table[
        (table.algorithm == "ppo") & (table.updates == 0) & (table.vocabulary == vocabulary) & (table.base == "policy")
        & (table.world == world)
    ]  # fmt: skip
    return same.index[0] if len(same) else None


def worlds(results: Results) -> list[str]:
    """The worlds of the report's conditions, those that are missing too, reviews ("") first."""
    listed = [*results.conditions, *results.missing]
    return sorted({world_of(results, c) for c in listed})


def world_of(results: Results, condition: str) -> str:
    """What a condition writes: "" for reviews; of a missing run, what params.yaml says."""
    if condition in results.configs:
        return results.configs[condition]["run"].get("world", "")
    return results.params.all_runs[condition].get("world", "")


def one_world(results: Results, conditions: Sequence[str]) -> str:
    """The world that all of them are of ("" if there are none). Raises: ValueError for several, whose scores do not compare."""
    found = sorted({world_of(results, c) for c in conditions})
    if len(found) > 1:
        named = ", ".join(f"{next(c for c in conditions if world_of(results, c) == w)} ({w or 'reviews'})" for w in found)
        raise ValueError(f"scores of different worlds do not compare: {named}")
    return found[0] if found else ""


def trained(results: Results) -> pd.DataFrame:
    """`design` of the conditions that were changed from the base model."""
    table = design(results)
    return table[~((table.algorithm == "ppo") & (table.updates == 0))]


def usual(results: Results, field: str) -> Any:
    """The value of a setting that a run on reviews has unless it says otherwise (params.yaml)."""
    params = results.params
    for section in (params.learner, params.nlpo, dict(params.sampling)):
        if field in section:
            return section[field]
    raise KeyError(field)


def lines(
    results: Results, field: str, label: Callable[[pd.Series], str] | None = None, world: str = "", **fixed
) -> list[Series]:
    """Groups of trained conditions of a world that are alike in everything but `field`, each sorted by it.

    label: design row -> name of the group (default: its algorithm); fixed: only conditions with these values.
    """
    table = trained(results)
    for key, value in {"world": world, **fixed}.items():
        table = table[table[key].map(lambda v, value=value: v == value)] if key in table else table.iloc[:0]
    if field not in table:
        return []
    table = table[table[field].map(lambda v: v is not None)]
    alike = [
        json.dumps({k: plain(v) for k, v in row.items() if k != field}, sort_keys=True) for _, row in table.iterrows()
    ]
    found = []
    for key in dict.fromkeys(alike):
        group = table[[a == key for a in alike]]
        group = group.loc[sorted(group.index, key=lambda c, g=group: float(g.loc[c, field]))]
        name = (label or (lambda row: ALGORITHM.get(row.algorithm, row.algorithm)))(group.iloc[0])
        found.append(Series(name, tuple(group.index), tuple(float(v) for v in group[field])))
    return found


def with_decoding(series: Sequence[Series], **names: str) -> list[Series]:
    """Each series once per decoding: `plain="decoded plainly"` appends ", decoded plainly" to its label."""
    return [
        Series(f"{s.label}, {said}", s.conditions, s.x, decoding, s.base, s.joined)
        for s in series
        for decoding, said in names.items()
    ]


# numbers -------------------------------------------------------------------------------------------------------------


def measure(
    results: Results, condition: str, metric: str, decoding: str = "plain", base: str = ""
) -> np.ndarray | None:
    """One number per seed, or None where it was not measured: `Results.values`, and

    gain:<metric>: minus the base's, same decoding and seed; last_cycle: mean training score over the last mask cycle
    (its own refresh period; the report's longest finite one where there is none); dip: training score of the update
    right after a refresh minus that of the update before, mean over refreshes.
    """
    if metric.startswith("gain:"):
        row = design(results).loc[condition]
        base = base or untrained(results, row.vocabulary, row.world) or ""
        own = results.values(condition, metric[5:], decoding)
        start = results.values(base, metric[5:], decoding) if base and base != condition else None
        return None if own is None or start is None else own - start
    if metric == "last_cycle":
        return _last_cycle(results, condition)
    if metric == "dip":
        return _dip(results, condition)
    try:
        return results.values(condition, metric, decoding)
    except (
        ReportError
    ):  # a run that may diverge can end before there is anything to measure; its share of diverged runs says so
        if metric in OF_TRAINING and "finite" in results.configs[condition]["learner"].get("breaks", ()):
            return None
        raise


def estimate(values: np.ndarray, metric: str) -> stats.Interval:
    """Mean and 95 % interval over seeds [n]; of the logarithm for a quantity spanning decades, so the mean is geometric.

    A share of diverged runs has the exact binomial interval (Clopper-Pearson); a spread ("spread:<metric>") is the
    standard deviation with its chi-square interval, for normal values.
    """
    n = len(values)
    if metric == "diverged":
        k = float(values.sum())
        low = scipy.stats.beta.ppf(0.025, k, n - k + 1) if k else 0.0
        return stats.Interval(k / n, float(low), float(scipy.stats.beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0, n)
    if metric.startswith("spread:"):
        spread = float(values.std(ddof=1)) if n > 1 else 0.0
        if n < 2:
            return stats.Interval(spread, None, None, n)
        low, high = (spread * math.sqrt((n - 1) / scipy.stats.chi2.ppf(q, n - 1)) for q in (0.975, 0.025))
        return stats.Interval(spread, low, high, n)
    if metric in LOGARITHMIC and (values > 0).all():
        found = stats.mean_interval(np.log(values))
        return stats.Interval(*(None if v is None else math.exp(v) for v in (found.estimate, found.low, found.high)), n)
    return stats.mean_interval(values)


LOGARITHMIC = ("first_ratio_error",)


def contrast(
    results: Results, first: str, second: str, metric: str, decoding: str = "plain", other: str = ""
) -> stats.Paired | None:
    """first - second, paired by seed; other: the second one's decoding, if it is another. None where one was not measured."""
    if not {first, second} <= set(results.conditions):
        return None
    a, b = measure(results, first, metric, decoding), measure(results, second, metric, other or decoding)
    return None if a is None or b is None else stats.paired(a, b)


def _last_cycle(results: Results, condition: str) -> np.ndarray | None:
    """[n seeds], or None for a condition without a curve."""
    grid = _training_scores(results).get(condition)
    if grid is None:
        return None
    finite = [v for v in design(results).refresh if v is not None and math.isfinite(v)]
    own = design(results).refresh[condition]
    cycle = own if own is not None and math.isfinite(own) else max(finite, default=1)
    return grid.tail(int(cycle)).mean().to_numpy(dtype=float)


def _dip(results: Results, condition: str) -> np.ndarray | None:
    grid, places = _training_scores(results).get(condition), syncs(results, condition)
    if grid is None or not places:
        return None
    change = grid.diff().reindex(places)
    return change.mean().to_numpy(dtype=float)


def syncs(results: Results, condition: str) -> list[int]:
    """The updates whose rollout was the first after a refresh of the mask, without the first one of all."""
    return _refreshed(results).get(condition, [])


@once
def _refreshed(results: Results) -> dict[str, list[int]]:
    if "nlpo/synced" not in results.curves:
        return {}
    own = results.curves[(results.curves["nlpo/synced"] == 1) & (results.curves["update"] > 1)]
    return {c: sorted({int(u) for u in rows["update"]}) for c, rows in own.groupby("condition")}


@once
def _training_scores(results: Results) -> dict[str, pd.DataFrame]:
    """Condition -> training score, update x seed, of those with a curve."""
    if "objective/score" not in results.curves:
        return {}
    return {
        c: rows.pivot(index="update", columns="seed", values="objective/score").reindex(columns=results.seeds)
        for c, rows in results.curves.groupby("condition")
    }


# the groups of each report -------------------------------------------------------------------------------------------


def gamma_lines(results: Results) -> list[Series]:
    """Score along gamma at the usual fixed beta, an algorithm each, and the bandit as a point at gamma = 1."""
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0}
    alone = [
        Series("bandit: one return per response", s.conditions, s.x, joined=False)
        for s in lines(results, "gamma", algorithm="bandit", **at)
    ]
    return [
        s for a in ("ppo", "nlpo") for s in lines(results, "gamma", algorithm=a, lam=usual(results, "lam"), **at)
    ] + alone


def gamma_frontiers(results: Results) -> dict[str, list[Series]]:
    """Algorithm -> a beta sweep per gamma; the bandit's stands beside PPO's."""
    named = {"bandit": lambda r: "bandit"}
    found = {}
    for algorithms in (("ppo", "bandit"), ("nlpo",)):
        sweeps = [
            s
            for a in algorithms
            for s in lines(results, "kl_coef", named.get(a, lambda r: f"γ = {r.gamma:g}"), algorithm=a, kl_target=0.0)
        ]
        if sweeps:
            found[ALGORITHM[algorithms[0]]] = sorted(sweeps, key=lambda s: (s.label == "bandit", s.label))
    return found


def at_equal_kl(results: Results, metric: str, algorithm: str = "ppo") -> stats.Paired | None:
    """gamma = 1 minus the usual gamma, each seed's metric averaged over the deployed KL that both its beta sweeps reach.

    None without two sweeps of four betas, or where a seed's sweeps share no KL.
    """
    swept = {
        trained(results).gamma[s.conditions[0]]: s
        for s in lines(results, "kl_coef", algorithm=algorithm, kl_target=0.0)
    }
    pair = [swept.get(1.0), swept.get(usual(results, "gamma"))]
    if pair[0] is pair[1] or any(s is None or len(s.conditions) < curves.MIN_SWEEP for s in pair):
        return None
    measured = [[results.values(c, m) for c in s.conditions] for s in pair for m in ("kl_deployed", metric)]
    if any(v is None for arm in measured for v in arm):
        return None
    found = curves.matched_kl(*(np.array(arm) for arm in measured))
    return None if found.without_overlap else found.test()


def dropout_lines(results: Results) -> dict[str, list[Series]]:
    """Base model -> a series per mode over the rate; rate 0 is the same PPO without dropout."""
    bases = {"policy": "pretrained without dropout", "policy_dropout": "pretrained with dropout"}
    said = {"update_only": "update only", "independent": "independent masks", "same": "same masks"}
    found = {}
    for base, title in bases.items():
        plain = lines(results, "rate", algorithm="ppo", base=base, kl_coef=usual(results, "kl_coef"), kl_target=0.0)
        modes = lines(results, "rate", lambda r: said.get(r["mode"], r["mode"]), algorithm="dropout", base=base)
        zero = plain[0] if plain else Series("", (), ())
        drawn = [Series(s.label, (*zero.conditions[:1], *s.conditions), (*zero.x[:1], *s.x)) for s in modes]
        if drawn or plain:
            found[title] = drawn or [Series("no dropout", zero.conditions, zero.x)]
    return found


def mask_lines(results: Results) -> list[Series]:
    """NLPO along p, plain and as trained, and PPO, which has no mask, as a point at p = 1."""
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0}
    swept = lines(results, "mask_top_p", algorithm="nlpo", mask="policy", refresh=usual(results, "sync_every"),
                  mask_min_tokens=usual(results, "mask_min_tokens"), **at)  # fmt: skip
    alone = [Series("PPO: no mask", ("ppo_kl_default",), (1.0,), joined=False)] * (
        "ppo_kl_default" in results.conditions
    )
    return with_decoding(swept, plain="decoded plainly", own="decoded through its mask") + alone


def refresh_lines(results: Results) -> list[Series]:
    """NLPO along the updates between refreshes (inf: never), plain and with the mask of the last rollout."""
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0}
    swept = lines(results, "refresh", algorithm="nlpo", mask="policy", mask_top_p=usual(results, "mask_top_p"),
                  mask_min_tokens=usual(results, "mask_min_tokens"), **at)  # fmt: skip
    return with_decoding(swept, plain="decoded plainly", own="with the mask of the last rollout")


def refresh_groups(results: Results) -> dict[str, dict[str, str]]:
    """For `plots.training`: a panel per refresh period."""
    swept = refresh_lines(results)[:1]
    names = {
        c: "never refreshed" if math.isinf(x) else f"refreshed every {'update' if x == 1 else f'{x:g} updates'}"
        for s in swept
        for x, c in zip(s.x, s.conditions)
    }
    return {said: {"NLPO": c} for c, said in names.items()}


def dropout_groups(results: Results) -> dict[str, dict[str, str]]:
    """For `plots.training`: a panel per base model, a line per mode at its largest rate, and no dropout."""
    found = {}
    for title, swept in dropout_lines(results).items():
        modes = {f"{s.label}, rate {s.x[-1]:g}": s.conditions[-1] for s in swept if s.x[-1] > 0}
        found[title] = {**modes, **{"no dropout": s.conditions[0] for s in swept[:1] if s.x[0] == 0}}
    return found


def mask_frontiers(results: Results) -> dict[str, list[Series]]:
    """A beta sweep for each p of NLPO's mask, for PPO, and for PPO that samples by top-p."""

    def named(row) -> str:
        if row.algorithm == "nlpo":
            return f"NLPO, p = {row.mask_top_p:g}"
        return "PPO" if row.top_p == 1 else f"PPO, top-p {row.top_p:g}"

    same = {
        "refresh": usual(results, "sync_every"),
        "mask": "policy",
        "mask_min_tokens": usual(results, "mask_min_tokens"),
    }
    sweeps = [*lines(results, "kl_coef", named, algorithm="ppo", kl_target=0.0),
              *lines(results, "kl_coef", named, algorithm="nlpo", kl_target=0.0, **same)]  # fmt: skip
    swept = [s for s in sweeps if len(s.conditions) > 1]
    own = [Series(s.label, s.conditions, s.x, "own") for s in swept]
    return {"decoded plainly": swept, "decoded as trained": own} if swept else {}


def budget_lines(results: Results) -> list[Series]:
    """Each method along the share of the labelled reviews it uses."""
    said = {
        "ppo": "PPO, reward learnt from them", "nlpo": "NLPO, reward learnt from them",
        "supervised": IMITATION,
        "filtered": "supervised on what the reward accepts", "best_of_n": "best of n by the reward",
    }  # fmt: skip
    at = {"kl_coef": usual(results, "kl_coef"), "kl_target": 0.0}
    start = untrained(results)
    return [
        # best of n is a way of decoding the untrained model: plainly decoded, it is that model
        Series(s.label, s.conditions, s.x, "own" if a == "best_of_n" else "plain", (start,) * len(s.x) if start else ())
        for a in said
        for s in lines(
            results, "share", lambda r: said[r.algorithm], algorithm=a, start="", **(at if a in ("ppo", "nlpo") else {})
        )
    ]


def reward_accuracy(results: Results) -> pd.DataFrame:
    """Validation accuracy of the reward models: columns share, seed, accuracy; empty where it was not measured."""
    rows, folder = [], results.params.folder / "variants"
    for seed in results.seeds:
        path = folder / f"draw{seed}" / "variants.json"
        facts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for name, fact in facts.items():
            if (
                isinstance(fact, dict)
                and {"fraction", "validation_accuracy"} <= set(fact)
                and name.startswith("reward")
            ):
                rows.append(
                    {"share": float(fact["fraction"]), "seed": seed, "accuracy": float(fact["validation_accuracy"])}
                )
    return pd.DataFrame(rows, columns=["share", "seed", "accuracy"])


def start_pairs(results: Results) -> list[tuple[str, str, str]]:
    """(what is compared, first, second) of the warm start, as far as both were run."""
    pairs = [(f"{s} − {WITHOUT[s]}", s, WITHOUT[s]) for s in START]
    pairs += [(f"{s} − supervised", s, "supervised") for s in START]
    pairs += [(f"{a} − supervised", a, "supervised") for a in WITHOUT.values()]
    pairs += [(f"{s} − {other}, equal compute", s, other) for s, others in LONGER.items() for other in others]
    return [p for p in pairs if {p[1], p[2]} <= set(results.conditions)]


def matched(results: Results, condition: str) -> str | None:
    """The decoding that samples as the condition was trained; None if no decoding has its settings."""
    row, evaluation = trained(results).loc[condition], results.params.evaluation
    if row.top_k:
        return "top_k" if row.top_k == evaluation.top_k else None
    if row.temperature != 1:
        return "temperature" if row.temperature == evaluation.temperature else None
    if row.top_p != 1:
        return "top_p" if row.top_p == evaluation.top_p else None
    return "plain"


SAMPLERS = {
    "plain": "ancestral",
    "top_k": "top-k",
    "top_p": "top-p",
    "temperature": "temperature",
    "greedy": "greedy",
    "beam": "beam",
}


def sampling_rows(results: Results) -> dict[str, str]:
    """Name of the sampler in training -> condition: the conditions that are PPO and have a matching decoding."""
    table = trained(results)
    own = {c: matched(results, c) for c in table.index[(table.algorithm == "ppo") & (table.world == "")]}
    return {SAMPLERS[own[c]]: c for d in SAMPLERS for c in own if own[c] == d}


def sampling_grid(results: Results, metric: str) -> dict[tuple[str, str], np.ndarray]:
    """(sampler in training, decoding in evaluation) -> [n seeds], for a metric or a gain ("gain:score")."""
    cells = {
        (row, shown): measure(results, condition, metric, decoding)
        for row, condition in sampling_rows(results).items()
        for decoding, shown in SAMPLERS.items()
    }
    return {k: v for k, v in cells.items() if v is not None}


def matched_contrast(results: Results, metric: str) -> stats.Paired | None:
    """Seed by seed: mean over matched cells minus mean over mismatched ones, of the samplers that are rows and columns.

    The rows' and columns' own effects cancel where the square is full (each row and column has one matched cell); the
    contrast is only made there. Needs two samplers at least.
    """
    cells = sampling_grid(results, metric)
    names = [n for n in sampling_rows(results) if all((row, n) in cells for row in sampling_rows(results))]
    if len(names) < 2:
        return None
    same = np.mean([cells[n, n] for n in names], axis=0)
    other = np.mean([cells[a, b] for a in names for b in names if a != b], axis=0)
    return stats.paired(same, other)


def vocabulary_lines(results: Results) -> list[Series]:
    """PPO along the number of tokens that exist (all: their number), and the untrained model of each."""
    table = design(results)
    everything = _tokens(results)
    swept = [
        s
        for s in lines(results, "vocabulary", algorithm="ppo", kl_coef=usual(results, "kl_coef"), kl_target=0.0)
        if any(s.x) or len(s.x)
    ]
    found = []
    for s in swept:
        points = sorted((n or everything, c, untrained(results, int(n)) or "") for n, c in zip(s.x, s.conditions))
        found.append(
            Series(
                "PPO", tuple(c for _, c, _ in points), tuple(n for n, _, _ in points), base=tuple(b for *_, b in points)
            )
        )
    starts = sorted(
        (float(table.vocabulary[c] or everything), c)
        for c in table.index[table.world == ""]
        if c not in trained(results).index
    )
    if starts:
        found.append(Series("zero-shot, same tokens", tuple(c for _, c in starts), tuple(n for n, _ in starts)))
    return found


def _tokens(results: Results) -> float:
    """Size of the whole vocabulary: the mean over draws, whose texts differ; inf where it is not known."""
    sizes = [m["policy"]["vocabulary"] for m in results.models.values() if "vocabulary" in m.get("policy", {})]
    return float(round(np.mean(sizes))) if sizes else math.inf


def contrasts(results: Results, name: str) -> list[tuple[str, str, str, str, str]]:
    """(what is compared, first, second, decoding of each) of the report's figure of differences."""
    pairs = PARTS if name == "mask" else [(said, a, b, "plain", "plain") for said, a, b in start_pairs(results)]
    return [p for p in pairs if {p[1], p[2]} <= set(results.conditions)]


def plain(value: Any) -> Any:
    """Numbers as JSON has them (1 and 1.0 are one value), tuples as lists."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return float(value) if isinstance(value, (int, float, np.number)) else value
