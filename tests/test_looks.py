"""A registered design on made-up draws: who leaves when, what runs on, and that nothing is judged twice."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML
from scipy.stats import false_discovery_control

import workbook.runs.checks
from tests.claims_made import claim, contrast
from workbook.ledger import checks as ledger_checks
from workbook.ledger import combine, judge, looks, page, registered
from workbook.ledger.claim import ClaimError, repetitions
from workbook.ledger.looks import Design
from workbook.ledger.ruling import rule_hash
from workbook.runs import conditions, measure
from workbook.statistics.rule import FOR, HOLDS, OPEN_FOR, OPENS
from workbook.statistics.sequential import levels, stage_wise

ROOT = Path(__file__).parents[1]
DRAWS = tuple(range(101, 117))
CLAIMS = {  # one with a large effect, one with none, one whose parts differ
    "Z01": claim(contrast()),
    "Z02": claim(contrast("nlpo_gamma_100", "nlpo_gamma_095"), id="Z02"),
    "Z03": claim(contrast(), contrast("nlpo_gamma_100", "nlpo_gamma_095"), id="Z03"),
}
NEEDED = ["zero_shot", "ppo_kl_0", "ppo_gamma_095", "ppo_gamma_100", "nlpo_gamma_095", "nlpo_gamma_100"]


@pytest.fixture(scope="module")
def params():
    """mini, in which nothing is repeated and nothing starts from another run."""
    found = workbook.runs.checks.load(ROOT / "params.yaml")
    return found.model_copy(update={"runs": {c: run for c, run in found.runs.items() if not run.get("replicate")}})


@pytest.fixture(scope="module")
def table():
    """16 draws: a yardstick of .5, PPO's effect .3 raw; NLPO's is 0 after every second draw, with a spread that hides a
    tenth of a yardstick."""
    noise = np.random.default_rng(0).normal(size=(len(DRAWS), len(NEEDED)))
    noise[:, 4:] = (-1.0) ** np.arange(len(DRAWS))[:, None] * [1, -1]
    mean = dict(zip(NEEDED, (0.0, 0.5, 0.1, 0.4, 0.1, 0.1)))
    spread = dict(zip(NEEDED, (0.0, 0.0, 0.02, 0.02, 0.1, 0.1)))
    rows = [
        {
            "condition": c,
            "seed": draw,
            "split": split,
            "decoding": "plain",
            "score": mean[c] + spread[c] * noise[i, j],
        }
        for i, draw in enumerate(DRAWS)
        for j, c in enumerate(NEEDED)
        for split in ("test", "half")
    ]
    return pd.DataFrame(rows)


def design(**more) -> Design:
    values = {"rule": rule_hash(CLAIMS), "claims": ["Z01", "Z02", "Z03"], "draws": list(DRAWS), "looks": [8, 16]}
    return Design.model_validate({**values, "keys": dict.fromkeys(NEEDED, "k"), **more})


def test_claims_written_later_change_nothing_that_is_registered():
    own = {name: CLAIMS[name] for name in design().claims}
    design().check({**own, "Z99": claim(contrast("nlpo_kl_0", "ppo_kl_0"))})
    with pytest.raises(ClaimError, match="not the registered one"):
        design().check({**own, "Z01": claim(contrast("nlpo_kl_0", "ppo_kl_0"))})


def test_before_the_first_look_all_that_is_needed_runs(params, table):
    few = table[table.seed < DRAWS[7]]  # seven draws
    assert looks.look(design(), CLAIMS, few, params) == []
    assert looks.wanted(design(), CLAIMS, params, []) == sorted(NEEDED, key=list(params.all_runs).index)
    assert looks.look(design(), CLAIMS, table[:0], params) == []


def test_a_settled_claim_leaves_with_what_only_it_needs(params, table):
    eight = table[table.seed <= DRAWS[7]]
    (first,) = looks.look(design(), CLAIMS, eight, params)
    assert first.n == 8 and first.level == levels([8, 16])[0] and first.settled == ("Z01",)
    assert first.verdicts["Z01"].word == HOLDS and first.verdicts["Z03"].word in OPENS
    assert looks.open_claims(design(), [first]) == ["Z02", "Z03"]
    both = design(claims=["Z01", "Z02"])
    left = looks.wanted(both, CLAIMS, params, looks.look(both, CLAIMS, eight, params))
    assert set(left) == {"zero_shot", "ppo_kl_0", "nlpo_gamma_095", "nlpo_gamma_100"}


def test_the_next_look_needs_only_the_conditions_that_ran_on(params, table):
    both = design(claims=["Z01", "Z02"])
    gone = table.condition.isin(["ppo_gamma_095", "ppo_gamma_100"]) & (table.seed > DRAWS[7])
    first, second = looks.look(both, CLAIMS, table[~gone], params)
    assert second.n == 16 and set(second.verdicts) == {"Z02"}
    rows = {row["id"]: row for row in looks.ledger(both, CLAIMS, table[~gone], params)}
    assert (rows["Z01"]["look"], rows["Z01"]["seeds"], rows["Z01"]["settled"]) == (8, 8, True)
    assert (rows["Z02"]["look"], rows["Z02"]["seeds"]) == (16, 16) and rows["Z01"]["word"] == HOLDS
    assert looks.open_claims(both, [first, second]) == []  # the last look is made
    half = table[~gone & ((table.condition != "zero_shot") | (table.seed < DRAWS[12]))]
    assert [one.n for one in looks.look(both, CLAIMS, half, params)] == [8]  # a draw that is not whole is none


def test_the_p_of_a_claim_counts_the_looks_before(params, table):
    """At the first look it is the test's own; at the second, what the first has spent is in it."""
    both = design(claims=["Z01", "Z02"])
    table = table.assign(score=table.score + 0.05 * (table.condition == "nlpo_gamma_100"))  # less than its noise
    (first, second) = looks.look(both, CLAIMS, table, params)
    rows = {row["id"]: row for row in looks.ledger(both, CLAIMS, table, params)}
    assert rows["Z01"]["p_look"] == first.verdicts["Z01"].p == pytest.approx(rows["Z01"]["p"], rel=1e-9)
    own, whole = second.verdicts["Z02"].p, rows["Z02"]["p"]
    assert rows["Z02"]["p_look"] == own < whole == pytest.approx(stage_wise(own, (8, 16), 1))
    expected = false_discovery_control([rows["Z01"]["p"], rows["Z02"]["p"]], method="by")
    assert [rows["Z01"]["q"], rows["Z02"]["q"]] == pytest.approx(list(expected))


