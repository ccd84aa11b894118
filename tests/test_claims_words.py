"""The ledger's words on synthetic results whose truth is planted."""

import math

import numpy as np
import pytest

from tests.claims_made import IN_NUMBERS, NOISE, _cut, arms, bare, claim, contrast, results, share, two
from workbook.ledger import judge, page
from workbook.ledger.claim import conditions_of
from workbook.ledger.contrast import measure
from workbook.ledger.made import seed_by_seed
from workbook.ledger.ruling import AWAITING, ELSEWHERE
from workbook.statistics import paired, power
from workbook.statistics.rule import (
    AGAINST,
    FOR,
    HOLDS,
    HOLDS_SMALLER,
    OPEN_AGAINST,
    OPEN_FOR,
    OPPOSITE,
    TOO_SMALL,
    decide,
)

# the words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "effect, spread, word",
    [
        (0.3, 0.02, HOLDS),
        (0.02, 0.002, HOLDS_SMALLER),
        (-0.3, 0.02, OPPOSITE),
        (0.0, 0.02, TOO_SMALL),
        (-0.02, 0.002, TOO_SMALL),  # certain, the other way, and too small to be the opposite of what was stated
        (0.05, 0.2, OPEN_FOR),
        (-0.05, 0.2, OPEN_AGAINST),
        (0.001, 0.5, OPEN_FOR),
        (-0.001, 0.15, OPEN_AGAINST),  # known to within 0.07, which is not 0.05 but would be 0.1
    ],
)
def test_planted_effects_give_the_right_word(effect, spread, word):
    """True, true and small, reversed, shown to be smaller than stated (0.1 yardsticks = 0.05), and four that are
    open."""
    verdict = judge.judge(claim(contrast()), results(arms(effect, spread)))
    assert verdict.word == word
    (component,) = verdict.components
    assert component.word == word
    assert component.difference == pytest.approx(effect)
    assert component.effect == pytest.approx(effect / 0.5)
    assert component.yardstick == pytest.approx(0.5)
    assert component.n == 5
    assert verdict.sentence.startswith(word.capitalize())


def test_a_small_effect_that_is_certain_holds_and_says_so():
    verdict = judge.judge(claim(contrast()), results(arms(0.02, 0.002)))
    assert verdict.word == HOLDS_SMALLER
    assert verdict.components[0].smaller
    assert verdict.sentence.startswith("Holds, but smaller than stated (yardsticks): ppo_gamma_100 +0.04 [")


def test_an_effect_shown_to_be_small_is_too_small_in_sentence_and_table():
    here = results(arms(0.0, 0.02))
    verdict = judge.judge(claim(contrast()), here)
    (component,) = verdict.components
    assert (verdict.word, component.word, component.smaller) == (TOO_SMALL, TOO_SMALL, True)
    assert component.p_smaller == pytest.approx(paired.equivalence(0.02 * NOISE, 0.05).p)
    assert verdict.n_needed is None, "it is settled"
    assert verdict.sentence.startswith("Too small (yardsticks): ")
    rows = judge.ledger({"Z01": claim(contrast())}, here, ["Z01"])
    assert "| too small |" in page.markdown(rows) and "The evidence goes against Z01" in page.answer(rows)
    (open_,) = judge.judge(claim(contrast()), results(arms(0.0, 0.15))).components
    assert not open_.smaller and open_.p_smaller > 0.05


@pytest.mark.parametrize("second, word", [(0.01, OPEN_FOR), (-0.01, OPEN_AGAINST)])
def test_an_effect_that_holds_is_no_evidence_against_the_claim_for_being_small(second, word):
    """One part is certain and small, the other open: the claim is open, and leans as the open part does."""
    values = arms(0.02, 0.002)
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + second + 0.5 * NOISE}}
    verdict = judge.judge(claim(*two()), results(values))
    assert [c.word for c in verdict.components] == [HOLDS_SMALLER, word]
    assert (verdict.word, verdict.parts_held) == (word, "1 of 2")
    assert "; 1 of 2 parts hold: " in verdict.sentence


