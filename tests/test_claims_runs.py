"""What the ledger says where runs are missing, diverged or repeated, of thresholds, and at half the budget."""

import json
import math

import numpy as np
import pytest

from tests.claims_made import FIFTH, NOISE, ROOT, SHIPPED, _cut, arms, claim, contrast, listed, results, two
from tests.test_claims_kinds import SPREAD
from workbook.ledger import checks, judge
from workbook.ledger import listed as listing
from workbook.ledger.claim import ClaimError
from workbook.ledger.contrast import NOT_MEASURED, NOT_RUN
from workbook.ledger.ruling import ELSEWHERE
from workbook.results.measures import MEASURES
from workbook.results.results import Results
from workbook.statistics.rule import (
    HOLDS,
    OPEN,
    OPEN_AGAINST,
    OPEN_FOR,
    OPPOSITE,
    TOO_SMALL,
)

# missing runs --------------------------------------------------------------------------------------------------------


def test_a_listed_claim_whose_run_has_no_results_is_an_error_that_names_it():
    values = arms(0.3)
    runs = {c: {} for c in values}
    del values["ppo_gamma_100"]
    with pytest.raises(ClaimError, match="Z01 needs ppo_gamma_100"):
        judge.ledger({"Z01": claim(contrast())}, results(values, runs=runs, missing=["ppo_gamma_100"]), ["Z01"])


def test_a_listed_claim_whose_runs_the_profile_lacks_is_an_error():
    values = arms(0.3)
    del values["ppo_gamma_100"]
    with pytest.raises(ClaimError, match="Z01: needs the run ppo_gamma_100"):
        judge.ledger({"Z01": claim(contrast())}, results(values), ["Z01"])


def test_listed_names_are_checked():
    known = {"Z01": claim(contrast()), "Z02": claim(awaiting=["dqn"])}
    with pytest.raises(ClaimError, match="Z1: no claim is called so; did you mean 'Z01'"):
        judge.ledger(known, results(arms(0.3)), ["Z1"])
    with pytest.raises(ClaimError, match="Z02: has no tests; it awaits dqn"):
        judge.ledger(known, results(arms(0.3)), ["Z02"])


def test_a_claim_that_is_not_listed_says_which_runs_it_lacks():
    values = arms(0.3)
    del values["ppo_gamma_100"]
    known = {"Z01": claim(contrast())}
    (row,) = judge.ledger(known, results(values), [])
    assert row["word"] == ELSEWHERE
    assert row["sentence"] == "Not testable here: needs the run ppo_gamma_100."
    (row,) = judge.ledger(known, results(arms(0.3)), [])
    assert row["sentence"] == "Not testable here: its runs are here; list it in `claims`."


def test_a_spread_takes_repetitions_before_any_run():
    """Runs that are there once would be refused by the ledger when all have run; so the list is refused before."""
    known = {"Z01": claim(SPREAD), "Z02": claim(contrast(), id="Z02")}
    once = {c: listed(c) for c in (*arms(0.3), "ppo_kl_default", "ppo_kl_default_2", "nlpo_kl_default")}
    advice = listing.lacking(known, once)
    assert advice == {
        "Z01": ["2 or more repetitions (runs a seed, by `replicate`) of nlpo_kl_default", listing.UNLISTED]
    }
    with pytest.raises(ClaimError, match="Z01: needs 2 or more repetitions .* of nlpo_kl_default$"):
        listing.check(known, ["Z01", "Z02"], once, "mini")
    with pytest.raises(ClaimError) as error:
        listing.check(known, ["Z01", "Z3"], once, "mini")
    assert len(str(error.value).splitlines()) == 3, "every problem at once"
    (row, other) = listing.told(judge.ledger(known, results(arms(0.3), runs=once), []), advice)
    assert row["lacks"] == advice["Z01"] and "list it" not in row["sentence"] and "nlpo_kl_default" in row["sentence"]
    assert other["lacks"] == [listing.UNLISTED]
    twice = once | {"nlpo_kl_default_2": listed("nlpo_kl_default_2")}
    listing.check(known, ["Z01", "Z02"], twice, "mini")
    assert listing.lacking(known, twice) == {}


