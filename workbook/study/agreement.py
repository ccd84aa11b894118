"""How far raters agree, and what their ratings say about the systems that wrote the texts.

Tables have one row per rating (``ratings.table``) with the columns item, rater, value and, to compare systems, system.
``anova.py`` has the tests of Ramamurthy et al. 2022 (arXiv:2210.01241, Tables 10, 15, 21, 26, 35): they take
every rating for an independent one. A rater rates many texts and a text has several raters, so ``clustered`` (a
bootstrap of whole raters and whole texts) and ``mixed_model`` stand beside them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import special, stats

from workbook.statistics.paired import Interval
from workbook.study.anova import expect_columns, systems_of
from workbook.study.ratings import PreferenceError

LEVELS = ("nominal", "ordinal", "interval", "ratio")


# --------------------------------------------------------------------------------------------------------- agreement
def alpha(table: pd.DataFrame, level: str = "nominal", value: str = "value") -> float:
    """Krippendorff's alpha: 1 - (disagreement seen) / (disagreement expected of the same ratings, shuffled).

    level: what a difference means: "nominal" (same or not), "ordinal", "interval" (squared distance), "ratio"; value:
    the column, "chosen" for choices. Items with one rating do not count. 1: the raters agree; 0: as by chance; below:
    worse.
    Raises: PreferenceError for a missing column, one rater only, no item that two rated, ratings that are all the same
    (alpha is then 0 / 0), another level.
    """
    return _alpha(*_counts(table, level, value), level)


def alpha_interval(
    table: pd.DataFrame, level: str = "nominal", value: str = "value", resamples: int = 1000, seed: int = 0
) -> Interval:
    """``alpha`` and its 95 % percentile interval over resampled items; n: items with two ratings or more.

    It speaks of other items and these raters: as few raters as a study has cannot be drawn anew for agreement.
    """
    counts, domain = _counts(table, level, value)
    rng, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        drawn = counts[rng.integers(len(counts), size=len(counts))]
        if (drawn.sum(0) > 0).sum() > 1:  # else alpha is 0 / 0
            found.append(_alpha(drawn, domain, level))
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(_alpha(counts, domain, level), float(low), float(high), len(counts))


def _counts(table: pd.DataFrame, level: str, value: str) -> tuple[np.ndarray, np.ndarray]:
    """(how often each value was given to each item [items, values], the values in order)."""
    if level not in LEVELS:
        raise PreferenceError(f"level: expected one of {', '.join(LEVELS)}; got {level!r}")
    expect_columns(table, "item", "rater", value)
    if table["rater"].nunique() < 2:
        raise PreferenceError(f"agreement needs two raters or more, found one: {table['rater'].iloc[0]!r}")
    twice = table.duplicated(["item", "rater"])
    if twice.any():
        row = table[twice].iloc[0]
        raise PreferenceError(f"rater {row['rater']!r} has two ratings of item {row['item']!r}; one question at a time")
    if level != "nominal" and not pd.api.types.is_numeric_dtype(table[value]):
        raise PreferenceError(f"level {level}: expected numbers in {value!r}, found {table[value].iloc[0]!r}")
    counts = pd.crosstab(table["item"], table[value])
    counts = counts[counts.sum(axis=1) > 1]
    counts = counts.loc[:, counts.sum() > 0]
    if not len(counts):
        raise PreferenceError("agreement: no item has two ratings")
    if counts.shape[1] < 2:
        raise PreferenceError(f"agreement: all ratings are {counts.columns[0]}; where none differs, alpha is 0 / 0")
    return counts.to_numpy(), counts.columns.to_numpy()


def _alpha(counts: np.ndarray, domain: np.ndarray, level: str) -> float:
    import krippendorff

    if level == "nominal":
        domain = np.arange(len(domain))
    return float(krippendorff.alpha(value_counts=counts, value_domain=domain, level_of_measurement=level))


# --------------------------------------------------------------------------- raters and texts repeat: whole clusters
@dataclass(frozen=True)
class Effect:
    """An estimate in units of the rating: standard error, 95 % interval, two-sided p against 0; n: the fewest
    clusters."""

    estimate: float
    error: float
    low: float
    high: float
    p: float
    n: int


def clustered(
    table: pd.DataFrame,
    first: str | None = None,
    second: str | None = None,
    clusters: Sequence[str] = ("rater", "item"),
    resamples: int = 1000,
    seed: int = 0,
) -> Effect:
    """Mean rating of ``second`` minus that of ``first`` (None: the mean of all ratings), its error from whole clusters.

    Whole raters are drawn anew with all their ratings, then whole items, then single ratings; the variance of the
    estimate is V(raters) + V(items) - V(ratings), as what is in both is counted twice (Cameron, Gelbach and Miller
    2011), and at least the larger of the first two. Interval and p: t with one less than the fewest clusters of either
    system. One name in
    ``clusters``: that one alone. The same seed gives the same numbers.
    Raises: PreferenceError for a missing column or system, or for one cluster only (one rater: nothing says how another
    would have rated; clusters=("item",) then speaks of that rater alone).
    Limits: clusters of one rating each give the error of independent ratings; ratings without any spread have error 0
    and,
    unless the estimate is 0, no p (nan): nothing was seen that could measure one.
    In simulated studies without an effect p < .05 comes up in about 5 % of them or less (8 to 200 items, 3 to 30
    raters; at worst about 7 %, choices by 12 raters who lean strongly); with four raters who rate one system only, in 1
    %.
    """
    expect_columns(table, "value", *clusters)
    values, arms = table["value"].to_numpy(float), [np.ones(len(table), bool)]
    if first is not None or second is not None:
        expect_columns(table, "system")
        arms = [(table["system"] == name).to_numpy() for name in (second, first)]
        for name, arm in zip((second, first), arms):
            if not arm.any():
                raise PreferenceError(
                    f"no rating of system {name!r} (there: {', '.join(sorted(set(table['system'])))})"
                )
    codes = {name: pd.factorize(table[name])[0] for name in clusters}
    counted = {name: min(len(set(code[arm])) for arm in arms) for name, code in codes.items()}
    for name, n in counted.items():
        if n < 2:
            others = [other for other in codes if other != name]
            hint = f"; clusters={tuple(others)!r} leaves it out and then speaks of that one alone" if others else ""
            raise PreferenceError(f"one {name} only: nothing says how another {name} would differ{hint}")
    rng = np.random.default_rng(seed)
    variances = [_variance(values, arms, code, resamples, rng) for code in codes.values()]
    total = variances[0]
    if len(codes) == 2:
        total = max(*variances, sum(variances) - _variance(values, arms, np.arange(len(values)), resamples, rng))
    estimate = float(_estimate(values, arms, np.ones((1, len(values))))[0])
    return _effect(estimate, math.sqrt(total), min(counted.values()))


def _effect(estimate: float, error: float, n: int) -> Effect:
    half = float(special.stdtrit(n - 1, 0.975)) * error
    p = 2 * float(special.stdtr(n - 1, -abs(estimate) / error)) if error > 0 else math.nan if estimate else 1.0
    return Effect(estimate, error, estimate - half, estimate + half, p, n)


def _estimate(values: np.ndarray, arms: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Weighted mean of the first arm minus that of the second [R], for weights [R, N]; not finite where an arm has
    none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [weights[:, arm] @ values[arm] / weights[:, arm].sum(1) for arm in arms]
    return means[0] - means[1] if len(means) == 2 else means[0]


def _variance(values, arms, code: np.ndarray, resamples: int, rng: np.random.Generator) -> float:
    """Bootstrap variance of the estimate when whole clusters (``code`` [N], 0 to G - 1) are drawn with replacement."""
    G, chunk, found = int(code.max()) + 1, 200, []
    for begin in range(0, resamples, chunk):
        weights = rng.multinomial(G, np.full(G, 1 / G), size=min(chunk, resamples - begin))
        found.append(_estimate(values, arms, weights[:, code]))
    estimates = np.concatenate(found)
    return float(np.var(estimates[np.isfinite(estimates)], ddof=1)) * G / (G - 1)


def mixed_model(table: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """value ~ system + (1 | rater) + (1 | item), by restricted maximum likelihood (statsmodels' MixedLM).

    A rater's severity and a text's quality are random draws of their own spread. Returns a row per system other than
    ``baseline`` (None: the first by name): system, difference to it, error, low, high, p (normal, 95 %), and, the same
    in every row, the standard deviations ``rater``, ``item`` and ``rest`` and whether the fit ``converged``.
    It does not know that raters may differ in which *system* they like; ``clustered`` by rater does.
    Raises: PreferenceError as ``tukey``, for a missing column, an unknown baseline, and for one rater or one item.
    """
    groups = systems_of(table)
    expect_columns(table, "rater", "item")
    for name in ("rater", "item"):
        if table[name].nunique() < 2:
            raise PreferenceError(f"one {name} only: a mixed model needs two or more")
    names = list(groups)
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise PreferenceError(f"no rating of system {baseline!r} (there: {', '.join(names)})")
    others = [name for name in names if name != baseline]
    written = table["system"].astype(str)
    fixed = np.column_stack([np.ones(len(table)), *((written == name).to_numpy(float) for name in others)])
    fit, spreads = _crossed(table, fixed)
    low, high = np.asarray(fit.conf_int())[1 : len(names)].T
    return pd.DataFrame(
        {
            "system": others,
            "difference": fit.fe_params[1:],
            "error": fit.bse_fe[1:],
            "low": low,
            "high": high,
            "p": fit.pvalues[1 : len(names)],
            **spreads,
            "rest": math.sqrt(fit.scale),
            "converged": bool(fit.converged),
        }
    )


def mixed_mean(table: pd.DataFrame) -> Effect:
    """Mean rating by value ~ 1 + (1 | rater) + (1 | item), as ``mixed_model``: for choices, how far from 0 (no
    preference).

    Interval and p are normal; n: the fewest clusters. Raises: PreferenceError for a missing column, one rater or one
    item, and where no two ratings differ.
    """
    expect_columns(table, "value", "rater", "item")
    n = min(table[name].nunique() for name in ("rater", "item"))
    if n < 2 or table["value"].nunique() < 2:
        raise PreferenceError("a mixed model needs two raters and two items or more, and ratings that differ")
    fit, _ = _crossed(table, np.ones((len(table), 1)))
    low, high = np.asarray(fit.conf_int())[0]
    return Effect(float(fit.fe_params[0]), float(fit.bse_fe[0]), float(low), float(high), float(fit.pvalues[0]), n)


def _crossed(table: pd.DataFrame, fixed: np.ndarray):
    """(statsmodels' fit of value on ``fixed`` [N, k] with random raters and items, {"item", "rater": spread})."""
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    one = np.zeros(len(table))  # raters and items cross: all ratings are one group, with two sets of random effects
    random = {name: pd.get_dummies(table[name]).to_numpy(float) for name in ("item", "rater")}
    labels = [[list(map(str, range(columns.shape[1])))] for columns in random.values()]
    parts = VCSpec(list(random), labels, [[columns] for columns in random.values()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a spread of 0 lies on the boundary; ``converged`` and the spreads say so
        model = MixedLM(table["value"].to_numpy(float), fixed, one, exog_vc=parts)
        fit = model.fit(reml=True, method=["lbfgs", "powell"])
    return fit, dict(zip(random, np.sqrt(np.maximum(fit.vcomp, 0))))


# ------------------------------------------------------------------------------------------------------- comparisons
@dataclass(frozen=True)
class Comparison:
    """How often the second of two systems was chosen. wins, losses, ties: judgements; share: (wins + ties / 2) / all.

    p_naive: two-sided binomial p of wins against losses, as if every judgement were independent (the paper's); low,
    high, p: of the share, from whole raters and whole items (``clustered``); systems: (first, second).
    """

    systems: tuple[str, str]
    wins: int
    losses: int
    ties: int
    share: float
    p_naive: float
    low: float
    high: float
    p: float


def compare(choices: pd.DataFrame, clusters: Sequence[str] = ("rater", "item"), seed: int = 0) -> Comparison:
    """Which system do raters choose? choices: ``ratings.table(choices, pairs)``.

    Where all judgements are the same there is no spread to resample: low, high and p are then those of as many
    independent judgements as there are clusters of the rarest kind, exact (Clopper and Pearson). Raises:
    PreferenceError, as ``clustered``.
    """
    expect_columns(choices, "value", "item", "rater")
    values = choices["value"]
    wins, losses, ties = (int((values == sign).sum()) for sign in (1, -1, 0))
    effect = clustered(choices, clusters=clusters, seed=seed)
    if wins + losses and effect.error == 0:
        one = stats.binomtest(effect.n if wins else 0, effect.n)
        edges = one.proportion_ci()
        effect = replace(effect, low=2 * edges.low - 1, high=2 * edges.high - 1, p=float(one.pvalue))
    naive = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    low, high = ((1 + edge) / 2 for edge in (effect.low, effect.high))
    systems, share = tuple(choices.attrs.get("systems", ("first", "second"))), (1 + effect.estimate) / 2
    return Comparison(systems, wins, losses, ties, share, naive, max(0.0, low), min(1.0, high), effect.p)


def discounted_p(z: float, each: int, correlation: float) -> float:
    """Two-sided p of a z that took judgements for independent, when ``each`` of them share an item and correlate.

    z / sqrt(1 + (each - 1) correlation), the design effect. Limits: correlation 0 changes nothing; 1 leaves one of
    each.
    """
    return float(2 * stats.norm.sf(abs(z) / math.sqrt(1 + (each - 1) * correlation)))


def planted(
    systems: dict[str, float],
    items: int = 30,
    raters: int = 15,
    each: int = 3,
    rater_spread: float = 0.5,
    item_spread: float = 0.5,
    noise: float = 1.0,
    shared_raters: bool = False,
    seed: int = 0,
) -> pd.DataFrame:
    """Made-up ratings with known means, to see which test can be trusted.

        value = systems[system] + rater's severity + item's quality + noise

    systems: true means; items, raters: of each system; each: raters of an item; the spreads are standard deviations.
    shared_raters: the same raters rate all systems (else each system has its own, as workers who come and go).
    Returns the columns item, rater, system, value. Raises: PreferenceError for fewer raters than ``each``.
    """
    if not 1 <= each <= raters:
        raise PreferenceError(f"{each} raters of each item: expected 1 to {raters}, as many as there are")
    rng, rows = np.random.default_rng(seed), []
    severity = rng.normal(0, rater_spread, raters)
    for name, mean in systems.items():
        if not shared_raters:
            severity = rng.normal(0, rater_spread, raters)
        whose = "" if shared_raters else f"{name} "
        turns = np.concatenate([rng.permutation(raters) for _ in range(-(-items * each // raters) + each)]).tolist()
        for item in range(items):
            quality, seen = rng.normal(0, item_spread), []
            while len(seen) < each:  # the next in turn who has not rated this item
                place = next(i for i, rater in enumerate(turns) if rater not in seen)
                seen.append(turns.pop(place))
            for rater in seen:
                value = mean + severity[rater] + quality + rng.normal(0, noise)
                rows.append((f"{name} {item}", f"{whose}rater {rater}", name, value))
    return pd.DataFrame(rows, columns=["item", "rater", "system", "value"])
