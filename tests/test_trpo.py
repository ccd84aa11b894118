"""TRPO and the numerics under it: against dense linear algebra, plain forwards over the vocabulary, and a toy."""

import dataclasses
import itertools

import numpy as np
import pydantic
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlnlp import checkpoint, optim
from rlnlp.learners import common, trpo
from rlnlp.rollout import batch_of
from rlnlp.trainable import trained
from rlnlp.types import take
from tests.test_learners import toy, weights
from tests.tiny import MAKE, prompts


def settings(**changes):
    base = {
        "updates": 6,
        "episodes_per_update": 16,
        "max_new_tokens": 6,
        "kl_coef": 0.05,
        "value_epochs": 2,
        "learning_rate": 3e-3,
    }
    return trpo.Config(**{**base, **changes})


def small(kind):
    """A model of a few hundred parameters, with distributions neither flat nor a single token."""
    return MAKE[kind](6, width=4, layers=1, positions=12, spread={"causal": 0.5, "encoder-decoder": 1.0}[kind])


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


# numerics
# ---------------------------------------------------------------------------------------------------------------


def positive(n, seed):
    factor = np.random.default_rng(seed).normal(size=(n, n))
    return factor @ factor.T / n + 0.1 * np.eye(n)


def test_conjugate_gradient_solves_the_system():
    for n, seed in ((1, 0), (5, 1), (30, 2)):
        matrix, b = positive(n, seed), np.random.default_rng(seed).normal(size=n)
        a = torch.tensor(matrix)
        x = optim.conjugate_gradient(a.matmul, torch.tensor(b), steps=2 * n, tolerance=1e-12)
        np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-8)


def test_conjugate_gradient_after_k_steps_is_best_in_the_krylov_space():
    """The defining property: of all x in span(b, A b, ..., A^(k-1) b) it has the least energy x.A x / 2 - b.x."""
    matrix, b = positive(12, 3), np.random.default_rng(3).normal(size=12)
    a = torch.tensor(matrix)
    for k in (1, 2, 4):
        x = optim.conjugate_gradient(a.matmul, torch.tensor(b), steps=k).numpy()
        basis, _ = np.linalg.qr(np.stack([np.linalg.matrix_power(matrix, i) @ b for i in range(k)], 1))
        np.testing.assert_allclose(
            x, basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ b), rtol=1e-8, atol=1e-12
        )
        assert np.abs(x - np.linalg.solve(matrix, b)).max() > 1e-3  # not done yet


def test_conjugate_gradient_stops_where_it_must():
    calls = []
    zero = optim.conjugate_gradient(lambda v: calls.append(v) or v, torch.zeros(3), steps=5)
    assert not calls and torch.equal(zero, torch.zeros(3))
    assert torch.equal(optim.conjugate_gradient(lambda v: -v, torch.ones(3), steps=5), torch.zeros(3))  # no curvature
    done = optim.conjugate_gradient(lambda v: calls.append(v) or 2 * v, torch.ones(3), steps=5)
    assert len(calls) == 1 and torch.equal(done, torch.full((3,), 0.5))  # solved by the first step


def test_line_search_takes_the_first_share_that_is_accepted():
    tried = []
    assert optim.line_search(lambda share: tried.append(share) or share < 0.4, shrink=0.5, tries=5) == 0.25
    assert tried == [1.0, 0.5, 0.25]
    assert optim.line_search(lambda share: True, shrink=0.5, tries=5) == 1.0
    assert optim.line_search(lambda share: tried.append(share) or False, shrink=0.5, tries=3) == 0.0
    assert tried[3:] == [1.0, 0.5, 0.25]


def test_kl_is_summed_over_the_vocabulary():
    old, new = (
        torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]).log(),
        torch.tensor([[0.25, 0.75, 0.0], [0.2, 0.3, 0.5]]).log(),
    )
    by_hand = 0.5 * np.log(2) + 0.5 * np.log(0.5 / 0.75)
    torch.testing.assert_close(optim.categorical_kl(old, new), torch.tensor([by_hand, 0.0], dtype=torch.float32))


# the natural gradient, against a dense solve
# ----------------------------------------------------------------------------


