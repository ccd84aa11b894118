"""Errors of claims.yaml: what is wrong, where, and the nearest name."""

import pytest

from tests.claims_made import (
    IN_NUMBERS,
    MASKS,
    PROFILES,
    RANK,
    RANKED,
    ROOT,
    ROWS,
    SHIPPED,
    TOP_K,
    TOP_P,
    _checked,
    arms,
    claim,
    contrast,
    entry,
    points,
    results,
    said,
    write_yaml,
)
from workbook.ledger import checks, judge
from workbook.ledger.claim import ClaimError, conditions_of
from workbook.statistics.rule import (
    HOLDS,
)

# the file ------------------------------------------------------------------------------------------------------------


def test_adding_a_claim_is_one_entry(tmp_path):
    path = write_yaml(tmp_path / "claims.yaml", {"Z99": entry(contrast())})
    path.write_text(
        (ROOT / "claims.yaml").read_text(encoding="utf-8") + "\n" + path.read_text(encoding="utf-8"), encoding="utf-8"
    )
    known = checks.load(path)
    rows = judge.ledger(known, results(arms(0.3)), ["Z99"])
    assert [row["word"] for row in rows if row["id"] == "Z99"] == [HOLDS]
    assert len(rows) == len(SHIPPED) + 1


@pytest.mark.parametrize(
    "test, more, message",
    [
        ({**contrast(), "kind": "contrats"}, {}, "tests.0.kind.*'contrats'; did you mean 'contrast'"),
        ({**contrast(), "metric": "scor"}, {}, "tests.0.metric.*did you mean 'score'"),
        ({**contrast(), "directon": "less"}, {}, "directon: unknown name; did you mean 'direction'"),
        ({**contrast(), "terms": {"ppo_kl_0@beem": 1, "ppo_kl_0": -1}}, {}, "ppo_kl_0@beem.*did you mean 'beam'"),
        ({**contrast(), "effect": "0.1"}, {}, "tests.0.effect"),
        ({**contrast(), "effect": -0.1}, {}, "expected a number above 0"),
        ({**contrast(), "effect": None}, {}, "expected `margin` with direction equal, else `effect`"),
        ({**contrast(), "direction": "equal"}, {}, "expected `margin`"),
        ({**contrast(), "effect": "published"}, {}, "which one was published"),
        (
            {**contrast(), "effect": "published", "published": {"b": 1, "a": -1}},
            {"published": ROWS},
            "goes the other way",
        ),
        ({**contrast(), "published": {"c": 1}}, {"published": ROWS}, "published.c: no row"),
        ({**contrast(metric="msttr"), "published": {"a": 1}}, {"published": ROWS}, "published.a: has no msttr"),
        (
            {**contrast(metric="judge"), "published": {"a": 1}},
            {"published": {"a": {"judge": 1}}},
            "no published yardstick",
        ),
        ({**contrast(), "at_least": 1}, {}, "takes all its conditions"),
        ({**contrast(), "points": {0: "zero_shot"}}, {}, "points: a contrast has terms, nothing else"),
        ({**points("trend"), "points": {}}, {}, "points: a trend has points"),
        ({**points("trend"), "at_least": 1}, {}, "takes 2 conditions"),
        ({**points("peak"), "direction": "less"}, {}, "a peak is greater"),
        ({**contrast(), "role": "beside"}, {}, "at least one that decides"),
        (contrast(), {"needs": ["people"]}, "exactly one of tests, awaiting, needs; found tests and needs"),
        (
            contrast(),
            {"published": {"a": {"score": [0.6, 0.1, 5]}}},
            r"published.a.score: expected a mean or \[mean, sd\]",
        ),
        (contrast(), {"decided_by": None}, "decided_by: expected all or any"),
        (
            {**IN_NUMBERS, "published": {"a": 1, "b": -1}},
            {"published": ROWS},
            "no yardstick from numbers_zero_shot to numbers_ppo was published",
        ),
        (
            {**contrast(metric="kept_mass"), "published": {"a": 1}},
            {"published": {"a": {"kept_mass": 1}}},
            "no published yardstick",
        ),
        (
            {"name": "m", **MASKS, "decoding": "plain", "first": TOP_P, "second": TOP_P},
            {},
            "along: kept_mass is for a matched test",
        ),
        (
            {"name": "m", **MASKS, "kind": "frontier", "first": TOP_P * 2, "second": TOP_P * 2},
            {},
            "along: kept_mass is for a matched",
        ),
        ({"name": "m", **MASKS, "along": "kl", "first": TOP_P, "second": TOP_P}, {}, "tests.0.along: .*kept_mass"),
        (
            {"name": "m", **MASKS, "first": TOP_P, "second": TOP_K},
            {},
            "a matched takes 3 conditions or more of each list",
        ),
        ({**contrast(), "along": "kept_mass"}, {}, "along: kept_mass is for a matched test"),
        ({**RANK, "second": RANKED[:-1]}, {}, "a rank compares pairs; first names 6 conditions, second 5"),
        ({**RANK, "first": RANKED[:3], "second": RANKED[:3]}, {}, "a rank takes 4 conditions"),
        ({**RANK, "second_metric": None}, {}, "an order is compared with itself"),
        ({**RANK, "second_metric": "scor"}, {}, "second_metric.*did you mean 'score'"),
        ({**contrast(), "second_metric": "judge"}, {}, "second_metric: a contrast has one metric"),
        ({**RANK, "published": {"a": 1}}, {"published": ROWS}, "nothing was published as a rank"),
    ],
)
def test_problems_are_named_with_claim_key_and_nearest_name(test, more, message):
    with pytest.raises(ClaimError, match=message) as error:
        _checked(test, **more)
    assert "Z01: " in str(error.value)