def test_words_keep_their_error_rates():
    """500 claims without an effect: wrong words no more often than alpha says; and 500 each that are true or
    reversed."""
    rng = np.random.default_rng(0)
    (component,) = judge.judge(claim(contrast()), results(arms(0.3))).components
    test, unit = claim(contrast()).tests[0], 0.5

    def words(truth: float, spread: float) -> list[str]:
        d = truth + spread * rng.normal(size=(500, 5))
        return [decide(seed_by_seed(test, component, row, unit).evidence) for row in d]

    slack = 3 * math.sqrt(0.05 * 0.95 / 500)
    for spread in (0.02, 0.2):
        null, stated = words(0.0, spread), words(0.05, spread)
        assert share(null, FOR) <= 0.025 + slack  # one side of a two-sided test
        assert share(null, [OPPOSITE]) <= 0.025 + slack  # an effect of 0 is not the opposite
        assert share(stated, (*AGAINST, HOLDS_SMALLER)) <= 0.05 + slack
    assert share(words(0.0, 0.02), [TOO_SMALL]) > 0.8, "of no effect that is known well"
    assert words(-0.2, 0.05).count(OPPOSITE) / 500 > 0.8
    assert words(0.2, 0.05).count(HOLDS) / 500 > 0.8


def test_equality_holds_within_the_margin_and_is_opposite_beyond_it():
    known = claim({**contrast(), "direction": "equal", "effect": None, "margin": 0.1})
    assert judge.judge(known, results(arms(0.0, 0.02))).word == HOLDS
    assert judge.judge(known, results(arms(0.2, 0.02))).word == OPPOSITE
    for effect in (0.06, -0.06):  # the margin is 0.05
        assert judge.judge(known, results(arms(effect, 0.2))).word == OPEN_AGAINST
    verdict = judge.judge(known, results(arms(0.04, 0.2)))
    assert verdict.word == OPEN_FOR
    assert verdict.components[0].n_needed > 5


def test_fewer_seeds_than_alpha_needs_are_refused():
    verdict = judge.judge(claim(contrast()), results(_cut(arms(0.3), 4), seeds=(1, 2, 3, 4)))
    assert verdict.word == ELSEWHERE
    assert verdict.lacks == ("at least 5 seeds (here 4)",)
    assert judge.judge(claim(contrast()), results(_cut(arms(0.3), 1), seeds=(1,))).word == ELSEWHERE


@pytest.mark.parametrize(
    "how, first, second, word",
    [
        ("all", (0.3, 0.02), (0.3, 0.02), HOLDS),
        ("all", (0.3, 0.02), (0.02, 0.002), HOLDS_SMALLER),  # one needed part is small
        ("all", (0.3, 0.02), (0.01, 0.5), OPEN_FOR),
        ("all", (0.3, 0.02), (-0.01, 0.5), OPEN_AGAINST),
        ("all", (0.3, 0.02), (-0.3, 0.02), OPPOSITE),  # one needed part is refuted
        ("all", (0.3, 0.02), (0.0, 0.02), TOO_SMALL),
        ("all", (0.0, 0.02), (-0.3, 0.02), OPPOSITE),  # which says more
        ("any", (0.3, 0.02), (-0.3, 0.02), HOLDS),
        ("any", (0.3, 0.02), (0.02, 0.002), HOLDS),
        ("any", (0.0, 0.02), (0.02, 0.002), HOLDS_SMALLER),
        ("any", (0.01, 0.5), (-0.3, 0.02), OPEN_FOR),
        ("any", (-0.01, 0.5), (-0.3, 0.02), OPEN_AGAINST),
        ("any", (0.0, 0.02), (0.3, 0.5), OPEN_FOR),
        ("any", (-0.3, 0.02), (-0.3, 0.02), OPPOSITE),
        ("any", (0.0, 0.02), (-0.3, 0.02), TOO_SMALL),  # refuted, and not all of it is opposite
    ],
)
def test_several_parts(how, first, second, word):
    values = arms(*first)
    base = values["ppo_gamma_095"]["score"]
    values |= {
        "nlpo_gamma_095": {"score": base},
        "nlpo_gamma_100": {"score": base + second[0] + second[1] * NOISE[::-1]},
    }
    assert judge.judge(claim(*two(), decided_by=how), results(values)).word == word


@pytest.mark.parametrize(
    "how, effect, alone, lean", [("all", -0.3, OPPOSITE, OPEN_AGAINST), ("any", 0.3, HOLDS, OPEN_FOR)]
)
def test_a_part_that_decides_alone_is_held_to_holm(how, effect, alone, lean):
    """p = 0.04: enough for a claim of one part, not against one of several that are all needed, or for one of
    several."""
    values = arms(effect, math.copysign(0.44, -effect))  # every seed on one side of 0
    assert 0.025 < judge.judge(claim(contrast()), results(values)).components[0].p_t < 0.05
    assert judge.judge(claim(contrast()), results(values)).word == alone
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + 0.01 + NOISE}}
    verdict = judge.judge(claim(*two(), decided_by=how), results(values))
    assert [c.word for c in verdict.components] == [lean, OPEN_FOR]
    assert (verdict.word, verdict.parts_held) == (lean, "0 of 2")