def distributions(model, rollout):
    """log pi [N, V] of the rollout's states by one plain forward of the whole model per response, tempered and with
    EOS blocked as it was sampled; differentiable. No truncation."""
    out, sampling = [], rollout.sampling
    for row in range(len(rollout)):
        n = int(rollout.mask[row].sum())
        prompt, tokens = rollout.prompts.ids[row][rollout.prompts.mask[row]], rollout.responses[row, : n - 1]
        if model.config.is_encoder_decoder:
            decoder = torch.cat([torch.tensor([model.config.decoder_start_token_id]), tokens])
            logits = model(
                input_ids=prompt[None], attention_mask=torch.ones_like(prompt)[None], decoder_input_ids=decoder[None]
            ).logits[0]
        else:
            ids = torch.cat([prompt, tokens])[None]
            logits = model(ids, attention_mask=torch.ones_like(ids)).logits[0, len(prompt) - 1 :]
        logits = logits / sampling.temperature
        for t in range(min(sampling.min_new_tokens, n)):
            blocked = torch.zeros(len(logits[t]), dtype=torch.bool)
            blocked[sampling.eos_id] = True
            logits = torch.cat([logits[:t], logits[t].masked_fill(blocked, -torch.inf)[None], logits[t + 1 :]])
        out.append(logits.log_softmax(-1))
    return torch.cat(out)


