"""What lessons start from is trained once, kept, and the same when it is found again."""

from __future__ import annotations

import csv
import json
import lzma
import math
import re
import runpy

import numpy as np
import pytest
import torch

from workbook.draws import small
from workbook.lab import lesson
from workbook.results.files import CONDITIONS, per_seed, read_text, standing
from workbook.site import lessons
from workbook.statistics.paired import mean_interval

MINI = "reports/mini"


def test_the_start_is_trained_once_and_found_again(tmp_path, monkeypatch, capsys):
    first = small.start(reviews=60, steps=3, folder=tmp_path)
    assert "once" in capsys.readouterr().out
    monkeypatch.setattr(small, "train_language_model", lambda *a, **k: pytest.fail("trained a second time"))
    again = small.start(reviews=60, steps=3, folder=tmp_path)
    assert not capsys.readouterr().out
    weights, found = first.policy.state_dict(), again.policy.state_dict()
    assert all(torch.equal(weights[name], found[name]) for name in weights)
    assert len(first.texts) == len(first.labels) == 60 and set(first.labels) == {0, 1}
    assert first.prompts.ids.shape == (256, 10) and first.prompts.mask.all()
    scores = first.reward(["the plot is"], ["superb ."])
    assert torch.equal(scores, again.reward(["the plot is"], ["superb ."])) and 0 < scores.item() < 1


def test_other_sizes_are_other_models(tmp_path):
    small.start(reviews=60, steps=3, folder=tmp_path)
    small.start(reviews=60, steps=4, folder=tmp_path)
    assert len(list(tmp_path.glob("*/finished"))) == 2


@pytest.mark.parametrize("sizes", [{"reviews": 0}, {"steps": 0}])
def test_sizes_below_one_are_refused(tmp_path, sizes):
    with pytest.raises(ValueError, match="at least one"):
        small.start(**sizes, folder=tmp_path)


