"""Trends, bends, peaks and matched KL, against polynomial fits, statsmodels and hand-worked curves."""

import itertools
import math
from dataclasses import astuple

import numpy as np
import pytest
import statsmodels.api as sm

from workbook.statistics import ordered, paired, rule

LEVELS = [0.5, 0.9, 0.95, 0.99, 1.0]


@pytest.mark.parametrize("levels", [LEVELS, [0, 1, 2, 3, 4], [1e-6, 5e-6, 1e-5, 2e-4, 3e-3], [4, 2, 1, 8, 5]])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_weights_give_the_leading_coefficient_of_the_fit(levels, degree):
    values = np.random.default_rng(0).normal(size=(5, 4))
    found = ordered.contrast(values, ordered.polynomial_weights(levels, degree))
    x = np.array(levels) / max(levels)  # polyfit itself needs well-scaled levels
    assert found * max(levels) ** degree == pytest.approx(np.polyfit(x, values, degree)[0], rel=1e-6)


def test_weights_are_orthogonal_and_known_for_equal_steps():
    linear, quadratic = (ordered.polynomial_weights(range(5), d) for d in (1, 2))
    assert linear * 10 == pytest.approx([-2, -1, 0, 1, 2])  # the textbook contrasts
    assert quadratic * 14 == pytest.approx([2, -1, -2, -1, 2])
    uneven = ordered.polynomial_weights(LEVELS, 2)
    assert uneven.sum() == pytest.approx(0, abs=1e-9) and uneven @ LEVELS == pytest.approx(0, abs=1e-9)
    x = np.array(LEVELS)
    assert uneven @ (3 + 2 * x - 7 * x**2) == pytest.approx(-7)


def test_slope_of_the_mean_curve_equals_statsmodels():
    values = np.random.default_rng(1).normal(size=(5, 6))
    slopes = ordered.contrast(values, ordered.polynomial_weights(LEVELS, 1))
    fit = sm.OLS(values.mean(axis=1), sm.add_constant(np.array(LEVELS))).fit()
    assert slopes.mean() == pytest.approx(fit.params[1]) and slopes.shape == (6,)


def test_weights_and_contrasts_refuse():
    for levels, degree in (([1, 2, 2], 1), ([1, 2], 2), ([1, 2, 3], 0)):
        with pytest.raises(ValueError, match="different levels"):
            ordered.polynomial_weights(levels, degree)
    with pytest.raises(ValueError, match="2 weights, 3 conditions"):
        ordered.contrast(np.zeros((3, 5)), [1, -1])
    with pytest.raises(ValueError, match="finite"):
        ordered.contrast(np.full((2, 5), np.nan), [1, -1])


def planted(shape, n, kind="normal", rng=None):
    """Curves [k, n]: a shape, an offset per seed (the pairing) and noise of sd 1 per value."""
    noise = rng.normal(size=(len(shape), n)) if kind == "normal" else rng.standard_t(3, (len(shape), n)) / math.sqrt(3)
    return np.array(shape)[:, None] + 5 * rng.normal(size=n) + noise


def test_peak_is_the_combination_of_its_parts():
    values = planted([0, 3, 6, 4, 0], 6, rng=np.random.default_rng(3))
    found = ordered.peak(values, LEVELS)
    weights = ordered.polynomial_weights(LEVELS, 2)
    assert found.curvature == paired.one_sample(weights @ values, "less")
    assert found.over_first[1] == paired.compare(values[2], values[0], "greater")
    assert found.over_last[2] == paired.compare(values[3], values[4], "greater")

    def some(parts):  # the best interior condition: t p after Holm, exact p as it is
        adjusted = rule.holm([p.evidence.p_for for p in parts])
        return min(max(a, p.p_permutation) for a, p in zip(adjusted, parts))

    best = [found.curvature.evidence.p, some(found.over_first), some(found.over_last)]
    assert found.p == pytest.approx(max(best))
    with pytest.raises(ValueError, match="three conditions, found 2"):
        ordered.peak(values[:2])


# shapes in sd of one value; rates a..b of holds and of opposite; in brackets those observed (5 and 10 seeds, normal and
# t(3) noise)
SHAPES = {
    "peak": ([0, 6, 12, 6, 0], (0.9, 1), (0, 0)),  # holds (1)
    "late peak": ([0, 4, 8, 12, 6], (0.9, 1), (0, 0)),  # holds (1)
    "up": ([0, 3, 6, 9, 12], (0, 0), (0.6, 1)),  # never holds; opposite (0.72 to 0.98): the last beats all others
    "level after a rise": (
        [0, 12, 12, 12, 12],
        (0, 0.07),
        (0, 0.05),
    ),  # the hardest curve without a peak (0.01 to 0.03)
    "flat": ([0, 0, 0, 0, 0], (0, 0.02), (0, 0.05)),  # never holds; opposite (0 to 0.02)
    "dip": ([12, 6, 0, 6, 12], (0, 0), (0.9, 1)),  # opposite (1)
}


