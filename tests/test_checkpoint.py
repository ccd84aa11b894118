"""What a resume needs is kept, whatever a state is made of: through a file, and to the same numbers as without a
stop."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from rlnlp import checkpoint
from rlnlp.learners import dqn, nlpo, ppo, sac, trpo
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


def test_a_state_of_another_learner_is_refused():
    tensors, numbers = checkpoint.pack(ppo.init(gpt2(), ppo.Config(), 1))
    with pytest.raises(
        ValueError,
        match=r"checkpoint: expected one of rlnlp\.learners\.dqn\.State, of this version; got one without mask_model$",
    ):
        checkpoint.unpack(dqn.init(gpt2(), dqn.Config(), 1), tensors, numbers)


def test_a_state_of_a_model_of_another_size_is_refused():
    config = ppo.Config()
    tensors, numbers = checkpoint.pack(ppo.init(gpt2(), config, 1))
    state = ppo.init(gpt2(vocabulary=60), config, 1)
    before = [weight.clone() for weight in state.policy.parameters()]
    with pytest.raises(ValueError, match=r"wte\.weight: expected \[60, 32\] of .*, got \[50, 32\]"):
        checkpoint.unpack(state, tensors, numbers)
    assert all(map(torch.equal, before, state.policy.parameters()))


def networks(state) -> list[nn.Parameter]:
    return [*state.policy.parameters(), *state.value.parameters()]


def layers_frozen(*layers: int):
    policy = gpt2()
    for layer in layers:
        policy.transformer.h[layer].requires_grad_(False)
    return policy


@pytest.mark.parametrize("updates", [0, 1])
@pytest.mark.parametrize("learner", [ppo, trpo])
@pytest.mark.parametrize(("then", "now"), [((), (0,)), ((0,), ()), ((0,), (1,))])
def test_moments_are_never_those_of_another_weight(then, now, learner, updates):
    """Equal numbers of weights of equal shapes, where another layer is frozen."""
    config = learner.Config(updates=updates, episodes_per_update=8, max_new_tokens=4)
    state = learner.init(layers_frozen(*then), config, 1)
    list(learner.train(state, prompts(), score, config))
    tensors, numbers = checkpoint.pack(state)
    other = learner.init(layers_frozen(*now), config, 1)
    before = [weight.clone() for weight in other.policy.parameters()]
    with pytest.raises(ValueError, match="policy: expected the weights to be frozen"):
        checkpoint.unpack(other, tensors, numbers)
    assert all(map(torch.equal, before, other.policy.parameters())) and not other.optimizer.state
    checkpoint.unpack(same := learner.init(layers_frozen(*then), config, 1), tensors, numbers)
    mine, its = ([s.optimizer.state.get(w, {}) for w in networks(s)] for s in (same, state))
    assert all(torch.equal(a[k], b[k]) for a, b in zip(mine, its, strict=True) for k in b)
    assert any(mine) == bool(updates)


@dataclasses.dataclass
class Own:
    policy: nn.Module
    rate: float
    seen: torch.Tensor
    optimizer: torch.optim.Optimizer


def test_numbers_and_tensors_of_a_state_of_ones_own_are_kept(tmp_path):
    def fresh(rate, seen):
        policy, extra = nn.Linear(2, 2), nn.Parameter(torch.ones(3))  # a weight of no network, as SAC's own alpha
        return Own(policy, rate, torch.tensor(seen), torch.optim.Adam([*policy.parameters(), extra]))

    state, other, short = fresh(float("inf"), [1.0, 2.0]), fresh(0.5, [0.0, 0.0]), fresh(0.5, [0.0])
    for weight in state.optimizer.param_groups[0]["params"]:
        weight.grad = torch.full_like(weight, 0.5)
    state.optimizer.step()
    checkpoint.unpack(other, *through_a_file(tmp_path, state))
    assert other.rate == float("inf") and other.seen.tolist() == [1.0, 2.0]
    extra = other.optimizer.state[other.optimizer.param_groups[0]["params"][-1]]
    assert extra["step"] == 1 and extra["exp_avg"].tolist() == pytest.approx([0.05] * 3)
    with pytest.raises(ValueError, match=r"seen: expected \[1\] of .*Own, got \[2\]"):
        checkpoint.unpack(short, *checkpoint.pack(state))
    with pytest.raises(ValueError, match="expected one of .*Own, of this version; got one without optimizer.trained"):
        checkpoint.unpack(other, checkpoint.pack(state)[0], {})
    assert other.seen.tolist() == [1.0, 2.0] and short.seen.tolist() == [0.0]


@dataclasses.dataclass
class Counted:
    policy: nn.Module
    optimizer: torch.optim.Optimizer
    best: float | None = None
    count: object = 0
    seen: torch.Tensor | None = None
    chosen: bool = False


def counted(optimizer=torch.optim.Adam, **more) -> Counted:
    torch.manual_seed(0)
    policy = nn.Linear(3, 2)
    return Counted(policy, optimizer(policy.parameters(), lr=0.1), **more)


def step(state: Counted) -> list[torch.Tensor]:
    state.policy(torch.ones(1, 3)).square().sum().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    return [weight.detach().clone() for weight in state.policy.parameters()]


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.Adam, torch.optim.SGD, torch.optim.Adafactor, torch.optim.RMSprop],
    ids=lambda o: o.__name__,
)
def test_an_optimiser_goes_on_whatever_the_shapes_of_its_moments(tmp_path, optimizer):
    """Adafactor keeps a row's and a column's."""
    state, other = counted(optimizer), counted(optimizer)
    step(state)
    checkpoint.unpack(other, *through_a_file(tmp_path, state))
    assert all(map(torch.equal, step(state), step(other)))


def test_moments_of_another_optimiser_are_refused():
    state, other = counted(torch.optim.SGD), counted()
    step(state)
    with pytest.raises(ValueError, match="optimizer: expected the optimiser, of the weights that it was saved with"):
        checkpoint.unpack(other, *checkpoint.pack(state))


def test_a_number_may_change_its_kind(tmp_path):
    state, other = counted(best=1.5, count=np.float32(0.25), chosen=True), counted()
    checkpoint.unpack(other, *through_a_file(tmp_path, state))
    assert (other.best, other.count, other.chosen) == (1.5, 0.25, True)
    checkpoint.unpack(other, *through_a_file(tmp_path, counted(count=np.int64(2**53 + 1))))
    assert (other.best, other.count, other.chosen) == (None, 2**53 + 1, False)


def test_a_tensor_that_a_fresh_state_has_no_place_for_is_not_dropped():
    with pytest.raises(ValueError, match="Counted, of this version; got one without seen"):
        checkpoint.unpack(counted(), *checkpoint.pack(counted(seen=torch.ones(2))))


def test_a_replay_that_does_not_fit_is_refused_before_anything_changes():
    config = dqn.Config(**SMALL, warm_up=1, batch_size=8)
    state = dqn.init(gpt2(), config, 1)
    list(dqn.train(state, prompts(), score, config))
    assert len(state.replay) > (few := 8 * 5)
    other = dqn.init(gpt2(), config.replace(buffer=few), 1)
    before = [weight.clone() for weight in other.policy.parameters()]
    with pytest.raises(ValueError, match=rf"replay: \d+ saved tokens do not fit into {few}"):
        checkpoint.unpack(other, *checkpoint.pack(state))
    tensors, numbers = checkpoint.pack(state)
    del tensors["replay.lengths"]
    with pytest.raises(ValueError, match=r"replay\.lengths: expected a tensor of .*, got no such tensor"):
        checkpoint.unpack(other, tensors, numbers)
    assert all(map(torch.equal, before, other.policy.parameters())) and not len(other.replay) and other.update == 0
