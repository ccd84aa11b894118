"""Ordered conditions (trend, bend, peak, rank) and reward-KL curves: one curve per seed, k conditions x n seeds.

slopes = contrast(values, polynomial_weights([0.9, 0.95, 0.99], degree=1))   # [n], one slope per seed
rule.decide(paired.one_sample(slopes, "greater"))
gap = matched_kl(ppo_kls, ppo_scores, nlpo_kls, nlpo_scores)                  # seed by seed, at equal measured KL
rule.decide(gap.test("less"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from workbook.statistics.paired import ALPHA, Alternative, Paired, finite, many, one_sample
from workbook.statistics.rule import Evidence, combine

MIN_SWEEP = 4  # values of beta below which a curve is not interpolated
MIN_MASKS = 3  # the same of a mask, over the mass it keeps: no mask at all, where that is 1, is its known end


class NoOverlap(ValueError):
    """Two curves of a seed have no KL in common, so nothing can be compared there."""


@dataclass(frozen=True)
class Peak:
    """A rise, then a fall. curvature: of the per-seed quadratic contrasts ("less" than 0); over_first, over_last: every
    interior condition against the first and the last ("greater"), in order; evidence: see `peak`; p: of the claim.
    """

    curvature: Paired
    over_first: tuple[Paired, ...]
    over_last: tuple[Paired, ...]
    evidence: Evidence

    @property
    def p(self) -> float:
        return self.evidence.p


@dataclass(frozen=True)
class Matched:
    """Seed-wise differences first - second [n] over the KL range [low, high] that the seed's two curves share.

    without_overlap: positions of the seeds whose curves share none; their difference, low and high are nan.
    """

    differences: np.ndarray
    low: np.ndarray
    high: np.ndarray
    without_overlap: tuple[int, ...]

    def test(self, alternative: Alternative = "two-sided", alpha: float = ALPHA) -> Paired:
        """`paired.one_sample` of the differences. Raises: NoOverlap if a seed has none: none is left out."""
        if self.without_overlap:
            raise NoOverlap(
                f"no KL in common in seed position(s) {list(self.without_overlap)} of {len(self.differences)}: "
                "widen the beta sweep of the arms; no test is made on the others alone"
            )
        return one_sample(self.differences, alternative, alpha)


def polynomial_weights(levels: Sequence[float], degree: int) -> np.ndarray:
    """Weights [k] whose sum with k means is the leading coefficient of the least-squares polynomial of this degree.

    levels [k]: where the conditions lie (ranks 0, 1, ... if only the order is claimed), all different, k > degree.
    They are the orthogonal polynomial contrasts, scaled: degree 1 gives the slope, in metric per unit of level (times
    the range: the fitted change from end to end); degree 2 the curvature, per unit squared (times minus a quarter of
    the range squared: how far the middle rises above the ends). Limits: they do not see polynomials of lower degree.
    Raises: ValueError for repeated levels or too few.
    """
    x = finite(levels)
    if degree < 1 or len(np.unique(x)) != len(x) or len(x) <= degree:
        raise ValueError(f"degree {degree} needs at least {degree + 1} different levels, found {list(levels)}")
    scale = np.ptp(x) / 2
    z = (x - x.mean()) / scale  # powers of raw levels (1e-6, say) would lose digits
    lower = np.vander(z, degree)
    rest = z**degree - lower @ np.linalg.lstsq(lower, z**degree)[0]
    return rest / (rest @ rest) / scale**degree


def contrast(values: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """One number per seed: the weighted sum of its conditions. values [k, n], weights [k] -> [n], for `one_sample`.

    Raises: ValueError for shapes that do not fit or values that are not finite.
    """
    v, w = _curves(values), finite(weights)
    if len(w) != len(v):
        raise ValueError(f"expected one weight per condition: {len(w)} weights, {len(v)} conditions")
    return w @ v


def peak(values: np.ndarray, levels: Sequence[float] | None = None, alpha: float = ALPHA) -> Peak:
    """Does the metric rise and then fall over ordered conditions? values [k >= 3, n]; a dip: pass -values.

    levels [k]: positions for the curvature, else ranks. Holds iff all three do (intersection-union): the curvature
    is negative; some interior condition beats the first; some interior condition beats the last, each "some" after Holm
    over the k - 2 interior conditions. Opposite iff, after Holm over the three, the curvature is positive, or the
    first, or the last, beats every interior condition.
    Error rate: each part is tested at alpha by `rule.decide`'s rule, so a curve without a peak (monotone, flat, or
    level after a rise) "holds" with probability <= alpha, however the conditions depend on each other, as long as
    the per-seed differences are about normal or symmetric. Curvature is required because one lucky interior
    condition is not a peak; it makes the test miss peaks close to an end.
    """
    v = _curves(values)
    if len(v) < 3:
        raise ValueError(f"a peak needs at least three conditions, found {len(v)}")
    weights = polynomial_weights(range(len(v)) if levels is None else levels, 2)
    curvature = one_sample(contrast(v, weights), "less", alpha)
    over_first = tuple(one_sample(row - v[0], "greater", alpha) for row in v[1:-1])
    over_last = tuple(one_sample(row - v[-1], "greater", alpha) for row in v[1:-1])
    parts = [curvature, combine(over_first, "any"), combine(over_last, "any")]
    return Peak(curvature, over_first, over_last, combine(parts, "all"))


def peaks(samples: np.ndarray, levels: Sequence[float], alpha: float = ALPHA) -> list[Evidence]:
    """The evidence of `peak` for many samples [r, k >= 3, n] at once, for simulations."""
    curvature = many(np.einsum("k,rkn->rn", polynomial_weights(levels, 2), samples), "less", alpha=alpha)
    inner = [
        [many(samples[:, i] - samples[:, end], "greater", alpha=alpha) for i in range(1, samples.shape[1] - 1)]
        for end in (0, -1)
    ]
    return [
        combine([curve, combine(first, "any"), combine(last, "any")], "all")
        for curve, first, last in zip(curvature, zip(*inner[0]), zip(*inner[1]))
    ]


def kendall(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of each seed, between the orders of the same k conditions by two numbers (as scipy's kendalltau).

    first, second [k >= 2, n] -> [n] in [-1, 1], for `one_sample`: 0 is what orders without relation have on average,
    and its sign is as likely. Limits: the same order gives 1, the reverse -1; a seed in which one of the two is the
    same for all conditions has no order to compare: 0.
    Raises: ValueError for shapes that differ or values that are not finite.
    """
    a, b = _curves(first), _curves(second)
    if a.shape != b.shape or len(a) < 2:
        raise ValueError(
            f"an order needs two conditions or more, the same in both: found shapes {a.shape} and {b.shape}"
        )
    pairs = list(zip(a.T, b.T))
    return np.array([scipy_stats.kendalltau(x, y).statistic if np.ptp(x) and np.ptp(y) else 0.0 for x, y in pairs])


