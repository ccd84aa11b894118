"""Every kind of test that a claim may name (trends, peaks, curves, masks, ranks, spreads), on planted results."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tests.claims_made import (
    MASKS,
    NOISE,
    RANK,
    RANKED,
    SHIPPED,
    TOP_K,
    TOP_P,
    _checked,
    arms,
    bare,
    claim,
    contrast,
    diverging,
    listed,
    points,
    results,
    share,
    sweep,
)
from workbook.ledger import judge, published
from workbook.ledger.claim import ClaimError, conditions_of
from workbook.ledger.contrast import NOT_MEASURED, measure
from workbook.statistics.rule import (
    FOR,
    HOLDS,
    HOLDS_SMALLER,
    OPEN,
    OPEN_FOR,
    OPPOSITE,
    TOO_SMALL,
    decide,
)

# kinds of tests ------------------------------------------------------------------------------------------------------


def test_decodings_can_differ_between_the_arms():
    values = arms(0.0)
    base = values["ppo_gamma_095"]["score"]
    values["ppo_top_p"] = {"score": {"plain": base, "own": base + 0.2}}
    own = {**contrast(), "terms": {"ppo_top_p@own": 1, "ppo_gamma_095": -1}}
    assert judge.judge(claim(own), results(values)).components[0].difference == pytest.approx(0.2)


def test_a_trend_is_the_change_over_the_whole_range_of_x():
    (component,) = judge.judge(claim(points("trend")), results(sweep(0.0, 0.1, 0.3, spread=0))).components
    assert component.difference == pytest.approx(0.3)
    assert component.word == HOLDS


def test_a_trend_takes_the_points_that_the_profile_lists_and_no_fewer_than_it_says():
    values = sweep(0.0, 0.1, 0.3, spread=0)
    del values["ppo_target_mid"]
    (component,) = judge.judge(claim(points("trend", at_least=2)), results(values)).components
    assert component.conditions == "ppo_target_low ppo_target_high"
    assert component.difference == pytest.approx(0.3)
    with pytest.raises(ClaimError, match="needs: the run ppo_target_mid"):
        judge.judge(claim(points("trend", at_least=3)), results(values))


def test_a_listed_point_without_results_is_not_left_out():
    values = sweep(0.0, 0.1, 0.3)
    runs = {c: {} for c in values}
    del values["ppo_target_mid"]
    with pytest.raises(ClaimError, match="score of ppo_target_mid"):
        judge.judge(claim(points("trend", at_least=2)), results(values, runs=runs))


@pytest.mark.parametrize(
    "levels, word",
    [
        ((0.0, 0.3, 0.0), HOLDS),
        ((0.0, 0.03, 0.0), HOLDS_SMALLER),  # the stated height is 0.05
        ((0.3, 0.0, 0.3), OPPOSITE),
        ((0.0, 0.0, 0.3), OPPOSITE),  # a rise that gets steeper is far from a peak
        ((0.0, 0.1, 0.3), TOO_SMALL),  # a straight line has a height of 0, known well
        ((0.0, 0.0, 0.0), TOO_SMALL),
        ((0.0, -0.03, 0.0), TOO_SMALL),
    ],
)
def test_a_peak_needs_both_sides(levels, word):
    (component,) = judge.judge(claim(points("peak")), results(sweep(*levels))).components
    assert component.word == word
    assert component.smaller == (word in (HOLDS_SMALLER, TOO_SMALL))


def curve(heights, kls) -> list[dict]:
    return [{"score": h + 0.001 * NOISE, "kl_deployed": k + 0.001 * abs(NOISE)} for h, k in zip(heights, kls)]


KLS = np.array([0.1, 0.2, 0.4, 0.8])


def of_curves(kind: str, **more) -> dict:
    """A test of NLPO's curve over four betas against PPO's."""
    betas = ("large", "default", "small", "0")
    arms = {arm: [f"{algorithm}_kl_{b}" for b in betas] for arm, algorithm in (("first", "nlpo"), ("second", "ppo"))}
    stated = {"metric": "score", "direction": "greater", "effect": 0.1, "at_least": 4}
    return {"name": kind, "kind": kind, **stated, **arms, **more}


@pytest.mark.parametrize("kind", ["matched", "frontier"])
def test_curves_are_compared_where_their_kl_is_equal(kind):
    """NLPO scores higher at every beta only because it spends more KL: no difference at equal KL, then one of 0.1."""
    kls, test = KLS, of_curves(kind)
    values = dict(zip(test["second"], curve(kls, kls))) | {"zero_shot": {"score": 0.3, "kl_deployed": 0.0}}
    equal = values | dict(zip(test["first"], curve(kls * 1.5, kls * 1.5)))
    better = values | dict(zip(test["first"], curve(kls * 1.5 + 0.1, kls * 1.5)))
    assert judge.judge(claim(test), results(equal)).components[0].difference == pytest.approx(0, abs=0.01)
    (component,) = judge.judge(claim(test), results(better)).components
    assert component.difference == pytest.approx(0.1, abs=0.01)
    assert component.word == HOLDS
    apart = values | dict(zip(test["first"], curve(kls, kls + 2)))
    verdict = judge.judge(claim(test), results(apart))
    assert verdict.word == OPEN, "nothing was compared, so it leans nowhere"
    assert "no KL in common" in verdict.sentence


def masks(gap: float, spread: float = 0.001) -> dict:
    """The more a mask cuts the higher the score, whatever the rule; top-p cuts more, and at an equal share kept scores
    `gap` more.

    The gap closes towards no mask, which is the end of both sweeps, so its mean over the shares 0.8 to 1 is half of it.
    """
    base = arms(0.0)["zero_shot"]["score"]

    def run(kept, more, noise):
        value = {"own": base + 0.5 - 0.4 * kept + more * (1 - kept) / 0.2 + spread * noise, "plain": 9.0 * NOISE}
        return {
            "score": value,
            "kept_mass": {"own": kept + 0 * NOISE, "plain": 1.0},
            "kl_deployed": {"own": 1.0, "plain": 1.0},
        }

    found = {c: run(k, gap, np.roll(NOISE, i)) for i, (c, k) in enumerate(zip(TOP_P, (0.5, 0.7, 0.9)))}
    found |= {c: run(k, 0.0, np.roll(NOISE, i)) for i, (c, k) in enumerate(zip(TOP_K, (0.8, 0.96)))}
    ends = {
        c: {"score": {d: v["score"] for d in ("plain", "own")}}
        for c, v in arms(0.0).items()
        if c in ("zero_shot", "ppo_kl_0")
    }
    return found | ends | {"ppo_kl_default": run(1.0, 0.0, 0 * NOISE)}


@pytest.mark.parametrize(
    "gap, spread, word",
    [(0.1, 0.001, HOLDS), (-0.1, 0.001, OPPOSITE), (0.0, 0.001, TOO_SMALL), (0.01, 0.3, OPEN_FOR)],
)
def test_masks_are_compared_where_they_keep_an_equal_share(gap, spread, word):
    test = {"name": "m", **MASKS, "first": [*TOP_P, "ppo_kl_default"], "second": [*TOP_K, "ppo_kl_default"]}
    (component,) = judge.judge(claim(test), results(masks(gap, spread))).components
    assert (component.word, component.kind) == (word, "matched")
    if spread < 0.1:
        assert component.difference == pytest.approx(gap / 2, abs=0.002)  # and not what cutting more does
        assert component.effect == pytest.approx(gap, abs=0.005)  # the yardstick is 0.5


def test_masks_that_keep_no_share_in_common_are_open():
    """Without the end that all sweeps share."""
    values = masks(0.1)
    for condition, kept in zip(("mask_eta", "mask_eta_4e3", "mask_eta_2e2"), (0.96, 0.97, 0.98)):
        values[condition] = {**values["mask_top_k"], "kept_mass": {"own": kept, "plain": 1.0}}
    test = {"name": "m", **MASKS, "first": [*TOP_P], "second": ["mask_eta", "mask_eta_4e3", "mask_eta_2e2"]}
    verdict = judge.judge(claim(test), results(values))
    assert verdict.word == OPEN and "no kept mass in common in seed 1, 2, 3, 4 and 5" in verdict.sentence


def test_a_matched_word_over_kept_mass_keeps_its_error_rate():
    rng, words = np.random.default_rng(2), []
    known = claim({"name": "m", **MASKS, "first": [*TOP_P, "ppo_kl_default"], "second": [*TOP_K, "ppo_kl_default"]})
    for _ in range(200):
        values = masks(0.0, 0.0)
        for condition in (*TOP_P, *TOP_K):
            values[condition]["score"]["own"] = values[condition]["score"]["own"] + 0.05 * rng.normal(size=5)
        words.append(decide(measure(known.tests[0], known, bare(values), "test").evidence))
    slack = 3 * math.sqrt(0.025 * 0.975 / 200)
    assert share(words, FOR) <= 0.025 + slack and share(words, [OPPOSITE]) <= 0.025 + slack
    assert {*FOR} & {*words} and OPPOSITE in words


def ranked(order, spread=0.0, seed=0) -> dict:
    """Runs whose score in training grows in steps of 0.1, and on test prompts by their place in `order`."""
    rng = np.random.default_rng(seed)
    return {
        c: {
            "rollout_score": 0.1 * i + spread * rng.normal(size=5),
            "score": 0.5 + 0.01 * place + spread * rng.normal(size=5),
        }
        for i, (c, place) in enumerate(zip(RANKED, order))
    }


@pytest.mark.parametrize(
    "order, spread, tau, word",
    [
        (range(6), 0.0, 1.0, HOLDS),
        (range(5, -1, -1), 0.0, -1.0, OPPOSITE),
        ((0, 1, 2, 3, 5, 4), 0.0, 13 / 15, HOLDS),  # one of 15 pairs turns
        (range(6), 10.0, None, OPEN_FOR),  # nothing but noise
    ],
)
def test_a_rank_asks_whether_two_orders_agree(order, spread, tau, word):
    (component,) = judge.judge(claim(RANK), results(ranked(order, spread))).components
    assert (component.word, component.unit, component.yardstick) == (word, "tau", 1.0)
    if tau is not None:
        assert component.difference == component.effect == pytest.approx(tau)
    assert conditions_of(claim(RANK)) == {*RANKED}  # a rank needs no yardstick


def test_a_rank_is_seed_by_seed():
    """Orders that agree in three seeds and are reversed in two: the mean of tau is 0.2, though the means over seeds
    agree."""
    steps = np.arange(6)
    values = {c: {"rollout_score": i, "score": [i, i, i, -0.1 * i, -0.1 * i]} for c, i in zip(RANKED, steps)}
    (component,) = judge.judge(claim(RANK), results(values)).components
    assert (component.effect, component.word) == (pytest.approx(0.2), OPEN_FOR)


def test_a_rank_compares_pairs_of_worlds_and_takes_those_that_the_profile_lists():
    first = [
        "numbers_mask_top_p_090",
        "numbers_mask_top_p_095",
        "numbers_mask_top_p_099",
        "numbers_mask_eta_3e4",
        "numbers_ppo",
    ]
    second = ["mask_top_p_090", "mask_top_p", "mask_top_p_099", "mask_eta", "ppo_kl_default"]
    test = {
        "name": "r",
        "kind": "rank",
        "metric": "score",
        "direction": "greater",
        "effect": 0.5,
        "first": first,
        "second": second,
    }
    values = {c: {"score": 0.1 * i} for i, c in enumerate(first)} | {
        c: {"score": 7 - i} for i, c in enumerate(reversed(second))
    }
    (component,) = judge.judge(claim(test), results(values)).components
    assert (component.word, component.effect) == (HOLDS, pytest.approx(1.0))
    turned = values | {c: {"score": i} for i, c in enumerate(reversed(second))}
    assert judge.judge(claim(test), results(turned)).components[0].effect == pytest.approx(-1.0)
    del values["mask_top_p"]  # its pair goes with it
    (component,) = judge.judge(claim({**test, "at_least": 4}), results(values)).components
    assert component.effect == pytest.approx(1.0) and "top_p_095" not in component.conditions
    with pytest.raises(ClaimError, match="needs: the run mask_top_p"):
        judge.judge(claim(test), results(values))


def test_a_rank_keeps_its_error_rate_and_finds_an_order():
    """Every order of the second is as likely: wrong words no more often than alpha says, exact in the sign-flip
    test."""
    rng, known = np.random.default_rng(3), claim(RANK)

    def words(signal: float, samples: int) -> list[str]:
        found = []
        for _ in range(samples):
            values = {
                c: {m: signal * i + rng.normal(size=5) for m in ("rollout_score", "score")}
                for i, c in enumerate(RANKED)
            }
            found.append(decide(measure(known.tests[0], known, bare(values), "test").evidence))
        return found

    null, slack = words(0.0, 300), 3 * math.sqrt(0.025 * 0.975 / 300)
    assert share(null, FOR) <= 0.025 + slack and share(null, [OPPOSITE]) <= 0.025 + slack
    assert share(null, FOR) and share(null, [OPPOSITE])
    assert words(1.5, 40).count(HOLDS) > 36


def test_what_is_a_share_needs_no_yardstick():
    values = {
        "mask_epsilon": {"kept_mass": {"own": 0.9999, "plain": 1.0}},
        "ppo_kl_default": {"kept_mass": {"own": 1.0, "plain": 1.0}},
    }
    same = {
        **contrast("mask_epsilon", "ppo_kl_default", metric="kept_mass", decoding="own"),
        "direction": "equal",
        "effect": None,
    }
    (component,) = judge.judge(claim({**same, "margin": 0.005}), results(values)).components
    assert (component.word, component.unit, component.effect) == (HOLDS, "own unit", pytest.approx(-1e-4))
    assert judge.judge(claim({**same, "margin": 0.00005}), results(values)).word == OPPOSITE
    more = {"dqn_mlp": {"repetition": 0.5 + 0.01 * NOISE}, "zero_shot": {"repetition": 0.01}}
    (component,) = judge.judge(claim(contrast("dqn_mlp", "zero_shot", metric="repetition")), results(more)).components
    assert (component.word, component.unit, component.effect) == (HOLDS, "own unit", pytest.approx(0.49))


def test_the_score_in_training_is_measured_by_the_scores_yardstick():
    """The untrained model has no score in training."""
    values = arms(0.3) | {"mask_eta": {"rollout_score": 0.4 + 0.01 * NOISE}, "mask_eta_delayed": {"rollout_score": 0.5}}
    (component,) = judge.judge(
        claim(contrast("mask_eta_delayed", "mask_eta", metric="rollout_score")), results(values)
    ).components
    assert (component.yardstick, component.effect, component.word) == (pytest.approx(0.5), pytest.approx(0.2), HOLDS)


def test_counted_tokens_are_compared_as_a_ratio_here_and_as_published():
    found = published.published(SHIPPED["C12"].tests[0], SHIPPED["C12"])
    assert found == published.Found(pytest.approx(math.log(1280)), None, None)
    values = {
        "ppo_kl_default": {"tokens_per_gradient_step": 300 + 10 * NOISE},
        "dqn_mlp": {"tokens_per_gradient_step": 2},
    }
    verdict = judge.judge(SHIPPED["C12"], results(values))
    (component,) = verdict.components
    assert (component.word, component.unit) == (HOLDS, "log ratio")
    assert component.effect == pytest.approx(math.log(150), abs=0.001) and component.stated == 1.0
    assert "published +7.15" in verdict.sentence
    turned = {"ppo_kl_default": {"tokens_per_gradient_step": 2}, "dqn_mlp": values["ppo_kl_default"]}
    assert judge.judge(SHIPPED["C12"], results(turned)).word == OPPOSITE


def test_a_curve_of_fewer_than_four_betas_is_refused():
    with pytest.raises(ClaimError, match="takes 4 conditions"):
        _checked(of_curves("matched", at_least=3))


SPREAD = {
    "name": "s",
    "kind": "spread",
    "metric": "score",
    "direction": "less",
    "effect": 0.22,
    "first": ["nlpo_kl_default"],
    "second": ["ppo_kl_default"],
}


def repeated(nlpo: float, ppo: float) -> dict:
    """Four repetitions of each, so far apart; draws differ by more than either."""
    apart = {"nlpo_kl_default": nlpo, "ppo_kl_default": ppo}
    place = {"": -1.5, "_2": -0.5, "_3": 0.5, "_4": 1.5}
    return {f"{c}{n}": {"score": 9 * NOISE + width * at} for c, width in apart.items() for n, at in place.items()}


def test_arms_of_different_numbers_of_repetitions_are_alike_where_nothing_differs():
    """The logarithm of a standard deviation of few numbers lies low, that of fewer lower; its expectation is 0 here."""
    rng, seeds = np.random.default_rng(5), tuple(range(4000))
    values = {
        f"{c}{number}": {"score": rng.normal(size=len(seeds))}
        for c, k in (("nlpo_kl_default", 2), ("ppo_kl_default", 4))
        for number in ("", "_2", "_3", "_4")[:k]
    }
    found = measure(claim(SPREAD).tests[0], claim(SPREAD), results(values, seeds=seeds), "test").component
    assert abs(found.difference) < 3 * found.sd / math.sqrt(len(seeds))


def test_a_spread_is_over_the_repetitions_on_one_draw():
    """A thousandth as wide in every draw, whatever draws differ by; numbers that are equal have no logarithm."""
    steady = judge.judge(claim(SPREAD), results(repeated(0.001, 1.0) | two_ends()))
    (component,) = steady.components
    assert component.word == HOLDS and component.unit == "log ratio of spreads"
    assert component.difference == component.effect == pytest.approx(-math.log(1000))
    assert judge.judge(claim({**SPREAD, "direction": "greater"}), results(repeated(0.001, 1.0))).word == OPPOSITE
    alike = judge.judge(claim(SPREAD), results(repeated(1.01, 1.0)))
    assert alike.word == TOO_SMALL
    with pytest.raises(ClaimError, match="have no score of nlpo_kl_default"):
        judge.judge(claim(SPREAD), results(repeated(0.0, 1.0)))
    once = {c: v for c, v in repeated(1.0, 1.0).items() if c[-1] not in "234"}
    with pytest.raises(ClaimError, match="have no score of nlpo_kl_default and score of ppo_kl_default"):
        judge.judge(claim(SPREAD), results(once, runs={c: listed(c) for c in once}))


def test_a_repeated_condition_counts_as_the_mean_of_its_repetitions():
    values = repeated(0.0, 0.2) | {"nlpo_kl_0": {"score": 9 * NOISE + 1.0}} | two_ends()
    values["ppo_kl_default_2"] = {"score": values["ppo_kl_default_2"]["score"] + 0.4}
    (component,) = judge.judge(claim(contrast("nlpo_kl_0", "ppo_kl_default")), results(values)).components
    assert component.difference == pytest.approx(0.9)
    (component,) = judge.judge(claim(contrast("nlpo_kl_0", "ppo_kl_default_2")), results(values)).components
    assert component.difference == pytest.approx(0.7)  # of a repetition by its own name, it alone


def two_ends() -> dict:
    return {"zero_shot": {"score": 9 * NOISE}, "ppo_kl_0": {"score": 9 * NOISE + 1}}


def test_shares_of_runs_are_counted():
    test = diverging(["dropout_update_010", "dropout_update_020"], ["ppo_kl_default"])
    values = {"dropout_update_010": {"diverged": [1, 1, 1, 1, 0]}, "ppo_kl_default": {"diverged": 0}}
    (component,) = judge.judge(claim(test), results(values)).components
    assert (component.effect, component.note) == (pytest.approx(0.8), "4 of 5 runs against 0 of 5 runs")
    assert component.p_exact == pytest.approx(scipy_stats.fisher_exact([[4, 1], [0, 5]], "greater").pvalue)
    assert component.word == HOLDS
    none = judge.judge(claim(test), results({**values, "dropout_update_010": {"diverged": 0}}))
    assert none.word == TOO_SMALL and none.components[0].p_smaller == pytest.approx(1 / 32)  # of both arms


def test_wobble_is_compared_on_its_logarithm():
    values = {"ppo_gamma_095": {"wobble": 0.02}, "ppo_gamma_100": {"wobble": 0.04}}
    (component,) = judge.judge(claim(contrast(metric="wobble")), results(values)).components
    assert component.difference == pytest.approx(math.log(2))
    assert component.unit == "log ratio"
    values["ppo_gamma_095"] = {"wobble": 0.0}
    assert (
        "no logarithm: wobble of ppo_gamma_095"
        in judge.judge(claim(contrast(metric="wobble")), results(values)).sentence
    )


def test_a_metric_that_removing_the_penalty_does_not_move_has_no_yardstick():
    values = arms(0.3)
    values["ppo_kl_0"] = values["zero_shot"]
    verdict = judge.judge(claim(contrast()), results(values))
    assert verdict.word == OPEN
    assert verdict.sentence.startswith("Open: not measured (test): ppo_gamma_100 (no yardstick")


def test_a_yardstick_that_is_not_told_from_0_measures_nothing():
    """Moved by 0.1 with a spread over seeds of 0.25: the claim is open, whatever its own numbers; what is beside says
    so too."""
    values = arms(0.3, metric="length") | {"nlpo_gamma_100": {"length": 3.0}, "nlpo_gamma_095": {"length": 1.0}}
    for condition, scores in arms(0.3).items():
        values[condition] = {**values[condition], **scores}
    values["ppo_kl_0"] |= {"length": values["zero_shot"]["length"] + 0.1 + 0.5 * NOISE}
    long = contrast(metric="length", name="longer")
    verdict = judge.judge(claim(long), results(values))
    assert (verdict.word, verdict.components[0].word, verdict.p) == (OPEN, NOT_MEASURED, None)
    assert (
        "longer (no yardstick: how far ppo_kl_0 moves length from zero_shot, +0.1 [-0.21, +0.41], cannot be told "
        "from 0)" in verdict.sentence
    )
    aside = judge.judge(claim(contrast(), {**long, "role": "beside"}), results(values))
    assert (aside.word, aside.components[1].word) == (HOLDS, NOT_MEASURED)


@pytest.mark.parametrize("metric", ["judge", "judge_2", "score_response"])
def test_judges_are_measured_by_the_scores_yardstick(metric):
    """What a hacked policy does to a judge says nothing about how large a judge's difference is."""
    values = arms(0.3)
    for condition, level in (("ppo_gamma_100", 0.2), ("ppo_gamma_095", 0.1), ("ppo_kl_0", 0.0), ("zero_shot", 0.0)):
        values[condition] = {**values[condition], metric: level}
    (component,) = judge.judge(claim(contrast(metric=metric)), results(values)).components
    assert (component.yardstick, component.effect) == pytest.approx((0.5, 0.2))


