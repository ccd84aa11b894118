"""Fractions of two arms, against scipy and counting."""

import pytest
from scipy import stats as scipy_stats

from workbook.statistics import independent, rule

A = [0.61, 0.58, 0.72, 0.66, 0.49]
B = [0.41, 0.55, 0.38, 0.47, 0.52, 0.30]
SIDES = ["two-sided", "greater", "less"]


@pytest.mark.parametrize("alternative", SIDES)
def test_fisher_equals_scipy_and_counting(alternative):
    found = independent.fisher(4, 5, 1, 6, alternative)
    assert found.p == pytest.approx(scipy_stats.fisher_exact([[4, 1], [1, 5]], alternative).pvalue)
    assert found.estimate == pytest.approx(4 / 5 - 1 / 6) and found.n == 11
    if alternative == "greater":  # 5 of 11 marked; 4 or 5 of them in the first five: (C(5,4) C(6,1) + C(5,5)) / C(11,5)
        assert found.p == pytest.approx(31 / 462)


def test_fisher_limits_and_verdicts():
    clear = independent.fisher(5, 5, 0, 5, "greater")
    assert clear.p == pytest.approx(1 / 252) == clear.smallest_p and rule.decide(clear) == rule.HOLDS
    assert rule.decide(independent.fisher(5, 5, 0, 5, "less")) == rule.OPPOSITE
    assert rule.decide(independent.fisher(3, 5, 0, 5, "greater")) == rule.OPEN_FOR  # 10 / 120
    assert rule.decide(independent.fisher(3, 5, 0, 5, "less")) == rule.OPEN_AGAINST
    assert rule.decide(independent.fisher(3, 5, 3, 5, "greater")) == rule.OPEN
    assert independent.fisher(0, 5, 0, 5).p == 1
    assert rule.decide(independent.fisher(2, 2, 0, 3, "greater")) == rule.FEW
    with pytest.raises(ValueError, match="6 of 5"):
        independent.fisher(6, 5, 0, 5)


def test_a_share_is_shown_to_be_below_another():
    """None of 5: a share of .5 would leave that 1 time in 32, one of .45 in 20 of 1,000."""
    assert independent.share_below(0, 5, 0.5) == pytest.approx(1 / 32)
    assert independent.share_below(1, 5, 0.5) == pytest.approx(6 / 32)
    for k, n in ((0, 5), (3, 16), (8, 32)):
        upper = scipy_stats.binomtest(k, n).proportion_ci(0.90, "exact").high  # Clopper-Pearson: .05 on each side
        assert independent.share_below(k, n, upper) == pytest.approx(0.05)
