"""The on-policy learners' gradients against the enumerated token MDP: every response, every pair and every triple of
them."""

import dataclasses
import itertools

import pytest
import torch

from rlnlp import models
from rlnlp.learners import a2c, common, grpo, ppo, reinforce, rloo
from rlnlp.types import Experience, take
from tests import enumerated
from tests.enumerated import RESPONSES, STATES, T, V
from tests.test_learners import settings, toy
from tests.tiny import MAKE, prompts

BETA = 0.3
SPREAD = {"causal": 0.12, "encoder-decoder": 0.4}  # distributions neither flat nor a single token


def which(rollout) -> list[int]:
    """The rows of ``RESPONSES`` that a rollout holds."""
    return [int(name) for name in rollout.prompts.example_ids]


class World:
    """A policy, a reference and every response once, with the log-probabilities of the plain model."""

    def __init__(self, kind: str):
        self.policy, self.reference = (MAKE[kind](V, seed=seed, spread=SPREAD[kind]) for seed in (0, 1))
        self.log_policy, self.log_reference = enumerated.logprobs(self.policy), enumerated.logprobs(self.reference)
        self.scores = enumerated.some_scores()
        self.given = torch.tensor([self.scores[response] for response in RESPONSES])
        self.ref_logprobs, logprobs = self.table(self.log_reference), self.table(self.log_policy)
        self.rollout = dataclasses.replace(enumerated.all_episodes(), logprobs=logprobs, behavior_logprobs=logprobs)
        self.probabilities = logprobs.double().sum(1).exp()
        assert self.probabilities.sum().item() == pytest.approx(1)

    def table(self, logprobs) -> torch.Tensor:
        rows = [[logprobs[r[:t]][r[t]].item() if t < len(r) else 0.0 for t in range(T)] for r in RESPONSES]
        return torch.tensor(rows)

    def score(self, rollout):
        return self.given[which(rollout)], {}

    def true(self, beta: float, gamma: float = 1.0):
        """Gradient of the expected return, by dynamic programming."""
        reward = enumerated.with_kl(enumerated.paid_at_end(self.scores), beta, self.log_policy, self.log_reference)
        return enumerated.policy_gradient(self.policy, reward, gamma)

    def state(self, module, config):
        state = module.init(self.policy, config, seed=0)
        models.sync(state.reference, self.reference)
        return state

    def gradient(self, loss_of, state, seen, advantages, config):
        """What a learner's own loss would have the policy climb, with its advantages replaced."""
        loss, metrics = loss_of(state, dataclasses.replace(seen, advantages=advantages.float()), config)
        assert metrics["policy/ratio_error"] < 1e-4
        return torch.autograd.grad(-loss, list(self.policy.parameters()), allow_unused=True)


@pytest.fixture(params=list(MAKE))
def world(request, monkeypatch):
    made = World(request.param)
    for module in (common, grpo):  # a table instead of a model: there are 192,000 responses in the triples
        monkeypatch.setattr(module, "score_tokens", lambda model, rollout: made.ref_logprobs[which(rollout)])
    return made


def flat(gradients):
    return torch.cat([g.flatten() for g in gradients if g is not None]).double()


def assert_same(ours, true, factor=1.0):
    """``ours`` = factor x ``true``, which is not zero."""
    assert flat(true).norm() > 1e-2
    ours, true = flat(ours), factor * flat(true)
    assert (ours - true).norm() < 1e-4 * true.norm()


def over_groups(world, module, config, size):
    """The expected gradient of one update on one batch of ``size`` responses, over all batches there are.

    The loss is linear in the advantages, so those of all batches, each weighted by its probability, are summed per
    response.
    """
    state = world.state(module, config)
    batches = torch.tensor(list(itertools.product(range(len(RESPONSES)), repeat=size)))
    chance = world.probabilities[batches].prod(1)
    assert chance.sum().item() == pytest.approx(1, abs=1e-5)
    if module is reinforce:  # the batch is the group: one at a time
        every = [
            module.experience(state, take(world.rollout, rows), world.score, config).advantages for rows in batches
        ]
        advantages = torch.stack(every)
    else:
        everything = take(world.rollout, batches.flatten())
        advantages = module.experience(state, everything, world.score, config).advantages.unflatten(0, (-1, size))
    weighted = (advantages.double() * chance[:, None, None]).flatten(0, 1)
    total = torch.zeros(len(RESPONSES), T, dtype=torch.double).index_add(0, batches.flatten(), weighted)
    zeros = torch.zeros(len(RESPONSES), T)
    seen = Experience(world.rollout, zeros[:, 0], {}, world.ref_logprobs, *[zeros] * 5)  # the loss reads nothing else
    return [
        None if g is None else g * len(RESPONSES) / size  # the loss divides by its own number of responses
        for g in world.gradient(
            reinforce.minibatch_loss if module is rloo else module.minibatch_loss, state, seen, total, config
        )
    ]


# one response at a time
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_a2cs_gradient_is_the_exact_policy_gradient(world, gamma):
    """lam = 1, a value network of any weights as the baseline; gamma < 1 is the form without gamma^t."""
    config = a2c.Config(
        gamma=gamma,
        lam=1.0,
        kl_coef=BETA,
        whiten_advantages=False,
        value_coef=0.0,
        max_new_tokens=T,
    )
    state = world.state(a2c, config)
    torch.manual_seed(0)
    torch.nn.init.normal_(state.value.head.weight)
    seen = ppo.experience(state, world.rollout, world.score, config)
    assert seen.values[world.rollout.mask].std() > 0.1
    weighted = seen.advantages * world.probabilities[:, None]
    ours = world.gradient(a2c.minibatch_loss, state, seen, weighted, config)
    assert_same(ours, world.true(BETA, gamma), 1 / int(world.rollout.mask.sum()))  # its loss is a mean over tokens