def test_the_word_at_half_the_budget_has_the_looks_level_too(params, table):
    """Differences of 1 in seven draws and 6 in one: t = 1.625 / .625 = 2.6, p = .035, which holds at .05 alone."""
    half = table.split == "half"
    score = table.score.mask(half & (table.condition == "ppo_gamma_095"), 0.0)
    score = score.mask(half & (table.condition == "ppo_gamma_100"), 1.0)
    score = score.mask(half & (table.condition == "ppo_gamma_100") & (table.seed == DRAWS[0]), 6.0)
    early = table.assign(score=score)[table.seed <= DRAWS[7]]
    (row,) = looks.ledger(design(claims=["Z01"]), CLAIMS, early, params)
    assert row["look"] == 8 and row["level"] < 0.035 < 0.05
    assert (row["word"], row["half_word"]) == (HOLDS, OPEN_FOR)
    assert judge.judge(CLAIMS["Z01"], looks.results_of(early, DRAWS[:8], params), "half").word == HOLDS


def test_intervals_are_those_of_the_looks_level(params, table):
    (first,) = looks.look(design(), CLAIMS, table[table.seed <= DRAWS[7]], params)
    (test,) = first.verdicts["Z02"].components
    from scipy import stats

    d = [
        table[(table.condition == c) & (table.split == "test") & (table.seed <= DRAWS[7])].score.to_numpy()
        for c in ("nlpo_gamma_100", "nlpo_gamma_095")
    ]
    low, high = stats.ttest_1samp(d[0] - d[1], 0).confidence_interval(1 - first.level)
    assert (test.low, test.high) == pytest.approx((low, high))


def test_repetitions_and_what_a_run_starts_from_are_needed_too():
    whole = workbook.runs.checks.load(ROOT / "profiles/settle/params.yaml")
    known = {"Z01": claim(contrast("sup_ppo", "ppo_kl_default"))}
    repeated = [f"ppo_kl_default{number}" for number in ("", "_2", "_3", "_4", "_5", "_6")]
    assert set(looks.needed(["Z01"], known, whole)) == {"zero_shot", "ppo_kl_0", "sup_ppo", "supervised", *repeated}
    assert repetitions(whole.all_runs, repeated[0]) == repeated
    assert repetitions(whole.all_runs, repeated[1]) == repeated[1:2]