def test_a_peak_names_no_number_of_seeds():
    (component,) = judge.judge(claim(points("peak")), results(sweep(0.0, 0.01, 0.0, spread=0.5))).components
    assert (component.word, component.n_needed) == (OPEN_FOR, None)


@pytest.mark.parametrize("kind", ["matched", "frontier"])
def test_curves_of_the_deployed_policy_take_its_own_kl(kind):
    """As deployed, NLPO spends half as much KL again and scores 0.2 more than at equal KL; bare, it does the same as
    PPO."""
    kls, test = KLS, of_curves(kind, decoding="own")
    values = {"zero_shot": {"score": {"plain": 0.3}, "kl_deployed": {"plain": 0.0}}}
    for name, plain, own in zip(test["second"], curve(kls, kls), curve(kls, kls)):
        values[name] = {m: {"plain": plain[m], "own": own[m]} for m in plain}
    for name, plain, own in zip(test["first"], curve(kls, kls), curve(kls * 1.5 + 0.2, kls * 1.5)):
        values[name] = {m: {"plain": plain[m], "own": own[m]} for m in plain}
    (component,) = judge.judge(claim(test), results(values)).components
    assert component.difference == pytest.approx(0.2, abs=0.01)
    shipped = [t for name in ("P04", "P05") for t in SHIPPED[name].tests if t.kind in ("matched", "frontier")]
    assert len(shipped) == 3 and all((t.decoding, t.at_least) == ("own", 4) for t in shipped)
