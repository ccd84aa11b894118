"""How sharp the ledger is: simulated shares against formulas of power, and the noise against the numbers it is of."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.power import TTestPower

from tests.claims_made import FIFTH, NOISE, arms, bare, claim, contrast, diverging, points, results, share, sweep, two
from workbook.ledger import judge, sensitivity
from workbook.ledger.contrast import measure
from workbook.ledger.made import Made, Sample
from workbook.ledger.published import weights
from workbook.ledger.sensitivity import NOTHING, REVERSED, STATED, Assay
from workbook.statistics import paired
from workbook.statistics.rule import AGAINST, FOR, HOLDS, HOLDS_SMALLER, OPPOSITE, TOO_SMALL

BOUND = 0.05  # the stated 0.1 yardsticks of 0.5
REPEATS = 4000
EQUAL = {**contrast(), "direction": "equal", "effect": None, "margin": 0.1}
PEAK = points("peak")


def made_of(known, values) -> list[Made]:
    return [measure(test, known, bare(values), "test") for test in known.deciding]


def of_size(size: float) -> dict:
    """Arms whose differences have the stated effect as `size` standard deviations (NOISE has one of 0.5)."""
    return arms(0.3, BOUND / size / 0.5)


def near(expected: float) -> object:
    return pytest.approx(expected, abs=3 * math.sqrt(expected * (1 - expected) / REPEATS))


def shown_small(size: float, n: int) -> tuple[float, float]:
    """P(two one-sided t tests put a difference of 0 within +-size sd), and P(they do and it does not hold, or it is
    shown to lie the other way): the mean over the spread that a sample of n may have of what its mean may be."""
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    error = np.sqrt(scipy_stats.chi2.ppf(quantiles, n - 1) / (n - 1) / n)  # of the mean, as the sample shows it
    room = np.maximum(size - scipy_stats.t.ppf(0.95, n - 1) * error, 0)  # within which the mean is shown to be small
    edge = scipy_stats.t.ppf(0.975, n - 1) * error  # beyond which it is told from 0

    def below(x):
        return scipy_stats.norm.cdf(x * math.sqrt(n))

    small = below(room) - below(-room)
    return float(small.mean()), float(np.where(edge < room, below(edge), small + below(-edge)).mean())


@pytest.mark.parametrize("n, size", [(13, 0.8), (20, 0.7), (40, 0.4), (40, 0.6)])
def test_a_single_contrast_has_the_power_of_its_t_tests(n, size):
    """So many seeds that the sign-flip does not bind."""
    known = claim(contrast())
    made = made_of(known, of_size(size))
    found = sensitivity.assay(known, made, [n], REPEATS)
    assert found.holds == near(TTestPower().power(size, n, 0.05))
    small, refuted = shown_small(size, n)
    said = sensitivity.words(known, made, n, NOTHING, REPEATS)
    assert share(said, (TOO_SMALL, HOLDS_SMALLER)) == near(small)
    assert found.refuted == share(said, AGAINST) == near(refuted)
    assert 0.03 < refuted < 0.999 and 0.3 < found.holds < 0.999, "a share of 0 or 1 would show little"


@pytest.mark.parametrize("n, size", [(8, 1.0), (20, 0.7)])
def test_a_single_equality_has_the_power_of_its_t_tests(n, size):
    """Refuted is twice the margin: as far from it as 0 is from the margin."""
    known = claim(EQUAL)
    found = sensitivity.assay(known, made_of(known, of_size(size)), [n], REPEATS)
    assert found.holds == near(shown_small(size, n)[0])
    assert found.refuted == near(TTestPower().power(size, n, 0.05))


def test_the_direction_of_a_claim_changes_nothing():
    for size in (0.5, 1.0):
        found = [
            sensitivity.assay(known, made_of(known, of_size(size)), [8], REPEATS)
            for known in (claim(contrast()), claim(contrast(direction="less")))
        ]
        assert found[0].holds == near(found[1].holds) and found[0].refuted == near(found[1].refuted)


@pytest.mark.parametrize("how", ["all", "any"])
@pytest.mark.parametrize("n", [5, 8, 20])
def test_without_noise_every_world_is_told_right(how, n):
    scores = {"zero_shot": 0.25, "ppo_kl_0": 0.75, "ppo_gamma_095": 0.25, "ppo_gamma_100": 0.5}
    scores |= {"nlpo_gamma_095": 0.5, "nlpo_gamma_100": 0.5, **dict.fromkeys(PEAK["points"].values(), 0.5)}
    for condition in ("nlpo_gamma_100", PEAK["points"][min(PEAK["points"])]):
        scores[condition] += 1e-12  # what is the same everywhere is not compared
    still = {condition: {"score": score} for condition, score in scores.items()}
    for tests in ([contrast()], [EQUAL], [PEAK], [points("trend")], two(), [*two(), EQUAL | {"name": "e"}, PEAK]):
        known = claim(*tests, decided_by=how)
        made = made_of(known, still)
        assert sensitivity.assay(known, made, [n], 20) == Assay(1.0, 1.0)
        assert share(sensitivity.words(known, made, n, 2 * REVERSED, 20), [OPPOSITE]) == 1


def test_a_settled_world_leaves_at_its_first_look():
    """Without noise, every world at 8 seeds; with far more noise than effect, most see the last look."""
    known = claim(contrast())
    still = made_of(known, arms(0.3, 1e-9))
    assert sensitivity.sequence(known, still, (8, 16, 32), STATED, 20) == [(HOLDS, 8)] * 20
    loud = sensitivity.sequence(known, made_of(known, of_size(0.01)), (8, 16, 32), STATED, 20)
    assert share([n for _, n in loud], [32]) > 0.5


def test_far_more_noise_than_effect_settles_next_to_nothing():
    known = claim(contrast())
    found = sensitivity.assay(known, made_of(known, of_size(0.01)), [8], REPEATS)
    most = 0.025 + 3 * math.sqrt(0.025 * 0.975 / REPEATS)  # either side of a two-sided test
    assert found.holds <= most and found.refuted <= most


def test_more_seeds_are_sharper():
    known = claim(contrast())
    found = [sensitivity.assay(known, made_of(known, of_size(0.8)), [n]) for n in (5, 8, 16, 32)]
    for one, more in zip(found, found[1:]):
        assert one.holds < more.holds and one.refuted < more.refuted


def spied(made: Made, seen: list) -> Made:
    """The test, which keeps the samples that it is given."""

    def judged(samples, *level):
        seen.append(samples)
        return made.sample.judge(samples, *level)

    return made._replace(sample=Sample(made.sample.values, made.sample.at, judged))


def test_the_noise_has_the_covariance_of_the_claims_own_numbers():
    """Two contrasts and the three conditions of a peak; 40,000 seeds drawn, so each covariance to 3 standard errors."""
    values = sweep(0.0, 0.3, 0.1, spread=0.1) | arms(0.3, 0.2)
    base = values["ppo_gamma_095"]["score"]
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + 0.1 * NOISE + 0.1 * NOISE**2}}
    known = claim(*two(), PEAK)
    made, seen = made_of(known, values), []
    sensitivity.words(known, [spied(one, seen) for one in made], 20, STATED, repeats=2000)
    drawn = np.concatenate(seen, axis=1)  # [repeats, 1 + 1 + 3, n]
    assert drawn.shape == (2000, 5, 20)
    own = np.cov(np.vstack([one.sample.values for one in made]))
    found = np.cov(drawn.transpose(1, 0, 2).reshape(5, -1))
    error = np.sqrt((np.outer(own.diagonal(), own.diagonal()) + own**2) / 40_000)
    assert (np.abs(found - own) <= 3 * error).all()
    correlation = own / np.sqrt(np.outer(own.diagonal(), own.diagonal()))
    assert 0.3 < abs(correlation[0, 1]) < 0.99 and np.abs(correlation[:2, 2:]).max() > 0.3, "there is something to keep"
    means = np.concatenate([one.sample.at(STATED) for one in made])
    assert (np.abs(drawn.mean(axis=(0, 2)) - means) <= 3 * np.sqrt(own.diagonal() / 40_000)).all()
    one_seed = drawn[:, 0] - means[0]
    assert abs(np.corrcoef(one_seed[:, 0], one_seed[:, 1])[0, 1]) < 3 / math.sqrt(2000), "seeds are independent"


def test_tests_that_share_their_numbers_err_together():
    """The same contrast twice holds as often as once; of independent ones, both hold as often as chance says."""
    values = of_size(0.8)
    once, twice = claim(contrast()), claim(contrast(), contrast(name="again"))
    one = sensitivity.assay(once, made_of(once, values), [16], REPEATS)
    assert sensitivity.assay(twice, made_of(twice, values), [16], REPEATS).holds == one.holds
    base = values["ppo_gamma_095"]["score"]
    other = np.array([1.0, 1.0, -1.0, -1.0, 0.0])
    other -= NOISE * (other @ NOISE)  # NOISE has a sum of squares of 1
    other -= other.mean()
    other -= NOISE * (other @ NOISE)
    other *= BOUND / 0.8 / other.std(ddof=1)
    values |= {"nlpo_gamma_095": {"score": base}, "nlpo_gamma_100": {"score": base + other}}
    apart = claim(*two())
    assert sensitivity.assay(apart, made_of(apart, values), [16], REPEATS).holds == near(one.holds**2)


def test_a_world_as_stated_has_the_stated_effect_in_what_is_tested():
    for known, values, levels in (
        (claim(contrast(direction="less")), arms(0.3), None),
        (claim(points("trend")), sweep(0.0, 0.1, 0.3), None),
        (claim(PEAK), sweep(0.0, 0.3, 0.0), [0.0, 1.0, 3.0]),
    ):
        (one,) = made_of(known, values)
        sign = -1 if known.tests[0].direction == "less" else 1
        for effect in (STATED, NOTHING, REVERSED, 0.5):
            tested = one.sample.at(effect) if levels is None else [weights("peak", levels) @ one.sample.at(effect)]
            assert tested == pytest.approx([sign * BOUND * effect])
    (equal,) = made_of(claim(EQUAL), arms(0.3))
    assert (equal.sample.at(STATED), equal.sample.at(NOTHING)) == (pytest.approx([0]), pytest.approx([2 * BOUND]))


def test_a_threshold_that_is_missed_is_missed_by_as_much_as_stated():
    known = claim(FIFTH)
    (one,) = made_of(known, of_size(0.8))
    bound = 0.05 * 0.5
    assert [float(one.sample.at(effect)[0]) for effect in (STATED, 0.5, NOTHING)] == pytest.approx([bound, 0, -bound])
    found = sensitivity.assay(known, [one], [8], REPEATS)
    assert found.refuted == near(found.holds), "either side of it alike"
    sharp = made_of(known, arms(0.3, 0.001))
    assert sensitivity.assay(known, sharp, [8], REPEATS) == Assay(1.0, 1.0)
    assert share(sensitivity.words(known, sharp, 8, NOTHING, REPEATS), [OPPOSITE]) == 1


def test_the_worlds_words_are_those_of_the_ledger_itself():
    """A world whose numbers are the claim's own is judged as the claim is: each kind's sample against `judge`."""
    for known, values in (
        (claim(contrast()), arms(0.03, 0.05)),
        (claim(EQUAL), arms(0.0, 0.02)),
        (claim(FIFTH), arms(0.11, 0.02)),
        (claim(PEAK), sweep(0.0, 0.03, 0.0)),
        (claim(PEAK), sweep(0.3, 0.0, 0.3)),
        (claim(points("trend")), sweep(0.0, 0.01, 0.02)),
    ):
        (one,) = made_of(known, values)
        (again,) = one.sample.judge(one.sample.values[None], paired.ALPHA)
        assert dataclasses.astuple(again) == pytest.approx(dataclasses.astuple(one.evidence))


def test_the_same_call_gives_the_same_words():
    known = claim(*two())
    values = of_size(0.8) | {"nlpo_gamma_095": {"score": 0.1}, "nlpo_gamma_100": {"score": 0.2 + 0.1 * NOISE}}
    made = made_of(known, values)
    assert sensitivity.words(known, made, 8, STATED) == sensitivity.words(known, made, 8, STATED)
    assert len(sensitivity.words(known, made, 8, STATED)) == sensitivity.REPEATS


SHARE = diverging(["ppo_gamma_100"], ["ppo_gamma_095"])


def counted(values: dict) -> dict:
    """With runs of which those of one arm diverged."""
    ended = {"ppo_gamma_100": 1, "ppo_gamma_095": 0}
    return {c: {**found, **({"diverged": ended[c]} if c in ended else {})} for c, found in values.items()}


def test_there_is_none_where_a_test_has_no_sample():
    values = counted(arms(0.3))
    for known in (claim(SHARE), claim(contrast(), SHARE), claim(contrast(), SHARE, decided_by="any")):
        made = made_of(known, values)
        assert made[-1].evidence is not None and sensitivity.assay(known, made, [8]) is None
    beside = claim(contrast(), {**SHARE, "role": "beside"})
    assert sensitivity.assay(beside, made_of(beside, values), [8]) is not None
    lost = claim(contrast())  # a test that was not made has none either
    flat = values | {"ppo_kl_0": values["zero_shot"]}
    assert sensitivity.assay(lost, made_of(lost, flat), [8]) is None


def test_the_ledger_says_it_of_every_claim_it_tests():
    values = of_size(0.8)
    beside = contrast("bandit", "ppo_gamma_095", role="beside")
    values |= {"bandit": {"score": values["zero_shot"]["score"] + NOISE}}
    values = counted(values)
    known = {"Z01": claim(contrast(), beside, decided_by="all"), "Z02": claim(SHARE), "Z03": claim(awaiting=["dqn"])}
    known = {name: one.replace(id=name) for name, one in known.items()}
    rows = judge.ledger(known, results(values), ["Z01", "Z02"])
    own = sensitivity.assay(known["Z01"], made_of(known["Z01"], values), [5])
    assert rows[0]["assay"] == dataclasses.asdict(own) and 0.1 < own.holds < 0.9
    assert own.holds == share(sensitivity.words(known["Z01"], made_of(known["Z01"], values), 5, STATED), FOR)
    assert rows[1]["p"] is not None and [row["assay"] for row in rows[1:]] == [None, None]
