"""A run that cannot begin, or breaks: what is said, and what is kept."""

from __future__ import annotations

import re
import shutil

import pytest
import torch

from rlnlp.learners.common import Diverged, TrainingError
from tests.built import WITHOUT_VARIANTS, given, run, write_params
from workbook.draws import base
from workbook.runs import algorithms, checks, experiment, measure
from workbook.runs.draw import load_draw
from workbook.store import states, tables


def test_a_reward_that_turns_nan_names_update_examples_and_checkpoint(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    (world / "bad.py").write_text(
        "calls = []\ndef nan_later(prompts, responses, references, meta):\n    calls.append(1)\n"
        "    return [float('nan') if len(calls) > 10 else 1.0 for _ in responses]\n"
    )
    write_params(world, bring={"reward": "bad.py:nan_later"}, **WITHOUT_VARIANTS)
    params = checks.load(world / "params.yaml")
    for draw in params.draws:
        base.build(params, draw, world / "data" / f"draw{draw}", world / "models" / f"draw{draw}", params.scratch)
    with pytest.raises(TrainingError) as error:
        run(world)
    message = str(error.value)
    assert re.search(r"ppo_kl_default seed 1: update 8: .*nan_later.*draw1/prompts_train/\d+", message, re.S), message
    assert re.search(r"Last good checkpoint: update 7, in .*checkpoint", message)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda w: shutil.rmtree(w / "models" / "draw1"), r"models/draw1: no such folder; run the stage models@1"),
        (
            lambda w: shutil.rmtree(w / "variants" / "draw1"),
            r"variants/draw1: no such folder; run the stage variants@1",
        ),
        (lambda w: (w / "data/draw1/prompts_train.jsonl").write_text(""), r"prompts_train"),
        (lambda w: (w / "tune/ppo.json").unlink(), r"tune/ppo.json: no such file; run the stage tune@ppo"),
        (
            lambda w: shutil.rmtree(w / "worlds" / "draw1"),
            r"worlds/draw1/numbers: no such folder; run the stage worlds@1",
        ),
    ],
)
def test_what_is_missing_is_said_before_training(world, trainings, spoil, message):
    spoil(world)
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        run(world, "numbers_ppo" if "worlds" in message else "ppo_kl_default")
    assert not trainings


def test_a_run_that_says_so_may_end_at_a_number_that_is_not_finite_and_is_measured_as_it_was(world, monkeypatch):
    """Such an end is what the dropout ablation counts; before half the updates both splits see the same policy."""
    from workbook.arms import dropout

    real = dropout.update
    monkeypatch.setattr(
        dropout,
        "update",
        lambda state, seen, settings: real(state, seen, settings) if state.update < 2 else explode(state),
    )

    def explode(state):
        raise Diverged(f"update {state.update + 1}: the loss is nan")

    rows = tables.read_table(run(world, "dropout_update_010") / "per_seed.csv")
    assert {r["split"] for r in rows} == {"test", "half"} and all(r["diverged"] == 1 for r in rows)
    assert all(0 <= r["score"] <= 1 for r in rows)


def test_a_policy_that_is_not_finite_has_rows_without_numbers(world):
    params = given(world, "ppo_kl_default")
    draw = load_draw(params, 1, params.run)
    settings = params.config()
    state = algorithms.module("ppo").init(draw.policy, settings, 1)
    with torch.no_grad():
        next(state.policy.parameters())[0, 0] = float("nan")
    rows, samples = measure.evaluate_state(
        params, draw, state, 1, "test", measure.decodings("ppo", settings, params.evaluation)
    )
    assert [r["decoding"] for r in rows] == ["plain", "top_p", "own"] and not samples
    assert all(r["score"] is None for r in rows)


def test_a_seed_that_fails_does_not_keep_the_others_from_being_trained(world, trainings, monkeypatch):
    write_params(world, seeds=[1, 2])
    params, real = given(world, "ppo_kl_0"), experiment.updates_of

    def fail(params, seed, *given):
        if seed == 1:
            raise TrainingError(f"{params.condition} seed 1: update 3: the loss is nan")
        return real(params, seed, *given)

    monkeypatch.setattr(experiment, "updates_of", fail)
    with pytest.raises(TrainingError, match="1 of 2 seeds failed: ppo_kl_0 seed 1: update 3"):
        experiment.run_condition(params, world / "runs" / "ppo_kl_0")
    assert trainings == ["ppo_kl_0 seed 2"] and not (world / "runs" / "ppo_kl_0").exists()
