"""The networks of deep Q-learning, its part of the learners' protocol, and that it learns."""

import inspect
import itertools

import pytest
import torch

from rlnlp import checkpoint, models
from rlnlp.learners import common, dqn
from rlnlp.offpolicy import q_heads
from rlnlp.rollout import sample
from tests.dqn_made import VARIANTS, settings, shallow, toy, weights
from tests.tiny import MAKE, prompts


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


# networks
# ----------------------------------------------------------------------------------------------------------------


def test_with_head_logits_the_untrained_policy_is_the_base_model(kind):
    for trunk in ("trained", "frozen"):
        base, policy = shallow(kind), shallow(kind)
        config = settings(head="logits", trunk=trunk, scale=0.05)
        state = dqn.init(policy, config, seed=0)
        rollout = sample(base, prompts(8), state.sampling, torch.Generator().manual_seed(0))
        same = sample(policy, prompts(8), state.sampling, torch.Generator().manual_seed(0))
        assert torch.equal(same.responses, rollout.responses)
        assert models.exact_kl(policy, base, rollout)[0].abs().max() < 1e-5
        hidden = models.hidden_states(policy, rollout)[rollout.mask]
        q = dqn.q_values(policy, hidden, config, state.sampling, rollout.mask.nonzero()[:, 1])
        torch.testing.assert_close(q, 0.05 * models.head(base, hidden))


def after_each_step(state, config, check):
    """Train, and call ``check`` with the state after each gradient step."""
    original = dqn.gradient_step

    def watched(state, config):
        metrics = original(state, config)
        check(state)
        return metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dqn, "gradient_step", watched)
        list(dqn.train(state, prompts(16), toy, config))


