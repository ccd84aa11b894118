"""The leaderboard's numbers on tables of which every answer is worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import colormaps
from seaborn.utils import relative_luminance

from tests.grue_made import made_up
from tests.test_style import ROOT
from workbook.grue import baselines, board, contrasts, gather, over_tasks, pictures, report, submitted, tasks
from workbook.grue import settings as grue
from workbook.grue.board import JUDGE, REWARD, BoardError
from workbook.grue.evaluate import said
from workbook.grue.example import Example, Published
from workbook.grue.run import drawn
from workbook.grue.scoring import ready
from workbook.ledger import checks
from workbook.results.files import read_rows
from workbook.results.pack import write_packed
from workbook.stages.processes import environment
from workbook.store.tables import read_table, write_table

LOOK = {"n": 256, "split": "test", "decoding": "greedy", "checkpoint": "raw 12345678"}


def lines(task, condition, kind="", column=REWARD, values=(), **more):
    """A row a seed, 1, 2, ...; more: further numbers, the same for every seed."""
    about = {"task": task, "condition": condition, **LOOK, **({"kind": kind} if kind else {}), **more}
    return [{**about, "seed": seed, column: value} for seed, value in enumerate(values, 1)]


def task_of(name, ppo, supervised=(0.5,) * 5, floor=(0.2,) * 5, top=(0.6,) * 5):
    return [
        *lines(name, "worse", "trivial", values=[0.1] * 5),
        *lines(name, "best", "trivial", values=floor),
        *lines(name, "human", "human", values=top),
        *lines(name, "ppo", values=ppo),
        *lines(name, "supervised", values=supervised),
    ]


def test_rows_stand_in_the_order_of_kinds_and_arms_and_seeds_and_what_lacks_is_none():
    found = board.board(
        [
            *lines("t", "mine", "submitted", values=[0.3, 0.4]),
            *lines("t", "supervised", values=[0.3, 0.4]),
            *reversed(
                lines("t", "zero_shot", values=[0.1, 0.2], **{"metric/ter": 3.0, "judge/sense": 1.0, JUDGE: 0.5})
            ),
            *lines("t", "z", "trivial", values=[0.0, 0.0]),
            *lines("t", "a", "trivial", values=[0.0, 0.0]),
        ]
    )
    assert found.seeds == (1, 2) and [*found.rows["t"]] == ["z", "a", "zero_shot", "supervised", "mine"]
    assert found.values("t", "zero_shot", REWARD).tolist() == [0.1, 0.2]
    assert found.values("t", "supervised", JUDGE) is None and found.values("t", "nobody", REWARD) is None
    assert found.columns("t") == [REWARD, JUDGE, "judge/sense", "metric/ter"]
    assert found.named("t", "trivial") == ["z", "a"] and found.kind("t", "mine") == "submitted"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lines("t", "ppo", values=[1.0]) * 2, "t, ppo: two rows of seed 1"),
        (lines("t", "ppo", values=[1.0, 1.0]) + lines("t", "nlpo", values=[1.0]), "t, nlpo: no row of seed 2"),
    ],
)
def test_rows_that_cannot_be_compared_are_named(rows, message):
    with pytest.raises(BoardError, match=message):
        board.board(rows)


def test_the_scale_runs_from_the_best_trivial_answer_to_the_human():
    floor = [0.1, 0.2, 0.3, 0.2, 0.2]
    found = board.board(task_of("t", [0.3, 0.3, 0.5, 0.4, 0.4], floor=floor, top=[0.5, 0.6, 0.7, 0.6, 0.6]))
    scale = board.room(found, "t", REWARD)
    assert (scale.best, scale.top, scale.why) == ("best", "human", "") and scale.gap == pytest.approx(0.4)
    assert board.normalised(found, "t", "ppo", REWARD).tolist() == pytest.approx([0.5, 0.25, 0.5, 0.5, 0.5])
    assert board.normalised(found, "t", "best", REWARD).tolist() == pytest.approx([0.0] * 5)
    assert board.normalised(found, "t", "human", REWARD).mean() == pytest.approx(1.0)


def test_where_less_is_better_the_scale_is_turned():
    column = "metric/ter"
    rows = [("low", "trivial", 140.0), ("high", "trivial", 100.0), ("h", "human", 20.0), ("ppo", "", 80.0)]
    found = board.board([row for name, kind, v in rows for row in lines("t", name, kind, column, [v] * 5)])
    assert board.room(found, "t", column).best == "high"
    assert board.normalised(found, "t", "ppo", column).tolist() == pytest.approx([0.25] * 5)
    assert board.room(found, "t", "metric/words").why == "no direction"


def test_there_is_no_room_where_the_top_does_not_beat_the_best_trivial_answer_beyond_its_interval():
    wide = board.board(task_of("t", [0.5] * 5, floor=[0.3] * 5, top=[0.1, 0.9, 0.2, 0.8, 0.3]))
    assert "no room: human does not beat" in board.room(wide, "t", REWARD).why
    assert board.normalised(wide, "t", "ppo", REWARD) is None and board.overall(wide, REWARD) == ([], [])
    one = board.board([row for row in task_of("t", [0.5] * 5) if row["seed"] == 1])
    assert "on 1 seed" in board.room(one, "t", REWARD).why
    alone = board.board([row for row in task_of("t", [0.5] * 5) if row["condition"] != "human"])
    assert board.room(alone, "t", REWARD).why == "no second reference"
    none = board.board(lines("t", "ppo", values=[0.5] * 5))
    assert board.room(none, "t", REWARD).why == "no trivial answer"


def test_of_the_judge_the_top_is_its_optimum_whether_or_not_there_is_a_second_human():
    rows = [*lines("t", "best", "trivial", JUDGE, [0.5] * 5), *lines("t", "ppo", "", JUDGE, [0.75] * 5)]
    found = board.board(rows)
    assert board.room(found, "t", JUDGE).top == "the judge's optimum"
    assert board.normalised(found, "t", "ppo", JUDGE).tolist() == [0.5] * 5


def test_over_the_tasks_mean_and_interquartile_mean_are_of_each_seeds_numbers():
    rewards = {"a": 0.24, "b": 0.28, "c": 0.32, "d": 0.56}  # of a scale from .2 to .6: .1 .2 .3 .9
    rows = [row for name, value in rewards.items() for row in task_of(name, [value] * 5)]
    rows += task_of("without room", [0.9] * 5, top=[0.0, 0.4, 0.0, 0.4, 0.2])
    rows += lines("a", "nlpo", values=[0.6] * 5)  # of one task only: not over all
    used, ranked = board.overall(board.board(rows), REWARD)
    assert used == ["a", "b", "c", "d"] and [line.condition for line in ranked] == ["supervised", "ppo"]
    assert ranked[1].mean.estimate == pytest.approx(0.375) and ranked[1].iqm.estimate == pytest.approx(0.25)
    assert ranked[1].mean.n == 5 and ranked[0].iqm.estimate == pytest.approx(0.75)


def test_room_is_of_the_same_seed_and_the_mean_over_tasks_too():
    """Floors differ much from seed to seed, what lies above them does not: unpaired there would be no room."""
    floor = np.array([0.1, 0.5, 0.3, 0.7, 0.2])
    rows = []
    for name, share in (("a", 0.2), ("b", 0.6)):
        ahead = share * 0.05 + np.array([0.01, 0.0, 0.0, 0.0, -0.01]) * (1 if name == "a" else -1)
        rows += task_of(name, floor + ahead, supervised=floor, floor=floor, top=floor + 0.05)
    found = board.board(rows)
    assert board.room(found, "a", REWARD).why == ""
    values = {name: board.normalised(found, name, "ppo", REWARD) for name in ("a", "b")}
    assert values["a"].tolist() == pytest.approx([0.4, 0.2, 0.2, 0.2, 0.0])
    line = next(line for line in board.overall(found, REWARD)[1] if line.condition == "ppo")
    assert line.mean.estimate == pytest.approx(0.4) and line.mean.high - line.mean.low == pytest.approx(0.0, abs=1e-9)
    assert board.interval(values["a"]).high > 0.3  # of one task it is wide; the two go against each other
    assert board.ahead(found, REWARD, "ppo", "supervised").tolist() == pytest.approx([0.4] * 5)
    assert board.ahead(found, REWARD, "ppo", "nobody") is None and board.ahead(found, JUDGE, "ppo", "ppo") is None


def test_one_model_under_two_names_is_one_and_a_kept_raw_model_is_no_start():
    same = {name: lines("t", name, values=[0.1, 0.2]) for name in ("zero_shot", "supervised")}
    other = [*lines("t", "ppo", values=[0.1, 0.3]), *lines("t", "mine", "submitted", values=[0.1, 0.3])]
    found = board.board([*same["zero_shot"], *same["supervised"], *other])
    assert board.models_of(found, "t") == [("zero_shot", "supervised"), ("ppo",)] and board.kept_raw(found, "t")
    assert board.models_of(found, "t", board.MODEL, board.SUBMITTED)[1] == ("ppo", "mine")
    apart = board.board([*same["zero_shot"], *lines("t", "supervised", values=[0.1, 0.3])])
    assert not board.kept_raw(apart, "t") and board.alike(apart, "t") == []
    more = board.board(
        [row for row in [*lines("t", "zero_shot", values=[0.1, 0.2])]]
        + [r for n in ("supervised", "sup_more") for r in lines("t", n, values=[0.4, 0.3])]
    )
    assert board.alike(more, "t") == [("supervised", "sup_more")] and not board.kept_raw(more, "t")


def test_one_model_counts_once_in_whether_reward_and_judge_agree():
    """Of three models two pairs stand in one order on both sides and one does not: (2 - 1) / 3. The third has a second
    name, which is no model more."""
    values = {"zero_shot": (0.1, 0.3), "supervised": (0.2, 0.2), "ppo": (0.3, 0.4), "mine": (0.3, 0.4)}
    rows = []
    for name, (paid, meant) in values.items():
        rows += lines("t", name, "submitted" if name == "mine" else "", values=[paid] * 2, **{JUDGE: meant})
    (line,) = over_tasks._agreement(board.board(rows))
    assert (line["models"], line["tau"].split()[0]) == (3, "0.333")


def test_the_common_scale_of_what_training_added_leaves_a_kept_raw_model_out():
    rows = [*task_of("a", [0.3] * 5, supervised=[0.4] * 5), *task_of("b", [0.3] * 5, supervised=[0.5] * 5)]
    rows += [r for n, v in (("a", 0.4), ("b", 0.3)) for r in lines(n, "zero_shot", values=[v] * 5)]
    rows += [r for n, v in (("a", 0.2), ("b", 0.6)) for r in lines(n, "sup_ppo", values=[v] * 5)]
    found = board.board(rows)  # of a scale from .2 to .6; supervision kept the raw model of a
    assert board.kept_raw(found, "a") and board.tasks_ahead(found, REWARD) == ["b"]
    assert board.ahead(found, REWARD, "sup_ppo", "supervised").tolist() == pytest.approx([0.25] * 5)
    assert "(b)." in over_tasks.added(found)[1]


def test_what_training_added_is_told_seed_by_seed_and_a_kept_raw_model_is_in_no_mean(tmp_path):
    """Unpaired the interval would be wide: the two arms go up and down together."""
    rows = []
    for name, added in (("common_gen", 0.1), ("totto", 0.0)):
        base = np.array([0.1, 0.5, 0.3, 0.7, 0.2])
        for arm, value in (("zero_shot", base), ("supervised", base + added), ("ppo", base + 0.02)):
            rows += lines(name, arm, values=value)
    page = "\n".join(over_tasks.added(board.board(rows)))
    shown = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:4]] for line in page.splitlines()[4:]}
    assert shown["totto *"] == ["+0.020 [0.020, 0.020]", "+0.000 [0.000, 0.000]"]
    assert shown["mean over tasks without * (how many)"] == ["+0.020 [0.020, 0.020] (1)", "+0.100 [0.100, 0.100] (1)"]


def test_the_interval_is_students_over_seeds():
    cell = board.interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert cell.estimate == 3.0 and cell.high - 3.0 == pytest.approx(2.776445 * np.sqrt(2.5 / 5), abs=1e-6)


def test_ranks_are_means_over_tasks_seed_by_seed_and_ties_share_them():
    values = {"a": {"ppo": [0.1, 0.9], "nlpo": [0.2, 0.5]}, "b": {"ppo": [0.3, 0.8], "nlpo": [0.3, 0.5]}}
    rows = [r for t, arms in values.items() for name, v in arms.items() for r in lines(t, name, values=v)]
    rows += lines("a", "zero_shot", values=[1.0, 1.0])
    found = board.board(rows)
    ranks = {name: each.tolist() for name, each in board.ranks(found, REWARD).items()}
    assert ranks == {"ppo": [1.75, 1.0], "nlpo": [1.25, 2.0]}
    assert board.ranks(found, JUDGE) == {}


def test_the_spread_of_rewards_before_training_foretells_where_rl_fails():
    rows = []
    for task, spread, lost in (("a", 0.1, 0.3), ("b", 0.2, 0.2), ("c", 0.3, 0.1)):
        rows += lines(task, "zero_shot", column="spread_p10", values=[spread, 0.2])
        rows += [*lines(task, "supervised", values=[0.5 + lost] * 2), *lines(task, "ppo", values=[0.5] * 2)]
    assert board.foretold(board.board(rows)).tolist() == pytest.approx([-1.0, 0.0])
    assert board.foretold(board.board([row for row in rows if row["task"] != "c"])) is None


# ------------------------------------------------------------------------------------------ answers without a policy
SHOWN = [
    Example("r1", "say: ", "ben", ".", ("ben saw it .", "it saw ben ."), "ben", {"who": "ben"}),
    Example("r2", "say: ", "anna", ".", ("anna ran .",), "anna", {"who": "anna"}),
]


def test_another_human_is_scored_against_the_others_references():
    examples, answers = baselines.again(made_up(), SHOWN)
    assert [(e.id, e.references) for e in examples] == [("r1", ("it saw ben .",))] and answers == ["ben saw it ."]
    assert baselines.again(made_up(), SHOWN[1:]) == ([], [])
    writes = made_up(another=lambda e: f"{e.source} walked .")
    assert baselines.again(writes, SHOWN[1:]) == ([], [])  # real rows: our second writer knows our world alone
    generated = [dataclasses.replace(e, meta={**e.meta, "facts": {}}) for e in SHOWN[1:]]
    assert baselines.again(writes, generated) == (generated, ["anna walked ."])


def test_answers_are_paid_scored_and_judged_whoever_wrote_them():
    task = made_up(metrics=("rouge_1", "words"))
    generated = [
        Example(e.id, e.before, e.body, e.after, e.references, e.source, {**e.meta, "facts": {}}) for e in SHOWN
    ]
    scoring = ready(task, task.reward, generated)
    found = baselines.judged(task, scoring, generated, ["ben saw it .", "ben ran ."])
    # rouge_1: 1, and of two words in common of four in all (the mark is none): 2 * 1/2 * 1/2 / 1
    assert found == {"n": 2, "reward": 0.75, "metric/rouge_1": 0.75, "metric/words": 3.5, JUDGE: 0.5}
    assert JUDGE not in baselines.judged(task, scoring, SHOWN, ["ben saw it .", "ben ran ."])  # real rows have no truth


def cut(ours: grue.Grue, seeds: list[int], rows: dict[str, int]) -> grue.Grue:
    """The settings with as many rows for every task, whatever its own are."""
    values = ours.model_dump()
    overrides = {name: {**each, "rows": {}} for name, each in values["overrides"].items()}
    return grue.Grue.model_validate({**values, "seeds": seeds, "rows": rows, "overrides": overrides})


def test_every_task_has_trivial_answers_and_where_it_can_another_human():
    ours = grue.load(ROOT / "grue" / "params.yaml")
    few = {"train": 24, "supervised": 8, "validation": 8, "test": 12}
    small = cut(ours, [0], few)
    humans = {}
    for name in small.tasks:
        found = baselines.rows(small, tasks.task(name))
        assert [row["condition"] for row in found if row["kind"] == "trivial"] == [*tasks.task(name).trivial]
        humans |= {row["task"]: row for row in found if row["kind"] == "human"}
        assert all(row[JUDGE] < 1.0 for row in found if row["kind"] == "trivial")
    assert {*humans} == {"common_gen", "totto", "wmt16", "narrativeqa"}
    assert all(row[JUDGE] == 1.0 and 0.5 < row["reward"] < 0.9 for row in humans.values())


# -------------------------------------------------------------------------------------------------------------- pages
def two_tasks():
    rows = []
    for name in ("common_gen", "daily_dialog"):
        task = tasks.task(name)
        more = {f"metric/{m}": 0.5 for m in task.metrics} | {"judge/faithful": 0.9, JUDGE: 0.25, "absent": "bertscore"}
        rows += lines(name, "zero_shot", values=[0.1, 0.2, 0.1], **{**more, JUDGE: 0.125})
        rows += lines(name, "ppo", values=[0.4, 0.5, 0.45], **more)
        rows += lines(name, "supervised", values=[0.3, 0.3, 0.35], **{**more, JUDGE: 0.5})
        for answer in task.trivial:
            rows += lines(name, answer, "trivial", values=[0.2] * 3, **{**more, JUDGE: 0.0})
    return rows


def written(rows, out, samples=()):
    ours = grue.load(ROOT / "grue" / "params.yaml")
    rules = contrasts.load(ROOT / "grue" / "contrasts.yaml", ours)
    chosen = [tasks.task(name) for name in ours.tasks]
    out.mkdir()
    report.write(rows, chosen, rules, checks.load(ROOT / "claims.yaml"), samples, out)
    return (out / "leaderboard.md").read_text(), {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def test_every_table_of_a_task_says_what_its_numbers_are_of(tmp_path):
    page, files = written(two_tasks(), tmp_path / "out")
    heads = [line for line in page.splitlines() if line.startswith("| answers of |")]
    assert len(heads) == 6  # reward and judge, scores, the responses alone; of two tasks
    assert all(line.endswith("| n | split | decoding | checkpoint | data |") for line in heads)
    first = next(line for line in page.splitlines() if line.startswith("| PPO | 0.450 [0.326, 0.574] | 0.250"))
    assert first.endswith("| 256 | test | greedy | raw 12345678 | generated |")
    assert "Absent, and never replaced: bertscore." in page
    assert {*files} == {
        *("leaderboard.csv.xz", "leaderboard.md", "claims.csv", "claims.md", "alt.json"),
        *("per_seed.csv.xz", "samples.jsonl.bz2"),
        *("heat.svg", "ranks.svg", "hacking.svg"),
    }
    table = read_table(tmp_path / "out" / "leaderboard.csv.xz")
    line = next(r for r in table if (r["task"], r["condition"], r["column"]) == ("common_gen", "ppo", REWARD))
    assert (line["mean"], line["seeds"], line["n"]) == (pytest.approx(0.45), 3, 256)
    assert line["normalised"] is None and line["room"] == "no second reference"
    kept = board.board(read_table(tmp_path / "out" / "per_seed.csv.xz"))
    assert kept == board.board(two_tasks())


def test_of_every_arm_and_seed_the_first_answers_are_kept_as_they_came(tmp_path):
    answers = [
        {"task": task, "condition": arm, "seed": seed, "example_id": f"{task}-{i}", "judge": None}
        | {"prompt": "go:", "response": f"{arm}\u2028 {seed} {i}", "reward": 0.5}
        for task in ("common_gen", "daily_dialog")
        for arm in ("zero_shot", "ppo", "supervised")
        for seed in range(3)
        for i in range(8)
    ]
    written(two_tasks(), tmp_path / "out", answers)
    kept = read_rows(tmp_path / "out" / "samples.jsonl.bz2")
    assert kept == [one for one in answers if int(one["example_id"][-1]) < 5]


def test_the_same_rows_make_the_same_bytes(tmp_path):
    assert (
        written(two_tasks(), tmp_path / "a")[1]
        == written(sorted(two_tasks(), key=lambda row: -row["seed"]), tmp_path / "b")[1]
    )


def test_what_the_paper_printed_stands_in_our_table_only_where_all_is_the_same(tmp_path):
    task = tasks.task("narrativeqa")
    scored = {"metric/rouge_l_max_published": 0.4, "metric/rouge_1": 0.3}
    rows = [row | {"task": task.name} | scored for row in two_tasks() if row["task"] == "daily_dialog"]
    page, _ = written(rows, tmp_path / "ours")
    assert page.count("### Printed by the paper") == 1 and "printed: " not in page
    assert "length_penalty=1.0. Its supervised" in page and "Not to be compared with ours." in page
    theirs = {"data": task.hub, "checkpoint": "google-t5/t5-base", "decoding": said(task.decode), "split": "test"}
    rows = [row | (theirs if row.get("kind") != "trivial" else {}) for row in rows]
    page, _ = written(rows, tmp_path / "theirs")
    head, line = (
        next(line for line in page.splitlines() if line.startswith(start) and marked in line).split(" | ")
        for start, marked in (("| answers of |", "rouge_1"), ("| printed: NLPO |", "0.124"))
    )
    printed = dict(zip(head, line, strict=True))
    assert printed["rouge_l_max_published"] == "0.124"
    assert printed["rouge_1"] == ""  # the paper's is of stems: printed, and not beside ours
    assert page.count("| printed: NLPO |") == 1  # no empty line in the tables that have nothing of it
    beside = {line.split(" | ")[0] for line in page.splitlines() if line.startswith("| printed: ")}
    assert beside == {"| printed: zero-shot", "| printed: PPO", "| printed: NLPO"}  # the others are of another model
    assert "in our tables too: rouge_l_max_published. The other columns" in page
    found = board.board(rows)
    assert report.same(found, task, task.published)
    for key in theirs:
        other = board.board([row | ({key: "another"} if row["condition"] == "ppo" else {}) for row in rows])
        assert not report.same(other, task, task.published), key
    assert not report.same(found, task, Published({}, {}, "", "validation"))


def test_rows_that_nobody_judged_have_no_judge_and_no_picture_of_one(tmp_path):
    rows = [{k: v for k, v in row.items() if not k.startswith("judge/")} for row in two_tasks()]
    page, files = written(rows, tmp_path / "out")
    assert not {"ranks.svg", "hacking.svg"} & {*files} and "On the judge" not in page


def test_samples_have_the_last_words_of_a_prompt_and_no_reference(tmp_path):
    prompt = " ".join(f"w{i}" for i in range(30))
    sample = {
        "task": "common_gen",
        "condition": "ppo",
        "example_id": "e",
        "prompt": prompt,
        "response": "a|b\n*c*",
        "reward": 0.5,
    }
    samples = [{**sample, "seed": seed, "judge": None} for seed in (2, 1, 1, 1)]
    page, _ = written(two_tasks(), tmp_path / "out", samples)
    shown = [line for line in page.splitlines() if "w29" in line]
    assert len(shown) == report.SHOWN and all("| … w10 w11 " in line for line in shown)
    assert "| a\\|b \\*c\\* | 0.500 |" in shown[0]  # a cell of one line, whatever was said


@pytest.mark.parametrize("value", np.linspace(0, 1, 21))
def test_a_cells_number_can_be_read_on_its_colour(value):
    """4.5:1, by the contrast that seaborn's helper of the same purpose computes from."""
    around = relative_luminance(colormaps[pictures.COLOURS](value))
    inside = relative_luminance(pictures.readable(value))
    assert (max(around, inside) + 0.05) / (min(around, inside) + 0.05) > 4.5


