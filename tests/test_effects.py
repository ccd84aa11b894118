"""Effect sizes and numbers of seeds, against statsmodels and simulation."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.meta_analysis import effectsize_smd
from statsmodels.stats.power import TTestPower

from rlnlp import effects, stats


def test_hedges_g():
    a, b = [0.61, 0.58, 0.72, 0.66, 0.49], [0.41, 0.55, 0.38, 0.47, 0.52, 0.30]
    approximate, _ = effectsize_smd(np.mean(a), np.std(a, ddof=1), 5, np.mean(b), np.std(b, ddof=1), 6)
    assert effects.hedges_g(a, b) == pytest.approx(approximate, rel=2e-3)  # its correction is 1 - 3 / (4 N - 9)
    # 4 degrees of freedom: correction = Gamma(2) / (sqrt(2) Gamma(1.5)) = sqrt(2 / pi)
    d = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert effects.hedges_g_paired(d) == pytest.approx(3 / math.sqrt(2.5) * math.sqrt(2 / math.pi))
    assert effects.hedges_g_paired([0.0] * 3) == 0 and effects.hedges_g_paired([-0.1] * 3) == -math.inf
    assert effects.hedges_g([1, 1], [1, 1]) == 0 and effects.hedges_g([1, 1], [0, 0]) == math.inf
    with pytest.raises(stats.TooFewSeeds, match="found 2"):
        effects.hedges_g_paired([1, 2])


def test_hedges_g_is_unbiased():
    rng = np.random.default_rng(0)
    found = [effects.hedges_g_paired(d) for d in rng.normal(1.0, 1.0, (4000, 5))]
    assert np.mean(found) == pytest.approx(1.0, abs=4 * np.std(found) / math.sqrt(4000))  # uncorrected: 1.25


def test_fewest_seeds_agrees_with_the_refusal():
    n = effects.fewest_seeds(0.05)
    assert n == 5 and stats.smallest_p(n, "greater") <= 0.05 < stats.smallest_p(n - 1, "greater")
    assert effects.fewest_seeds(0.01) == 7


@pytest.mark.parametrize("size", [0.1, 0.3, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("alpha, power", [(0.05, 0.8), (0.01, 0.9)])
def test_n_needed_equals_statsmodels(size, alpha, power):
    n = effects.n_needed(-3 * size, 3.0, alpha, power)
    assert n == math.ceil(TTestPower().solve_power(size, power=power, alpha=alpha))


def test_n_needed_limits():
    assert effects.n_needed(0.1, 0.0) == 2 and effects.n_needed(0.0, 0.1) == math.inf == effects.n_needed(0.0, 0.0)
    assert effects.n_needed(0.03, 1.0) == 8723 and effects.n_needed(0.01, 1.0) == math.inf  # capped
    assert effects.n_needed_equivalence(1.0, 0.0) == 2 and effects.n_needed_equivalence(0.001, 1.0) == math.inf
    for wrong in ((0.1, -1.0), (float("nan"), 1.0), (0.1, math.inf)):
        with pytest.raises(ValueError, match="finite"):
            effects.n_needed(*wrong)


@pytest.mark.parametrize("margin, n", [(0.5, 36), (1.0, 11), (3.0, 3)])
def test_n_needed_for_equivalence_has_the_power(margin, n):
    """Simulated power at n is 0.8 or more, at n - 1 less (20,000 samples, so to 0.01)."""
    assert effects.n_needed_equivalence(2 * margin, 2.0) == n

    def power(seeds):
        x = np.random.default_rng(0).normal(size=(20_000, seeds))
        room = scipy_stats.t.ppf(0.95, seeds - 1) * x.std(axis=1, ddof=1) / math.sqrt(seeds)
        return np.mean(np.abs(x.mean(axis=1)) + room <= margin)

    assert power(n) >= 0.79 and power(n - 1) < 0.81


@pytest.mark.parametrize("ratio, n", [(1.5, 61), (math.e, 15), (7.4, 8)])
def test_n_needed_for_a_ratio_of_spreads_has_the_power(ratio, n):
    """Simulated power of Brown-Forsythe at n: 0.82, 0.83, 0.86 (4,000 samples)."""
    assert effects.n_needed_spread(math.log(ratio)) == n == effects.n_needed_spread(-math.log(ratio))
    rng = np.random.default_rng(0)
    x, y = ratio * rng.normal(size=(4000, n)), rng.normal(size=(4000, n))
    assert 0.79 < np.mean(scipy_stats.levene(x, y, center="median", axis=1).pvalue <= 0.05) < 0.9
    assert effects.n_needed_spread(0.0) == math.inf and effects.n_needed_spread(400.0) == 6