@pytest.mark.parametrize("value", ["separate", "shared"])
@pytest.mark.parametrize("kind", list(MAKE))
def test_ppos_first_gradient_is_a2cs(kind, value):
    """Same advantages, full batch; policy and value; and so the whole first update."""
    results = {}
    given = {"value": value, "entropy_coef": 0.01, "top_k": 20, "temperature": 0.9}
    for module in (ppo, a2c):
        policy = MAKE[kind]()
        config = settings(module, **given, **({"epochs": 1, "minibatches": 1} if module is ppo else {}))
        state = module.init(policy, config, seed=0)
        torch.manual_seed(0)
        torch.nn.init.normal_((state.value if value == "shared" else state.value.head).weight)
        seen = module.collect(state, prompts(16), toy, config)
        parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
        loss, _ = module.minibatch_loss(state, seen, config)
        gradient = flat(torch.autograd.grad(loss, parameters, allow_unused=True))
        module.update(state, seen, config)
        results[module] = gradient, flat([p.detach() for p in parameters])
    assert results[ppo][0].norm() > 1e-2
    assert (results[a2c][0] - results[ppo][0]).norm() < 1e-5 * results[ppo][0].norm()
    torch.testing.assert_close(results[a2c][1], results[ppo][1], atol=1e-5, rtol=0)


# groups
# -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_reinforces_gradient_is_the_exact_policy_gradient(world, gamma):
    """Over all 1,600 batches of two; its own loss divides by the horizon T."""
    config = reinforce.Config(gamma=gamma, kl_coef=BETA, max_new_tokens=T, episodes_per_update=2)
    assert_same(over_groups(world, reinforce, config, 2), world.true(BETA, gamma), 1 / T)


@pytest.mark.parametrize("group", [2, 3])
def test_rloo_is_unbiased(world, group):
    """Over all 1,600 pairs and all 64,000 triples of responses."""
    config = rloo.Config(group=group, episodes_per_update=group, kl_coef=BETA, max_new_tokens=T)
    assert_same(over_groups(world, rloo, config, group), world.true(BETA), 1 / T)


@pytest.mark.parametrize("group", [2, 3])
def test_grpo_without_the_division_is_the_policy_gradient_up_to_a_constant(world, group):
    """The group's mean holds the response itself: (K - 1) / K of the gradient."""
    config = grpo.Config(
        group=group, episodes_per_update=group, minibatches=1, normalise=False, kl_coef=0.0, max_new_tokens=T
    )
    assert_same(over_groups(world, grpo, config, group), world.true(0.0), (group - 1) / group / T)


def grpo_bias(world: World, group: int) -> dict[str, float]:
    """What the division by the group's standard deviation does to the expected gradient, against the true one.

    scale: the factor that fits best; cosine: of the angle between the two; residual: what no factor removes, as a share
    of the true gradient's length. Without the division they are (K - 1) / K, 1 and 0.
    """
    config = grpo.Config(group=group, episodes_per_update=group, minibatches=1, kl_coef=0.0, max_new_tokens=T)
    ours, true = flat(over_groups(world, grpo, config, group)) * T, flat(world.true(0.0))
    scale = (ours @ true / (true @ true)).item()
    return {
        "scale": scale,
        "cosine": (ours @ true / ours.norm() / true.norm()).item(),
        "residual": ((ours / scale - true).norm() / true.norm()).item(),
    }


@pytest.mark.parametrize("group", [2, 3])
def test_dividing_by_the_standard_deviation_is_a_bias(world, group):
    bias = grpo_bias(world, group)
    print(f"GRPO, groups of {group}: {bias}")
    assert bias["residual"] > 0.05 and 0.5 < bias["cosine"] < 0.999


# the KL as a term of the loss
# -------------------------------------------------------------------------------------------


def test_the_k3_term_has_the_gradient_of_the_kl_from_the_reference(world):
    """In expectation, on the policy's own samples: sum_s d(s) grad KL(reference || policy), which is not the other
    KL's."""
    config = grpo.Config(group=2, minibatches=1, kl_coef=BETA, max_new_tokens=T)
    state = world.state(grpo, config)
    seen = grpo.experience(state, world.rollout, lambda rollout: (torch.zeros(len(rollout)), {}), config)
    assert (seen.advantages == 0).all() and seen.kl.max() > 0.01
    ours = 0
    for row, chance in enumerate(world.probabilities):
        one = take(seen, torch.tensor([row]))
        ours = ours + chance * flat(world.gradient(grpo.minibatch_loss, state, one, one.advantages, config))
    reached = enumerated.visits(enumerated.probs(world.policy))

    def gradient(kl):
        total = sum(
            reached[s] * kl(enumerated.logprobs_at(world.policy, s), world.log_reference[s].float()) for s in STATES
        )
        return flat(torch.autograd.grad(total, list(world.policy.parameters()), allow_unused=True))

    expected = -BETA / T * gradient(lambda p, ref: (ref.exp() * (ref - p)).sum())
    other = -BETA / T * gradient(lambda p, ref: (p.exp() * (p - ref)).sum())
    assert_same([ours], [expected])
    assert (ours - other).norm() > 0.05 * other.norm()