def test_a_part_enters_holm_with_the_smaller_p_of_what_goes_against_it():
    """Reversed with p < 0.001, and small with p about 0.03: Holm over two parts doubles the first p, not the second."""
    values = arms(-0.04, 0.018)
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + NOISE}}
    verdict = judge.judge(claim(*two()), results(values))
    first = verdict.components[0]
    assert 2 * first.p_t < 0.05 < 2 * first.p_smaller and first.p_smaller < 0.05
    assert (first.word, verdict.word) == (TOO_SMALL, TOO_SMALL)


def test_how_many_parts_hold_is_said_beside_the_word():
    assert judge.judge(claim(contrast()), results(arms(0.3))).parts_held == ""
    for second, held in ((0.3, "2 of 2"), (0.01, "2 of 2"), (-0.3, "1 of 2")):  # 0.01: holds, and is smaller
        values = arms(0.3)
        base = values["ppo_gamma_095"]["score"]
        values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + second + 0.002 * NOISE}}
        beside = contrast(name="third", role="beside")
        verdict = judge.judge(claim(*two(), beside), results(values))
        assert verdict.parts_held == held and f"; {held} parts hold: " in verdict.sentence


def test_holm_is_over_the_claims_own_deciding_tests_and_again_over_the_table():
    values = arms(0.3, 0.2)
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + 0.3 + 0.1 * NOISE}}
    known = claim(*two(), contrast(name="third", role="beside"))
    here = results(values)
    first, second, beside = judge.judge(known, here).components
    assert (first.p_t_holm, second.p_t_holm) == pytest.approx((max(first.p_t, 2 * second.p_t), 2 * second.p_t))
    assert beside.p_t_holm is None
    rows = judge.ledger({"Z01": known, "Z02": known}, here, ["Z01", "Z02"])
    smallest = [row["components"][1]["p_t_table"] for row in rows]
    assert smallest == pytest.approx([4 * second.p_t, 4 * second.p_t])
    assert rows[0]["components"][2]["p_t_table"] is None


def small_control() -> dict:
    values = arms(0.3)
    return values | {"bandit": {"score": values["zero_shot"]["score"] + 0.001 * NOISE}}


def test_q_is_benjamini_yekutieli_over_the_claims_that_are_tested():
    """By hand, m = 3: p times m over its rank, times 1 + 1/2 + 1/3, and never more than that of a larger p. Others take
    no part: claims that wait, lack their numbers or are not listed, and a test beside."""
    values = arms(0.3)
    base = values["ppo_gamma_095"]["score"]
    for name, spread in (("nlpo", 0.334), ("a2c", 0.376)):
        values |= {f"{name}_gamma_095": {"score": base}, f"{name}_gamma_100": {"score": base + 0.1 + spread * NOISE}}
    values |= {"bandit": {"score": [0.5, math.nan, 0.5, 0.5, 0.5]}}
    known = {
        "Z01": claim(contrast("a2c_gamma_100", "a2c_gamma_095")),
        "Z02": claim(awaiting=["dqn"]),
        "Z03": claim(contrast()),
        "Z04": claim(contrast("bandit", "ppo_gamma_095")),
        "Z05": claim(contrast("nlpo_gamma_100", "nlpo_gamma_095"), contrast(role="beside")),
        "Z06": claim(contrast("nlpo_gamma_100", "nlpo_gamma_095")),
    }
    known = {name: one.replace(id=name) for name, one in known.items()}
    rows = judge.ledger(known, results(values), ["Z01", "Z03", "Z04", "Z05"])
    found = {row["id"]: (row["p"], row["q"]) for row in rows}
    assert [name for name, pair in found.items() if pair == (None, None)] == ["Z02", "Z04", "Z06"]
    least, middle, most = found["Z03"][0], found["Z05"][0], found["Z01"][0]
    assert least == 1 / 32 and 0.2 < middle < most < 1.5 * middle
    harmonic = 11 / 6
    assert found["Z03"][1] == pytest.approx(least * 3 * harmonic)
    assert found["Z05"][1] == pytest.approx(most * harmonic), "and not middle * 3 / 2 * 11 / 6"
    assert found["Z01"][1] == pytest.approx(most * harmonic)
    (alone,) = judge.ledger({"Z03": known["Z03"]}, results(values), ["Z03"])
    assert alone["q"] == alone["p"] == judge.judge(known["Z03"], results(values)).p == least
    assert alone["word"] == rows[2]["word"] == HOLDS, "it changes no word"
    reversed_ = judge.ledger({"Z03": known["Z03"]}, results(arms(-0.3)), ["Z03"])
    assert (reversed_[0]["word"], reversed_[0]["p"], reversed_[0]["q"]) == (OPPOSITE, 1.0, 1.0), "p is of the claim"