def test_what_a_page_says_to_list_may_be_listed():
    """Each claim whose row says that its id in `claims` is all it lacks passes the check that comes before any run."""
    advised = 0
    for name, values in checks.profiles(ROOT).items():
        if (path := ROOT / f"reports/{name}/claims/claims.json").is_file():
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            ids = [row["id"] for row in rows if row["lacks"] == [listing.UNLISTED]]
            listing.check(SHIPPED, ids, checks.runs_of(values), name)
            advised += len(ids)
    assert advised


def test_a_decoding_that_the_run_does_not_make_is_missing_too():
    greedy = {**contrast(), "terms": {"ppo_gamma_100@greedy": 1, "ppo_gamma_095@greedy": -1}}
    runs = {c: {"algorithm": "ppo"} for c in arms(0.3)} | {"ppo_gamma_100": {"decodings": ["greedy"]}}
    assert judge.lacks(claim(greedy), runs) == ["greedy among the decodings of ppo_gamma_095"]


def test_a_test_beside_may_lack_its_runs():
    verdict = judge.judge(claim(contrast(), contrast("bandit", name="b", role="beside")), results(arms(0.3)))
    assert verdict.word == HOLDS
    assert (verdict.components[1].word, verdict.components[1].note) == (NOT_RUN, "needs the run bandit")


def test_a_brought_model_is_not_its_own_witness():
    values = arms(0.3) | {c: {**v, "generation_log_perplexity": v["score"]} for c, v in arms(0.3).items()}
    own = contrast(name="b", role="beside", metric="generation_log_perplexity")
    assert judge.judge(claim(contrast(), own), results(values)).components[1].word == HOLDS
    assert judge.judge(claim(contrast(), own), results(values, model="mine")).components[1].word == NOT_MEASURED


# runs that diverged -------------------------------------------------------------------------------------------------


def test_a_seed_that_diverged_leaves_its_test_unmeasured_and_the_ledger_whole():
    values = arms(0.3) | {"bandit": {"score": [0.5, math.nan, 0.5, 0.5, 0.5]}}
    lost = contrast("bandit", "ppo_gamma_095", name="lost")
    known = {"Z01": claim(contrast(), {**lost, "role": "beside"}), "Z02": claim(lost, contrast()).replace(id="Z02")}
    first, second = judge.ledger(known, results(values), ["Z01", "Z02"])
    assert (first["word"], first["components"][1]["word"]) == (HOLDS, NOT_MEASURED)
    assert "bandit: score (plain, test) is missing for seed 2" in first["components"][1]["note"]
    assert (second["word"], second["p"], second["q"], second["assay"]) == (OPEN, None, None, None)
    assert "not measured (test): lost (bandit: score (plain, test) is missing for seed 2" in second["sentence"]
    assert [c["word"] for c in second["components"]] == [NOT_MEASURED, HOLDS]


def test_a_yardstick_of_which_a_seed_diverged_measures_nothing():
    values = arms(0.3)
    values["ppo_kl_0"] = {"score": [0.5, 0.5, math.nan, 0.5, 0.5]}
    verdict = judge.judge(claim(contrast()), results(values))
    assert verdict.word == OPEN and "ppo_kl_0: score (plain, test) is missing for seed 3" in verdict.sentence


def test_a_run_that_diverged_in_every_seed_is_no_error_and_one_that_was_not_measured_is():
    values = arms(0.3) | {"ppo_gamma_100": {"score": math.nan, "diverged": 1}}
    verdict = judge.judge(claim(contrast()), results(values))
    assert verdict.word == OPEN
    assert "no score of ppo_gamma_100; ppo_gamma_100 diverged in every seed" in verdict.sentence
    values["ppo_gamma_100"] = {"score": math.nan, "diverged": 0}
    with pytest.raises(ClaimError, match="have no score of ppo_gamma_100"):
        judge.judge(claim(contrast()), results(values))