@pytest.mark.parametrize("kind", ["normal", "t3"])
@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_peak_on_planted_curves(kind, n, shape):
    curve, holds, opposite = SHAPES[shape]
    rng, samples = np.random.default_rng(4), 150 if shape == "level after a rise" else 30
    words = [rule.decide(ordered.peak(planted(curve, n, kind, rng))) for _ in range(samples)]
    assert holds[0] <= words.count(rule.HOLDS) / samples <= holds[1]
    assert opposite[0] <= words.count(rule.OPPOSITE) / samples <= opposite[1]
    assert {*words} <= {rule.HOLDS, rule.OPPOSITE, *rule.OPENS}  # no size is stated of a shape


@pytest.mark.parametrize("n", [3, 5, 8])
def test_peaks_are_peak_sample_by_sample(n):
    rng = np.random.default_rng(5)
    shapes = [curve for curve, *_ in SHAPES.values()] * 5
    samples = np.array([planted(curve, n, "normal", rng) for curve in shapes])
    found = ordered.peaks(samples, LEVELS)
    for e, values in zip(found, samples):
        assert astuple(e) == pytest.approx(astuple(ordered.peak(values, LEVELS).evidence), rel=1e-9, abs=1e-12)
    words = {rule.decide(e) for e in found}
    assert words == {rule.FEW} if n == 3 else {rule.HOLDS, rule.OPPOSITE} <= words


def test_kendall_counts_pairs_in_the_same_order_seed_by_seed():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(6, 7)), rng.normal(size=(6, 7)).round(0)  # the second with ties

    def by_hand(x, y):
        pairs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in itertools.combinations(range(len(x)), 2)]
        untied = [math.sqrt(sum(p[side] != 0 for p in pairs)) for side in (0, 1)]
        return sum(a * b for a, b in pairs) / (untied[0] * untied[1])

    found = ordered.kendall(first, second)
    assert found == pytest.approx([by_hand(*pair) for pair in zip(first.T, second.T)])
    assert ordered.kendall(first, 3 * first + 1) == pytest.approx(np.ones(7))
    assert ordered.kendall(first, -first) == pytest.approx(-np.ones(7))
    level = np.where(np.arange(7) == 2, 0.5, first)  # no order at all in the third seed
    assert ordered.kendall(level, first)[2] == ordered.kendall(first, level)[2] == 0
    for bad in (second[:5], second[:, :6]):
        with pytest.raises(ValueError, match="the same in both"):
            ordered.kendall(first, bad)
    with pytest.raises(ValueError, match="two conditions or more"):
        ordered.kendall(first[:1], second[:1])


def test_kendall_of_unrelated_orders_is_0_on_average_and_as_often_below():
    """Over all 120 orders of five conditions, exactly."""
    orders = np.array(list(itertools.permutations(range(5)))).T
    found = ordered.kendall(np.arange(5)[:, None] + 0 * orders, orders)
    assert found.mean() == pytest.approx(0) and (found > 0).sum() == (found < 0).sum()


KLS, SCORES = [4.0, 0.5, 1.0, 2.0], [0.8, 0.5, 0.6, 0.7]  # a beta sweep, not in order of KL


def test_at_kl_interpolates_its_own_sweep():
    assert ordered.at_kl(KLS, SCORES, 1.5) == pytest.approx(0.65) and ordered.at_kl(KLS, SCORES, 3.0) == pytest.approx(
        0.75
    )
    assert ordered.at_kl(KLS, SCORES, 4.0) == 0.8
    assert math.isnan(ordered.at_kl(KLS, SCORES, 4.01)) and math.isnan(ordered.at_kl(KLS, SCORES, 0.49))
    grid = ordered.at_kl(KLS, SCORES, np.array([0.1, 0.75]))
    assert math.isnan(grid[0]) and grid[1] == pytest.approx(0.55)
    # equal KLs are one point with their mean metric: 0.6 and 0.9 at KL 1
    assert ordered.at_kl([*KLS, 1.0], [*SCORES, 0.9], 1.0) == pytest.approx(0.75)
    assert ordered.at_kl([*KLS, 1.0], [*SCORES, 0.9], 1.5) == pytest.approx((0.75 + 0.7) / 2)
    with pytest.raises(ValueError, match="at least 4 values of beta.*found 3 KLs and 3"):
        ordered.at_kl(KLS[:3], SCORES[:3], 1.0)
    with pytest.raises(ValueError, match="found 4 KLs and 3"):
        ordered.at_kl(KLS, SCORES[:3], 1.0)
    with pytest.raises(ValueError, match="finite"):
        ordered.at_kl(KLS, [0.1, math.nan, 0.2, 0.3], 1.0)