def at_kl(
    kls: Sequence[float], metrics: Sequence[float], kl: float | np.ndarray, least: int = MIN_SWEEP
) -> float | np.ndarray:
    """One seed's metric at a given measured KL: linear interpolation of its own beta sweep, sorted by KL.

    kls, metrics [k >= 4]: measured KL (nats, any order) and the metric, one per beta; equal KLs count as one point with
    their mean metric. kl: a number or an array, same shape returned. least: points that a curve takes.
    Limits: nan outside the sweep's range, which is never extended; at a point of the sweep, its metric.
    Raises: ValueError for fewer than `least` or unequal lengths.
    """
    points, heights = _sweep(kls, metrics, least)
    found = np.interp(kl, points, heights, left=math.nan, right=math.nan)
    return float(found) if np.ndim(kl) == 0 else found


def matched_kl(
    first_kls: np.ndarray,
    first_metrics: np.ndarray,
    second_kls: np.ndarray,
    second_metrics: np.ndarray,
    points: int = 21,
    least: int = MIN_SWEEP,
) -> Matched:
    """Seed by seed, the mean of first - second over `points` equally spaced KLs of the range both its sweeps cover.

    kls, metrics [k >= least, n] (k may differ between arms, seed i in column i of both); see `at_kl`. In place of the
    KL, any measured number: the probability that masks keep, with `MIN_MASKS` as least.
    Limits: ranges that touch in one KL are compared there; a constant gap between two lines is that gap.
    """

    def gap(one, two, low, high):
        grid = np.linspace(low, high, points)
        return float(np.mean(at_kl(*one, grid, least) - at_kl(*two, grid, least)))

    return _matched(first_kls, first_metrics, second_kls, second_metrics, gap, least)