def test_another_rule_or_test_is_refused():
    design().check(CLAIMS)
    with pytest.raises(ClaimError, match="not the registered one"):
        design().check({**CLAIMS, "Z01": claim(contrast(effect=0.2))})
    with pytest.raises(ClaimError, match="registered claims without tests: Z09"):
        design(claims=["Z01", "Z09"]).check(CLAIMS)


def test_a_lost_draw_is_skipped_and_replacements_come_last(params, table):
    """The look at 8 is one at the first 8 draws that are whole in the registered order; no look is made of fewer."""
    three = design(draws=DRAWS[:8], replacements=DRAWS[8:11], looks=[8])
    assert three.without([]).draws == DRAWS[:8]
    assert three.without([DRAWS[2], DRAWS[8]]).draws == (*DRAWS[:2], *DRAWS[3:8], DRAWS[9])
    lost = three.without([DRAWS[2]])
    assert looks.look(lost, CLAIMS, table[table.seed <= DRAWS[7]], params) == []  # 7 of them
    (one,) = looks.look(lost, CLAIMS, table[table.seed <= DRAWS[8]], params)
    eight = design(draws=lost.draws, looks=[8])
    (same,) = looks.look(eight, CLAIMS, table[table.seed != DRAWS[2]], params)
    assert one.verdicts["Z01"].p == same.verdicts["Z01"].p
    too_many = three.without(DRAWS[:4])
    assert len(too_many.draws) == 7 and looks.look(too_many, CLAIMS, table, params) == []


def test_a_draw_is_whole_with_every_decoding_that_a_test_reads(params, table):
    greedy = {"Z01": claim(contrast(decoding="top_p"))}
    cells = looks.cells(["Z01"], greedy, params)
    compared = set(greedy["Z01"].tests[0].conditions)
    assert cells == {(c, "plain") for c in looks.needed(["Z01"], greedy, params)} | {(c, "top_p") for c in compared}
    assert not looks.whole(table, [DRAWS[0]], cells)
    more = pd.concat([table, table[table.condition.isin(compared)].assign(decoding="top_p")])
    assert looks.whole(more, [DRAWS[0]], cells)
    gone = (more.decoding == "top_p") & (more.condition == min(compared)) & (more.split == "test")
    assert looks.lacking(more[~gone], [DRAWS[0]], cells) == [(DRAWS[0], min(compared), "top_p")]
    one = design(claims=["Z01"])
    assert looks.look(one, greedy, table, params) == [] and len(looks.look(one, greedy, more, params)) == 1


def test_the_profile_measures_all_that_its_tests_read():
    """A row that no run makes would stop the design at its first draw."""
    whole = workbook.runs.checks.load(ROOT / "profiles/settle/params.yaml")
    for condition, decoding in looks.cells(whole.claims, ledger_checks.load(ROOT / "claims.yaml"), whole):
        given = conditions.condition(whole, condition)
        run, config = given.run, given.config()
        made = measure.decodings(run.algorithm, config, given.evaluation, run.decodings)
        assert decoding in [one.name for one in made], (condition, decoding)


@pytest.mark.parametrize(
    "wrong",
    [
        {"looks": [16, 8]},
        {"looks": [8, 17]},
        {"draws": [1, 1, 2]},
        {"looks": [8, 8]},
        {"replacements": [DRAWS[0]]},
        {"replacements": [9, 9]},
        {"keys": {}},
    ],
)
def test_a_design_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValidationError):
        design(**wrong)


