"""The claims on the benchmark: what a test's number is, which word it gets, how the contrasts fit the benchmark."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_1samp

from rlnlp.settings import ConfigError
from tests.test_grue_board import lines
from tests.test_style import ROOT
from workbook.grue import board, claims, contrasts
from workbook.grue import settings as grue
from workbook.grue.claims import NOT_RUN, evidence, expanded, judge, numbers
from workbook.grue.contrasts import Contrasts, Test
from workbook.ledger import checks
from workbook.ledger.ruling import ELSEWHERE
from workbook.statistics.rule import decide
from workbook.store.tables import read_table

TESTED = ("P06", "P07", "P09", "P11", "P12", "P13", "P14", "P15", "P30", "P31", "P32", "P33", "P34", "P35", "P36")
TOLD = ("P08", "P16", "P17", "P28")  # without people, or without the official test set


@pytest.fixture(scope="module")
def ours():
    return grue.load(ROOT / "grue" / "params.yaml")


@pytest.fixture(scope="module")
def rules(ours):
    return contrasts.load(ROOT / "grue" / "contrasts.yaml", ours)


@pytest.fixture(scope="module")
def known():
    return checks.load(ROOT / "claims.yaml")


def test(name="x", direction="greater", **values) -> Test:
    sizes = {"margin": 0.1} if direction == "equal" else {} if values.get("threshold") else {"effect": 0.02}
    return Test(name=name, direction=direction, **{"terms": {"ppo": 1.0}, **sizes, **values})


test.__test__ = False


# ------------------------------------------------------------------------------------------------------ the contrasts
def test_every_claim_of_the_benchmark_is_tested_or_says_what_it_lacks(rules, known):
    assert {*rules} == {*TESTED, *TOLD} <= {*known}
    assert [name for name in rules if any(t.role == "decides" for t in rules[name].tests)] == sorted(TESTED)
    assert all(rules[name].said and known[name].needs for name in TOLD)


def test_what_decides_is_fixed_and_prose_is_no_part_of_it(rules):
    """Whoever changes a test, an effect or a margin after the first counted run sees it here, and has to say so."""
    assert contrasts.fingerprint(rules)[:12] == "eea8396587b5"
    prose = {name: rule.replace(said="another word") for name, rule in rules.items()}
    assert contrasts.fingerprint(prose) == contrasts.fingerprint(rules)
    first = rules["P06"].tests[0]
    other = {**rules, "P06": rules["P06"].replace(tests=(first.replace(effect=0.03), *rules["P06"].tests[1:]))}
    assert contrasts.fingerprint(other) != contrasts.fingerprint(rules)


GOOD = {"P06": {"tests": [{"name": "x", "terms": {"nlpo": 1, "ppo": -1}, "direction": "greater", "effect": 0.1}]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terms": {"npo": 1}}, "P06: x: common_gen has no arm 'npo'; did you mean 'nlpo'"),
        ({"tasks": ["comon_gen"]}, "no task 'comon_gen' in the settings; did you mean 'common_gen'"),
        ({"tasks": ["totto"], "minus": ["wmt"]}, "no task 'wmt' in the settings"),
        (
            {"tasks": ["totto"], "column": "metric/parnt"},
            "totto has no column 'metric/parnt'; did you mean 'metric/parent'",
        ),
        ({"tasks": ["totto"], "terms": {"ppo@judge/sens": 1}}, "totto has no column 'judge/sens'"),
        ({"tasks": ["totto"], "terms": {"sup_more": 1}}, "totto has no arm 'sup_more'"),  # a control, not run there
        ({"direction": "equal"}, "x: expected margin .*, found ..effect.."),
        ({"effect": None}, "x: expected effect"),
        ({"threshold": True}, "x: expected no size"),
        ({"efect": 1}, "Extra inputs"),
    ],
)
def test_a_contrast_that_cannot_be_made_is_named(ours, tmp_path, changes, message):
    path = tmp_path / "contrasts.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    assert [*contrasts.load(path, ours)] == ["P06"]
    path.write_text(yaml.safe_dump({"P06": {"tests": [{**GOOD["P06"]["tests"][0], **changes}]}}))
    with pytest.raises(ConfigError, match=message):
        contrasts.load(path, ours)


# -------------------------------------------------------------------------------------------------------- the numbers
def three_tasks():
    rows = []
    for task, ppo, nlpo in (
        ("a", [0.5, 0.6], [0.1, 0.1]),
        ("b", [0.3, 0.2], [0.2, 0.3]),
        ("c", [0.2, 0.2], [0.1, 0.0]),
    ):
        rows += lines(task, "ppo", values=ppo, **{"metric/sacrebleu": 40.0, "judge/judge": 0.25})
        rows += lines(task, "nlpo", values=nlpo, **{"metric/sacrebleu": 30.0})
    return board.board(rows)


def test_a_number_is_the_mean_over_tasks_of_the_weighted_terms_less_that_of_others():
    found = three_tasks()
    both = test(tasks=("a", "b"), terms={"ppo": 1.0, "nlpo": -1.0})
    assert numbers(both, found).tolist() == pytest.approx([0.25, 0.2])  # (.4 + .1)/2, (.5 - .1)/2
    assert numbers(both.replace(minus=("c",)), found).tolist() == pytest.approx([0.15, 0.0])  # less .1, .2


def test_scores_are_in_units_of_their_scale_and_terms_may_name_their_columns():
    found = three_tasks()
    bleu = test(tasks=("a",), column="metric/sacrebleu", terms={"ppo": 1.0, "nlpo": -1.0})
    assert numbers(bleu, found).tolist() == pytest.approx([0.1, 0.1])
    gap = test(tasks=("a",), terms={"ppo": 1.0, "ppo@judge/judge": -1.0})
    assert numbers(gap, found).tolist() == pytest.approx([0.25, 0.35])
    assert numbers(test(tasks=("a",), terms={"sup_ppo": 1.0}), found) is None
    assert numbers(test(tasks=("a", "z")), found) is None
    assert numbers(gap.replace(terms={"nlpo@judge/judge": 1.0}), found) is None


def test_each_makes_a_test_of_every_task_and_no_tasks_are_all():
    assert [(t.name, t.tasks, t.each) for t in expanded(test(each=True), ["a", "b"])] == [
        ("x, a", ("a",), False),
        ("x, b", ("b",), False),
    ]
    assert expanded(test(), ["a", "b"])[0].tasks == ("a", "b") and expanded(test(tasks=("b",)), ["a", "b"])[
        0
    ].tasks == ("b",)


NEAR = [0.001, -0.001, 0.0, 0.002, -0.001]
CLEAR = [0.05, 0.06, 0.04, 0.05, 0.05]


@pytest.mark.parametrize(
    ("values", "changes", "word"),
    [
        (CLEAR, {}, "holds"),
        (CLEAR, {"effect": 0.2}, "holds, but smaller than stated"),
        (CLEAR, {"direction": "less"}, "opposite"),
        ([-v for v in CLEAR], {"direction": "less"}, "holds"),
        (NEAR, {}, "too small"),
        ([0.3, -0.1, 0.2, 0.1, -0.05], {}, "open, leans for"),
        ([-0.3, 0.1, -0.2, -0.1, 0.05], {}, "open, leans against"),
        (NEAR, {"direction": "equal"}, "holds"),
        ([0.3, 0.31, 0.29, 0.3, 0.3], {"direction": "equal"}, "opposite"),
        (CLEAR, {"threshold": True}, "holds"),
        (NEAR, {"threshold": True}, "open, leans for"),  # of a threshold nothing is too small
        (CLEAR[:4], {}, "too few seeds for a test; direction only"),  # 1/16 is the smallest p
    ],
)
def test_the_word_is_the_ledgers(values, changes, word):
    assert decide(evidence(test(**changes), np.array(values))) == word


def test_small_is_within_the_stated_effect_by_two_one_sided_t_tests():
    values = np.array([0.1, -0.08, 0.05, 0.02, -0.03, 0.09, 0.01, 0.0])
    sides = [ttest_1samp(values, m, alternative=a).pvalue for m, a in ((0.06, "less"), (-0.06, "greater"))]
    assert evidence(test(effect=0.06), values).p_small == pytest.approx(max(sides))
    assert max(sides) == pytest.approx(0.0506629, abs=1e-6)


# --------------------------------------------------------------------------------------------------------- the claims
def judged(known, tests, *, ppo=CLEAR, nlpo=(0.0,) * 5, said=""):
    rows = [*lines("a", "ppo", values=ppo), *lines("a", "nlpo", values=nlpo)]
    return judge("P06", Contrasts(tests=tuple(tests), said=said), known["P06"], board.board(rows), ["a"])


def test_all_deciding_tests_are_needed_and_those_beside_take_no_part(known):
    holds, open_ = test("one", terms={"ppo": 1.0, "nlpo": -1.0}), test("two", terms={"nlpo": 1.0})
    assert judged(known, [holds]).word == "holds"
    wavers = [0.3, -0.1, 0.2, 0.1, -0.05]
    found = judged(known, [holds.replace(terms={"ppo": 1.0}), open_], nlpo=wavers)
    assert found.word == "open, leans for" and [part.word for part in found.parts] == ["holds", "open, leans for"]
    assert found.sentence.startswith("Open, leans for; 1 of 2 parts hold: one +0.05 [+0.04, +0.06]: holds; two +0.09 [")
    beside = judged(known, [holds.replace(terms={"ppo": 1.0}), open_.replace(role="beside")], nlpo=wavers)
    assert beside.word == "holds" and beside.parts[1].word == "open, leans for"
    assert beside.sentence == "Holds: one +0.05 [+0.04, +0.06]."


def test_any_part_refutes_wherever_it_stands_and_only_after_holm(known):
    """Of two parts one is clearly against: the claim is, in either order. A part with a p of .03 alone is not, beside
    another: Holm asks for .025 of the smaller of two."""
    down, up = test("down", terms={"nlpo": 1.0}), test("up")
    for parts in ((down, up), (up, down)):
        found = judged(known, parts, nlpo=[-v for v in CLEAR])
        assert found.word == "opposite" and {part.word for part in found.parts} == {"holds", "opposite"}
    weak = [-0.09, -0.34, -0.06, -0.24, -0.14]
    assert 0.025 < ttest_1samp(weak, 0.0).pvalue < 0.05
    alone = judged(known, [down], nlpo=weak)
    beside = judged(known, [down, test("flat", terms={"nlpo": 1.0, "ppo": 1.0})], nlpo=weak)
    assert alone.word == "opposite" and beside.parts[0].word == "open, leans against"


def unsupervised(*tasks_, others=()):
    """Rows of tasks where supervision kept the raw model, and of others where it did not."""
    rows = []
    for name in (*tasks_, *others):
        start = CLEAR if name in tasks_ else [2 * v for v in CLEAR]
        rows += [*lines(name, "zero_shot", values=CLEAR), *lines(name, "supervised", values=start)]
        for arm, seed in (("ppo", 0.1), ("sup_ppo", 0.1 if name in tasks_ else -0.3)):
            rows += lines(name, arm, values=[seed + v / 10 for v in CLEAR])
    return board.board(rows)


def test_without_a_supervised_start_a_test_of_it_decides_nothing_and_can_not_hold(known):
    against = test("added", each=True, terms={"sup_ppo": 1.0, "supervised": -1.0})
    rule = lambda *tests: Contrasts(tests=tests)
    judge_of = lambda found, names, *tests: judge("P06", rule(*tests), known["P06"], found, names)
    none = judge_of(unsupervised("a"), ["a"], against)
    assert none.word == ELSEWHERE and none.parts[0].word == claims.NO_START and none.p is None
    assert none.sentence == "Not testable here: no supervised start, as supervision kept the raw model: added, a."
    both = unsupervised("a", others=("b",))
    refuted = judge_of(both, ["a", "b"], against)  # one part is enough to refute what all are needed for
    assert refuted.word == "opposite" and [part.word for part in refuted.parts] == [claims.NO_START, "opposite"]
    held = judge_of(both, ["a", "b"], against.replace(terms={"supervised": 1.0, "sup_ppo": -1.0}))
    assert held.word == ELSEWHERE and "added, a." in held.sentence  # and none to hold
    raw = judge_of(both, ["a", "b"], test("ppo", each=True, terms={"ppo": 1.0, "zero_shot": -1.0}))
    assert raw.word == "holds"  # what has no supervised arm is tested as ever
    for pair in ({"sup_nlpo": 1.0, "sup_ppo": -1.0}, {"sup_more": 1.0, "ppo": -1.0}):  # what goes on from there too
        assert claims.without_start(test(tasks=("a",), terms=pair), both)
    mixed = against.replace(each=False)  # a mean with a task that has one
    assert [claims.without_start(t, both) for t in (mixed, mixed.replace(tasks=("b",), minus=("a",)))] == [False, True]


def test_q_counts_the_claims_that_were_tested_and_no_other(known):
    one, few = judged(known, [test("one")]), judged(known, [test("one")], ppo=CLEAR[:3], nlpo=(0.0,) * 3)
    against = judged(known, [test("one", terms={"ppo": -1.0})])
    assert one.p == 1 / 32 and against.p == 1.0 and few.p is None
    found = claims.over_the_board([one, few, judged(known, []), against, one])
    harmonic = 1 + 1 / 2 + 1 / 3  # Benjamini and Yekutieli (2001): p times m, over its rank, times this, m = 3 tested
    q = pytest.approx(3 / 32 / 2 * harmonic)
    assert [verdict.q for verdict in found] == [q, None, None, 1.0, q]
    assert claims.over_the_board([few]) == [few]


def test_what_was_not_run_or_cannot_be_tested_gets_no_word(known):
    found = judged(known, [test("one"), test("gone", terms={"sup_ppo": 1.0})])
    assert (found.word, found.parts[1].word) == (ELSEWHERE, NOT_RUN) and found.sentence.endswith("not run: gone.")
    assert found.parts[0].difference == pytest.approx(0.05)  # shown all the same
    few = judged(known, [test("one")], ppo=CLEAR[:3], nlpo=(0.0,) * 3)
    assert few.word == ELSEWHERE and "at least 5 seeds (here 3)" in few.sentence
    told = judged(known, [test("one", role="beside")], said="No people.")
    assert told.word == ELSEWHERE and "needs the other tasks" in told.sentence and told.said == "No people."
    assert told.parts[0].word == "holds"


def test_policies_that_are_one_model_are_named_where_their_task_is_tested(known):
    same = {name: lines("a", name, values=CLEAR) for name in ("zero_shot", "supervised")}
    rows = [*same["zero_shot"], *same["supervised"], *lines("a", "ppo", values=(0.5, *CLEAR[1:]))]
    found = board.board(rows)
    assert board.alike(found, "a") == [("zero_shot", "supervised")]
    told = judge("P06", Contrasts(tests=(test("one", terms={"ppo": 1.0}),), said="A."), known["P06"], found, ["a"])
    assert told.said == "A." and told.same == ("a",)
    said = claims.table([told], found)[0]["said"]
    assert said.startswith("A. On a these are one and the same model: zero-shot and supervised. No step of supervision")
    other = board.board([*same["zero_shot"], *lines("a", "supervised", values=(*CLEAR[:4], 0.5))])
    assert board.alike(other, "a") == [] and claims.one_model(other, "a") == claims.one_model(other, "z") == ""


def test_every_number_of_the_page_of_findings_is_in_the_committed_tables():
    told = (ROOT / "docs/findings/grue.md").read_text()
    names = ("grue/claims", "grue/leaderboard", "grue_real/leaderboard")
    pages = " ".join((ROOT / f"reports/{name}.md").read_text() for name in names)
    numbers = re.findall(r"[+−]?\d\.\d{3} \[[^\]]+\]", told)
    assert len(numbers) > 20 and [number for number in numbers if number not in pages] == []
    assert len([number for number in numbers if number[0] in "+−"]) > 15  # with the sign that the pages have


def test_what_the_page_of_findings_says_of_real_rows_is_in_their_draws():
    """In the order of the draws, as many digits as are said."""
    told = " ".join((ROOT / "docs/findings/grue.md").read_text().partition("**On real rows**")[2].split())
    tasks = ("multi30k", "common_gen", "daily_dialog")
    found = {task: [read_table(ROOT / f"grue/real/draws/{n}/{task}.csv") for n in (1, 2, 3)] for task in tasks}

    def values(task, answer, metric, digits):
        return [f"{row[metric]:.{digits}f}" for rows in found[task] for row in rows if row["condition"] == answer]

    def said(*what):
        first, second, third = values(*what)
        return f"{first}, {second} and {third}"

    bleu = {policy: said("multi30k", policy, "metric/sacrebleu", 1) for policy in ("supervised", "sup_ppo", "sup_nlpo")}
    for wanted in (
        f"reads the right act in {said('daily_dialog', 'sup_ppo', 'metric/intent', 3)} of 1,000 turns",
        f"paid {said('common_gen', 'zero_shot', 'reward', 3)} of METEOR",
        f"supervision {said('common_gen', 'supervised', 'reward', 3)}",
        f"{said('daily_dialog', 'sup_ppo', 'reward', 3)} against",
        f"({said('common_gen', 'nlpo', 'reward', 3)})",
        f"{bleu['supervised']} BLEU",
        f"PPO {bleu['sup_ppo']}, NLPO {bleu['sup_nlpo']}",
    ):
        assert wanted in told, wanted
    for task, answer, metric, digits, phrase in (
        ("daily_dialog", "always inform", "metric/intent", 3, 'in "always inform" in {}'),
        ("daily_dialog", "always inform", "reward", 3, '("always inform" {})'),
        ("daily_dialog", "a full stop", "reward", 3, 'against {} ("always inform"'),
        ("daily_dialog", "what mostly follows", "metric/intent", 3, "has the right act in {} of the same turns"),
        ("daily_dialog", "what mostly follows", "reward", 3, "of the same turns and is paid {}, more"),
        ("common_gen", "a X the Y in the X", "reward", 3, 'The answer "a X the Y in the X" is paid {}, another'),
        ("common_gen", "another human's reference", "reward", 3, "another human's {}."),
        ("multi30k", "source", "metric/sacrebleu", 1, "against {} for the English as it stands"),
    ):
        (value,) = {*values(task, answer, metric, digits)}
        assert phrase.format(value) in told, answer


def test_the_table_has_a_line_for_each_test_and_one_for_a_claim_without(known):
    found = board.board(lines("a", "ppo", values=CLEAR))
    table = claims.table([judged(known, [test("one"), test("two", role="beside")]), judged(known, [])], found)
    assert [(line["id"], line["name"], line["test_word"]) for line in table] == [
        ("P06", "one", "holds"),
        ("P06", "two", "holds"),
        ("P06", None, None),
    ]
    assert len({tuple(line) for line in table}) == 1  # the same columns