def frontier_area(kls: Sequence[float], metrics: Sequence[float], low: float, high: float) -> float:
    """Area under one seed's reward-KL frontier from KL low to high, divided by the width: the mean reward attainable.

    kls, metrics [k >= 4] as in `at_kl`. The frontier is the running maximum of the metric (higher is better) with
    growing KL, joined by straight lines: who may spend a KL may also spend less. Limits: nan where the sweep does not
    cover low..high; low = high gives the height there. Raises: ValueError for low > high.
    """
    if low > high:
        raise ValueError(f"expected low <= high, found {low:g} and {high:g}")
    points, heights = _sweep(kls, metrics)
    heights = np.maximum.accumulate(heights)
    inside = points[(points > low) & (points < high)]
    x = np.concatenate([[low], inside, [high]])
    y = np.interp(x, points, heights, left=math.nan, right=math.nan)
    return float(np.trapezoid(y, x) / (high - low)) if high > low else float(y[0])


def frontier_difference(
    first_kls: np.ndarray, first_metrics: np.ndarray, second_kls: np.ndarray, second_metrics: np.ndarray
) -> Matched:
    """Seed by seed, `frontier_area` of first - second over the KL range both its sweeps cover. Shapes: `matched_kl`."""

    def gap(one, two, low, high):
        return frontier_area(*one, low, high) - frontier_area(*two, low, high)

    return _matched(first_kls, first_metrics, second_kls, second_metrics, gap)


def _matched(
    first_kls, first_metrics, second_kls, second_metrics, gap: Callable[..., float], least: int = MIN_SWEEP
) -> Matched:
    arms = [_curves(v) for v in (first_kls, first_metrics, second_kls, second_metrics)]
    if arms[0].shape != arms[1].shape or arms[2].shape != arms[3].shape or arms[0].shape[1] != arms[2].shape[1]:
        raise ValueError(f"expected [k, n] KLs and metrics of the same n seeds, found {[a.shape for a in arms]}")
    rows = []
    for kls, metrics, other_kls, other_metrics in zip(*(a.T for a in arms)):
        one, two = _sweep(kls, metrics, least), _sweep(other_kls, other_metrics, least)
        low, high = max(one[0][0], two[0][0]), min(one[0][-1], two[0][-1])
        overlap = low <= high
        difference = gap((kls, metrics), (other_kls, other_metrics), low, high) if overlap else math.nan
        rows.append((difference, low, high) if overlap else (math.nan,) * 3)
    differences, low, high = np.array(rows).T
    return Matched(differences, low, high, tuple(int(i) for i in np.flatnonzero(np.isnan(differences))))


def _sweep(kls: Sequence[float], metrics: Sequence[float], least: int = MIN_SWEEP) -> tuple[np.ndarray, np.ndarray]:
    """Growing, distinct KLs and the (mean) metric at each."""
    x, y = finite(kls), finite(metrics)
    if len(x) != len(y) or len(x) < least:
        raise ValueError(
            f"a curve over KL needs at least {least} values of beta, each with its KL and its metric: "
            f"found {len(x)} KLs and {len(y)} metrics"
        )
    points, which = np.unique(x, return_inverse=True)
    return points, np.bincount(which, y) / np.bincount(which)


def _curves(values: np.ndarray) -> np.ndarray:
    v = np.asarray(values, dtype=float)
    if v.ndim != 2 or v.size == 0 or not np.isfinite(v).all():
        raise ValueError(f"expected finite numbers, conditions x seeds, found shape {v.shape}")
    return v
