"""Random effects and variance components, against other people's code and numbers worked by hand."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.meta_analysis import combine_effects

from workbook.statistics.components import components, without_each_draw
from workbook.statistics.random_effects import generalised_q, random_effects

EFFECTS, VARIANCES = [0.10, 0.30, 0.35, 0.65, 0.45, 0.15], [0.03, 0.03, 0.05, 0.01, 0.05, 0.02]


def test_two_studies_worked_by_hand():
    """y 1 and 3, both of variance 1/2: Q = 4, tau2 + 1/2 = 2 -> tau2 = 3/2; variance of the mean 1; t(1) = 12.706."""
    found = random_effects([1, 3], [0.5, 0.5])
    assert (found.k, found.mean, found.q, found.i2) == (2, 2, 4, 0.75)
    assert found.tau2 == pytest.approx(1.5)
    assert found.high - found.mean == pytest.approx(12.7062, abs=1e-3)
    assert found.new_high - found.mean == pytest.approx(12.7062 * 2.5**0.5, abs=1e-3)
    # Q profile: 2 / (tau2 + 1/2) falls to the chi-square(1) quantiles 5.0239 (never: 4 at 0) and 0.00098207
    assert found.tau2_low == 0 and found.tau2_high == pytest.approx(2 / 0.00098207 - 0.5, rel=1e-4)


def test_as_statsmodels():
    theirs = combine_effects(np.array(EFFECTS), np.array(VARIANCES), method_re="iterated", use_t=True)
    ours = random_effects(EFFECTS, VARIANCES, at_least=0)
    assert ours.tau2 == pytest.approx(theirs.tau2, rel=1e-4) and ours.tau2 > 0
    assert ours.mean == pytest.approx(theirs.mean_effect_re, rel=1e-6)
    assert ours.q == pytest.approx(theirs.q) and ours.i2 == pytest.approx(theirs.i2)
    # theirs have the Hartung-Knapp interval as "hksj" (sd_eff_w_re_hksj)
    half = 2.570582 * theirs.sd_eff_w_re_hksj
    assert (ours.high - ours.low) / 2 == pytest.approx(half, rel=1e-4)


def test_equal_effects_do_not_make_a_narrow_interval():
    lone = random_effects([0.2, 0.2], [0.01, 0.01])
    assert lone.tau2 == 0 and lone.q == pytest.approx(0)
    assert lone.high - lone.mean == pytest.approx(12.7062 * (0.01 / 2) ** 0.5, rel=1e-4)
    assert random_effects([0.2, 0.2], [0.01, 0.01], at_least=0).high == pytest.approx(0.2)  # as first published


def test_the_estimate_makes_q_what_is_expected_of_it():
    found = random_effects(EFFECTS, VARIANCES)
    assert generalised_q(np.array(EFFECTS), np.array(VARIANCES), found.tau2) == pytest.approx(5)
    assert found.tau2_low <= found.tau2 <= found.tau2_high
    assert found.new_low < found.low < found.high < found.new_high


def test_one_study_or_none():
    one = random_effects([0.4], [0.01])
    assert (one.k, one.mean, one.tau2, one.new_low) == (1, 0.4, None, None)
    for bad in ([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0]):
        with pytest.raises(ValueError):
            random_effects(*bad)


def test_components_by_hand():
    """Draws 0 and 4 with runs -1, +1 about them: within 2, between 2 x 8 = 16 -> draw (16 - 2) / 2 = 7."""
    found = components(np.array([[-1.0, 3.0], [1.0, 5.0]]))
    assert (found.run, found.draw, found.total, found.share) == (2, 7, 9, 7 / 9)
    flat = components(np.array([[1.0, 2.0], [2.0, 1.0]]))  # draws alike: below 0 as an estimate, 0 as a share
    assert flat.draw < 0 and flat.share == 0 and flat.total == flat.run


def test_components_as_restricted_maximum_likelihood():
    rng = np.random.default_rng(0)
    d = rng.normal(0, 2, (1, 8)) + rng.normal(0, 1, (3, 8))
    frame = pd.DataFrame({"y": d.ravel(), "draw": np.tile(np.arange(8), 3)})
    fit = MixedLM.from_formula("y ~ 1", frame, groups="draw").fit(reml=True)
    found = components(d)
    assert found.run == pytest.approx(fit.scale, rel=1e-3)
    assert found.draw == pytest.approx(float(fit.cov_re.iloc[0, 0]), rel=1e-3)


def test_components_find_what_was_planted_over_many_contrasts():
    rng = np.random.default_rng(1)
    d = rng.normal(0, 0.5, (4000, 1, 5)) + rng.normal(0, 1, (4000, 3, 5))
    found = components(d)
    assert found.draw == pytest.approx(0.25, abs=0.03) and found.run == pytest.approx(1, abs=0.03)
    assert len(without_each_draw(d)) == 5


def test_components_need_repeats():
    with pytest.raises(ValueError):
        components(np.zeros((1, 5)))
    with pytest.raises(ValueError):
        components(np.array([[0.0, np.nan], [1.0, 1.0]]))
