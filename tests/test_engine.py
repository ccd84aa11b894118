"""An engine does what is written by other means: the same bits where it can, else within stated bounds."""

from __future__ import annotations

import copy

import pytest
import torch

from rlnlp import models, rollout, samplers, shards
from rlnlp.engine import MEAN, RATIO, Engine
from rlnlp.learners import grpo, nlpo, ppo
from rlnlp.learners.common import TrainingError
from rlnlp.precision import in_bf16
from rlnlp.types import generator
from tests.tiny import gpt2, prompts, t5

SETTINGS = {"updates": 2, "episodes_per_update": 8, "max_new_tokens": 6, "learning_rate": 3e-3}


def score(r):
    return (r.responses % 7 == 3).mul(r.mask).sum(1).float(), {}


def trained(module, engine=None, **changes):
    """(weights, metrics of each update) of a short training."""
    policy, config = gpt2(), module.Config(**{**SETTINGS, **changes})
    if engine is not None:
        engine.install(policy)
    state = module.init(policy, config, 3)
    if engine is not None:
        state.engine = engine
    found = list(module.train(state, prompts(16), score, config))
    return torch.cat([w.detach().flatten() for w in policy.parameters()]), found


@pytest.mark.parametrize("module", [ppo, nlpo, grpo])
def test_an_engine_that_changes_nothing_gives_the_same_bits(module):
    (weights, metrics), (ours, found) = trained(module), trained(module, Engine())
    assert torch.equal(weights, ours) and metrics == found


def test_no_step_is_taken_after_a_loss_that_is_not_finite():
    def spoilt(state, batch, config):
        loss, metrics = ppo.minibatch_loss(state, batch, config)
        return loss * (float("nan") if len(calls.append(1) or calls) == 2 else 1.0), metrics

    ends = []
    for engine in (None, Engine()):
        calls, policy, config = [], gpt2(), ppo.Config(**SETTINGS)
        state = ppo.init(policy, config, 3)
        seen = ppo.collect(state, prompts(8), score, config)
        if engine is not None:
            state.engine = engine
        with pytest.raises(TrainingError, match="update 1: the loss is nan; examples of this minibatch: example"):
            ppo.update(state, seen, config, spoilt)
        ends.append(torch.cat([w.detach().flatten() for w in policy.parameters()]))
    assert torch.equal(*ends)


@pytest.mark.parametrize("make", [gpt2, t5])
def test_in_bf16_weights_logits_and_gradients_stay_fp32_in_every_copy(make):
    policy = in_bf16(make())
    other, batch = copy.deepcopy(policy), prompts(4)
    drawn = rollout.sample(make(), batch, rollout.sampling_from(policy, 5), generator())
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    hidden = models.hidden_states(policy, drawn)
    logits = models.head(policy, hidden)
    assert hidden.dtype == logits.dtype == torch.float32
    exact = models.hidden_states(make(), drawn)
    assert 1e-4 < (hidden - exact).abs().max() < 0.3 and not torch.equal(logits, models.head(other, hidden))
    logits.sum().backward()
    assert all(w.grad.dtype == torch.float32 for w in policy.parameters() if w.grad is not None)


def test_bf16_trains_within_stated_bounds_and_says_how_far_the_sampler_was_off():
    _, found = trained(ppo, Engine("bf16"))
    for metrics in found:
        assert 0 < metrics["rollout/mismatch"] < MEAN and metrics["policy/first_ratio_error"] < RATIO["bf16"]
    far = Engine("bf16")
    far.mismatch = {"rollout/mismatch": 2 * MEAN, "rollout/mismatch_most": 0.1}
    with pytest.raises(TrainingError, match="in bf16 the sampler's log-probabilities are off"):
        far.report()


@pytest.mark.parametrize("module", [ppo, grpo])
def test_shards_change_rounding_alone(module):
    whole, cut = trained(module)[0], trained(module, Engine(shards=4, mean_over=module.ABOUT.mean_over))[0]
    assert not torch.equal(whole, cut)
    torch.testing.assert_close(whole, cut, atol=2e-5, rtol=0)


def test_branches_of_the_tree_may_be_added_by_others():
    parts = [torch.randn(50, generator=generator(i)) * 10**i for i in range(8)]
    whole = shards.tree(list(parts))
    for W in (1, 2, 4, 8):
        each = 8 // W
        assert torch.equal(whole, shards.tree([shards.tree(parts[r * each : (r + 1) * each]) for r in range(W)]))
    assert not torch.equal(whole, sum(parts))


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(ValueError, match="expected a learner with ppo's update"):
        Engine(shards=2)
    with pytest.raises(ValueError, match="expected a power of two"):
        Engine(shards=3, mean_over="tokens")
    engine, policy = Engine(shards=2, mean_over="tokens"), gpt2()
    policy.engine = engine
    sampling = rollout.sampling_from(policy, 4)
    with pytest.raises(ValueError, match="a multiple of 2 episodes, got 3"):
        rollout.sample(policy, prompts(3), sampling, generator())
    with pytest.raises(ValueError, match="without random numbers"):
        rule = samplers.random_mass(0.5, generator())
        rollout.sample(policy, prompts(4), sampling, generator(), rule)
    with engine.uncut():
        assert len(rollout.sample(policy, prompts(3), sampling, generator())) == 3