@pytest.mark.parametrize(
    "gain, spread, word",
    [
        (0.11, 0.002, HOLDS),  # a little above a fifth of the yardstick of .5: no size is asked of the distance
        (0.3, 0.002, HOLDS),
        (0.09, 0.002, OPPOSITE),
        (0.101, 0.02, OPEN_FOR),
        (0.099, 0.02, OPEN_AGAINST),
    ],
)
def test_a_threshold_is_passed_or_missed_and_never_too_small(gain, spread, word):
    verdict = judge.judge(claim(FIFTH), results(arms(gain, spread)))
    assert verdict.word == verdict.components[0].word == word
    assert verdict.components[0].effect == pytest.approx((gain - 0.1) / 0.5)
    assert (verdict.components[0].smaller, verdict.components[0].p_smaller) == (False, None)


def test_thresholds_are_the_tests_against_a_point_between_two_conditions():
    """Every shipped contrast in which weights of one sign differ says that it is one, and no other does."""
    for known in SHIPPED.values():
        for test in known.tests:
            sides = [[abs(w) for w in test.terms.values() if w * sign > 0] for sign in (1, -1)]
            between = any(side and min(side) < 0.99 * max(side) for side in sides)
            assert test.threshold == (test.kind == "contrast" and between), f"{known.id}: {test.name}"


# what is the same everywhere, repetitions, set yardsticks ------------------------------------------------------------


def test_two_floors_are_not_compared():
    """Judges that say 0 of every run: no difference, and no verdict; one run off the floor is enough for one."""
    floor = {c: {"score": 0.3 + 0.5 * (c == "ppo_kl_0"), "judge": 0.0} for c in arms(0)}
    floor |= {"ppo_kl_0": {"score": 0.8 + 0.01 * NOISE, "judge": 0.0}}
    test = contrast(metric="judge")
    found = judge.judge(claim(test), results(floor))
    assert (found.word, found.components[0].note) == (OPEN, "nothing to compare: judge is 0 in every run")
    floor["ppo_gamma_100"]["judge"] = 0.001 * (NOISE > 0)
    assert judge.judge(claim(test), results(floor)).word == TOO_SMALL


def with_one_more(values, metric="score") -> Results:
    """ppo_gamma_100 with a repetition that was measured by plain decoding alone."""
    values = {**values, "ppo_gamma_100_2": {metric: values["ppo_gamma_100"][metric]["plain"] + 4.0}}
    return results(values, runs={c: {**listed(c), "decodings": ["greedy"] * (c == "ppo_gamma_100")} for c in values})


def test_repetitions_count_only_where_all_that_the_test_compares_was_measured():
    values = arms(0.3)
    values["ppo_gamma_100"]["score"] = {d: values["ppo_gamma_100"]["score"] for d in ("plain", "greedy")}
    whole = judge.judge(claim(contrast()), with_one_more(values)).components[0]
    assert whole.difference == pytest.approx(0.3 + 2.0 + 0.02 * NOISE.mean())
    terms = {"ppo_gamma_100": 2, "ppo_gamma_100@greedy": -1, "ppo_gamma_095": -1}
    both = judge.judge(claim({**contrast(), "terms": terms}), with_one_more(values)).components[0]
    assert both.difference == pytest.approx(0.3 + 0.02 * NOISE.mean()), "the repetition has no greedy text"


def test_what_is_compared_on_the_logarithm_is_averaged_on_it():
    values = arms(0.0, 0.0, metric="wobble")
    values["ppo_gamma_100"]["wobble"] = {"plain": np.full(5, 1.0)}
    values["ppo_gamma_095"]["wobble"] = np.full(5, 1.0) + 0.1 * NOISE
    found = judge.judge(claim(contrast(metric="wobble")), with_one_more(values, "wobble")).components[0]
    assert found.difference == pytest.approx(np.log(5) / 2 - np.log(1.0 + 0.1 * NOISE).mean())


def test_human_text_is_measured_by_a_yardstick_of_set_size():
    """What PPO without the penalty does to it depends on the learning rate; the published size does not."""
    for kl_0 in (2.0, 9.0):
        values = {c: {"human_log_perplexity": v["score"]} for c, v in arms(0.117, 0.0).items()}
        values["ppo_kl_0"] = {"human_log_perplexity": kl_0}
        found = judge.judge(claim(contrast(metric="human_log_perplexity")), results(values)).components[0]
        assert (found.yardstick, found.effect) == (0.234, pytest.approx(0.5))
    assert MEASURES["human_log_perplexity"].yardstick == pytest.approx(np.log(40.650 / 32.171), abs=1e-3)


