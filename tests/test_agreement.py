"""Agreement and the tests of human studies, against hand arithmetic, plain transcriptions, other libraries and
simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from workbook.study import agreement as a
from workbook.study import anova
from workbook.study.ratings import PreferenceError


def ratings(*rows):
    return pd.DataFrame(rows, columns=["item", "rater", "value"])


def matrix(values):
    """A table from a matrix [raters, items] with nan for a rating that is missing."""
    return ratings(
        *(
            (f"i{j}", f"r{i}", values[i][j])
            for i, j in itertools.product(range(len(values)), range(len(values[0])))
            if not np.isnan(values[i][j])
        )
    )


# alpha -----------------------------------------------------------------------------------------------------------
def test_alpha_of_a_hand_worked_example():
    """Two raters, items 11, 12, 22, 22. Coincidences: 11 twice, 12 and 21 once, 22 four times; 3 ones and 5 twos of 8.
    Seen 2 / 8; expected 2 x 3 x 5 / (8 x 7) = 30 / 56; alpha = 1 - 14 / 30 = 0.5333."""
    table = matrix([[1, 1, 2, 2], [1, 2, 2, 2]])
    assert a.alpha(table) == pytest.approx(1 - (2 / 8) / (30 / 56))
    assert a.alpha(table, "interval") == pytest.approx(8 / 15)
    assert a.alpha(table.assign(value=["first" if v == 1 else "tie" for v in table["value"]])) == pytest.approx(8 / 15)


def transcribed(values, distance):
    """Krippendorff's alpha, coincidence by coincidence. values [raters, items] with nan."""
    units = [[v for v in column if not np.isnan(v)] for column in np.transpose(values)]
    units = [unit for unit in units if len(unit) > 1]
    seen, count = {}, {}
    for unit in units:
        for i, j in itertools.permutations(range(len(unit)), 2):
            seen[unit[i], unit[j]] = seen.get((unit[i], unit[j]), 0) + 1 / (len(unit) - 1)
        for value in unit:
            count[value] = count.get(value, 0) + 1
    n = sum(count.values())
    observed = sum(times * distance(c, k, count) for (c, k), times in seen.items()) / n
    expected = sum(count[c] * count[k] * distance(c, k, count) for c in count for k in count) / (n * (n - 1))
    return 1 - observed / expected


def ordinal(c, k, count):
    low, high = sorted((c, k))
    return (sum(times for value, times in count.items() if low <= value <= high) - (count[c] + count[k]) / 2) ** 2


DISTANCES = {
    "nominal": lambda c, k, _: float(c != k),
    "ordinal": ordinal,
    "interval": lambda c, k, _: (c - k) ** 2,
    "ratio": lambda c, k, _: ((c - k) / (c + k)) ** 2,
}


@pytest.mark.parametrize("level", a.LEVELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_alpha_against_a_plain_transcription(level, seed):
    rng = np.random.default_rng(seed)
    values = np.clip(rng.integers(1, 6, 25) + rng.integers(-1, 2, (5, 25)), 1, 5).astype(float)
    values[rng.random(values.shape) < 0.4] = np.nan
    assert a.alpha(matrix(values), level) == pytest.approx(transcribed(values, DISTANCES[level]), abs=1e-9)


def test_alpha_is_one_in_agreement_and_about_zero_by_chance_and_its_interval_says_so():
    rng = np.random.default_rng(0)
    same = np.tile(rng.integers(1, 6, 60), (3, 1)).astype(float)
    assert a.alpha(matrix(same), "interval") == 1
    found = a.alpha_interval(matrix(rng.integers(1, 6, (3, 150)).astype(float)), "interval", resamples=200)
    assert found.low < 0 < found.high and abs(found.estimate) < 0.15 and found.n == 150 and found.high - found.low < 0.4


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (ratings(("a", "ann", 1), ("b", "ann", 2)), {}, "two raters or more, found one: 'ann'"),
        (ratings(("a", "ann", 1), ("b", "bob", 2)), {}, "no item has two ratings"),
        (ratings(("a", "ann", 1), ("a", "bob", 1)), {}, "all ratings are 1"),
        (ratings(("a", "ann", 1), ("a", "ann", 2), ("a", "bob", 1)), {}, "'ann' has two ratings of item 'a'"),
        (
            ratings(("a", "ann", "x"), ("a", "bob", "y")),
            {"level": "interval"},
            "expected numbers in 'value', found 'x'",
        ),
        (ratings(("a", "ann", 1), ("a", "bob", 2)), {"level": "metric"}, "expected one of nominal"),
        (ratings(("a", "ann", 1), ("a", "bob", 2)), {"value": "vallue"}, "no column 'vallue'; did you mean 'value'"),
        (ratings().astype(object), {}, "no ratings"),
    ],
)
def test_alpha_without_what_it_needs_says_what(table, options, message):
    with pytest.raises(PreferenceError, match=message):
        a.alpha(table, **options)


