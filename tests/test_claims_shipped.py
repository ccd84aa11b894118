"""The shipped claims.yaml: every claim of the papers, what they published, and runs for what is tested."""

import json
import math

import pytest
from scipy import stats as scipy_stats

from tests.claims_made import PROFILES, ROOT, SHIPPED, claim, contrast
from workbook.ledger import checks, judge, published
from workbook.ledger.claim import conditions_of

# the shipped file ----------------------------------------------------------------------------------------------------


TESTABLE = {
    "P01",
    "P02",
    "P03",
    "P04",
    "P05",
    "P07",
    "P09",
    "P10",
    "P18",
    "P19",
    "P20",
    "P21",
    "P22",
    "P23",
    "P24",
    "P25",
    "P26",
    "P27",
    "P37",
    "P38",
    "P39",
    "P40",
    "P41",
    "P42",
    *(f"C{i:02d}" for i in range(1, 19)),
}


def test_every_claim_of_both_papers_is_there_and_nothing_else():
    papers = [f"P{i:02d}" for i in range(1, 43)] + [f"C{i:02d}" for i in range(1, 19)]
    assert list(SHIPPED) == [*papers, "O01", "K01", "K02", "K03"]  # and one of ours, and what is planted
    assert {name for name, c in SHIPPED.items() if c.tests} == TESTABLE | {"O01", "K01", "K02", "K03"}
    assert [name for name, c in SHIPPED.items() if c.awaiting] == []


def test_every_condition_named_is_a_run_of_some_profile():
    checks.check(SHIPPED, PROFILES.values())
    named = {c for entry in SHIPPED.values() for c in conditions_of(entry)}
    runs = {name for values in PROFILES.values() for name in {**values["runs"], **(values.get("continued") or {})}}
    assert {"ppo_kl_0", "nlpo_random", "base_dropout_update_010", "sup_nlpo"} <= named <= runs