# half the budget -----------------------------------------------------------------------------------------------------


def test_at_half_the_budget_the_yardstick_is_that_of_half_the_budget():
    values, half = arms(0.3), arms(0.3, 0.0)
    values["ppo_kl_0"] = {"score": values["zero_shot"]["score"] + 1.0}
    half["ppo_kl_0"] = {"score": half["zero_shot"]["score"] + 2.0}
    here = results(values, half=half)
    found = [judge.judge(claim(contrast()), here, split).components[0] for split in ("test", "half")]
    assert [component.yardstick for component in found] == pytest.approx([1.0, 2.0])
    assert found[1].effect == pytest.approx(0.15)


@pytest.mark.parametrize(
    "before, turns",
    [
        ((0.3, 0.02), False),
        ((-0.3, 0.02), True),
        ((0.01, 0.5), False),
        ((-0.01, 0.5), True),
        ((0.02, 0.002), False),  # smaller, and it holds
        ((0.001, 0.02), True),  # too small: against the claim
    ],
)
def test_a_verdict_that_turns_between_half_and_full_budget_is_flagged(before, turns):
    here = results(arms(0.3), half=arms(*before))
    full, half = judge.judge(claim(contrast()), here), judge.judge(claim(contrast()), here, "half")
    assert judge.sign_changes(full, half) is turns
    (row,) = judge.ledger({"Z01": claim(contrast())}, here, ["Z01"])
    assert (row["turns"], row["half_word"]) == (turns, half.word)


def test_a_word_that_turns_against_the_claim_is_flagged_whatever_its_size():
    def turns(now, before):
        here = results(arms(*now), half=arms(*before))
        return judge.sign_changes(*(judge.judge(claim(contrast()), here, split) for split in ("test", "half")))

    small, held, held_small, reverse, open_ = (0.001, 0.02), (0.3, 0.02), (0.02, 0.002), (-0.3, 0.02), (0.01, 0.5)
    assert turns(small, held) and turns(held, small) and turns(small, held_small) and turns(reverse, held_small)
    assert not turns(held, held_small) and not turns(open_, held) and not turns(open_, small)
    assert turns(reverse, small), "the sign of an effect that is settled"
    other = (-0.001, 0.02)
    assert not turns(small, other) and not turns(other, open_), "what is too small has a sign by chance"


def test_where_no_test_is_made_no_sign_is_settled():
    """Three seeds: "direction only"."""
    here = results(_cut(arms(0.3), 3), seeds=(1, 2, 3), half=_cut(arms(-0.3), 3))
    (row,) = judge.ledger({"Z01": claim(contrast())}, here, ["Z01"])
    assert (row["word"], row["turns"]) == (ELSEWHERE, False)


def test_a_sign_that_chance_turned_is_not_flagged():
    here = results(arms(0.01, 0.5), half=arms(-0.01, 0.5))
    assert not judge.sign_changes(*(judge.judge(claim(contrast()), here, split) for split in ("test", "half")))


def test_an_equality_that_turns_is_flagged_though_the_claim_is_open():
    equal = {**contrast(), "direction": "equal", "effect": None, "margin": 0.1}

    def values(effect):
        base = arms(0.0)["zero_shot"]["score"]
        open_ = {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + 0.01 + NOISE}}
        return arms(effect) | open_

    known, here = claim(equal, two()[1]), results(values(0.0), half=values(0.3))
    full, half = judge.judge(known, here), judge.judge(known, here, "half")
    assert (full.word, half.word) == (OPEN_FOR, OPPOSITE)
    assert judge.sign_changes(full, half)


def test_what_is_not_measured_at_half_the_budget_is_left_out_there():
    values = arms(0.3)
    here = results(values, half={})
    half = judge.judge(claim(contrast()), here, "half")
    assert half.word == OPEN
    assert half.components[0].word == NOT_MEASURED
    assert not judge.sign_changes(judge.judge(claim(contrast()), here), half)
