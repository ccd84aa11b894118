"""Statistics on seed-level numbers: one value per seed, because the seed (= corpus draw) is the unit of replication.

    difference = compare(without_kl, with_kl, alternative="greater")     # two arrays [n], seed i in both
    decide(difference)                                                  # "holds" | "opposite" | "open, leans for" | ...
    decide(combine([difference, another], how="all"))                   # a claim with several parts

A permutation test of n paired seeds cannot give a p below 2^-n (one-sided), whatever the data. `smallest_p` says which,
and `sign_flip` refuses a test that could never reach alpha instead of reporting a p that looks like evidence.

Estimates and arms paired by seed are here; the rule and claims of several parts in `rule`; spreads and fractions of
independent arms in `independent`; ordered conditions and reward-KL curves in `ordered`; seeds needed in `power`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special, stats

from workbook.statistics.rule import Evidence, directed, untestable

ALPHA = 0.05
Alternative = Literal["two-sided", "greater", "less"]
MAX_EXACT = 20  # seeds up to which all 2^n sign flips are enumerated
MOST_FLIPPED = 12  # in simulations: above, the exact p of samples that are about normal is the t test's


class TooFewSeeds(ValueError):
    """The design cannot reach alpha, whatever the data say."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its 1 - alpha interval; low and high are None where one seed leaves the spread unknown."""

    estimate: float
    low: float | None
    high: float | None
    n: int

    def excludes(self, value: float) -> bool:
        return self.low is not None and not self.low <= value <= self.high


@dataclass(frozen=True)
class Paired:
    """Difference first - second over n seeds present in both arms.

    low, high: 1 - alpha t interval (always two-sided); p_permutation: exact sign-flip p in the direction of
    ``alternative``, None where `smallest_p` exceeds alpha; p_opposite: the same in the other direction; p_t: paired
    t test in the direction of ``alternative``; p_two_sided: the same, two-sided.
    """

    n: int
    difference: float
    low: float | None
    high: float | None
    alternative: Alternative
    alpha: float
    smallest_p: float
    p_permutation: float | None
    p_opposite: float | None
    p_t: float | None
    p_two_sided: float | None

    @property
    def evidence(self) -> Evidence:
        """Raises ValueError for a two-sided alternative: a claim needs a direction."""
        sign = direction(self.alternative)
        if self.p_permutation is None:
            return untestable(self.alpha)
        return directed(sign * self.difference, self.p_two_sided, self.p_permutation, self.p_opposite, self.alpha)


@dataclass(frozen=True)
class Equivalence:
    """Is a difference smaller than a margin? n seeds; low, high: 1 - 2 alpha interval (equivalent: it lies inside
    ±margin); low_wide, high_wide: 1 - alpha interval; p: the larger of the two one-sided t tests; p_beyond: two-sided p
    that |difference| exceeds the margin (<= alpha: the wide interval lies wholly outside). None at one seed.
    """

    n: int
    difference: float
    margin: float
    alpha: float
    low: float | None
    high: float | None
    low_wide: float | None
    high_wide: float | None
    p: float | None
    p_beyond: float | None

    @property
    def equivalent(self) -> bool:
        return self.p is not None and self.p <= self.alpha

    @property
    def evidence(self) -> Evidence:
        if self.p is None:
            return untestable(self.alpha)
        return Evidence(self.p, self.p_beyond, 0.0, 0.0, self.alpha, towards=self.margin - abs(self.difference))


def iqm(values: Sequence[float], axis: int = -1) -> float:
    """Interquartile mean: the mean without the lowest and highest quarter (Agarwal et al. 2021, arXiv:2108.13264).

    values [n], one per seed (or more dimensions, with axis); floor(n / 4) are dropped at each end, as in rliable.
    Limits: n < 4 gives the mean; equal values give that value.
    """
    return stats.trim_mean(np.asarray(values, dtype=float), 0.25, axis=axis)