def test_the_page_of_a_design_says_what_left_when_and_what_is_open(params, table, monkeypatch):
    monkeypatch.setattr(registered, "PLANTED", {"Z01": FOR})
    monkeypatch.setattr(registered, "SURE", ("Z03",))
    own = design(claims=("Z01", "Z02", "Z03"))
    early = table[table.seed.isin(DRAWS[:8])]
    rows, looked = looks.ledger(own, CLAIMS, early, params), looks.look(own, CLAIMS, early, params)
    elsewhere = {"other": [{**rows[0], "id": "Z09"}, {**rows[1], "id": "Z08"}, rows[0]]}  # one settled there, one not
    text = registered.text("made", own, looked, rows, elsewhere, ["Draws lost: 0."])
    first, second = (f"{level:.4f}" for level in levels(own.looks, own.alpha))
    assert f"| 8 | {first} | 3 | holds: Z01 |" in text and f"| 16 | {second} | – | not yet |" in text
    assert "1 of 3 (33%) of the registered claims" in text and "(Z03), 0 of 1 (0%)." in text
    assert "any profile tests, the planted ones aside, 1 of 4 (25%): 2 are tested by other profiles only" in text
    assert "(Z08 and Z09), once each, at level 0.05, on 8 draws, and 1 of them are settled there." in text
    assert "that had been seen" not in text and "No design registered these" in text
    assert "| has to be | is |" in text and "| holds or holds, but smaller than stated | holds, at 8 draws |" in text
    left = text[text.index("## Open") :]
    assert "| Z02 |" in left and "| Z03 |" in left and "| Z01 |" not in left and "Draws lost: 0." in text


def test_what_is_planted_as_true_is_one_yardstick_by_definition_and_may_not_be_called_smaller():
    """K01 asks for half of that: it tells whether there is an effect, and on which side, not of what size."""
    rows = json.loads((ROOT / "reports/settle/claims/claims.json").read_text(encoding="utf-8"))["rows"]
    (test,) = next(row for row in rows if row["id"] == "K01")["components"]
    assert (test["effect"], test["stated"]) == (pytest.approx(1, abs=1e-6), 0.5)
    assert registered.PLANTED["K01"] == (HOLDS,)


def test_counts_of_words_and_verdicts_say_which_claims_are_not_settled():
    rows = [{"word": HOLDS, "settled": at, "turns": at, "id": name} for name, at in (("Z01", True), ("Z02", False))]
    assert page.counts(rows) == "holds: 2 (Z02 not settled)"
    assert page.counts([{**row, "settled": None} for row in rows]) == "holds: 2"
    text = (ROOT / "reports/settle/claims/claims.md").read_text(encoding="utf-8")
    whole = json.loads((ROOT / "reports/settle/claims/claims.json").read_text(encoding="utf-8"))["rows"]
    for row in whole:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {row['id']}: "))
        assert ("not settled) |" in line) == (not row["settled"]), row["id"]
    assert page.markdown(whole) == text


def test_the_draws_of_a_design_that_have_every_condition(params, table, tmp_path):
    own = params.model_copy(update={"profile": "made"})
    own._path = tmp_path / "params.yaml"
    later = (table.seed > DRAWS[7]) & (table.condition == "ppo_gamma_100")  # what a settled claim took away
    place = tmp_path / "reports/made/draws.csv.xz"
    place.parent.mkdir(parents=True)
    about = dict.fromkeys(("algorithm", "kl_coef", "kl_target", "updates"), 0)
    table[~later].assign(**about).to_csv(place, index=False)
    found = looks.results(own)
    assert found.seeds == [*DRAWS[:8]] and set(found.conditions) == {*NEEDED}


def test_the_committed_page_is_that_of_the_committed_ledgers():
    """So it says what the other profiles' ledgers say today, which are judged anew more often than the design."""
    ledgers = {
        path.parent.parent.name: json.loads(path.read_text(encoding="utf-8"))["rows"]
        for path in combine.find_ledgers(ROOT / "reports").values()
    }
    rows = ledgers.pop("settle")
    own = looks.Design.model_validate(YAML(typ="safe").load((ROOT / "profiles/settle/registered.yaml").read_text()))
    said = [page.lost(rows[0]["lost_draws"])] * bool(rows[0]["lost_draws"])
    text = registered.text("settle", own, made_of(own, rows), rows, ledgers, said)
    assert text == (ROOT / "reports/settle/looks.md").read_text(encoding="utf-8")


def made_of(own: looks.Design, rows: list[dict]) -> list[looks.Look]:
    """The looks, by the rows of the ledger that they led to."""
    verdicts = {row["id"]: judge.Verdict(row["id"], row["word"], (), "") for row in rows}
    return [
        looks.Look(
            n,
            level,
            {row["id"]: verdicts[row["id"]] for row in rows if row["look"] >= n},
            tuple(row["id"] for row in rows if row["settled"] and row["look"] == n),
        )
        for n, level in zip(own.looks, levels(own.looks, own.alpha))
        if n <= max(row["look"] for row in rows)
    ]