def test_a_figure_says_its_numbers_to_who_does_not_see_it():
    figures = {each.name: each.figure.get_label() for each in pictures.shown(board.board(two_tasks()))}
    assert "common_gen, PPO: reward 0.450" in figures["heat"]
    assert "PPO: 1.0 on the reward; supervised: 2.0 on the reward" in figures["ranks"]
    assert "supervised: 1.0 on the judge" in figures["ranks"]
    assert "daily_dialog, always inform: reward 0.20, judge 0.00" in figures["hacking"]


def test_the_heat_maps_colours_are_shares_of_a_rows_highest_number_whose_sign_is_never_minus_nought():
    rows = [row for row in two_tasks() if "kind" not in row]
    for task, change in (("common_gen", lambda x: x), ("daily_dialog", lambda x: -0.0001)):
        for row in (row for row in rows if row["task"] == task):
            row[REWARD] = change(row[REWARD])
    figure = pictures.heat(board.board(rows, "draw"))
    axis = figure.axes[0]
    assert axis.get_title(loc="left") == "reward"
    means = [np.mean(v) for v in ([0.1, 0.2, 0.1], [0.4, 0.5, 0.45], [0.3, 0.3, 0.35])]
    order = ["zero_shot", "ppo", "supervised"]
    assert [label.get_text() for label in axis.get_xticklabels()] == [pictures.label(name) for name in order]
    shown = np.asarray(axis.collections[0].get_array()).reshape(2, 3)
    assert shown[0] == pytest.approx([mean / means[1] for mean in means])
    assert shown[1] == pytest.approx([0, 0, 0])  # nothing above 0: no share of it
    texts = [text.get_text() for text in axis.texts]
    assert texts[1] == "0.450\n[0.33, 0.57]" and texts[3:] == ["0.000\n[0.00, 0.00]"] * 3
    assert figure.get_label().startswith("Reward and judge of tasks by policies, 3 draws.")


