"""Levels of looks: against a two-dimensional normal integral, by simulation, and at their limits."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from workbook.statistics.sequential import levels, stage_wise


def test_one_look_spends_all():
    assert levels([7]) == pytest.approx((0.05,)) and levels([7], alpha=0.2) == pytest.approx((0.2,))


def test_two_looks_by_the_integral_over_both():
    """P(neither boundary crossed), a rectangle of the bivariate normal with correlation sqrt(n1 / n2), is 1 - alpha."""
    first, second = levels([8, 20])
    assert first == pytest.approx(0.05 * 8 / 20)
    bounds = scipy_stats.norm.isf(np.array([first, second]) / 2)
    both = scipy_stats.multivariate_normal(cov=[[1, math.sqrt(8 / 20)], [math.sqrt(8 / 20), 1]])
    assert both.cdf(bounds, lower_limit=-bounds) == pytest.approx(0.95, abs=1e-6)


def test_each_look_spends_its_share_and_all_together_alpha():
    looks, runs = (8, 16, 32), 100_000
    sums = np.random.default_rng(0).normal(size=(runs, 32)).cumsum(1)
    crossed = np.zeros(runs, bool)
    for n, level in zip(looks, levels(looks)):
        crossed |= np.abs(sums[:, n - 1]) / math.sqrt(n) > scipy_stats.norm.isf(level / 2)
        spent = 0.05 * n / 32
        assert abs(crossed.mean() - spent) <= 3 * math.sqrt(spent * (1 - spent) / runs)


def test_looks_must_grow():
    for wrong in ([], [8, 8], [8, 4], [0, 8]):
        with pytest.raises(ValueError, match="growing"):
            levels(wrong)


def test_the_stage_wise_p_is_what_is_spent_by_a_look_where_its_boundary_is_met():
    looks, spent = (8, 16, 32), 0.0
    for stage, (n, level) in enumerate(zip(looks, levels(looks))):
        assert stage_wise(0.0, looks, stage) == pytest.approx(spent)
        spent = 0.05 * n / 32
        assert stage_wise(level, looks, stage) == pytest.approx(spent)
        assert stage_wise(level / 2, looks, stage) < spent < stage_wise(level * 2, looks, stage)
        assert stage_wise(1.0, looks, stage) == pytest.approx(1.0)
    assert stage_wise(0.3, looks, 0) == pytest.approx(0.3) and stage_wise(0.3, [32], 0) == pytest.approx(0.3)


def test_the_stage_wise_p_is_a_p():
    """Where nothing is there it lies below u in u of the worlds, whichever look they end at."""
    looks, runs = (8, 16, 32), 20_000
    sums = np.random.default_rng(1).normal(size=(runs, 32)).cumsum(1)
    found = np.full(runs, np.nan)
    for stage, (n, level) in enumerate(zip(looks, levels(looks))):
        p = 2 * scipy_stats.norm.sf(np.abs(sums[:, n - 1]) / math.sqrt(n))
        ends = np.isnan(found) & ((p <= level) | (n == looks[-1]))
        found[ends] = [stage_wise(one, looks, stage) for one in p[ends]]
    for u in (0.01, 0.02, 0.05, 0.2, 0.7):
        assert abs((found <= u).mean() - u) <= 3 * math.sqrt(u * (1 - u) / runs)