def test_an_interrupted_training_leaves_nothing_half_made(tmp_path, monkeypatch):
    monkeypatch.setattr(small, "train_classifier", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        small.start(reviews=60, steps=3, folder=tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.glob("*/finished"))
    assert small.start(reviews=60, steps=3, folder=tmp_path).texts


def test_verdicts_are_those_of_the_committed_ledger():
    found = lesson.verdicts("P10", "P41", profiles=["settle", "imdb"])
    rows = {row["id"]: row for row in csv.DictReader((lesson.REPORTS / "claims.csv").open(encoding="utf-8"))}
    assert found.loc["P10"].tolist() == [rows["P10"][name] for name in ("claim", "settle", "imdb")]
    assert list(found.index) == ["P10", "P41"] and list(found.columns) == ["claim", "settle", "imdb"]
    with pytest.raises(ValueError, match="no 'P411'.*P41"):
        lesson.verdicts("P411")
    with pytest.raises(ValueError, match="no 'setle'.*settle"):
        lesson.verdicts("P10", profiles=["setle"])


def draws(condition: str, metric: str, decoding: str = "plain", profile: str = "mini") -> np.ndarray:
    rows = csv.DictReader(read_text(per_seed(lesson.REPORTS / profile)).splitlines())
    where = (condition, "test", decoding)
    return np.array([float(r[metric]) for r in rows if (r["condition"], r["split"], r["decoding"]) == where])


def test_runs_are_those_of_the_committed_table_and_of_the_page_made_from_it():
    found = lesson.runs("mini", "rloo", "grpo", metrics=["score", "kl_deployed"], against="ppo_kl_default")
    page = (lesson.REPORTS / "mini/family/verdict.md").read_text(encoding="utf-8")
    for arm, row in found.iterrows():
        (score, scores), (kl, _) = (cell.split(": ") for cell in row)
        line = next(line for line in page.splitlines() if line.startswith(f"| {arm.upper()} − PPO |"))
        assert line.startswith(f"| {arm.upper()} − PPO | {score} |") and line.endswith(f"| {kl} |")
        moved = draws(arm, "score") - draws("ppo_kl_default", "score")
        assert [float(one.replace("−", "-")) for one in scores.split(", ")] == pytest.approx(moved, abs=0.0051)
    own, plain = lesson.runs("mini", "dqn_mlp, own", "dqn_mlp", metrics=["score"])["score"]
    for said, values in ((own, draws("dqn_mlp", "score", "own")), (plain, draws("dqn_mlp", "score"))):
        assert said == f"{values.mean():.2f}: {', '.join(f'{value:.2f}' for value in values)}"


@pytest.mark.parametrize(
    ("arms", "metric", "against", "said"),
    [
        (["dqn_mpl"], "score", "", "no 'dqn_mpl'.*dqn_mlp"),
        (["rloo"], "scor", "", "no 'scor'.*score"),
        (["rloo"], "score", "ppo_kl_defaults", "no 'ppo_kl_defaults'.*ppo_kl_default"),
        (["rloo, greedyy"], "score", "", "no 'rloo, greedyy'"),
    ],
)
def test_a_run_or_a_metric_that_is_not_there_is_named(arms, metric, against, said):
    with pytest.raises(ValueError, match=f"the runs of mini have {said}"):
        lesson.runs("mini", *arms, metrics=[metric], against=against)


def test_what_lessons_say_of_minis_tables_in_words_is_so():
    """They show the numbers (`lesson.runs`) and speak of their pattern, which another run of mini could change."""
    dearer, untrained = "generation_log_perplexity", draws("zero_shot", "generation_log_perplexity").mean()
    salad, scores = draws("dqn_mlp", dearer, "own"), draws("dqn_mlp", "score", "own")
    assert salad.min() > 3 * untrained and not draws("dqn_mlp", "judge", "own").any()  # lesson 8, line by line
    assert scores.max() > 0.9 and scores.min() < 0.3 and {*draws("dqn_mlp", "kl_coef")} == {0.05}
    assert draws("ppo_kl_0", "score").min() > 0.9 and draws("ppo_kl_0", dearer).max() < 0.6 * salad.min()
    assert np.ptp(draws("dqn_logits", "score", "own")) > 0.3
    assert 0 < draws("dqn_logits", "score").mean() - draws("zero_shot", "score").mean() < 0.15
    assert draws("dqn_logits", dearer).min() > untrained + math.log(2)
    assert draws("dqn_best", "score", "own").min() > 0.9 and draws("dqn_best", dearer, "own").mean() < untrained
    assert draws("zero_shot", "score", "greedy").max() > 0.9 and draws("zero_shot", "score", "greedy").min() < 0.3
    for learner, sign in (("rloo", 1), ("grpo", -1)):  # lesson 9
        for metric in ("score", "kl_deployed"):
            assert sign * (draws(learner, metric) - draws("ppo_kl_default", metric)).mean() > 0.01, (learner, metric)
    for learner in ("reinforce", "rloo", "grpo"):
        assert mean_interval(draws(learner, dearer) - draws("ppo_kl_default", dearer)).low <= 0, learner
    assert np.allclose(draws("ppo_kl_default", "learning_rate") / draws("grpo", "learning_rate"), 8)
    free, held = ({m: draws(c, m) for m in ("score", "judge", "distinct_2")} for c in ("ppo_kl_0", "ppo_kl_default"))
    rose = free["judge"] >= held["judge"]  # lesson 10
    assert (free["score"] > held["score"]).all() and rose.any() and not rose.all()
    assert (free["distinct_2"][rose] < 0.5 * held["distinct_2"][rose]).all()


def test_what_lesson_7_says_of_the_tables_of_follow_up_in_words_is_so():
    def moved(learner: str, metric: str):
        return mean_interval(
            draws(learner, metric, profile="follow_up") - draws("ppo_kl_default", metric, profile="follow_up")
        )

    a2c, trpo = ({m: moved(name, m) for m in ("score", "kl_deployed", "wobble")} for name in ("a2c", "trpo"))
    assert a2c["score"].low < 0 < a2c["score"].high and a2c["kl_deployed"].high < 0 < a2c["wobble"].low
    assert trpo["score"].high < 0 < trpo["kl_deployed"].low
    ends = {name: draws(f"numbers_{name}", "score", profile="follow_up").mean() for name in ("trpo", "a2c", "ppo")}
    assert 0.01 < min(ends["a2c"], ends["ppo"]) - ends["trpo"] < 0.05
    bounds = json.loads(read_text(standing(lesson.REPORTS / "follow_up", CONDITIONS)))
    assert [bounds[name]["learner"]["kl_bound"] for name in ("trpo", "numbers_trpo")] == [0.05, 0.1]


def test_what_lesson_13_says_of_the_leaderboard_in_words_is_so():
    rows = csv.DictReader(lzma.open(lesson.REPORTS / "grue/leaderboard.csv.xz", "rt", encoding="utf-8"))
    found = {(r["condition"], r["column"]): float(r["mean"]) for r in rows if r["task"] == "common_gen"}
    grammar, coverage, judge = (found["ppo_kl_0", f"judge/{name}"] for name in ("grammar", "coverage", "judge"))
    assert grammar > 0.5 and 0.2 < coverage < 0.6 and judge < 0.25
    assert found["ppo_kl_0", "reward"] < found["a X the Y in the X", "reward"]


def typed(text: str) -> list[str]:
    """Numbers with decimals, other than a β or γ, in paragraphs about the reports of mini and in a list behind one."""
    parts = text.split("\n\n")
    about = [p for p, before in zip(parts, ["", *parts]) if MINI in p or (p.startswith("- ") and MINI in before)]
    return re.findall(r"(?<![βγ] = )(?<![\d.])[+−]?\d*\.\d+", "\n".join(about))


def test_a_lesson_types_no_number_of_minis_tables():
    """They are made again; what a lesson shows of them is read when it runs, or when the site is built."""
    assert typed("Of reports/mini, β = 0.05:\n\n- +0.30 [−11.01, .34]\n\nElse 0.5.") == ["+0.30", "−11.01", ".34"]
    for name, found in lessons.read(lesson.REPORTS.parent).items():
        assert not [number for text in found.said for number in typed(text)], name


def test_models_go_where_the_variable_says_and_else_to_the_repository(tmp_path, monkeypatch):
    for value, expected in ((str(tmp_path), tmp_path), ("", small.ROOT / ".scratch" / "lessons")):
        monkeypatch.setenv("RLNLP_LESSONS", value)
        assert runpy.run_path(small.__file__)["FOLDER"] == expected