# ---------------------------------------------------------------------------------------------------- anybody's answers
@pytest.fixture(scope="module")
def small():
    ours = grue.load(ROOT / "grue" / "params.yaml")
    few = {"train": 24, "supervised": 8, "validation": 8, "test": 6}
    return cut(ours, [0, 1], few)


def answers(ours, change=lambda place, answer: answer):
    task = tasks.task("common_gen")
    asked = [line for seed in ours.seeds for line in submitted.prompts(ours, task, seed)]
    texts = {(s, e.id): e.references[0] for s in ours.seeds for e in drawn(task, s, "test", ours.rows.test)}
    said = [{**line, "response": texts[line["seed"], line["example_id"]]} for line in asked]
    return [each for place, line in enumerate(said) if (each := change(place, line)) is not None]


def test_anybodys_answers_become_rows_that_stand_beside_ours(small, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in answers(small)))
    rows = submitted.rows(small, "my method", submitted.read(path))
    assert [(row["task"], row["seed"], row["condition"]) for row in rows] == [
        ("common_gen", s, "my method") for s in (0, 1)
    ]
    assert all(row[JUDGE] == 1.0 and row["reward"] > 0.9 and row["n"] == 6 for row in rows)
    found = board.board(
        [*rows, *({**row, "seed": row["seed"] - 1} for row in lines("common_gen", "ppo", values=[0.1, 0.1]))]
    )
    assert board.ranks(found, REWARD)["my method"].tolist() == [1.0, 1.0]
    assert "reference" not in json.dumps(submitted.prompts(small, tasks.task("common_gen"), 0))
    assert submitted.prompts(small, tasks.task("common_gen"), "0") == submitted.prompts(
        small, tasks.task("common_gen"), 0
    )
    for seed in (77, "x"):
        with pytest.raises(submitted.SubmissionError, match=f"seed: expected one of 0.*, got {seed}"):
            submitted.prompts(small, tasks.task("common_gen"), seed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, a: None if p == 3 else a, "common_gen, seed 0: 1 of 6 answers are missing: common_gen-3"),
        (lambda p, a: None if a["seed"] else a, "common_gen, seed 1: 6 of 6 answers are missing"),
        (lambda p, a: {**a, "example_id": "common_gen-1"} if p == 0 else a, "common_gen-1 is answered twice"),
        (lambda p, a: {**a, "task": "comon_gen"}, "got 'comon_gen'; did you mean 'common_gen'"),
        (lambda p, a: {**a, "seed": 7}, r"seed: expected one of \[0, 1\], got 7"),
    ],
)
def test_answers_that_cannot_be_a_row_are_named(small, change, message):
    with pytest.raises(submitted.SubmissionError, match=message):
        submitted.rows(small, "mine", answers(small, change))