def test_the_p_of_a_claim_is_that_of_all_its_parts():
    """All: the largest p; any: the least after Holm; and it is at most alpha exactly if the claim holds."""
    values = arms(0.3)
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + 0.1 + 0.3 * NOISE}}
    found = {how: judge.judge(claim(*two(), decided_by=how), results(values)) for how in ("all", "any")}
    first, second = found["all"].components
    assert found["all"].p == second.p_t > 0.05 and found["any"].p == max(2 * first.p_t, 1 / 32) <= 0.05
    assert (found["all"].word, found["any"].word) == (OPEN_FOR, HOLDS)
    few = judge.judge(claim(contrast()), results(_cut(arms(0.3), 4), seeds=(1, 2, 3, 4)))
    assert (few.word, few.p) == (ELSEWHERE, None)


def test_only_what_is_reversed_is_called_the_opposite():
    """A control that is shown to be small, or equal within its margin or not, is no opposite of anything."""
    beside = [
        contrast("bandit", "ppo_gamma_095", role="beside"),
        {**contrast(role="beside", name="no equal"), "direction": "equal", "effect": None, "margin": 0.1},
    ]
    verdict = judge.judge(claim(contrast(), *beside), results(small_control()))
    assert [c.word for c in verdict.components] == [HOLDS, TOO_SMALL, OPPOSITE]
    assert "opposite" not in verdict.sentence


def test_what_holds_beside_a_claim_that_is_too_small_is_not_its_opposite():
    known = claim(contrast("bandit", "ppo_gamma_095"), contrast(role="beside"))
    small = judge.judge(known, results(small_control()))
    assert small.word == TOO_SMALL and "opposite" not in small.sentence


def test_a_test_that_stands_beside_does_not_change_the_word_but_is_named_when_it_disagrees():
    against = contrast(name="the control", role="beside", direction="less")
    verdict = judge.judge(claim(contrast(), against), results(arms(0.3)))
    assert verdict.word == HOLDS
    assert verdict.components[1].word == OPPOSITE
    assert "the opposite: the control +0.60" in verdict.sentence
    reverse = judge.judge(claim(contrast(), against), results(arms(-0.3)))
    assert reverse.word == OPPOSITE
    assert "the opposite: the control -0.60" in reverse.sentence


def numbers(effect, spread=0.02) -> dict:
    """Two runs of the world of numbers that lie `effect` apart, whose yardstick is 0.25, half of that of the
    reviews."""
    base = 0.2 + 0.1 * NOISE
    return arms(0.0) | {
        "numbers_zero_shot": {"score": base},
        "numbers_ppo": {"score": base + 0.25},
        "numbers_mask_top_p_090": {"score": base + effect + spread * NOISE},
        "numbers_mask_top_p_095": {"score": base},
    }


@pytest.mark.parametrize(
    "effect, spread, word",
    [(0.3, 0.02, HOLDS), (-0.3, 0.02, OPPOSITE), (0.0, 0.005, TOO_SMALL), (0.01, 0.5, OPEN_FOR)],
)
def test_a_world_of_its_own_has_its_own_yardstick(effect, spread, word):
    """Not that of the reviews, which is there as well, and does not have to be."""
    values = numbers(effect, spread)
    verdict = judge.judge(claim(IN_NUMBERS), results(values))
    (component,) = verdict.components
    assert (verdict.word, component.yardstick, component.effect) == (
        word,
        pytest.approx(0.25),
        pytest.approx(effect / 0.25),
    )
    alone = {c: v for c, v in values.items() if c.startswith("numbers")}
    assert judge.judge(claim(IN_NUMBERS), results(alone)) == verdict
    assert conditions_of(claim(IN_NUMBERS)) == {*alone}
    assert judge.lacks(claim(IN_NUMBERS), dict.fromkeys(values.keys() - {"numbers_ppo"}, {})) == ["the run numbers_ppo"]
    assert claim(contrast()).tests[0].yardstick == ("ppo_kl_0", "zero_shot")