def dense_fisher(rows, parameters):
    """mean_s sum_a pi(a|s) grad log pi grad log pi^T [P, P] of ``rows`` log pi [N, V], one backward pass per entry."""
    total = 0
    for row in rows:
        for logprob in row[row > -torch.inf]:
            g = torch.autograd.grad(logprob, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            g = torch.cat([x.reshape(-1) for x in g]).double()
            total = total + logprob.exp().item() * torch.outer(g, g)
    return total / len(rows)


@pytest.fixture
def drawn(kind):
    """A small model's experience of 6 episodes, at a temperature and with EOS blocked at first."""
    policy = small(kind)
    config = settings(
        episodes_per_update=6,
        max_new_tokens=4,
        temperature=0.7,
        min_new_tokens=2,
        fisher_episodes=6,
        cg_steps=400,
        damping=0.02,
    )
    state = trpo.init(policy, config, seed=0)
    score = lambda rollout: (((rollout.responses == 3) & rollout.mask).sum(1).float(), {})  # noqa: E731
    return state, trpo.collect(state, prompts(6, length=4, vocabulary=6), score, config), config


def parts_of(experience):
    return [(experience.rollout, experience.advantages[experience.rollout.mask])]


def test_step_is_the_dense_natural_gradient_scaled_to_the_bound(drawn):
    state, seen, config = drawn
    parameters = trained(state.policy)
    rows = distributions(state.policy, seen.rollout)
    fisher = dense_fisher(rows, parameters)
    assert 200 < len(fisher) < 1000
    tokens, advantages = seen.rollout.responses[seen.rollout.mask], seen.advantages[seen.rollout.mask]
    objective = (rows.gather(1, tokens[:, None]).squeeze(1) * advantages).mean()
    g = torch.autograd.grad(objective, parameters, allow_unused=True, materialize_grads=True)
    g = torch.cat([x.reshape(-1) for x in g]).double()
    exact = torch.linalg.solve(fisher + config.damping * torch.eye(len(fisher), dtype=torch.float64), g)
    exact = exact * (2 * config.kl_bound / (exact @ fisher @ exact)).sqrt()

    gradient, error = trpo.surrogate_gradient(state.policy, parts_of(seen))
    assert error < 1e-4 and gradient.norm() > 1e-2
    torch.testing.assert_close(gradient.double(), g, atol=1e-6, rtol=1e-3)
    step = trpo.full_step(state.policy, seen.rollout, gradient, config).double()
    assert (step - exact).norm() / exact.norm() < 1e-3
    plain = g / g.norm()
    assert torch.dot(step / step.norm(), plain) < 0.9  # damping and F really turned it
    assert (step @ fisher @ step / 2).item() == pytest.approx(config.kl_bound, rel=1e-3)


def test_fisher_products_of_a_truncated_distribution(kind):
    """With top-k the distribution has -inf entries; the Fisher matrix is that of what is left."""
    policy = small(kind)
    config = settings(episodes_per_update=8, max_new_tokens=4, top_k=3)
    state = trpo.init(policy, config, seed=0)
    rollout = trpo.collect(state, prompts(8, length=4, vocabulary=6), toy, config).rollout
    parameters = trained(policy)
    allowed = rollout.allowed.unpack(rollout.mask)
    assert (allowed.sum(1) == 3).all()
    fisher = dense_fisher(distributions(policy, rollout).masked_fill(~allowed, -torch.inf).log_softmax(-1), parameters)
    with sdpa_kernel(SDPBackend.MATH):
        product = optim.fisher_product(trpo.sampled_logprobs(policy, rollout), parameters)
        for seed in range(3):
            v = torch.randn(len(fisher), generator=torch.Generator().manual_seed(seed))
            exact = fisher @ v.double()
            assert (product(v).double() - exact).norm() < 1e-4 * exact.norm()


# the update
# -------------------------------------------------------------------------------------------------------------


def mean_kl(old, new):
    return (old.exp() * (old - new)).sum(-1).mean().item()


@pytest.mark.parametrize("bound", [0.002, 0.2])
def test_the_bound_is_never_exceeded(kind, bound):
    """At 0.2 nats the quadratic model of a few states is far off: full steps break the bound, the search shrinks
    them."""
    policy = MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    config = settings(updates=5, kl_bound=bound, damping=1e-3, kl_coef=0.0, cg_steps=5, fisher_episodes=2)
    state = trpo.init(policy, config, seed=0)
    metrics, kls = [], []
    for update in range(config.updates):
        seen = trpo.collect(state, batch_of(prompts(32, vocabulary=24), 16, 0, update), toy, config)
        with torch.no_grad():
            old = distributions(policy, seen.rollout)
        metrics.append(trpo.update(state, seen, config))
        with torch.no_grad():
            kls.append(mean_kl(old.double(), distributions(policy, seen.rollout).double()))
        assert metrics[-1]["trpo/kl"] == pytest.approx(kls[-1], rel=1e-2, abs=1e-6)
    assert max(kls) <= bound * (1 + 1e-3), kls
    assert sum(kl > 0.3 * bound for kl in kls) >= 3, kls  # and the steps are of its size
    shares = [m["trpo/share"] for m in metrics]
    assert bound < 0.1 or sum(0 < share < 1 for share in shares) >= 2, shares
    assert all(m["trpo/gain"] > 0 for m in metrics if m["trpo/share"])


def state_and_experience(**changes):
    policy, config = MAKE["causal"](), settings(**changes)
    state = trpo.init(policy, config, seed=0)
    return state, trpo.collect(state, prompts(16), toy, config), config


def test_a_refused_step_leaves_the_policy_as_it_was(monkeypatch):
    state, seen, config = state_and_experience()
    before, value, tried = weights(state.policy), weights(state.value), []
    real = trpo.gain_and_kl

    def too_far(old, new, parts):
        tried.append(weights(new))
        return real(old, new, parts)[0], 1.0

    monkeypatch.setattr(trpo, "gain_and_kl", too_far)
    metrics = trpo.update(state, seen, config)
    assert len(tried) == config.backtracks and not any(torch.equal(t, before) for t in tried)
    assert torch.equal(weights(state.policy), before) and not torch.equal(weights(state.value), value)
    assert metrics["trpo/share"] == metrics["trpo/kl"] == metrics["trpo/gain"] == 0


def test_a_step_without_gain_is_refused():
    state, seen, config = state_and_experience()
    before = weights(state.policy)
    parts = parts_of(seen)
    uphill = trpo.full_step(state.policy, seen.rollout, trpo.surrogate_gradient(state.policy, parts)[0], config)
    assert trpo.move(state, parts, -uphill, config) == (0.0, 0.0, 0.0)
    assert torch.equal(weights(state.policy), before)
    share, gain, kl = trpo.move(state, parts, uphill, config)
    assert share > 0 and gain > 0 and 0 < kl <= config.kl_bound
    assert not torch.equal(weights(state.policy), before)


def test_nothing_to_gain_changes_nothing():
    state, seen, config = state_and_experience(learning_rate=0.0)
    before = weights(state.policy), weights(state.value)
    trpo.update(state, dataclasses.replace(seen, advantages=torch.zeros_like(seen.advantages)), config)
    assert torch.equal(weights(state.policy), before[0]) and torch.equal(weights(state.value), before[1])


@pytest.mark.parametrize("size, moved", [(1e-7, False), (1e-3, True)])
def test_of_rounding_noise_no_step_is_made(size, moved):
    """The natural step has the bound's size whatever the gradient's: noise would move the policy as far as a reward."""
    state, experience, config = state_and_experience(whiten_advantages=False)
    noise = torch.randn(experience.advantages.shape, generator=torch.Generator().manual_seed(0)) * size
    before, mask = weights(state.policy), experience.rollout.mask
    trpo.update(state, dataclasses.replace(experience, advantages=noise * mask, returns=noise * mask), config)
    assert torch.equal(weights(state.policy), before) != moved


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e7])
def test_rewards_of_any_size_make_a_step(size):
    policy, config = MAKE["causal"](), settings(updates=1, kl_coef=0.0)
    state, before = trpo.init(policy, config, seed=0), weights(policy)
    (metrics,) = trpo.train(state, prompts(16), lambda rollout: (toy(rollout)[0] * size, {}), config)
    assert metrics["trpo/share"] > 0 and not torch.equal(weights(policy), before)