# the paper's tests -----------------------------------------------------------------------------------------------
def groups(**values):
    return pd.DataFrame([(name, v) for name, vs in values.items() for v in vs], columns=["system", "value"])


def test_anova_of_a_hand_worked_example():
    """Means 2, 3, 6; between 3 (25/9 + 4/9 + 49/9) = 26 with 2 degrees, within 6 with 6: F = 13 and, for 2 degrees,
    p = (1 + 13/3)^-3."""
    found = anova.anova(groups(x=[1, 2, 3], y=[2, 3, 4], z=[5, 6, 7]))
    assert (found.F, found.between, found.within, found.spread) == pytest.approx((13, 2, 6, 1))
    assert found.p == pytest.approx((1 + 13 / 3) ** -3)


def test_tukey_against_scipy_and_the_studentised_range():
    rng = np.random.default_rng(0)
    samples = {name: rng.normal(mean, 1, n) for name, mean, n in (("x", 0, 12), ("y", 0.8, 9), ("z", 1.5, 15))}
    found, other = anova.tukey(groups(**samples)), stats.tukey_hsd(*samples.values())
    interval = other.confidence_interval()
    for row, (i, j) in zip(found.itertuples(), itertools.combinations(range(3), 2)):
        assert (row.first, row.second) == ("xyz"[i], "xyz"[j])
        assert row.difference == pytest.approx(np.mean(samples["xyz"[j]]) - np.mean(samples["xyz"[i]]))
        assert row.p == pytest.approx(other.pvalue[i, j], abs=1e-4)
        assert (row.low, row.high) == pytest.approx((-interval.high[i, j], -interval.low[i, j]), abs=1e-3)
    equal = groups(x=[1, 2, 3], y=[2, 3, 4], z=[5, 6, 7])  # error of a mean: sqrt(1 / 3)
    assert anova.tukey(equal)["p"].tolist() == pytest.approx(
        [anova.tukey_p(d, math.sqrt(1 / 3), 3, 6) for d in (1, 4, 3)], abs=1e-4
    )
    assert anova.implied_error(4, anova.tukey_p(4, math.sqrt(1 / 3), 3, 6), 3, 6) == pytest.approx(
        math.sqrt(1 / 3), rel=1e-4
    )


def test_with_equal_n_p_falls_as_the_difference_grows_and_the_published_table_breaks_that():
    rng = np.random.default_rng(1)
    table = groups(**{f"s{i}": rng.normal(i / 4, 1, 30) for i in range(6)})
    assert not len(anova.inversions(anova.tukey(table)))
    for question, smaller in (("coherence", 0.113), ("commonsense", 0.137)):
        rows = anova.published(question)
        assert len(rows) == 15
        found = anova.inversions(rows)
        assert "NLPO+Supervised / PPO+Supervised" in set(found["smaller"])
        assert (found["its p"] < found["larger's p"]).all() and (
            found["its difference"].abs() < found["larger's difference"].abs()
        ).all()
        assert smaller in found["its difference"].abs().round(3).tolist()


def test_the_impossible_values_fit_once_a_zero_is_taken_out():
    """Ours, not the paper's: the error that possible cells imply gives each impossible cell ten or a hundred times its
    p."""
    freedom = anova.PUBLISHED_GROUPS * (anova.PUBLISHED_RATINGS - 1)
    error = anova.implied_error(0.153, 0.515, 6, freedom)
    assert anova.implied_error(0.140, 0.601, 6, freedom) == pytest.approx(error, rel=0.02)  # the possible cells agree
    assert anova.implied_error(0.253, 0.050, 6, freedom) == pytest.approx(error, rel=0.02)
    assert anova.implied_error(0.113, 0.008, 6, freedom) < 0.4 * error  # the impossible one does not
    assert anova.tukey_p(0.113, error, 6, freedom) == pytest.approx(0.8, abs=0.01)  # printed .008
    cnn = anova.implied_error(0.300, 0.101, 7, 7 * 149)  # CNN/DailyMail, quality (Table 21): 7 systems, 50 texts x 3
    assert anova.tukey_p(0.293, cnn, 7, 7 * 149) == pytest.approx(0.12, abs=0.01)  # printed .012
    assert anova.tukey_p(0.213, cnn, 7, 7 * 149) == pytest.approx(0.47, abs=0.01)  # printed .047


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (groups(x=[1, 2]), "two systems or more, found x"),
        (groups(x=[1, 2], y=[3]), "system 'y' has one rating"),
        (groups(x=[1, 1], y=[2, 2]), "has a spread to measure by"),
        (groups(x=[1, 2], y=[2, 2]).rename(columns={"system": "sistem"}), "no column 'system'; did you mean 'sistem'"),
    ],
)
def test_a_comparison_without_what_it_needs_says_what(table, message):
    for test in (anova.anova, anova.tukey):
        with pytest.raises(PreferenceError, match=message):
            test(table)