def test_every_problem_is_named_at_once_and_the_file_too(tmp_path):
    path = write_yaml(tmp_path / "claims.yaml", {"Z01": entry({**contrast(), "kind": "x"}), "one": entry(), "Z03": 5})
    text = said(path)
    assert str(path) in text
    assert "3 problems" in text
    assert "one: expected a letter and two or three digits" in text
    assert "Z03: expected the entry of a claim" in text


def test_a_key_given_twice_and_broken_yaml_are_errors_with_their_line(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text("P01: {claim: x}\nP01: {claim: y}\n", encoding="utf-8")
    assert "line 2" in said(path)
    path.write_text("P01: [\n", encoding="utf-8")
    assert "not valid YAML" in said(path)
    assert "cannot be read" in said(tmp_path / "nothing.yaml")


def unknown(test: dict, **more) -> str:
    """What is said of a claim's names, beside a profile of one's own that runs my_run."""
    mine = {"runs": {"my_run": {"algorithm": "ppo"}}, "reports": {"kl": {}}}
    with pytest.raises(ClaimError) as error:
        checks.check({"Z01": claim(test, **more)}, [*PROFILES.values(), mine])
    return str(error.value)


def test_names_that_no_profile_has_are_refused_with_the_nearest():
    text = unknown({**contrast(), "terms": {"ppo_kl_defualt": 1, "ppo_kl_default": -1}})
    assert "ppo_kl_defualt: no profile runs such a condition; did you mean 'ppo_kl_default'" in text
    assert "Z01: report: no report is called klm; did you mean 'kl'" in unknown(contrast(), report="klm")
    assert "no_such_start" in unknown({**contrast(), "yardstick": ["ppo_kl_0", "no_such_start"]})
    own = {"runs": {"my_run": {"algorithm": "ppo"}}, "reports": {}}
    known = {"Z01": claim({**contrast(), "terms": {"my_run": 1, "zero_shot": -1}})}
    checks.check(known, [*PROFILES.values(), own])
    with pytest.raises(ClaimError, match="my_run: no profile runs such a condition"):
        checks.check(known, PROFILES.values())


def test_conditions_of_two_worlds_have_no_yardstick_in_common():
    two_worlds = "yardstick: numbers and reviews have a yardstick each; a rank compares them"
    assert two_worlds in unknown(contrast("numbers_ppo", "ppo_kl_0"))
    forgotten = {k: v for k, v in IN_NUMBERS.items() if k != "yardstick"}
    assert two_worlds in unknown(forgotten)
    checks.check({"Z01": claim(IN_NUMBERS)}, PROFILES.values())
    runs = {name: {"world": "numbers"} for name in conditions_of(claim(IN_NUMBERS))}
    judge.check_listed({"Z01": claim(IN_NUMBERS)}, ["Z01"], runs, "mine")
    with pytest.raises(ClaimError, match="Z01: .*have a yardstick each"):
        judge.check_listed({"Z01": claim(forgotten)}, ["Z01"], {**runs, "ppo_kl_0": {}, "zero_shot": {}}, "mine")
