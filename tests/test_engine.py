"""An engine does what is written by other means: the same bits where it can, else within stated bounds."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch

from rlnlp import models, rollout, samplers, shards
from rlnlp.engine import MEAN, MOST, RATIO, ROWS, Engine, guarded_step
from rlnlp.learners import a2c, grpo, nlpo, ppo, reinforce, rloo
from rlnlp.learners.common import TrainingError
from rlnlp.precision import in_bf16
from rlnlp.static_rollout import Truncation
from rlnlp.types import NotFinite, generator
from tests.test_learners import CASES, case, toy
from tests.tiny import gpt2, prompts, t5
from workbook.runs import algorithms

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
    for mean, most in ((2 * MEAN, 0.1), (MEAN / 2, 2 * MOST)):
        far = Engine("bf16", mismatch={"rollout/mismatch": mean}, furthest=most)
        with pytest.raises(TrainingError, match="in bf16 the sampler's log-probabilities are off"):
            far.report()


def test_in_bf16_old_log_probabilities_are_those_of_a_pass_like_trainings():
    policy, batch, engine = gpt2(), prompts(16), Engine("bf16")
    engine.install(policy)
    given = (policy, batch, rollout.sampling_from(policy, 6, temperature=0.8))
    drawn = rollout.sample(*given, generator(1), samplers.top_k(20))
    with torch.no_grad():
        logits = models.head(policy, models.hidden_states(policy, drawn)[drawn.mask]).float()
    tokens = drawn.responses[drawn.mask]
    behavior = models.chosen_logprobs(models.behavior_logits(logits, drawn), tokens)
    assert torch.equal(drawn.behavior_logprobs[drawn.mask], behavior)
    assert torch.equal(drawn.logprobs[drawn.mask], models.chosen_logprobs(logits, tokens))
    del policy.engine
    sampled = rollout.sample(*given, generator(1), samplers.top_k(20))
    off = (sampled.behavior_logprobs - drawn.behavior_logprobs).abs()[drawn.mask]
    assert torch.equal(sampled.responses, drawn.responses) and off.max() > 0
    assert off.mean().item() == pytest.approx(engine.mismatch["rollout/mismatch"])
    assert off.max().item() == engine.furthest


@pytest.mark.parametrize("which", [name for name, (learner, _) in CASES.items() if learner != "dropout"])
def test_learners_that_do_not_need_fp32_are_trained_in_bf16(which):
    module, config, more = case(which, **({} if which == "best_of_n" else {"updates": 2}))
    assert not module.ABOUT.fp32
    policy, engine = gpt2(), Engine("bf16")
    engine.install(policy)
    before = torch.cat([w.detach().flatten() for w in policy.parameters()])
    state = module.init(policy, config, 3, **more)
    state.engine = engine
    found = list(module.train(state, prompts(16), toy, config))
    after = torch.cat([w.detach().flatten() for w in policy.parameters()])
    assert all(math.isfinite(value) for metrics in found for value in metrics.values())
    assert len(found) == config.updates and after.isfinite().all() and torch.equal(before, after) == (not found)


def test_who_needs_fp32_says_so():
    needs = {name for name in algorithms.names() if algorithms.module(name).ABOUT.fp32}
    assert needs == {"trpo", "dqn", "sac", "dropout"}


@pytest.mark.parametrize("module", [ppo, nlpo])
def test_recorded_steps_and_a_truncation_without_sort_draw_the_same_tokens(module):
    """Without a GPU nothing is recorded: the steps' eager twin."""
    policies, found, engine = [gpt2(), gpt2()], [], Engine(static=True)
    engine.install(policies[1])
    for policy in policies:
        config = module.Config(**SETTINGS, top_k=20, top_p=0.8)
        state = module.init(policy, config, 3)
        found.append(module.collect(state, prompts(8), score, config).rollout)
    readable, ours = found
    assert torch.equal(readable.responses, ours.responses) and torch.equal(readable.allowed.bits, ours.allowed.bits)
    torch.testing.assert_close(readable.behavior_logprobs, ours.behavior_logprobs, atol=1e-5, rtol=0)
    (recorded,) = engine.kept.values()
    assert recorded.rules and all(isinstance(rule, Truncation) for _, rule in recorded.rules)
    assert not isinstance(rollout.truncation(20, 0.8), Truncation)  # the readable path's


