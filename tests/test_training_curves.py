"""What curves of training say, on a curve of six updates and two seeds that is worked by hand."""

from types import SimpleNamespace

import pandas as pd
import pytest

from workbook.results import training
from workbook.results.results import Results

SCORES = {1: (0.1, 0.2, 0.5, 0.4, 0.3, 0.6), 2: (0.0, 0.1, 0.0, 0.2, 0.6, 0.7)}
LENGTHS = {1: (5, 5, 4, 4, 4, 2), 2: (7, 7, 6, 6, 6, 4)}


def results(learner=(), synced=(1, 3, 5), **columns) -> Results:
    """A run `masked`, its seeds in the other order, and a run `other` without what is measured."""
    rows = [
        {
            "condition": "masked",
            "seed": seed,
            "update": u + 1,
            "objective/score": SCORES[seed][u],
            "episodes/length": LENGTHS[seed][u],
            "nlpo/synced": float(u + 1 in synced),
            **{name.replace("_", "/", 1): values[u] for name, values in columns.items()},
        }
        for seed in (2, 1)
        for u in range(6)
    ]
    rows += [{"condition": "other", "seed": seed, "update": 2, "nlpo/synced": None} for seed in (1, 2)]
    configs = {"masked": {"learner": {"episodes_per_update": 10, **dict(learner)}}, "other": {"learner": {}}}
    params = SimpleNamespace(seeds=(1, 2))
    return Results(params, pd.DataFrame(), pd.DataFrame(rows), {}, {}, configs, {}, {}, {})


def test_refreshes_are_those_after_the_first_update_each_once():
    assert training.syncs(results(), "masked") == [3, 5] and training.syncs(results(), "other") == []
    without = results()
    without.curves.drop(columns="nlpo/synced", inplace=True)
    assert training.syncs(without, "masked") == []


def test_the_last_cycle_is_the_mean_of_the_last_updates_seed_by_seed():
    assert training.last_cycle(results(), "masked", 2).tolist() == pytest.approx([0.45, 0.65])
    assert training.last_cycle(results(), "masked", 3).tolist() == pytest.approx([1.3 / 3, 0.5])
    assert training.last_cycle(results(), "other", 2) is None


def test_a_dip_is_the_change_right_after_a_refresh_seed_by_seed():
    assert training.dip(results(), "masked").tolist() == pytest.approx([0.1, 0.15])  # of .3 and -.1; -.1 and .4
    assert training.dip(results(synced=(1,)), "masked") is None and training.dip(results(), "other") is None


def test_tokens_used_are_those_of_all_episodes_so_far():
    used = training.used(results(), "masked", "tokens")
    assert used.to_dict() == {1: 60, 2: 120, 3: 170, 4: 220, 5: 270, 6: 300}
    assert training.used(results(), "other", "tokens") is None


@pytest.mark.parametrize(
    "learner, columns, each",
    [
        ({}, {}, [1] * 6),
        ({"epochs": 2, "minibatches": 4}, {}, [8] * 6),
        ({"gradient_steps": 3, "epochs": 2}, {}, [3] * 6),
        ({"gradient_steps": 3}, {"dqn_gradient_steps": (0, 0, 4, 4, 4, 4)}, [0, 0, 4, 4, 4, 4]),
    ],
)
def test_gradient_steps_used_are_reported_ones_or_those_of_the_settings(learner, columns, each):
    used = training.used(results(learner, **columns), "masked", "gradient_steps")
    assert used.tolist() == [sum(each[: u + 1]) for u in range(6)]