def mean_interval(values: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Mean and t interval: m ± t(1 - alpha/2, n - 1) s / sqrt(n), s with n - 1.

    values [n >= 1]. Limits: n = 1 has no interval; equal values give an interval of width 0.
    """
    x = finite(values)
    if len(x) == 1:
        return Interval(float(x[0]), None, None, 1)
    half = special.stdtrit(len(x) - 1, 1 - alpha / 2) * x.std(ddof=1) / np.sqrt(len(x))
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half), len(x))


def bootstrap(
    *strata: Sequence[float],
    statistic: Callable[..., float] = iqm,
    alpha: float = ALPHA,
    method: Literal["percentile", "BCa"] = "BCa",
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a statistic over seeds, stratified: each stratum (task, say) is resampled on its own and
    the statistic is of all values together (rliable's stratified bootstrap). scipy.stats.bootstrap does the work.

    strata: one or more [n_i]; statistic: (array, axis=...) -> array without that axis. The same seed gives the same
    interval. Limits: equal values give width 0; strata of one seed each give no interval. With few seeds (n < 10) such
    intervals are too short: the t interval is the one decided on.
    """
    samples = [finite(s) for s in strata]
    everything = np.concatenate(samples)
    estimate, n = float(statistic(everything)), len(everything)
    if all(len(s) < 2 for s in samples):
        return Interval(estimate, None, None, n)
    if all(np.ptp(s) == 0 for s in samples):
        return Interval(estimate, estimate, estimate, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BCa of a statistic that the jackknife does not move; handled below
        found = stats.bootstrap(
            samples,
            lambda *parts, axis: statistic(np.concatenate(parts, axis=axis), axis=axis),
            n_resamples=resamples,
            vectorized=True,
            confidence_level=1 - alpha,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    if not np.isfinite([found.low, found.high]).all():
        return bootstrap(*strata, statistic=statistic, alpha=alpha, method="percentile", resamples=resamples, seed=seed)
    return Interval(estimate, float(found.low), float(found.high), n)


def smallest_p(n: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p that a sign-flip test of n pairs can give: 2^-n one-sided, 2^(1-n) two-sided (1 at most)."""
    if n < 1:
        raise ValueError(f"expected at least one pair, found {n}")
    return min(1.0, 2.0 ** (1 - n if alternative == "two-sided" else -n))


def sign_flip(
    differences: Sequence[float], alternative: Alternative = "two-sided", alpha: float | None = ALPHA
) -> float:
    """Exact sign-flip permutation p: the share of the 2^n sign patterns whose sum is as extreme as the one seen.

    differences [n], paired by seed; the null: each difference is symmetric about 0. Above MAX_EXACT seeds, 100,000
    seeded random patterns plus the one seen. Limits: all differences of one sign give `smallest_p`; all 0 gives 1.
    Raises: TooFewSeeds where `smallest_p` > alpha (alpha None: no refusal).
    """
    d = finite(differences)
    floor = smallest_p(len(d), alternative)
    if alpha is not None and floor > alpha:
        raise TooFewSeeds(
            f"{len(d)} seeds: the smallest p ({alternative}) is {floor:g} > {alpha:g}, so no test is made"
        )
    if len(d) <= MAX_EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1)
    else:
        drawn = np.random.default_rng(0).choice([-1, 1], (100_000, len(d)))
        signs = np.vstack([np.ones(len(d), int), drawn])
    sums, seen = signs @ d, d.sum()
    slack = 1e-12 * np.abs(d).sum()  # sums that differ by rounding only are ties
    if alternative == "greater":
        extreme = sums >= seen - slack
    elif alternative == "less":
        extreme = sums <= seen + slack
    else:
        extreme = np.abs(sums) >= abs(seen) - slack
    return float(extreme.mean())


def compare(
    first: Sequence[float], second: Sequence[float], alternative: Alternative = "two-sided", alpha: float = ALPHA
) -> Paired:
    """Compare two arms seed by seed: mean of first - second, its t interval, the exact permutation p.

    first, second [n], same seeds in the same order. alternative: direction of `first - second` that is claimed.
    Raises: ValueError for arms of different length.
    """
    a, b = finite(first), finite(second)
    if len(a) != len(b):
        raise ValueError(f"arms paired by seed must have the same seeds: {len(a)} and {len(b)} values")
    return one_sample(a - b, alternative, alpha)


def one_sample(differences: Sequence[float], alternative: Alternative = "two-sided", alpha: float = ALPHA) -> Paired:
    """`compare`, of differences (or of per-seed slopes) against 0."""
    d = finite(differences)
    interval = mean_interval(d, alpha)
    testable = smallest_p(len(d), alternative) <= alpha
    return Paired(
        n=len(d),
        difference=interval.estimate,
        low=interval.low,
        high=interval.high,
        alternative=alternative,
        alpha=alpha,
        smallest_p=smallest_p(len(d), alternative),
        p_permutation=sign_flip(d, alternative, alpha) if testable else None,
        p_opposite=sign_flip(d, opposite(alternative), alpha) if testable else None,
        p_t=_t_test(d, alternative) if len(d) > 1 else None,
        p_two_sided=_t_test(d) if len(d) > 1 else None,
    )


def equivalence(differences: Sequence[float], margin: float, alpha: float = ALPHA) -> Equivalence:
    """Two one-sided t tests (TOST; Schuirmann 1987) of seed-wise differences against ±margin: "no difference".

    differences [n], paired by seed; margin > 0, in the unit of the metric. Limits: a spread of 0 gives p = 0 inside the
    margin and 1 outside; one seed gives no test; equivalent exactly if the 1 - 2 alpha interval lies inside ±margin.
    Raises: ValueError for a margin that is not positive.
    """
    d = finite(differences)
    if not 0 < margin < math.inf:
        raise ValueError(f"an equivalence margin is a positive number in the metric's unit, found {margin!r}")
    inner, wide = mean_interval(d, 2 * alpha), mean_interval(d, alpha)
    p = p_beyond = None
    if len(d) > 1:
        p = max(_t_test(d + margin, "greater"), _t_test(d - margin, "less"))
        nearest = math.copysign(margin, inner.estimate)
        p_beyond = _t_test(d - nearest) if abs(inner.estimate) > margin else 1.0
    return Equivalence(
        n=len(d),
        difference=inner.estimate,
        margin=margin,
        alpha=alpha,
        low=inner.low,
        high=inner.high,
        low_wide=wide.low,
        high_wide=wide.high,
        p=p,
        p_beyond=p_beyond,
    )


def many(
    samples: np.ndarray, alternative: Alternative, bound: float | None = None, alpha: float = ALPHA
) -> list[Evidence]:
    """The evidence of `one_sample` of each sample, with the size that `equivalence` finds in it; all at once, for
    simulations.

    samples [r, n]: each as in `one_sample`; bound > 0: the effect stated beforehand, None if none was. Limits: r = 1 is
    one_sample's evidence with equivalence's p as p_small; a design in which `smallest_p` exceeds alpha is untestable
    throughout.
    """
    d, sign = np.asarray(samples, dtype=float), direction(alternative)
    r, n = d.shape
    if n < 2 or smallest_p(n, alternative) > alpha:
        return [untestable(alpha)] * r
    mean, scale = d.mean(1), d.std(1, ddof=1) / np.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        two_sided = 2 * special.stdtr(n - 1, -np.abs(mean / scale))
        small = np.ones(r) if bound is None else special.stdtr(n - 1, -(bound - np.abs(mean)) / scale)
    if (flat := np.ptp(d, axis=1) == 0).any():  # no spread at all: the limits, as of `_t_test`
        two_sided[flat] = np.where(mean[flat] == 0, 1.0, 0.0)
        if bound is not None:
            small[flat] = np.where(np.abs(mean[flat]) < bound, 0.0, 1.0)
    exact_for, exact_against = (np.zeros(r), np.zeros(r)) if n > MOST_FLIPPED else _flipped(sign * d)
    return [
        replace(directed(sign * m, p, f, a, alpha), p_small=q)
        for m, p, f, a, q in zip(*(v.tolist() for v in (mean, two_sided, exact_for, exact_against, small)))
    ]


def _flipped(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact one-sided sign-flip p of each row of d [r, n], that its mean is above 0 and that it is below."""
    n = d.shape[1]
    signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    sums, seen, slack = d @ signs.T, d.sum(1, keepdims=True), 1e-12 * np.abs(d).sum(1, keepdims=True)
    return (sums >= seen - slack).mean(1), (sums <= seen + slack).mean(1)


def opposite(alternative: Alternative) -> Alternative:
    return {"two-sided": "two-sided", "greater": "less", "less": "greater"}[alternative]


def direction(alternative: Alternative) -> int:
    """+1 for greater, -1 for less. Raises ValueError for two-sided: a claim needs a direction."""
    if alternative == "two-sided":
        raise ValueError("a claim needs a direction: greater or less")
    return 1 if alternative == "greater" else -1


def _t_test(d: np.ndarray, alternative: Alternative = "two-sided") -> float:
    """One-sample t test of d [n >= 2] against 0 (as scipy's, without its set-up time)."""
    if np.ptp(d) == 0:  # no spread at all: the limit, 0 in the direction seen, 1 against it
        seen = d[0] != 0 and (alternative == "two-sided" or (d[0] > 0) == (alternative == "greater"))
        return 0.0 if seen else 1.0
    t, freedom = d.mean() / (d.std(ddof=1) / np.sqrt(len(d))), len(d) - 1
    if alternative == "two-sided":
        return float(2 * special.stdtr(freedom, -abs(t)))
    return float(special.stdtr(freedom, -t if alternative == "greater" else t))


def finite(values: Sequence[float]) -> np.ndarray:
    """As a [n] float array. Raises ValueError if empty or not finite: a missing seed is never averaged away."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or len(x) == 0 or not np.isfinite(x).all():
        raise ValueError(f"expected one finite number per seed, found {values!r}")
    return x