def test_answers_to_what_was_not_asked_and_names_that_are_taken_are_refused(small):
    more = [*answers(small), {"task": "common_gen", "seed": 0, "example_id": "common_gen-77", "response": "x"}]
    with pytest.raises(submitted.SubmissionError, match="no test example is called 'common_gen-77'"):
        submitted.rows(small, "mine", more)
    misspelt = [{**each, "example_id": each["example_id"] + " "} for each in answers(small)]
    with pytest.raises(submitted.SubmissionError, match="called 'common_gen-0 '; did you mean 'common_gen-0'"):
        submitted.rows(small, "mine", misspelt)
    for name, why in (
        ("../x", "a letter, then"), ("", "a letter, then"), ("mine ", "no blank at its end"), ("nan", "for a number"),
        ("True", "or a truth"), ("PPO", "not taken"), ("Supervised + PPO", "not taken"), ("zero-shot", "not taken"),
    ):  # fmt: skip
        with pytest.raises(submitted.SubmissionError, match=f"name: expected .*{why}"):
            submitted.rows(small, name, [])


def test_a_file_may_have_a_byte_order_mark_and_blank_lines_and_one_without_answers_is_named(tmp_path):
    path, line = tmp_path / "a.jsonl", {"task": "x", "seed": 1, "example_id": "e", "response": "a\u2028b"}
    path.write_text("\ufeff" + json.dumps(line, ensure_ascii=False) + "\n \n\n", encoding="utf-8")
    assert submitted.read(path) == [line]
    path.write_text("\n")
    with pytest.raises(submitted.SubmissionError, match="expected a line of JSON for each answer, found none"):
        submitted.read(path)


