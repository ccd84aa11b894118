"""How pilots choose settings, on numbers planted for it; and that `settle` and `reviews` have what theirs chose."""

from pathlib import Path

import pandas as pd
import pytest

from workbook.results import choosing
from workbook.results.results import Results, load
from workbook.runs import checks

ROOT = Path(__file__).parents[1]
HUMAN = {0.0004: 1.85, 0.0008: 1.9, 0.0016: 2.0, 0.0032: 2.5}  # the untrained model: 1.85


@pytest.fixture(scope="module")
def params():
    return checks.load(ROOT / "profiles/pilot/params.yaml")


def planted(params, **scores: float) -> Results:
    """Faster is better, and forgets human text: over 0.0008 by more than 0.1. PPO's gain over 0.5 is halved by 0.1 of
    beta. scores: of conditions that are different."""
    rows, configs = [], {}
    for condition in params.all_runs:
        config, run = params.learner_config(condition), params.run(condition)
        rate, trained = config.learning_rate, bool(config.updates)
        score = 0.5 + trained * (0.4 * 0.5 ** (10 * config.kl_coef) + 10 * rate)
        rows += [
            {
                "condition": condition,
                "seed": seed,
                "split": "test",
                "decoding": "plain",
                "score": scores.get(condition, score) + 0.01 * seed,
                "generation_log_perplexity": 2.0,
                "human_log_perplexity": HUMAN.get(rate, 1.85) if trained else 1.85,
            }
            for seed in params.seeds
        ]
        configs[condition] = {"run": run.model_dump(mode="json"), "learner": config.model_dump(mode="json")}
    return Results(params, pd.DataFrame(rows), pd.DataFrame(), {}, {}, configs, {}, {}, {})


def test_a_rate_is_the_best_of_those_that_leave_language_as_it_was(params):
    results = planted(params)
    assert choosing.rates(results) == dict.fromkeys(("ppo", "nlpo", "a2c", "reinforce", "grpo"), 0.0008)
    with pytest.raises(ValueError, match="grpo: expected a choice within the rates tried, .* found 5e-05"):
        choosing.rates(planted(params, grpo_lr_005=0.99))
    assert choosing.rates(planted(params, grpo_lr_04=0.99))["grpo"] == 0.0004


def test_the_strength_leaves_the_share_that_the_papers_runs_keep(params):
    results = planted(params)
    start, end, rate = 0.5, 0.9 + 0.008, 0.008
    expected = {b: (0.4 * 0.5 ** (10 * b) + rate) / (end - start) for b in (0.05, 0.1, 0.2, 0.4)}
    assert choosing.strengths(results) == pytest.approx(expected)
    assert choosing.SHARE == pytest.approx((0.116 / 0.358 + 0.148 / 0.37) / 2)
    assert choosing.strength(results) == min(expected, key=lambda b: abs(expected[b] - choosing.SHARE)) == 0.2
    assert choosing.strength(planted(params, ppo_kl_010=0.65)) == 0.1
    with pytest.raises(ValueError, match="beta: expected a choice within those tried, 0.05, 0.1, 0.2, 0.4; found 0.4"):
        choosing.strength(planted(params, ppo_kl_040=0.65))


def test_the_strength_is_tried_at_the_rate_that_was_chosen(params, monkeypatch):
    monkeypatch.setattr(choosing, "WORSE", 0.2)  # so that 0.0016 is allowed, at which two betas were run
    with pytest.raises(ValueError, match=r"PPO at 0.0016: .* found \[0.0, 0.2\]"):
        choosing.strength(planted(params))


def test_the_registered_settings_are_those_that_the_pilots_tables_choose(params):
    for pilot, counted in ((params, "settle"), (checks.load(ROOT / "profiles/reviews_pilot/params.yaml"), "reviews")):
        results, settled = load(pilot, list(pilot.all_runs)), checks.load(ROOT / f"profiles/{counted}/params.yaml")
        rates = choosing.rates(results)
        assert {name: settled.algorithm_config(name).learning_rate for name in rates} == rates
        assert settled.learner["kl_coef"] == choosing.strength(results)
        assert not {*pilot.seeds, *pilot.draws} & {*range(101, 133), *settled.seeds}  # its draws are nobody else's