# clusters and the mixed model ------------------------------------------------------------------------------------
def test_clusters_of_one_rating_give_the_error_of_independent_ratings():
    table = a.planted({"x": 0.0, "y": 0.0}, items=150, raters=150, each=1, seed=3)
    found = a.clustered(table, "x", "y", resamples=4000)
    x, y = (table.loc[table["system"] == name, "value"] for name in "xy")
    assert found.estimate == pytest.approx(y.mean() - x.mean())
    assert found.error == pytest.approx(math.sqrt(x.var() / 150 + y.var() / 150), rel=0.1)
    half = stats.t.ppf(0.975, 149) * found.error
    assert (found.low, found.high) == pytest.approx((found.estimate - half, found.estimate + half))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.estimate) / found.error, 149)) and found.n == 150


def test_few_clusters_have_the_error_of_the_mean_and_not_the_smaller_one_of_the_bootstrap():
    """1, 2, 3, 4: the variance with n - 1 is 5/3, that of the mean 5/12; drawn anew they vary by 5/16."""
    table = ratings(*((f"i{v}", "ann", v) for v in (1, 2, 3, 4)))
    assert a.clustered(table, clusters=("item",), resamples=20_000).error ** 2 == pytest.approx(5 / 12, rel=0.03)


def test_ten_copies_of_every_rating_do_not_make_the_error_smaller():
    one = a.planted({"x": 0.0, "y": 0.5}, items=60, raters=60, each=1, seed=4)
    ten = pd.concat([one] * 10, ignore_index=True)
    errors = [a.clustered(table, "x", "y", ("item",), resamples=4000).error for table in (one, ten)]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    assert anova.anova(ten).p < anova.anova(one).p  # which the independent test believes


def rejections(seeds, test, **design):
    return np.mean([test(a.planted({"x": 0.0, "y": 0.0}, seed=seed, **design)) < 0.05 for seed in seeds])


DESIGN = {"items": 30, "raters": 10, "each": 3, "rater_spread": 0.7, "item_spread": 0.5}


@pytest.mark.slow
def test_with_planted_rater_effects_the_naive_test_is_over_confident_and_clusters_are_not():
    seeds = range(200)
    naive = rejections(seeds, lambda t: anova.anova(t).p, **DESIGN)
    clustered = rejections(seeds, lambda t: a.clustered(t, "x", "y", resamples=300).p, **DESIGN)
    assert naive > 0.2 and clustered < 0.09, (naive, clustered)  # true rate .05; 200 draws of it exceed .09 once in 130
    none = rejections(seeds, lambda t: anova.anova(t).p, **{**DESIGN, "rater_spread": 0.0, "item_spread": 0.0})
    assert none < 0.09


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_planted_rater_effects_the_mixed_model_covers():
    seeds = range(40)
    mixed = rejections(seeds, lambda t: a.mixed_model(t)["p"].iloc[0], **DESIGN)
    naive = rejections(seeds, lambda t: anova.anova(t).p, **DESIGN)
    assert mixed <= 0.15 < naive, (mixed, naive)  # 40 draws of .05 exceed .15 once in 300


def test_the_mixed_model_is_statsmodels_and_finds_what_was_planted():
    import statsmodels.formula.api as formula

    table = a.planted(
        {"x": 0.0, "y": 1.0, "z": -0.5}, items=25, raters=15, rater_spread=0.8, item_spread=0.6, noise=0.5, seed=5
    )
    found = a.mixed_model(table)
    parts = {"item": "0 + C(item)", "rater": "0 + C(rater)"}
    other = formula.mixedlm("value ~ system", table, groups=np.ones(len(table)), vc_formula=parts).fit()
    assert found["system"].tolist() == ["y", "z"] and found["converged"].all()
    assert found["difference"].tolist() == pytest.approx(other.fe_params[1:].tolist(), abs=1e-3)
    assert found["error"].tolist() == pytest.approx(other.bse_fe[1:].tolist(), rel=1e-2)
    assert found["p"].tolist() == pytest.approx(other.pvalues[1:3].tolist(), abs=1e-3)
    assert (found["low"] < found["difference"]).all() and (found["difference"] < found["high"]).all()
    assert found[["rater", "item", "rest"]].iloc[0].tolist() == pytest.approx([0.8, 0.6, 0.5], rel=0.35)
    swapped = a.mixed_model(table[table["system"] != "z"], baseline="y")
    assert swapped["system"].tolist() == ["x"] and swapped["difference"].iloc[0] < 0
    with pytest.raises(PreferenceError, match="no rating of system 'w'"):
        a.mixed_model(table, baseline="w")


