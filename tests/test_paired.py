"""Statistics against scipy, statsmodels and closed forms, and the verdict rule on planted effects."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

from workbook.statistics import paired, rule

X = [0.61, 0.58, 0.72, 0.66, 0.49, 0.81, 0.55]


def test_iqm_is_the_mean_of_the_middle():
    assert paired.iqm([100, 1, 2, 3, -50]) == pytest.approx(2.0)
    assert paired.iqm([5, 9, 1, 2, 3, 4, 1000, -7]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert paired.iqm([1, 2, 6]) == pytest.approx(3.0)  # too few to trim


def test_t_interval_equals_statsmodels():
    found = paired.mean_interval(X, alpha=0.1)
    assert (found.low, found.high) == pytest.approx(DescrStatsW(X).tconfint_mean(0.1))
    assert found.estimate == pytest.approx(np.mean(X)) and found.n == 7
    assert paired.mean_interval([0.3]).low is None
    assert paired.mean_interval([0.3, 0.3]).high == pytest.approx(0.3)


@pytest.mark.parametrize("method", ["percentile", "BCa"])
def test_bootstrap_is_seeded_and_brackets(method):
    one = paired.bootstrap(X, statistic=np.mean, method=method, seed=1)
    assert one == paired.bootstrap(X, statistic=np.mean, method=method, seed=1)
    assert one != paired.bootstrap(X, statistic=np.mean, method=method, seed=2)
    assert one.low < np.mean(X) < one.high
    same = scipy_stats.bootstrap((X,), np.mean, n_resamples=20_000, method=method, rng=np.random.default_rng(5))
    assert (one.low, one.high) == pytest.approx(tuple(same.confidence_interval), abs=0.012)


def test_percentile_bootstrap_of_two_values_is_exact():
    # means of resamples of {0, 1} are 0, .5, 1 with probabilities 1/4, 1/2, 1/4
    inner = paired.bootstrap([0.0, 1.0], statistic=np.mean, method="percentile", alpha=0.3)  # 15 % and 85 %: the ends
    assert (inner.low, inner.high) == (0.0, 1.0)
    middle = paired.bootstrap([0.0, 1.0], statistic=np.mean, method="percentile", alpha=0.6)  # 30, 70 %: the middle
    assert (middle.low, middle.high) == (0.5, 0.5)
    wide = paired.bootstrap([0.0, 1.0], statistic=np.mean, method="percentile", alpha=0.05)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_stratified_bootstrap_never_mixes_strata():
    """Two strata without spread inside have an interval of width 0 together; unstratified they would not."""
    found = paired.bootstrap([0.0] * 5, [10.0] * 5, statistic=np.mean)
    assert (found.estimate, found.low, found.high) == (5.0, 5.0, 5.0)
    mixed = paired.bootstrap([0.0] * 5 + [10.0] * 5, statistic=np.mean)
    assert mixed.high - mixed.low > 3
    a, b = [0.0, 0.1, 0.2, 0.1], [10.0, 10.3, 10.1, 9.9]
    close = paired.bootstrap(a, b, statistic=np.mean, method="percentile")
    assert close.high - close.low < 0.3


def test_smallest_p():
    assert paired.smallest_p(3) == 0.25 and paired.smallest_p(3, "greater") == 0.125
    assert paired.smallest_p(5, "less") == 1 / 32 and paired.smallest_p(1) == 1.0


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_sign_flip_equals_scipy_and_closed_form(alternative):
    d = np.array([0.3, -0.1, 0.25, 0.4, 0.05, 0.2])
    exact = scipy_stats.permutation_test(
        (d,), np.mean, permutation_type="samples", alternative=alternative, n_resamples=np.inf
    ).pvalue
    assert paired.sign_flip(d, alternative) == pytest.approx(exact)
    if alternative == "greater":  # flips that keep the sum as large: none, {-.1}, {-.1, .05}
        assert paired.sign_flip(d, alternative) == pytest.approx(3 / 64)


def test_sign_flip_limits_and_refusal():
    assert paired.sign_flip([1, 2, 3, 4, 5, 6], "greater") == 1 / 64
    assert paired.sign_flip([0.0] * 6) == 1.0
    with pytest.raises(paired.TooFewSeeds, match="3 seeds.*0.25 > 0.05"):
        paired.sign_flip([1, 2, 3])
    assert paired.sign_flip([1, 2, 3], alpha=None) == 0.25
    many = np.linspace(-1, 1.4, 30)
    assert paired.sign_flip(many) == pytest.approx(scipy_stats.ttest_1samp(many, 0).pvalue, abs=0.01)


def test_paired_equals_scipy_t_test():
    a, b = np.array(X), np.array(X) - [0.1, 0.05, 0.2, 0.1, 0.02, 0.15, 0.07]
    found, t = paired.compare(a, b, "greater"), scipy_stats.ttest_rel(a, b, alternative="greater")
    assert found.p_t == pytest.approx(t.pvalue)
    two = scipy_stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((two.low, two.high))
    assert found.p_permutation == 1 / 128 and found.p_opposite == 1.0
    with pytest.raises(ValueError, match="same seeds"):
        paired.compare(a, b[:-1])
    with pytest.raises(ValueError, match="finite"):
        paired.compare([0.1, float("nan")], [0.1, 0.2])


def test_paired_without_spread():
    assert paired.compare([2, 2, 2, 2, 2], [1, 1, 1, 1, 1], "greater").p_t == 0.0
    assert paired.compare([2, 2, 2, 2, 2], [1, 1, 1, 1, 1], "less").p_t == 1.0
    assert rule.decide(paired.compare([1] * 5, [1] * 5, "greater")) == rule.OPEN


@pytest.mark.parametrize("n", [5, 8])
def test_rule_on_planted_effects(n):
    noise = np.random.default_rng(3).normal(0, 0.02, n)
    base = np.linspace(0.4, 0.6, n)
    up = paired.compare(base + 0.2 + noise, base, "greater")
    assert rule.decide(up) == rule.HOLDS
    assert rule.decide(paired.compare(base - 0.2 + noise, base, "greater")) == rule.OPPOSITE
    assert rule.decide(paired.compare(base - 0.2 + noise, base, "less")) == rule.HOLDS
    null = noise - noise.mean()
    assert rule.decide(paired.compare(base + null, base, "greater")) in rule.OPENS
    assert rule.decide(paired.compare(base + null + 0.001, base, "greater")) == rule.OPEN_FOR
    assert rule.decide(paired.compare(base + null - 0.001, base, "greater")) == rule.OPEN_AGAINST
    assert rule.decide(paired.compare(base + null - 0.001, base, "less")) == rule.OPEN_FOR


def test_rule_needs_interval_and_p_both():
    d = [0.1, 0.1, 0.1, 0.1, 2.0]  # one sign (p = 1/32), but the interval holds 0
    result = paired.one_sample(d, "greater")
    assert result.p_permutation <= 0.05 and result.low < 0 and rule.decide(result) == rule.OPEN_FOR


def test_rule_with_too_few_seeds():
    result = paired.compare([0.9, 0.91, 0.92], [0.5, 0.51, 0.52], "greater")
    assert result.p_permutation is None and rule.decide(result) == rule.FEW
    assert rule.decide(paired.compare([0.9], [0.5], "greater")) == rule.FEW


def test_rule_is_rarely_wrong_under_the_null():
    """Both wrong verdicts together stay at or below alpha (a simulation that a one-sided interval would fail)."""
    rng = np.random.default_rng(0)
    found = [rule.decide(paired.one_sample(rng.normal(size=5), "greater")) for _ in range(2000)]
    wrong = np.mean([v not in rule.OPENS for v in found])
    assert 0.005 < wrong <= 0.055


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.12, -0.3])
def test_equivalence_equals_statsmodels(shift):
    a = np.array(X) + shift
    b = a - shift - [0.03, -0.02, 0.05, 0.01, -0.04, 0.02, -0.01]
    found = paired.equivalence(a - b, 0.1)
    assert found.p == pytest.approx(ttost_paired(a, b, -0.1, 0.1)[0], rel=1e-6)
    assert (found.low, found.high) == pytest.approx(DescrStatsW(a - b).tconfint_mean(0.1))
    assert (found.low_wide, found.high_wide) == pytest.approx(DescrStatsW(a - b).tconfint_mean(0.05))
    assert found.equivalent == (-0.1 < found.low and found.high < 0.1)
    beyond = found.low_wide > 0.1 or found.high_wide < -0.1
    lean = rule.OPEN_FOR if abs(found.difference) < 0.1 else rule.OPEN_AGAINST
    word = rule.HOLDS if found.equivalent else rule.OPPOSITE if beyond else lean
    assert rule.decide(found) == word and word == {0.12: rule.OPEN_AGAINST, -0.3: rule.OPPOSITE}.get(shift, rule.HOLDS)
    if shift == -0.3:  # against the margin on that side, two-sided
        assert found.p_beyond == pytest.approx(scipy_stats.ttest_1samp(a - b, -0.1).pvalue)


def test_equivalence_limits():
    assert paired.equivalence([0.05] * 5, 0.1).p == 0 and paired.equivalence([0.2] * 5, 0.1).p == 1
    assert rule.decide(paired.equivalence([0.2] * 5, 0.1)) == rule.OPPOSITE
    assert paired.equivalence([0.1] * 5, 0.1).p == 1 and rule.decide(paired.equivalence([0.1] * 5, 0.1)) in rule.OPENS
    assert rule.decide(paired.equivalence([-0.3, 0.3, 0.1], 0.1)) == rule.OPEN_FOR  # the mean is within the margin
    one = paired.equivalence([0.0], 0.1)
    assert one.p is None and not one.equivalent and rule.decide(one) == rule.FEW
    for margin in (0, -0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="margin is a positive number"):
            paired.equivalence([0.0, 0.1], margin)


def alone(row, alternative, bound, alpha=0.05):
    """The evidence of one sample, with what `equivalence` says of its size."""
    found = paired.one_sample(row, alternative, alpha).evidence
    return replace(found, p_small=paired.equivalence(row, bound, alpha).p) if found.testable else found


@pytest.mark.parametrize("alternative", ["greater", "less"])
@pytest.mark.parametrize("n", [2, 5, 8, 13])
def test_many_is_one_sample_and_equivalence_sample_by_sample(n, alternative):
    """Samples small and large beside the bound, with ties, and without any spread. Above 12 seeds no flip is
    counted, and the words stay those of one sample."""
    rng = np.random.default_rng(6)
    samples = rng.normal(
        rng.choice([-1.0, -0.4, 0.0, 0.4, 1.0], (80, 1)), rng.choice([0.1, 0.5, 1.0], (80, 1)), (80, n)
    )
    samples[40:] = samples[40:].round(1)  # ties
    samples = np.vstack([samples, np.full((1, n), 0.5), np.full((1, n), -2.0)])
    found, one = paired.many(samples, alternative, 0.8), [alone(row, alternative, 0.8) for row in samples]
    assert len(found) == len(samples) and found[0].testable == (n > 2)
    if n == 13:
        assert {(e.exact_for, e.exact_against) for e in found} == {(0.0, 0.0)}
        assert [rule.decide(e) for e in found] == [rule.decide(e) for e in one]
        one = [replace(e, exact_for=0.0, exact_against=0.0) for e in one]
    for e, plain, expected in zip(found, paired.many(samples, alternative), one):
        assert astuple(e) == pytest.approx(astuple(expected), rel=1e-9, abs=1e-12)
        assert plain == replace(e, p_small=1.0), "of which nothing was stated"
    if n > 2:
        words = {rule.decide(e) for e in found}
        assert {rule.HOLDS, rule.HOLDS_SMALLER, rule.TOO_SMALL, rule.OPPOSITE, rule.OPEN_FOR} <= words


@pytest.mark.parametrize("n", [5, 13])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, -1.0, 3.0])
def test_many_of_samples_without_spread(value, n):
    """A bound of 1: nothing there, within it, at it on either side, beyond it."""
    samples = np.full((1, n), value)
    for side in ("greater", "less"):
        (found,), one = paired.many(samples, side, 1.0), alone(samples[0], side, 1.0)
        assert (found.p_for, found.p_against, found.p_small) == (one.p_for, one.p_against, one.p_small)
        for how in ("all", "any"):
            assert rule.decide(rule.combine([found], how)) == rule.decide(rule.combine([one], how))


def test_many_of_designs_that_cannot_reach_alpha():
    samples = np.random.default_rng(0).normal(2, 0.1, (3, 7))
    for n, alpha in ((1, 0.05), (2, 0.05), (4, 0.05), (5, 0.01), (6, 0.01)):
        assert paired.many(samples[:, :n], "greater", 1.0, alpha) == [rule.untestable(alpha)] * 3
        assert paired.one_sample(samples[0, :n], "greater", alpha).evidence == rule.untestable(alpha)
    for n, alpha in ((5, 0.05), (7, 0.01)):
        assert {rule.decide(e) for e in paired.many(samples[:, :n], "greater", 1.0, alpha)} == {rule.HOLDS}
        assert {e.alpha for e in paired.many(samples[:, :n], "greater", 1.0, alpha)} == {alpha}
    with pytest.raises(ValueError, match="a direction"):
        paired.many(samples, "two-sided", 1.0)


def test_many_flips_no_signs_where_about_normal_samples_make_no_difference():
    """At 13 seeds the exact p refuses next to nothing that the t test grants: words differ in less than 1 of 100."""
    samples = np.random.default_rng(1).normal(0.5, 1, (300, 13))
    found = [rule.decide(e) for e in paired.many(samples, "greater", 1.0)]
    same = [a == rule.decide(alone(row, "greater", 1.0)) for a, row in zip(found, samples)]
    assert np.mean(same) > 0.99 and {rule.HOLDS, rule.TOO_SMALL, rule.OPEN_FOR} <= {*found}


def test_holm_equals_statsmodels():
    p = np.random.default_rng(0).uniform(0, 0.3, 9).tolist() + [0.01, 0.01, 1.0]
    assert rule.holm(p) == pytest.approx(multipletests(p, method="holm")[1])


def test_holm():
    assert rule.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert rule.holm([0.02]) == [0.02] and rule.holm([]) == []
    assert rule.holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