def test_rows_of_a_method_that_the_settings_know_no_longer_are_named_by_their_file(tmp_path, monkeypatch):
    monkeypatch.setattr(gather.baselines, "rows", lambda *given: [])
    monkeypatch.setattr(gather, "arms_of", lambda *given: [])
    for rows, why in (
        ([{"task": "common_gen", "seed": 1}], r"mine.csv: expected a row of each .* found common_gen, \[1\]"),
        ([{"task": "comon_gen", "seed": s} for s in FULL.seeds], "mine.csv: .* found comon_gen"),
    ):
        write_table(tmp_path / "mine.csv", rows, ["task", "seed"])
        with pytest.raises(BoardError, match=why):
            gather.all_seeds(FULL, tmp_path, tmp_path)
    write_table(tmp_path / "mine.csv", [{"task": "common_gen", "seed": s} for s in FULL.seeds], ["task", "seed"])
    assert len(gather.all_seeds(FULL, tmp_path, tmp_path)[0]) == len(FULL.seeds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        (
            '{"task": "x", "seed": 1, "response": ""}',
            "line 1: expected task, seed, example_id, response; no example_id",
        ),
        ('{"task": "x", "seed": "1", "example_id": "e", "response": ""}', "line 1: expected a whole number as seed"),
        ('{"task": "x", "seed": 1, "example_id": ["e"], "response": ""}', "and text as task, example_id and response"),
        ('{"task": ["x"], "seed": 1, "example_id": "e", "response": ""}', "and text as task, example_id and response"),
        ('{"task": "x", "seed": 1, "example_id": "e", "response": 2}', "and text as task, example_id and response"),
    ],
)
def test_lines_that_are_no_answers_are_named(tmp_path, text, message):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(submitted.SubmissionError, match=message):
        submitted.read(path)