def test_the_committed_ledgers_carry_the_words_and_published_numbers_of_the_claims():
    """A row repeats them, so an edited claim shows here until the ledgers are written again."""
    for path in sorted((ROOT / "reports").glob("*/claims/claims.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            shipped = SHIPPED[row["id"]]
            about = {"claim": shipped.claim, "source": str(shipped.source), "traps": shipped.traps}
            about |= {"published": json.loads(json.dumps(shipped.published))}
            assert {name: row[name] for name in about} == about, (path, row["id"])


def test_the_same_published_row_has_the_same_numbers_in_every_claim():
    """A row is named by its table, so a number copied wrongly into one claim shows."""
    seen: dict[str, dict] = {}
    for name, known in SHIPPED.items():
        for row, cells in known.published.items():
            if row.startswith("T"):
                row = f"{name[0]} {row}"
                for column, cell in cells.items():
                    assert seen.setdefault(row, {}).setdefault(column, cell) == cell, f"{name}: {row}: {column}"
    same = {"P T5 PPO 0.5": "P T6 PPO 0.95", "P T5 NLPO 1.0": "P T6 NLPO 0.95"}  # the tables repeat these rows
    for one, other in same.items():
        assert all(seen[one][c] == seen[other][c] for c in ("score", "perplexity"))
    assert (
        seen["P T8 p 0.9"]["score"] == seen["P T8 mu 20"]["score"] == seen["P T7 NLPO 1.0"]["score"] == [0.637, 0.013]
    )
    table = {
        "epsilon 1e-7": (0.993, 96.93),
        "eta 3e-4": (0.962, 81.45),
        "top-p 0.95": (0.982, 64.35),
        "typical 0.2": (0.8446, 73.49),
        "mirostat 4": (0.678, 106.13),
        "none": (0.919, 46.75),
    }
    assert {name: (seen[f"C T1 {name}"]["score"], seen[f"C T1 {name}"]["perplexity"]) for name in table} == table


@pytest.mark.parametrize(
    "name, test, effect, low, high",
    [  # from Table 5: difference of means over the yardstick, and Welch intervals computed apart from this code
        ("P01", "ppo score", 0.242, 0.193, 0.291),
        ("P01", "nlpo score", 0.222, 0.172, 0.272),
        ("P04", "each with its own decoding", 0.032, 0.003, 0.061),
    ],
)
def test_published_effects_are_in_yardsticks_with_welch_intervals(name, test, effect, low, high):
    found = published.published(next(t for t in SHIPPED[name].tests if t.name == test), SHIPPED[name])
    assert (found.effect * 0.358, found.low * 0.358, found.high * 0.358) == pytest.approx((effect, low, high), abs=6e-4)


def test_published_perplexity_is_compared_on_its_logarithm():
    found = published.published(
        next(t for t in SHIPPED["P20"].tests if t.name == "ppo human perplexity"), SHIPPED["P20"]
    )
    assert found.effect == pytest.approx(math.log(41.035 / 33.497) / 0.234)
    assert 0 < found.low < found.effect < found.high


def test_a_published_interval_is_that_of_welch():
    test = contrast(effect="published", published={"a": 1, "b": -1})
    known = claim(test, published={"a": {"score": [0.637, 0.013], "n": 5}, "b": {"score": [0.605, 0.023], "n": 5}})
    found = published.published(known.tests[0], known)
    reference = scipy_stats.ttest_ind_from_stats(0.637, 0.013, 5, 0.605, 0.023, 5, equal_var=False)
    t, low = reference.statistic, found.low * 0.358
    assert found.effect == pytest.approx(0.032 / 0.358)
    # p of the interval's own end: the difference from it is as far as alpha allows
    freedom = (0.013**2 + 0.023**2) ** 2 / (0.013**4 + 0.023**4) * 4
    assert low == pytest.approx(0.032 - scipy_stats.t.ppf(0.975, freedom) * 0.032 / t)


def test_published_numbers_without_spread_or_seeds_have_no_interval():
    known = claim(
        contrast(published={"a": 1, "b": -1}), published={"a": {"score": 0.6}, "b": {"score": [0.5, 0.1], "n": 5}}
    )
    assert published.published(known.tests[0], known) == published.Found(pytest.approx(0.1 / 0.358), None, None)


def test_a_published_trend_is_the_change_over_the_range_and_a_peak_the_height_of_the_middle():
    points = {0: "ppo_target_low", 1: "ppo_target_mid", 2: "ppo_target_high"}
    rows = {k: {"score": v} for k, v in (("a", 0.1), ("b", 0.3), ("c", 0.2))}
    common = {
        "name": "t",
        "metric": "score",
        "direction": "greater",
        "effect": 0.1,
        "points": points,
        "published": {"a": 0, "b": 1, "c": 2},
    }
    trend, peak = (claim({**common, "kind": kind}, published=rows) for kind in ("trend", "peak"))
    assert published.published(trend.tests[0], trend).effect == pytest.approx(0.1 / 0.358)
    assert published.published(peak.tests[0], peak).effect == pytest.approx(
        0.15 / 0.358
    )  # 0.3 above the mean of the ends


def test_every_test_states_an_effect_above_zero_in_the_claimed_direction():
    for name, known in SHIPPED.items():
        for test in known.tests:
            assert published.stated(test, known) > 0
            if test.effect == "published":
                found = published.published(test, known)
                assert published.stated(test, known) == pytest.approx(abs(found.effect))
                assert math.copysign(1, found.effect) == (1 if test.direction == "greater" else -1), (
                    f"{name} {test.name}"
                )


def test_weights_of_contrasts_sum_to_zero():
    for name, known in SHIPPED.items():
        for test in known.tests:
            if test.kind == "contrast":
                assert sum(test.terms.values()) == pytest.approx(0, abs=1e-8), f"{name} {test.name}"


def test_interactions_do_not_see_what_training_or_decoding_does_alone():
    """P24: adding a constant to a row (training sampler) or a column (decoding) changes no deciding number."""
    square = SHIPPED["P24"].tests[0]
    cells = {square.split(term): w for term, w in square.terms.items()}
    assert len(cells) == 16
    for axis in (0, 1):
        for level in {key[axis] for key in cells}:
            assert sum(w for key, w in cells.items() if key[axis] == level) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_profiles_run_what_their_claims_need(profile):
    values = PROFILES[profile]
    runs = {**values["runs"], **(values.get("continued") or {})}
    assert {name: judge.lacks(SHIPPED[name], runs) for name in values["claims"]} == {
        name: [] for name in values["claims"]
    }