def test_one_rater_says_nothing_about_raters():
    table = a.planted({"x": 0.0, "y": 0.0}, items=10, raters=1, each=1, shared_raters=True)
    with pytest.raises(PreferenceError, match=r"one rater only.*clusters=\('item',\) leaves it out"):
        a.clustered(table, "x", "y")
    assert a.clustered(table, "x", "y", ("item",)).n == 10
    with pytest.raises(PreferenceError, match="one rater only"):
        a.mixed_model(table)
    with pytest.raises(PreferenceError, match="no rating of system 'v'"):
        a.clustered(table, "x", "v")


# choices ---------------------------------------------------------------------------------------------------------
def test_the_papers_comparison_by_its_own_arithmetic():
    """682 of 1,269 judgements: p .008 as if independent, .03 with three raters a pair that correlate by .28."""
    values = [1] * 682 + [-1] * 587
    table = pd.DataFrame({"item": range(1269), "rater": [i % 50 for i in range(1269)], "value": values})
    found = a.compare(table)
    assert (found.wins, found.losses, found.ties) == (682, 587, 0) and found.share == pytest.approx(682 / 1269)
    assert found.p_naive == pytest.approx(0.0083, abs=5e-4)
    assert a.discounted_p((682 - 587) / math.sqrt(1269), 1, 0.28) == pytest.approx(0.0077, abs=2e-4)
    assert a.discounted_p((682 - 587) / math.sqrt(1269), 3, 0.28) == pytest.approx(0.033, abs=1e-3)


def test_raters_who_all_agree_with_themselves_are_few_judgements():
    table = pd.DataFrame(
        [(i, r, 1 if r < 4 else -1) for i in range(60) for r in range(6)], columns=["item", "rater", "value"]
    )
    found = a.compare(table)  # 4 of 6 raters always choose one system
    assert found.share == pytest.approx(2 / 3) and found.p_naive < 1e-8 and found.p > 0.2 and found.low < 0.5
    ties = a.compare(table.assign(value=table["value"] * (table["item"] % 2)))
    assert ties.ties == 180 and ties.share == pytest.approx(0.5 + 1 / 12)


def test_judgements_that_all_agree_are_worth_as_many_as_there_are_raters():
    """Three raters, 40 pairs, always the second: no spread to resample. Exact, 3 of 3: p = 2 / 2^3, from .025^(1/3)."""
    table = pd.DataFrame([(i, r, 1) for i in range(40) for r in range(3)], columns=["item", "rater", "value"])
    for sign in (1, -1):
        found = a.compare(table.assign(value=sign))
        assert found.share == (1 + sign) / 2 and found.p == pytest.approx(0.25) and found.p_naive < 1e-30
        assert (found.low, found.high) == pytest.approx(
            (0.025 ** (1 / 3), 1) if sign > 0 else (0, 1 - 0.025 ** (1 / 3))
        )
    ties = a.compare(table.assign(value=0))
    assert ties.share == 0.5 and ties.p == 1 and ties.p_naive == 1
    assert math.isnan(a.clustered(table.assign(value=4.0)).p), "no spread, no p"


def test_the_mixed_mean_of_a_balanced_design_is_the_analysis_of_variance():
    """Every rater rates every item once: the REML variance of the grand mean is (MS raters + MS items - MS rest) /
    N."""
    rng = np.random.default_rng(0)
    raters, items = 6, 14
    values = 0.4 + rng.normal(0, 0.8, (raters, 1)) + rng.normal(0, 0.6, (1, items)) + rng.normal(0, 1, (raters, items))
    by_rater, by_item, mean = values.mean(1, keepdims=True), values.mean(0, keepdims=True), values.mean()
    squares = [
        items * ((by_rater - mean) ** 2).sum() / (raters - 1),
        raters * ((by_item - mean) ** 2).sum() / (items - 1),
    ]
    rest = ((values - by_rater - by_item + mean) ** 2).sum() / ((raters - 1) * (items - 1))
    assert min(squares) > rest, "no spread at its boundary, where REML is another thing"
    found, error = a.mixed_mean(matrix(values)), math.sqrt((sum(squares) - rest) / values.size)
    assert (found.estimate, found.error, found.n) == (pytest.approx(mean), pytest.approx(error, rel=1e-2), raters)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(mean) / error), rel=0.05)
    with pytest.raises(PreferenceError, match="two raters and two items"):
        a.mixed_mean(matrix(values[:1]))


def test_made_up_ratings_need_enough_raters():
    with pytest.raises(PreferenceError, match="3 raters of each item: expected 1 to 2"):
        a.planted({"x": 0.0}, raters=2, each=3)
