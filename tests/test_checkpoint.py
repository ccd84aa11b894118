"""What a resume needs is kept, whatever a state is made of: through a file, and to the same numbers as without a
stop."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from rlnlp import checkpoint
from rlnlp.learners import dqn, nlpo, sac
from tests.tiny import gpt2, prompts
from workbook.store import states


def score(rollout):
    return (rollout.responses == 7).float().sum(1), {}


SMALL = {
    "updates": 6,
    "episodes_per_update": 8,
    "max_new_tokens": 5,
    "gradient_steps": 2,
    "buffer": 90,
}  # old episodes make room
CASES = {
    "dqn": (dqn, dqn.Config(**SMALL, warm_up=1, batch_size=8, explore_rule="top_k", explore_value=9)),
    "sac": (sac, sac.Config(**SMALL, batch_episodes=4)),
}


def through_a_file(folder, state) -> tuple[dict, dict]:
    tensors, numbers = checkpoint.pack(state)
    states.save_state(folder / "checkpoint", tensors, {"numbers": numbers})
    tensors, meta = states.load_state(folder / "checkpoint")
    return tensors, meta["numbers"]


@pytest.mark.parametrize("name", CASES)
def test_a_replay_is_part_of_what_a_resume_needs(tmp_path, name):
    learner, config = CASES[name]
    starts = prompts()
    whole = list(learner.train(learner.init(gpt2(), config, 1), starts, score, config))
    first = learner.init(gpt2(), config, 1)
    steps = learner.train(first, starts, score, config)
    done = [next(steps) for _ in range(3)]
    resumed = learner.init(gpt2(), config, 1)
    checkpoint.unpack(resumed, *through_a_file(tmp_path, first))
    assert len(resumed.replay) == len(first.replay) > 0 and resumed.steps == first.steps
    assert done + list(learner.train(resumed, starts, score, config)) == whole


def test_the_reference_is_not_kept_under_any_name():
    """DQN's mask model is its reference; NLPO's is a copy that training changes."""
    learner, config = CASES["dqn"]
    state = learner.init(gpt2(), config, 1)
    assert state.mask_model is state.reference
    names = {key.partition(".")[0] for key in checkpoint.pack(state)[0]}
    assert names == {"policy", "target", "replay"}
    kept = checkpoint.pack(nlpo.init(gpt2(), nlpo.Config(), 1))[0]
    assert {key.partition(".")[0] for key in kept} == {"policy", "value", "mask_model"}


class Box:
    def __init__(self, numbers):
        self.numbers = torch.tensor(numbers)

    def tensors(self):
        return {"numbers": self.numbers}

    def load_tensors(self, tensors):
        self.numbers = tensors["numbers"]


@dataclasses.dataclass
class Parts:
    policy: nn.Module
    box: Box
    update: int


def test_what_is_packed_does_not_change_with_the_state():
    state, other = Parts(nn.Linear(2, 2), Box([1.0, 2.0]), 3), Parts(nn.Linear(2, 2), Box([0.0, 0.0]), 0)
    tensors, numbers = checkpoint.pack(state)
    state.box.numbers.zero_()
    checkpoint.unpack(other, tensors, numbers)
    assert other.box.numbers.tolist() == [1.0, 2.0] and other.update == 3
    assert other.policy.weight.equal(state.policy.weight)


def test_a_state_of_another_seed_is_refused():
    config = nlpo.Config()
    tensors, numbers = checkpoint.pack(nlpo.init(gpt2(), config, 1))
    with pytest.raises(ValueError, match="expected one of seed 2, got one of seed 1"):
        checkpoint.unpack(nlpo.init(gpt2(), config, 2), tensors, numbers)