def test_what_cannot_be_recorded_is_drawn_as_it_is_written():
    for policy, rule in ((gpt2(), samplers.typical(0.8)), (t5(), samplers.top_p(0.8))):
        sampling, drawn, engine = rollout.sampling_from(policy, 5), [], Engine(static=True)
        for _ in range(2):
            drawn.append(rollout.sample(policy, prompts(4), sampling, generator(), rule))
            policy.engine = engine
        assert not engine.kept and torch.equal(drawn[0].behavior_logprobs, drawn[1].behavior_logprobs)


@pytest.mark.parametrize("module", [ppo, nlpo, a2c, reinforce, rloo, grpo])
def test_shards_change_rounding_alone(module):
    """Weights and every metric; responses end early, so that shards have other shares of tokens than of episodes."""
    (whole, alone), (cut, found) = trained(module), trained(module, Engine(shards=4, mean_over=module.ABOUT.mean_over))
    assert not torch.equal(whole, cut)
    torch.testing.assert_close(whole, cut, atol=2e-5, rtol=0)
    first, ours = alone[0], {name: value for name, value in found[0].items() if name in alone[0]}
    assert ours == pytest.approx({name: first[name] for name in ours}, abs=2e-5, nan_ok=True) and len(ours) > 8


@pytest.mark.parametrize(
    "off, words", [(0.5, "ratio of the first minibatch is off 1 by"), (0.0, "bf16|off the scorer")]
)
def test_an_engines_update_refuses_what_the_written_one_does(off, words):
    policy, config = gpt2(), ppo.Config(**SETTINGS)
    state = ppo.init(policy, config, 3)
    seen = ppo.collect(state, prompts(8), score, config)
    seen.rollout.behavior_logprobs.sub_(off)
    state.engine = Engine() if off else Engine(mismatch={"rollout/mismatch": 0.0}, furthest=2 * MOST)
    with pytest.raises(TrainingError, match=words):
        ppo.update(state, seen, config)


def test_no_step_is_taken_with_a_gradient_that_is_not_finite_under_a_loss_that_is():
    policy, config = gpt2(), ppo.Config(**SETTINGS)
    state = ppo.init(policy, config, 3)
    seen = ppo.collect(state, prompts(8), score, config)
    state.engine, before = Engine(), torch.cat([w.detach().flatten() for w in policy.parameters()])

    def steep(state, batch, config):
        loss, metrics = ppo.minibatch_loss(state, batch, config)
        return loss + (0 * loss).sqrt(), metrics  # 0, and its gradient is not a number

    with pytest.raises(TrainingError, match="update 1: the gradient norm is"):
        ppo.update(state, seen, config, steep)
    assert torch.equal(before, torch.cat([w.detach().flatten() for w in policy.parameters()]))


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
    with pytest.raises(ValueError, match="without random numbers"):
        rollout.sample(policy, prompts(4), sampling, generator(), None, gpt2(), rule)
    with engine.uncut():
        assert len(rollout.sample(policy, prompts(3), sampling, generator())) == 3


def test_what_an_evaluation_recorded_is_let_go():
    """Its batches are larger than any of training, and other processes have a share of the card."""
    policy, engine = gpt2(), Engine(static=True)
    engine.install(policy)
    sampling = rollout.sampling_from(policy, 4)
    with engine.uncut():
        rollout.sample(policy, prompts(3), sampling, generator())
        assert len(engine.kept) == 1
    assert not engine.kept


def test_what_an_evaluation_samples_is_not_scored_again(monkeypatch):
    policy, engine, scored = gpt2(), Engine("bf16"), []
    engine.install(policy)
    monkeypatch.setattr(Engine, "scored", lambda self, policy, drawn: scored.append(len(drawn)) or drawn)
    sampling = rollout.sampling_from(policy, 2)
    with engine.uncut():
        for n in (ROWS + 1, 8):  # of an evaluation; the episode that is shown
            rollout.sample(policy, prompts(n), sampling, generator())
    rollout.sample(policy, prompts(ROWS + 1), sampling, generator())
    assert scored == [8, ROWS + 1]