def test_parts_and_padding_change_no_number():
    """Gradient, gain and KL are means over tokens, however the episodes are split."""
    state, seen, _ = state_and_experience(top_k=8)
    whole = parts_of(seen)
    split = [part for rows in torch.arange(16).tensor_split(3) for part in parts_of(take(seen, rows))]
    torch.testing.assert_close(
        trpo.surrogate_gradient(state.policy, split)[0], trpo.surrogate_gradient(state.policy, whole)[0]
    )
    other = MAKE["causal"](seed=9)
    assert trpo.gain_and_kl(state.policy, other, split) == pytest.approx(
        trpo.gain_and_kl(state.policy, other, whole), rel=1e-4
    )


def test_scoring_unlike_sampling_stops_the_run():
    state, seen, config = state_and_experience()
    wrong = dataclasses.replace(
        seen.rollout, behavior_logprobs=seen.rollout.behavior_logprobs - 0.01 * seen.rollout.mask
    )
    with pytest.raises(common.TrainingError, match="update 1: a ratio is off 1 by 0.01"):
        trpo.update(state, dataclasses.replace(seen, rollout=wrong), config)


def test_a_gradient_that_is_not_finite_changes_nothing():
    state, seen, config = state_and_experience()
    before = weights(state.policy)
    state.policy.transformer.h[0].ln_1.bias.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(common.Diverged, match=r"update 1: the gradient norm is (nan|inf)"):
        trpo.update(state, seen, config)
    assert torch.equal(weights(state.policy), before)


@pytest.mark.parametrize("changes", [{}, {"kl_target": 0.01}])
def test_resumed_equals_uninterrupted(kind, changes):
    config = settings(updates=4, cg_steps=3, fisher_episodes=4, **changes)
    whole = trpo.init(MAKE[kind](), config, 3)
    curve = list(trpo.train(whole, prompts(32), toy, config))
    state = trpo.init(MAKE[kind](), config, 3)
    first = list(itertools.islice(trpo.train(state, prompts(32), toy, config), 2))
    tensors, numbers = checkpoint.pack(state)
    resumed = trpo.init(MAKE[kind](), config, 3)
    checkpoint.unpack(resumed, {k: v.clone() for k, v in tensors.items()}, numbers)
    assert first + list(trpo.train(resumed, prompts(32), toy, config)) == curve and len(curve) == 4
    assert torch.equal(weights(resumed.policy), weights(whole.policy))


def test_learns_the_toy(kind):
    """Share of one token among 24: 0.04 by chance; must pass 0.7 within 14 updates of 32 episodes."""
    policy = MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    config = settings(
        updates=14,
        episodes_per_update=32,
        kl_bound=0.3,
        damping=1e-3,
        cg_steps=5,
        fisher_episodes=8,
        shrink=0.5,
        kl_coef=0.0,
        gamma=1.0,
        min_new_tokens=6,
        learning_rate=1e-2,
    )
    state = trpo.init(policy, config, seed=0)
    curve = [m["objective/score"] for m in trpo.train(state, prompts(32, vocabulary=24), toy, config)]
    assert curve[0] < 0.2 and max(curve[-5:]) > 0.7, curve


@pytest.mark.parametrize(
    "bad",
    [
        {"kl_bound": 0.0},
        {"kl_bound": -0.01},
        {"damping": -1e-3},
        {"cg_steps": 0},
        {"shrink": 1.0},
        {"minibatches": 17},
        {"kl_target": 0.1, "kl_coef": 0.0},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(pydantic.ValidationError, match="|".join(bad)):
        settings(**bad)