FULL = grue.load(ROOT / "grue" / "params.yaml")
OTHERS = [
    ("narrativeqa", "the park"),
    ("daily_dialog", "a full stop"),
    ("common_gen", "ppo"),
    ("totto", "sup_ppo_bleu"),
]


@pytest.mark.parametrize(("task", "name"), OTHERS)
def test_a_method_cannot_have_the_name_of_another_row(task, name):
    """Two rows of one name, task and seed would stop the report."""
    with pytest.raises(submitted.SubmissionError, match=rf"that is not taken \(.*{name}.*\), got '{name}'"):
        submitted.rows(FULL, name, [])
    with pytest.raises(BoardError):
        board.board([*lines(task, name, values=[0.1]), *lines(task, name, "submitted", values=[0.1])])


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["prompts", "imdb", "6"], 1, "error: task: expected one of common_gen, "),
        (["prompts", "comon_gen", "6"], 1, "did you mean 'common_gen'"),
        (["prompts", "common_gen", "1"], 1, "error: seed: expected one of 6, 7, 8, 9, 10, got 1"),
        (["--profile", "real", "prompts", "common_gen", "6"], 2, "prompts: of generated rows alone"),
        (
            ["--profile", "real", "row", "mine", "answers.jsonl"],
            2,
            "row: of generated rows alone",
        ),
        (["raw", "x"], 1, "error: seed: expected a whole number, got 'x'"),
        (["draw", "multi30k", "x"], 1, "error: seed: expected a whole number, got 'x'"),
        (["row", "the park", "/dev/null"], 1, "error: /dev/null: expected a line of JSON for each answer, found none"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_in_a_line(argv, status, message, capsys):
    from workbook.stages import grue_pipeline

    try:
        ended = grue_pipeline.main(argv)
    except SystemExit as left:
        ended = left.code
    said = capsys.readouterr()
    assert ended == status and message in said.err and "Traceback" not in said.err and not said.out


def test_a_reader_who_has_gone_is_no_error():
    """`prompts ... | head`: what comes after its first line has nowhere to go."""
    command = [sys.executable, "-m", "workbook.stages.grue_pipeline", "prompts", "common_gen", "6"]
    piped = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    piped.stdout.close()
    assert piped.stderr.read() == b"" and piped.wait() == 128 + signal.SIGPIPE


def test_the_commands_that_are_written_down_are_of_seeds_that_the_benchmark_has(capsys):
    from workbook.stages import grue_pipeline

    readme = (ROOT / "grue" / "submitted" / "README.md").read_text()
    (loop,) = re.findall(r"for seed in ([\d ]+); do .* prompts (\w+) \$seed; done", readme)
    assert [*map(int, loop[0].split())] == [*FULL.seeds] and loop[1] in FULL.tasks
    assert f"seeds {FULL.seeds[0]} to {FULL.seeds[-1]} has to be answered" in readme.replace("\n", " ")
    examples = re.findall(r"prompts (\w+) (\d+)", grue_pipeline.__doc__)
    examples += re.findall(r'task\("(\w+)"\), seed=(\d+)', submitted.__doc__)
    assert len(examples) == 2 and all(task in FULL.tasks and int(seed) in FULL.seeds for task, seed in examples)


# ------------------------------------------------------------------------------------------------------ from the tables
def one_arm():
    """Settings of a task, an arm and a seed."""
    few = {"train": 24, "supervised": 8, "validation": 8, "test": 6}
    one = {"tasks": ["common_gen"], "conditions": ["zero_shot"], "continued": [], "overrides": {"common_gen": {}}}
    none = {"seeds": [0], "control_tasks": [], "reward_tasks": [], "rows": few}
    return grue.load(ROOT / "grue" / "params.yaml").replace(**one, **none)


def test_the_report_is_made_of_the_tables_of_every_task_and_arm_and_of_submitted_rows(tmp_path, capsys):
    from workbook.stages import grue_pipeline

    ours = one_arm()
    with pytest.raises(BoardError, match="zero_shot: no per_seed.csv; run this task and arm first"):
        gather.all_seeds(ours, tmp_path / "runs", tmp_path / "submitted")
    row = {
        "task": "common_gen",
        "condition": "zero_shot",
        "seed": 0,
        **LOOK,
        REWARD: 0.25,
        JUDGE: 0.125,
        "absent": None,
    }
    folder = tmp_path / "runs" / "common_gen" / "zero_shot"
    write_table(folder / "per_seed.csv", [row])
    sample = {
        "task": "common_gen",
        "condition": "zero_shot",
        "seed": 0,
        "prompt": "say it.",
        "response": "it",
        "reward": 0.5,
    }
    (folder / "samples.jsonl").write_text(json.dumps({**sample, "judge": 0.0}) + "\n")
    write_table(tmp_path / "submitted" / "mine.csv", [{**row, "condition": "mine", "kind": "submitted", REWARD: 0.75}])
    grue_pipeline.report(ours, tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "leaderboard.md").read_text()
    firsts = [line.split(" | ")[:2] for line in page.splitlines() if line.count(" | ") > 6]
    assert ["| zero-shot", "0.250"] in firsts and ["| submitted: mine", "0.750"] in firsts
    assert (
        "| trivial: concepts |" in page and "another human's reference |" in page and "| say it. | it | 0.500 |" in page
    )
    assert "P28: Not testable here: needs ToTTo with a T5-base model" in capsys.readouterr().out


def kept_report(out, arms=("zero_shot",)):
    """A committed report with rows and answers of these arms."""
    rows = [{"task": "common_gen", "condition": name, "seed": 0, **LOOK, REWARD: 0.5, JUDGE: 0.25} for name in arms]
    write_table(out / "per_seed.csv.xz", rows)
    told = {"task": "common_gen", "seed": 0, "prompt": "say it.", "response": "it", "reward": 0.5, "judge": 0.0}
    write_packed(out / "samples.jsonl.bz2", "".join(json.dumps(told | {"condition": n}) + "\n" for n in arms).encode())
    return rows


def test_where_nothing_was_run_the_rows_in_git_stand(tmp_path):
    ours = one_arm()
    (tmp_path / "kept").mkdir()
    (mine,) = kept_report(tmp_path / "kept")
    submitted = tmp_path / "submitted"
    write_table(submitted / "mine.csv", [{**mine, "condition": "mine", "kind": "submitted"}])
    rows, texts = gather.all_seeds(ours, tmp_path / "runs", submitted, tmp_path / "kept")
    assert mine in rows and [text["response"] for text in texts] == ["it"]
    assert {row["condition"] for row in rows} > {"zero_shot", "mine", "concepts"}
    with pytest.raises(BoardError, match="no rows of common_gen, ppo, and no runs are here; `make grue` makes them"):
        gather.all_seeds(ours.replace(conditions=("zero_shot", "ppo")), tmp_path / "runs", submitted, tmp_path / "kept")
    write_table(tmp_path / "runs" / "common_gen" / "ppo" / "per_seed.csv", [mine])  # what was begun is not mixed
    with pytest.raises(BoardError, match="zero_shot: no per_seed.csv; run this task and arm first"):
        gather.all_seeds(ours, tmp_path / "runs", submitted, tmp_path / "kept")


@pytest.mark.slow
def test_the_committed_pages_are_what_the_committed_rows_give(tmp_path):
    from workbook.stages import grue_pipeline

    read = ["reports/mini/per_seed.csv", "reports/grue"]
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *read], cwd=ROOT).returncode:
        pytest.skip("made anew here, one without the other")
    grue_pipeline.report(folder=tmp_path, out=tmp_path / "made")  # no runs there: the rows in git
    files = {path.name for path in (tmp_path / "made").iterdir()}
    committed = ROOT / "reports" / "grue"
    assert files == {path.name for path in committed.iterdir()}
    assert [name for name in files if (tmp_path / "made" / name).read_bytes() != (committed / name).read_bytes()] == []