def test_matched_kl_finds_a_constant_gap_and_its_range():
    """Arms on lines score = 0.1 kl (+ 0.3 for the first) but at other KLs: unmatched means would hide the gap."""
    first = np.array([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7], [1.0, 1.2, 1.4], [2.0, 2.5, 3.0]])
    second = np.array([[4.0, 5.0, 6.0], [0.4, 0.5, 0.6], [1.5, 1.0, 2.0], [3.0, 3.5, 4.0], [2.0, 2.0, 2.2]])
    found = ordered.matched_kl(first, 0.1 * first + 0.3, second, 0.1 * second)
    assert found.differences == pytest.approx([0.3] * 3) and found.without_overlap == ()
    assert found.low == pytest.approx([0.4, 0.5, 0.6]) and found.high == pytest.approx([2.0, 2.5, 3.0])
    # a gap that grows with KL (0.2 kl) is averaged evenly over the range: 0.2 (low + high) / 2
    growing = ordered.matched_kl(first, 0.3 * first, second, 0.1 * second)
    assert growing.differences == pytest.approx(0.1 * (found.low + found.high))
    backwards = ordered.matched_kl(second, 0.1 * second, first, 0.1 * first + 0.3)
    assert backwards.differences == pytest.approx([-0.3] * 3)


def test_sweeps_of_masks_may_be_shorter_and_end_where_all_of_them_do():
    """Shares kept 0.6, 0.8 and 1 against 0.7, 0.9 and 1: a gap that closes evenly towards 1 is half of what it is at
    0.7."""
    kept, other = (np.array([[low], [high], [1.0]]) for low, high in ((0.6, 0.8), (0.7, 0.9)))
    found = ordered.matched_kl(kept, 2 - kept, other, 1.5 - 0.5 * other, least=ordered.MIN_MASKS)
    assert (found.low, found.high) == (pytest.approx([0.7]), pytest.approx([1.0]))
    assert found.differences == pytest.approx([0.5 * 0.3 / 2])
    with pytest.raises(ValueError, match="at least 4"):
        ordered.matched_kl(kept, kept, other, other)
    with pytest.raises(ValueError, match="at least 3"):
        ordered.matched_kl(kept[:2], kept[:2], other, other, least=ordered.MIN_MASKS)


def test_matched_kl_is_paired_and_decided():
    rng = np.random.default_rng(0)
    kls = np.array([0.2, 0.5, 1.0, 2.0])[:, None] * rng.uniform(0.8, 1.2, (4, 5))
    own = rng.normal(0, 3, 5)  # seeds differ widely; the arms of a seed do not
    gap = ordered.matched_kl(kls, 0.1 * kls + own + rng.normal(0.3, 0.02, 5), 1.1 * kls, 0.11 * kls + own)
    assert rule.decide(gap.test("greater")) == rule.HOLDS and rule.decide(gap.test("less")) == rule.OPPOSITE


def test_seed_without_overlap_is_named_and_refused():
    first = np.array([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]])
    second = first + [[0.1, 1.0]]
    found = ordered.matched_kl(first, first, second, second)
    assert found.without_overlap == (1,) and math.isnan(found.differences[1]) and math.isnan(found.low[1])
    with pytest.raises(ordered.NoOverlap, match=r"position\(s\) \[1\] of 2"):
        found.test("greater")
    touching = ordered.matched_kl(first, first, first + 0.3, first)  # one KL in common, 0.4
    assert touching.differences == pytest.approx([0.3] * 2)
    with pytest.raises(ValueError, match="same n seeds"):
        ordered.matched_kl(first, first, second[:, :1], second[:, :1])


def test_frontier_area_by_hand():
    # straight from 0.5 to 0.8: mean heights 0.55, 0.65, 0.75 over widths 0.5, 1, 2
    area = (0.55 * 0.5 + 0.65 * 1 + 0.75 * 2) / 3.5
    assert ordered.frontier_area(KLS, SCORES, 0.5, 4.0) == pytest.approx(area)
    assert ordered.frontier_area(KLS, SCORES, 1.2, 1.8) == pytest.approx(0.65)  # between two points
    # a collapse at large KL is not on the frontier: KL 2 and 4 count with 0.6
    falling = ordered.frontier_area(KLS, [0.1, 0.5, 0.6, 0.4], 1.0, 4.0)
    assert falling == pytest.approx(0.6)
    assert math.isnan(ordered.frontier_area(KLS, SCORES, 0.4, 2.0)) and math.isnan(
        ordered.frontier_area(KLS, SCORES, 1, 5)
    )
    assert ordered.frontier_area(KLS, SCORES, 2.0, 2.0) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="low <= high"):
        ordered.frontier_area(KLS, SCORES, 2.0, 1.0)


def test_frontier_difference_seed_by_seed():
    kls = np.array([KLS, [5.0, 0.6, 1.5, 3.0]]).T
    scores = np.array([SCORES, [0.9, 0.4, 0.6, 0.8]]).T
    found = ordered.frontier_difference(kls, scores, kls[:, ::-1], scores[:, ::-1])
    low, high = 0.6, 4.0
    by_hand = ordered.frontier_area(KLS, SCORES, low, high) - ordered.frontier_area(kls[:, 1], scores[:, 1], low, high)
    assert found.differences == pytest.approx([by_hand, -by_hand])
    assert (found.low[0], found.high[0]) == (low, high)
    assert ordered.frontier_difference(kls, scores + 0.2, kls, scores).differences == pytest.approx([0.2, 0.2])