def test_a_world_whose_learner_does_not_learn_has_no_yardstick():
    values = numbers(0.3) | {"numbers_ppo": numbers(0.3)["numbers_zero_shot"]}
    said = judge.judge(claim(IN_NUMBERS), results(values)).sentence
    assert "no yardstick: how far numbers_ppo moves score from numbers_zero_shot" in said


def test_a_word_in_yardsticks_of_a_world_keeps_its_error_rate():
    """300 claims of a world without an effect, through the whole of `measure`."""
    rng, words, known, values = np.random.default_rng(1), [], claim(IN_NUMBERS), numbers(0.0)
    for _ in range(300):
        values["numbers_mask_top_p_090"] = {
            "score": values["numbers_mask_top_p_095"]["score"] + 0.05 * rng.normal(size=5)
        }
        words.append(decide(measure(known.tests[0], known, bare(values), "test").evidence))
    slack = 3 * math.sqrt(0.025 * 0.975 / 300)
    assert share(words, FOR) <= 0.025 + slack and share(words, [OPPOSITE]) <= 0.025 + slack
    assert {HOLDS, OPPOSITE} <= {*words}, "a rule that never speaks would pass the rest"


def test_the_n_that_would_settle_it_shows_the_stated_effect_at_the_spread_seen_and_its_absence():
    """The larger of two numbers: to show 0.05 where it is there, and that it is too small where nothing is."""
    values = arms(0.05, 0.2)
    verdict = judge.judge(claim(contrast()), results(values))
    spread = (values["ppo_gamma_100"]["score"] - values["ppo_gamma_095"]["score"]).std(ddof=1)
    assert verdict.n_needed == power.n_needed_equivalence(0.05, spread) == 36
    assert power.n_needed(0.05, spread) == 34
    (narrow,) = judge.judge(claim(contrast()), results(arms(0.03, 0.07))).components  # there showing it takes more
    assert narrow.n_needed == power.n_needed(0.05, narrow.sd) == 7
    assert power.n_needed_equivalence(0.05, narrow.sd) == 6
    assert f"About {verdict.n_needed} seeds" in verdict.sentence
    assert judge.judge(claim(contrast()), results(arms(0.3))).n_needed is None


def test_seeds_that_were_run_and_settled_nothing_are_never_called_enough():
    """At this spread five seeds should have shown the stated effect, or that it is not there; here they did neither."""
    values = arms(0.029, 0.05)
    verdict = judge.judge(claim(contrast()), results(values))
    spread = (values["ppo_gamma_100"]["score"] - values["ppo_gamma_095"]["score"]).std(ddof=1)
    assert verdict.word == OPEN_FOR
    assert power.n_needed(0.05, spread) <= 5 and power.n_needed_equivalence(0.05, spread) <= 5
    assert verdict.n_needed == 6
    assert "More than 5 seeds are needed to settle an effect of 0.1" in verdict.sentence
    rows = judge.ledger({"Z01": claim(contrast())}, results(values), ["Z01"])
    assert page.unsettled(rows)["seeds that would settle it"].tolist() == ["more than 5"]
    assert "| more than 5 |" in page.markdown(rows)


def test_the_name_of_a_profile_changes_no_word():
    planted = {"a": (0.3, 0.02), "b": (0.02, 0.002), "c": (0.0, 0.02), "d": (-0.3, 0.02), "e": (0.01, 0.5)}
    for values in planted.values():
        mini, paper = (judge.judge(claim(contrast()), results(arms(*values), profile=p)) for p in ("mini", "paper"))
        assert mini == paper


def test_claims_without_tests_say_what_they_wait_for_or_need():
    here = results(arms(0.3))
    waiting = judge.judge(claim(awaiting=["dqn", "rloo"]), here)
    needing = judge.judge(claim(needs=["human raters"]), here)
    assert (waiting.word, waiting.lacks, waiting.sentence) == (AWAITING, ("dqn", "rloo"), "Awaiting: dqn; rloo.")
    assert (needing.word, needing.sentence) == (ELSEWHERE, "Not testable here: needs human raters.")