def test_the_page_names_the_reward_of_the_settings(tmp_path):
    ours = grue.load(ROOT / "grue" / "params.yaml")
    paid = ours.overrides["common_gen"].replace(reward={"rouge_1": 0.5, "coverage": 0.5})
    ours = ours.replace(overrides={**ours.overrides, "common_gen": paid})
    chosen = [tasks.task(name) for name in ours.tasks]
    report.write(two_tasks(), chosen, {}, {}, (), tmp_path, ours)
    page = (tmp_path / "leaderboard.md").read_text()
    assert "Reward: 0.5 rouge_1 + 0.5 coverage." in page and "1 meteor_stem" not in page
    assert (tmp_path / "per_seed.csv.xz").is_file()  # generated rows, as without settings


def test_a_rank_on_the_reward_stands_beside_the_one_on_the_judge(tmp_path):
    page, _ = written(two_tasks(), tmp_path / "out")
    lines = [line for line in page.splitlines() if line.startswith(("| PPO | 1.0", "| supervised | 2.0"))]
    assert lines == [
        "| PPO | 1.000 [1.000, 1.000] | 2.000 [2.000, 2.000] | +1.00 [+1.00, +1.00] |",
        "| supervised | 2.000 [2.000, 2.000] | 1.000 [1.000, 1.000] | −1.00 [−1.00, −1.00] |",
    ]
