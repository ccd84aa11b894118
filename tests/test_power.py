"""Numbers of seeds, against statsmodels and simulation."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.power import TTestPower

from workbook.statistics import paired
from workbook.statistics.power import fewest_seeds, n_needed, n_needed_equivalence


def test_fewest_seeds_agrees_with_the_refusal():
    n = fewest_seeds(0.05)
    assert n == 5 and paired.smallest_p(n, "greater") <= 0.05 < paired.smallest_p(n - 1, "greater")
    assert fewest_seeds(0.01) == 7


@pytest.mark.parametrize("size", [0.1, 0.3, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("alpha, power", [(0.05, 0.8), (0.01, 0.9)])
def test_n_needed_equals_statsmodels(size, alpha, power):
    n = n_needed(-3 * size, 3.0, alpha, power)
    assert n == math.ceil(TTestPower().solve_power(size, power=power, alpha=alpha))


def test_n_needed_limits():
    assert n_needed(0.1, 0.0) == 2 and n_needed(0.0, 0.1) == math.inf == n_needed(0.0, 0.0)
    assert n_needed(0.03, 1.0) == 8723 and n_needed(0.01, 1.0) == math.inf  # capped
    assert n_needed_equivalence(1.0, 0.0) == 2 and n_needed_equivalence(0.001, 1.0) == math.inf
    for wrong in ((0.1, -1.0), (float("nan"), 1.0), (0.1, math.inf)):
        with pytest.raises(ValueError, match="finite"):
            n_needed(*wrong)


@pytest.mark.parametrize("margin, n", [(0.5, 36), (1.0, 11), (3.0, 3)])
def test_n_needed_for_equivalence_has_the_power(margin, n):
    """Simulated power at n is 0.8 or more, at n - 1 less (20,000 samples, so to 0.01)."""
    assert n_needed_equivalence(2 * margin, 2.0) == n

    def power(seeds):
        x = np.random.default_rng(0).normal(size=(20_000, seeds))
        room = scipy_stats.t.ppf(0.95, seeds - 1) * x.std(axis=1, ddof=1) / math.sqrt(seeds)
        return np.mean(np.abs(x.mean(axis=1)) + room <= margin)

    assert power(n) >= 0.79 and power(n - 1) < 0.81
