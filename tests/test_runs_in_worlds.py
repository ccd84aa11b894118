"""Runs in small worlds: their own model, their own reward, and what their identities hold."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from tests.built import SMALL, change_data, change_weights, given, run, write_params
from tests.executed import reached
from workbook.draws import named
from workbook.runs import checks, experiment
from workbook.runs.draw import load_draw
from workbook.runs.settings import Run
from workbook.store import tables


# worlds --------------------------------------------------------------------------------------------------------------
def ascending(text: str) -> float:
    """The share of a text's neighbouring numbers that ascend."""
    numbers = [int(word) for word in text.split()]
    return sum(b > a for a, b in zip(numbers, numbers[1:])) / 19


def test_a_run_in_a_world_starts_from_its_model_and_is_measured_by_its_reward(world):
    shutil.rmtree(world / "tune")  # nothing is searched there
    more = {"runs.numbers_prefix": {"algorithm": "ppo", "world": "numbers", "reward": "prefix_token"}}
    for condition in ("numbers_ppo", "numbers_prefix"):
        experiment.run_condition(given(world, condition, **more), world / "runs" / condition)
    rows, other = (tables.read_table(world / "runs" / c / "per_seed.csv") for c in ("numbers_ppo", "numbers_prefix"))
    assert {(r["split"], r["decoding"]) for r in rows} == {
        ("test", "plain"),
        ("test", "top_p"),
        ("test", "own"),
        ("half", "plain"),
        ("half", "own"),
    }
    samples = [json.loads(line) for line in (world / "runs/numbers_ppo/samples.jsonl").read_text().splitlines()]
    assert samples and all(s["score"] == pytest.approx(ascending(s["response"])) and s["prompt"] == "" for s in samples)
    assert all(len(s["response"].split()) <= 20 for s in samples) and all(
        r["length"] == 20 for r in rows
    )  # padding is not shown
    for row in rows:
        assert row["judge"] is row["judge_2"] is row["score_response"] is row["human_log_perplexity"] is None
        assert row["training_score"] == row["score"]
    plain, prefix = rows[0], other[0]
    assert plain["tokens_per_gradient_step"] == 8 * 20 / 4  # 8 episodes, 2 epochs of 2 minibatches
    curve = tables.read_table(world / "runs/numbers_ppo/curves.csv")
    assert plain["rollout_score"] == pytest.approx(sum(r["objective/score"] for r in curve[-3:]) / 3)
    assert prefix["training_score"] != prefix["score"]  # measured by the world's default reward all the same
    samples = [json.loads(line) for line in (world / "runs/numbers_prefix/samples.jsonl").read_text().splitlines()]
    assert all(s["score"] == pytest.approx(ascending(s["response"])) for s in samples)
    zero = tables.read_table(run(world, "numbers_zero_shot") / "per_seed.csv")[0]
    assert abs(zero["kl"]) < 1e-6 and zero["generation_log_perplexity"] > 0 and zero["tokens_per_gradient_step"] is None
    draw = load_draw(params := given(world, "numbers_ppo"), 1, params.run)
    assert draw.evaluator is None  # the policy as it begins
    with pytest.raises(ValueError, match="start"):
        checks.load(world / "params.yaml", **{"continued.more": {"algorithm": "ppo", "start": "numbers_ppo"}})


def test_a_reward_in_a_world_is_paid_as_its_name_says(world):
    params = given(world, "numbers_ppo")
    from tests.tiny import as_rollout

    numbers = (3, 7, 5, 9)
    for reward, paid in {
        "reward": [0, 1 / 19, 0, 1 / 19],
        "pairs_end": [2 / 19],
        "prefix": [2 / 10],
        "prefix_token": None,
    }.items():
        draw = load_draw(params, 1, params.run.replace(reward=reward))
        ids = draw.tokenizer.convert_tokens_to_ids([str(n) for n in numbers])
        scores, _ = draw.score(as_rollout([tuple(ids)], torch.tensor([0] * 5), 4))
        if paid:
            assert scores.flatten().tolist() == pytest.approx(paid), reward
        else:
            assert scores.shape == (1, 4) and scores.sum().item() == pytest.approx(2 / 10)


def world_weights(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "worlds/draw1/numbers/model.safetensors"
    save_file({k: v * 1.01 for k, v in load_file(path).items()}, path, metadata={"format": "pt"})


def world_settings(folder):
    write_params(
        folder,
        worlds={
            "numbers": {
                "texts": 100,
                "steps": 30,
                "sampling": {"max_new_tokens": 20, "min_new_tokens": 20},
                "learner": {"gamma": 0.5},
            }
        },
    )


@pytest.mark.parametrize(
    "change, reviews, numbers",
    [
        (world_weights, False, True),
        (world_settings, False, True),
        (change_data, True, False),
        (change_weights("policy"), True, False),
        (lambda folder: write_params(folder, reward_model={"width": 16, "positive_label": 0}), True, False),
        (lambda folder: write_params(folder, evaluation={"samples": 3}), True, True),
        (lambda folder: write_params(folder, task={**SMALL["task"], "test_prompts": 7}), False, True),
        (lambda folder: write_params(folder, task={**SMALL["task"], "judge_reviews": 11}), False, False),
    ],
)
def test_a_fingerprint_holds_what_a_run_depends_on_and_nothing_else(world, change, reviews, numbers):
    """Of reviews and of numbers. How many prompts of reviews there are, a run sees in the files of its draw."""

    def keys() -> list[dict[str, str]]:
        both = [given(world, condition) for condition in ("ppo_kl_default", "numbers_ppo")]
        return [experiment.inputs(params, 1, params.run, params.learner) for params in both]

    before = keys()
    change(world)
    assert [a != b for a, b in zip(before, keys())] == [reviews, numbers]


def test_the_code_of_worlds_counts_in_worlds_only():
    def names(**run) -> set[str]:
        return reached(*experiment.code_of(Run(**run), "" if run.get("world") else "generated_reviews"))

    inside, outside = names(algorithm="ppo", world="numbers"), names(algorithm="ppo")
    judges = reached([*named.roots("grammar", named.LOADED), *named.roots("characters", named.LOADED)])
    assert "workbook.runs.draw:load_world" in inside - outside and outside - inside <= judges  # a world has none
    dqn = names(algorithm="dqn")
    assert "rlnlp.offpolicy.td:targets" in dqn - outside and "rlnlp.learners.dqn:train" in dqn - outside
