"""The study of P29 from end to end, tiny: policies write, raters compare, a reward is learned, RL, raters compare again."""

from __future__ import annotations

import json

import pytest
import torch

from rlnlp import lesson, preference_model, preferences as p, study
from rlnlp.learners import ppo
from rlnlp.preferences import Choice, Pair, PreferenceError
from rlnlp.widgets import annotate

TINY = {"pairs": 24, "comparisons": 10, "updates": 1, "episodes": 8, "epochs": 1, "simulated": 5}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return lesson.start(reviews=60, steps=3, folder=tmp_path_factory.mktemp("lessons"))


@pytest.fixture(scope="module")
def done(start, tmp_path_factory):
    """(folder, result) of one whole study with simulated raters."""
    folder = tmp_path_factory.mktemp("study") / "seed0"
    return folder, study.run(start, study.Config(**TINY), 0, folder)


def test_the_whole_study_runs_unattended_and_leaves_its_items_and_ratings(done):
    folder, row = done
    for name, systems in (
        ("first", {study.BASE, study.TASK}), ("second", {study.TASK, study.BOTH}), ("control", {study.TWICE, study.BOTH}),
    ):
        pairs = p.load(folder / f"{name}.jsonl", Pair)
        choices = p.load(folder / f"{name}_simulated.jsonl", Choice)
        assert {pair.first_system for pair in pairs} | {pair.second_system for pair in pairs} == systems
        assert len(p.checked(choices, pairs)) == 3 * len(pairs) and all(c.rater.startswith("simulated-") for c in choices)
        assert 0 < sum(pair.first_system == min(systems) for pair in pairs) < len(pairs), "sides are drawn"
    assert row["raters"] == "simulated" and row["judgements"] == 3 * row["pairs"] and -1 <= row["alpha"] <= 1
    for other in (study.TASK, study.TWICE):
        wins, losses, ties = (row[f"over {other}: {name}"] for name in ("wins", "losses", "ties"))
        share, low, high = (row[f"over {other}: {name}"] for name in ("share", "low", "high"))
        assert share == pytest.approx((wins + ties / 2) / (wins + losses + ties)) and low <= share <= high
    assert abs(row[f"{study.BASE}: kl"]) < 1e-6 < row[f"{study.BOTH}: kl"]
    assert 0 <= row["accuracy"] <= 1 and 0 <= row["auc"] <= 1 and row["held_out_pairs"] > 0


def test_wins_are_counted_for_the_arm_with_preferences_whatever_its_name_sorts_to(done):
    folder, row = done
    pairs = {pair.id: pair for pair in p.load(folder / "control.jsonl", Pair)}
    choices = p.load(folder / "control_simulated.jsonl", Choice)
    won = sum(getattr(pairs[c.item], f"{c.chosen}_system", "") == study.BOTH for c in choices)
    assert won == row[f"over {study.TWICE}: wins"]


def test_the_arms_differ_in_their_reward_alone(done, start):
    learned = preference_model.load(done[0] / "preference_model")
    arms, texts = study.arms(start, learned, study.Config(**TINY)), (["the plot is"] * 2, ["superb .", "dull ."])
    task, preferred = start.reward(*texts), preference_model.reward(learned)(*texts)
    torch.testing.assert_close(arms[study.TASK](*texts), task)
    torch.testing.assert_close(arms[study.TWICE](*texts), 2 * task)
    torch.testing.assert_close(arms[study.BOTH](*texts)[0], task + preferred)
    assert set(study.arms(start, learned, study.Config(**TINY, control=False))) == {study.TASK, study.BOTH}


def test_a_finished_study_is_only_read_and_other_settings_are_refused(done, start, monkeypatch):
    folder, row = done
    monkeypatch.setattr(ppo, "train", lambda *a: pytest.fail("trained again"))
    assert study.run(start, study.Config(**TINY), 0, folder) == row
    with pytest.raises(PreferenceError, match="holds a study of other settings"):
        study.run(start, study.Config(**TINY | {"pairs": 25}), 0, folder)


def test_the_same_seed_gives_the_same_study(done, start, tmp_path):
    assert study.run(start, study.Config(**TINY), 0, tmp_path / "again") == done[1]


def test_numbers_are_summarised_over_seeds_and_the_figure_says_simulated(done):
    row = done[1]
    rows = study.summary([row, {**row, "seed": 1, "accuracy": row["accuracy"] + 0.1}])
    assert rows.loc["accuracy", "mean"] == pytest.approx(row["accuracy"] + 0.05) and rows.loc["accuracy", "seeds"] == 2
    assert "over task: share" in rows.index and not {"over task: p", "over task: p_naive", "over task: low"} & set(rows.index)
    assert rows.loc["accuracy", "low"] < rows.loc["accuracy", "mean"] < rows.loc["accuracy", "high"]
    figure = study.picture([row])
    texts = [axis.get_xlabel() for axis in figure.axes]
    assert len(texts) == 2 and all("simulated raters" in text for text in texts) and "simulated" in figure.get_label()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_people_it_waits_for_their_ratings_and_goes_on(start, tmp_path):
    config = study.Config(**TINY | {"pairs": 12, "each": 2, "control": False})
    for name in ("first", "second"):
        with pytest.raises(study.Waiting, match=rf"ratings of .*{name}.jsonl are missing") as told:
            study.run(start, config, 0, tmp_path, raters="people")
        assert "annotate.pairs" in str(told.value)
        items = p.load(tmp_path / f"{name}.jsonl", Pair)
        for rater, keys in (("ann", "121"), ("bob", "120")):
            widget = annotate.pairs(items, tmp_path / f"{name}_{rater}.jsonl", rater)
            while not widget.done:
                widget.press(keys[widget.place % 3])
    row = study.run(start, config, 0, tmp_path, raters="people")
    assert row["raters"] == "people" and f"over {study.TASK}: share" in row and f"over {study.TWICE}: share" not in row
    assert not list(tmp_path.glob("*simulated*")) and "simulated" not in study.picture([row]).get_label()


@pytest.mark.slow
def test_the_command_line_writes_a_summary_and_names_a_wrong_setting(start, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lesson, "start", lambda reviews, steps: start)
    options = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    assert study.main([str(tmp_path), *options, "--control", "false"]) == 0
    assert "simulated raters" in capsys.readouterr().out and (tmp_path / "shares.png").exists()
    assert "accuracy" in (tmp_path / "summary.csv").read_text() and "p_naive" in (tmp_path / "per_seed.csv").read_text()
    assert json.loads((tmp_path / "seed0/study.json").read_text())["config"]["control"] is False
    assert study.main([str(tmp_path / "x"), "--pairs", "2"]) == 1 and "pairs" in capsys.readouterr().err
    assert study.main([str(tmp_path / "y"), *options, "--control", "false", "--raters", "people"]) == 0
    assert "annotate.pairs" in capsys.readouterr().out