class Second:
    """A team's second process of two; ``other``: what the first one gives for a tensor."""

    rank, size = 1, 2

    def __init__(self, other):
        self.other = other

    def gather(self, mine):
        return [self.other(mine), mine]


def test_the_processes_of_a_team_must_find_the_same_numbers():
    same, off = Second(lambda mine: mine), Second(lambda mine: mine + torch.tensor([0.0, 1e-16, 0.0]))
    found = {"objective/kl": 0.0, "policy/loss": 1e-9, "value/explained_variance": float("nan")}
    shards.agree(same, found)
    with pytest.raises(TrainingError, match="do not agree on policy/loss: is the reward random"):
        shards.agree(off, found)
    with pytest.raises(TrainingError, match="do not agree on update: do all of them see one folder"):
        shards.agree(Second(lambda mine: mine + 1), {"update": 5})
    assert shards.of_first(Second(lambda mine: mine + 2), 1) == 3


def test_what_one_process_cannot_sample_ends_the_others_too():
    policy = gpt2()
    policy.engine = Engine(shards=2, mean_over="tokens", team=Second(lambda mine: torch.ones_like(mine)))
    with pytest.raises(NotFinite, match="in another process"):
        rollout.sample(policy, prompts(4), rollout.sampling_from(policy, 4), generator())
    told = []
    policy.engine = Engine(shards=2, mean_over="tokens", team=Second(lambda mine: told.append(mine) or mine))
    with torch.no_grad():
        policy.lm_head.weight.fill_(float("nan"))
    with pytest.raises(NotFinite, match="the policy's logits"):
        rollout.sample(policy, prompts(4), rollout.sampling_from(policy, 4), generator())
    assert [mine.tolist() for mine in told] == [[1]]


def test_a_loss_that_one_process_cannot_compute_ends_the_others_too():
    weight = torch.nn.Parameter(torch.zeros(2))
    state = SimpleNamespace(optimizer=SimpleNamespace(param_groups=[{"params": [weight]}]))
    told = []

    class Batch:
        rollout = SimpleNamespace(mask=torch.ones(4, 3, dtype=torch.bool))

        def __len__(self):
            return 4

    def fine(state, batch, config):
        return weight.sum(), {}

    def spoilt(state, batch, config):
        raise NotFinite("logprobs: found nan")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "take", lambda batch, rows: batch)
        for loss_of, say, words in ((fine, torch.ones_like, "another process"), (spoilt, lambda x: x, "logprobs")):
            team = Second(lambda mine, say=say: told.append(mine.tolist()) or say(mine))
            with pytest.raises(NotFinite, match=words):
                shards.loss(loss_of, state, Batch(), None, 2, team, "tokens")
    assert told == [[0], [1]]


def test_a_step_reads_nothing_back_and_makes_every_tensor_where_the_weights_are():
    """No GPU is needed: on the meta device a read-back is an error, and so is a tensor of the CPU among the inputs."""
    weight = torch.nn.Parameter(torch.zeros(3, 2, device="meta"))
    done = SimpleNamespace(param_groups=[{"params": [weight]}], step=lambda: None, zero_grad=lambda set_to_none: None)
    state = SimpleNamespace(optimizer=done)
    mask = torch.ones(8, 5, dtype=torch.bool, device="meta")

    class Batch:
        rollout = SimpleNamespace(mask=mask)

        def __len__(self):
            return 8

    def loss_of(state, batch, config):
        return weight.sum(), {"policy/ratio_error": weight.detach().max(), "policy/loss": weight.detach().sum()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "take", lambda batch, rows: batch)
        loss, metrics = shards.loss(loss_of, state, Batch(), None, 4, shards.Alone(), "tokens")
    stopped = mask.new_zeros(())
    found = [loss, *metrics.values(), guarded_step(state, loss, 0.5, stopped), stopped, state.optimizer.found_inf]
    assert {tensor.device.type for tensor in found} == {"meta"}