def test_the_target_is_copied_every_so_many_gradient_steps(kind):
    config = settings(target_every=4, updates=5, gradient_steps=3)  # copies at steps 4, 8, 12: not where updates end
    state = dqn.init(shallow(kind), config, seed=0)
    history = [weights(state.policy)]

    def check(state):
        history.append(weights(state.policy))
        assert torch.equal(weights(state.target), history[state.steps // 4 * 4]), state.steps

    after_each_step(state, config, check)
    assert state.steps == 15 and len(history) == 16 and not torch.equal(history[12], history[15])


def test_a_polyak_target_moves_a_share_of_the_way(kind):
    config = settings(target="polyak", tau=0.25, updates=2)
    state = dqn.init(shallow(kind), config, seed=0)
    expected = [weights(state.target)]

    def check(state):
        expected.append(0.75 * expected[-1] + 0.25 * weights(state.policy))
        torch.testing.assert_close(weights(state.target), expected[-1], atol=1e-6, rtol=1e-5)

    after_each_step(state, config, check)
    assert state.steps == 6 and not torch.equal(weights(state.target), weights(state.policy))


@pytest.mark.parametrize("head", q_heads.KINDS)
@pytest.mark.parametrize("trunk", ["trained", "frozen"])
def test_a_frozen_trunk_stays_and_a_trained_one_moves(kind, head, trunk):
    policy, config = shallow(kind), settings(head=head, trunk=trunk, updates=3, learning_rate=1e-2)
    state = dqn.init(policy, config, seed=0)
    inside = {id(p) for p in policy.get_output_embeddings().parameters()}
    trunk_now = {n: p for n, p in policy.named_parameters() if id(p) not in inside}
    if trunk == "frozen":
        assert any(p is policy.get_input_embeddings().weight for p in trunk_now.values())  # not tied to what is trained
    trunk_before = {n: p.detach().clone() for n, p in trunk_now.items()}
    head_before = torch.cat([p.detach().flatten() for p in policy.get_output_embeddings().parameters()])
    reference = weights(state.reference)
    list(dqn.train(state, prompts(16), toy, config))
    moved = [n for n, p in trunk_now.items() if not torch.equal(p, trunk_before[n])]
    assert (moved == []) == (trunk == "frozen"), moved
    assert not torch.equal(
        torch.cat([p.detach().flatten() for p in policy.get_output_embeddings().parameters()]), head_before
    )
    assert torch.equal(weights(state.reference), reference)


def test_a_frozen_run_goes_on_with_a_trained_trunk(kind):
    policy = shallow(kind)
    first = dqn.init(policy, settings(trunk="frozen", scale=0.05), seed=0)
    list(dqn.train(first, prompts(16), toy, settings(trunk="frozen", updates=2)))
    head = policy.get_output_embeddings().weight.detach().clone()
    later = settings(trunk="trained", scale=0.2, updates=1)
    state = dqn.init(policy, later, seed=1)
    assert torch.equal(policy.get_output_embeddings().weight, head) and policy.get_output_embeddings().scale == 0.2
    before = weights(policy)
    list(dqn.train(state, prompts(16), toy, later))
    assert not torch.equal(weights(policy)[:1000], before[:1000])
    with pytest.raises(ValueError, match="expected the kind 'mlp' that the model has, got 'linear'"):
        dqn.init(policy, settings(head="linear"), seed=0)


def test_what_the_caller_has_frozen_stays_frozen_but_for_the_head(kind):
    policy, config = shallow(kind), settings(updates=2)
    frozen = [p for p in policy.parameters() if p is not policy.get_output_embeddings().weight][:3]
    for weight in frozen:
        weight.requires_grad_(False)
    before, state = [weight.clone() for weight in frozen], dqn.init(policy, config, seed=0)
    list(dqn.train(state, prompts(16), toy, config))
    assert all(map(torch.equal, frozen, before)) and not any(weight.requires_grad for weight in frozen)
    assert all(weight.requires_grad for weight in policy.get_output_embeddings().parameters())


def test_a_policy_that_is_refused_stays_as_it_was(kind):
    policy = shallow(kind)
    head, end = policy.get_output_embeddings(), policy.generation_config.eos_token_id
    policy.generation_config.eos_token_id = 10**6
    with pytest.raises(ValueError, match="its eos_token_id is 1000000"):
        dqn.init(policy, settings(), seed=0)
    assert policy.get_output_embeddings() is head and not q_heads.installed(policy)
    policy.generation_config.eos_token_id = end
    dqn.init(policy, settings(trunk="frozen"), seed=0)
    with pytest.raises(ValueError, match="expected the kind"):
        dqn.init(policy, settings(head="linear"), seed=0)
    assert not policy.get_input_embeddings().weight.requires_grad


@pytest.mark.parametrize("which", VARIANTS)
def test_without_a_learning_rate_the_policy_stays_as_it_is(kind, which):
    config = settings(**{**VARIANTS[which], "learning_rate": 0.0, "updates": 2})
    policy = shallow(kind)
    state = dqn.init(policy, config, seed=0)
    before = weights(policy)
    curve = list(dqn.train(state, prompts(16), toy, config))
    assert len(curve) == 2 and torch.equal(weights(policy), before) and torch.allclose(weights(state.target), before)


# the learner protocol
# ----------------------------------------------------------------------------------------------------


def test_protocol():
    expected = {
        "init": ["policy", "config", "seed"],
        "collect": ["state", "prompts", "score", "config"],
        "update": ["state", "experience", "config"],
        "train": ["state", "prompts", "score", "config"],
    }
    for function, names in expected.items():
        assert list(inspect.signature(getattr(dqn, function)).parameters) == names
    assert dqn.Config.model_config["frozen"] and inspect.isgeneratorfunction(dqn.train)
    assert all(info.description for info in dqn.Config.model_fields.values())


@pytest.mark.parametrize("which", VARIANTS)
def test_resumed_equals_uninterrupted(kind, which):
    config = settings(buffer=60, updates=4, gradient_steps=2, **VARIANTS[which])  # the ring goes round
    whole = dqn.init(shallow(kind), config, 3)
    curve = list(dqn.train(whole, prompts(32), toy, config))
    state = dqn.init(shallow(kind), config, 3)
    first = list(itertools.islice(dqn.train(state, prompts(32), toy, config), 2))
    tensors, numbers = checkpoint.pack(state)
    tensors = {k: v.clone() for k, v in tensors.items()}
    resumed = dqn.init(shallow(kind), config, 3)
    checkpoint.unpack(resumed, tensors, numbers)
    assert first + list(dqn.train(resumed, prompts(32), toy, config)) == curve and len(curve) == 4
    assert torch.equal(weights(resumed.policy), weights(whole.policy)) and resumed.steps == whole.steps
    assert torch.equal(weights(resumed.target), weights(whole.target))


def test_no_gradient_step_before_the_warm_up():
    config, policy = settings(warm_up=100, updates=6), shallow("causal")
    state = dqn.init(policy, config, seed=0)
    before, held = weights(policy), 0
    for metrics in dqn.train(state, prompts(16), toy, config):
        held += metrics["dqn/tokens"]
        assert metrics["dqn/replay"] == held and metrics["dqn/gradient_steps"] == (3 if held >= 100 else 0)
        assert torch.equal(weights(policy), before) == (held < 100)
    assert 100 < held and state.steps in range(3, 18, 3)


def test_every_gradient_step_draws_anew():
    config = settings(updates=3)
    state = dqn.init(shallow("causal"), config, seed=0)
    original, drawn = state.replay.sample, []

    def watched(size, n_step, gamma, numbers):
        drawn.append(numbers.initial_seed())
        return original(size, n_step, gamma, numbers)

    state.replay.sample = watched
    list(dqn.train(state, prompts(16), toy, config))
    assert len(drawn) == len(set(drawn)) == 9


@pytest.mark.parametrize("given", [{"epsilon_start": 1.0}, {"explore": "softmax", "epsilon_start": 0.0}], ids=str)
def test_every_update_explores_anew(given):
    """Random tokens alone, which have numbers of their own, and none, which leaves the draws from the policy."""
    config = settings(**given, epsilon_end=given["epsilon_start"])
    state, drawn = dqn.init(shallow("causal"), config, seed=0), []
    for state.update in (0, 1, 0):
        drawn.append(dqn.rollout(state, prompts(16), config).responses.tolist())
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_gradient_is_no_longer_than_its_settings_say():
    config = settings(max_grad_norm=1e-3, updates=1)
    state, taken = dqn.init(shallow("causal"), config, seed=0), []
    group = state.optimizer.param_groups[0]["params"]
    state.optimizer.register_step_pre_hook(
        lambda *_: taken.append(torch.cat([p.grad.flatten() for p in group if p.grad is not None]).norm().item())
    )
    (metrics,) = dqn.train(state, prompts(16), toy, config)
    assert metrics["policy/gradient_norm"] > 0.01  # as it was
    assert taken == pytest.approx([1e-3] * 3, rel=1e-3)


def test_a_token_reward_is_kept_where_it_was_paid():
    config = settings(updates=1, max_new_tokens=6)
    state = dqn.init(shallow("causal"), config, seed=0)

    def per_token(rollout):
        return torch.arange(1.0, 1.0 + rollout.mask.shape[1]).expand(rollout.mask.shape) * rollout.mask, {}

    seen = dqn.collect(state, prompts(8), per_token, config)
    assert torch.equal(seen.rewards, torch.arange(1.0, 1.0 + seen.rewards.shape[1]) * seen.rollout.mask)
    dqn.update(state, seen, config)
    held = state.replay.transitions(torch.arange(len(state.replay)), 1, 1.0)
    assert torch.equal(held.returns, held.steps + 1.0)


def test_numbers_that_are_not_finite_end_the_run():
    policy, config = shallow("causal"), settings()
    state = dqn.init(policy, config, seed=0)
    running = dqn.train(state, prompts(16), toy, config)
    next(running)
    seen = dqn.collect(state, prompts(16), toy, config)
    with torch.no_grad():
        policy.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(common.Diverged, match="update 2: gradient step 4: the loss is nan"):
        dqn.update(state, seen, config)
    with pytest.raises(common.Diverged, match="update 2: .*not finite"):
        next(running)
    policy = shallow("causal")
    state, before = dqn.init(policy, config, seed=0), weights(policy)
    policy.transformer.h[0].ln_1.bias.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(
        common.Diverged, match=r"update 1: gradient step 1: the loss is \d.* and the gradient norm (nan|inf)"
    ):
        next(dqn.train(state, prompts(16), toy, config))
    assert torch.equal(weights(policy), before[: len(weights(policy))])


BAD = {
    "epsilon: expected": {"explore_rule": "epsilon", "explore_value": 1.5},
    "top_p: expected": {"max_rule": "top_p", "max_value": 0.0},
    "top_k: expected": {"max_rule": "top_k", "max_value": 0},
    "nearest typical": {"explore_rule": "tipical", "explore_value": 0.2},
    "none: expected": {"max_value": 0.5},
    "buffer 40: expected at least": {"buffer": 40, "warm_up": 10},
    "warm_up 396: expected at most 395": {"warm_up": 396},
    "min_new_tokens 7: expected at most": {"min_new_tokens": 7},
    "scale": {"scale": 0.0},
    "head": {"head": "cnn"},
    "n_step": {"n_step": 0},
    "tau": {"tau": 0.0},
    "epsilon_end": {"epsilon_end": 1.1},
    "kl_coef": {"kl_coef": -0.1},
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_settings_are_refused_with_the_reason(reason):
    with pytest.raises(ValueError, match=reason):
        settings(**BAD[reason])


# learning
# ----------------------------------------------------------------------------------------------------------------

LEARNS = {
    ("causal", "mlp"): {},
    ("encoder-decoder", "mlp"): {},
    ("causal", "logits"): {"explore": "softmax", "epsilon_start": 0.0, "epsilon_end": 0.0},
}


@pytest.mark.parametrize("kind, head", LEARNS)
def test_learns_the_toy(kind, head):
    """Share of one token among 24: 0.04 by chance; the best of the last five updates must pass 0.8, exploring included.
    Where the score has the wrong sign it unlearns that token instead."""
    best = {}
    for sign, updates in ((1, 12), (-1, 6)):
        policy = MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind], layers=1)
        config = settings(
            head=head,
            updates=updates,
            episodes_per_update=16,
            gradient_steps=8,
            batch_size=64,
            min_new_tokens=6,
            n_step=6,
            target_every=20,
            epsilon_updates=8,
            buffer=10_000,
            **LEARNS[kind, head],
        )
        state = dqn.init(policy, config, seed=0)

        def score(rollout, sign=sign):
            return sign * toy(rollout)[0], {}

        curve = [sign * m["objective/score"] for m in dqn.train(state, prompts(32, vocabulary=24), score, config)]
        best[sign] = max(curve[-5:])
        assert curve[0] < 0.2
    assert best[1] > 0.8 and best[-1] < 0.2, best


def test_a_target_that_is_not_finite_ends_training_with_the_update_named():
    config = settings(updates=1, n_step=1)
    state = dqn.init(MAKE["causal"](24), config, seed=0)
    next(iter(state.target.parameters())).data.fill_(float("nan"))
    with pytest.raises(common.Diverged, match="update 1"):
        list(dqn.train(state, prompts(16, vocabulary=24), toy, config))


def test_a_rows_exploration_does_not_depend_on_when_others_end():
    """Responses of other prompts end sooner or later; this row's coins and random tokens stay."""
    config = settings(epsilon_start=0.3, epsilon_end=0.3, head="logits", explore="softmax", max_new_tokens=20)
    drawn = []
    for seed in (3, 4):
        state, batch = dqn.init(MAKE["causal"](8), config, seed=0), prompts(16, vocabulary=8, seed=seed)
        mine = prompts(16, vocabulary=8, seed=3)
        batch.ids[0], batch.mask[0] = mine.ids[0], mine.mask[0]
        drawn.append(dqn.rollout(state, batch, config))
    ends_at = [r.mask[1:].sum(1).sort().values[4].item() for r in drawn]  # when a quarter has ended
    first, second = (r.responses[0][r.mask[0]].tolist() for r in drawn)
    assert first == second and len(first) > min(ends_at) and ends_at[0] != ends_at[1]


def test_a_head_over_an_mlp_head_reads_the_trunk():
    policy = MAKE["causal"](24)
    q_heads.install(policy, "mlp", 0.05)
    critic = q_heads.critic(policy, "linear", 0.05)
    assert critic.get_output_embeddings().in_features == policy.get_output_embeddings().in_features == 32
    with pytest.raises(ValueError, match="one layer"):
        q_heads.critic(policy, "logits", 0.05)
