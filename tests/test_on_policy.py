"""A2C, REINFORCE, RLOO and GRPO: what each makes of a rollout, by hand; that they learn; settings they refuse."""

import dataclasses

import pydantic
import pytest
import torch

from rlnlp import models
from rlnlp.learners import a2c, common, grpo, nlpo, ppo, reinforce, rloo
from rlnlp.rollout import batch_of
from rlnlp.types import take
from tests.test_learners import TARGET, settings, toy, weights
from tests.tiny import MAKE, gpt2, prompts
from workbook.arms import bandit, dropout, mismatch

LEARNERS = {"a2c": a2c, "reinforce": reinforce, "rloo": rloo, "grpo": grpo}
SPREAD = {"causal": 0.12, "encoder-decoder": 0.4}  # distributions neither flat nor a single token


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


def begun(module, kind="causal", vocabulary=8, **changes):
    """(state, config) of a learner whose reference is another model, so that the KL is not zero; responses end
    early."""
    config = settings(module, **{"kl_coef": 0.3, **changes})
    policy, reference = (MAKE[kind](vocabulary, seed=seed, spread=SPREAD[kind]) for seed in (0, 1))
    state = module.init(policy, config, seed=0)
    models.sync(state.reference, reference)
    return state, config


def token_toy(rollout):
    """The toy's score paid where it is earned: per token, so many for each target."""
    return ((rollout.responses == TARGET) & rollout.mask) / rollout.mask.sum(1, keepdim=True), {}


# what a rollout becomes
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [toy, token_toy])
def test_reinforce_compares_an_episode_with_the_others_at_the_same_token(kind, score):
    """Loops over the same numbers: a response that has ended counts with its last return."""
    state, config = begun(reinforce, kind, gamma=0.8)
    seen = reinforce.collect(state, prompts(16, vocabulary=8), score, config)
    rewards, lengths = seen.rewards.tolist(), seen.rollout.mask.sum(1).tolist()
    assert len(set(lengths)) > 2
    returns = [
        [sum(0.8 ** (k - t) * rewards[i][k] for k in range(t, n)) for t in range(n)] for i, n in enumerate(lengths)
    ]
    for i, own in enumerate(returns):
        for t in range(max(lengths)):
            others = [theirs[min(t, len(theirs) - 1)] for j, theirs in enumerate(returns) if j != i]
            expected = own[t] - sum(others) / len(others) if t < len(own) else 0.0
            assert seen.advantages[i, t].item() == pytest.approx(expected, abs=1e-5)
            assert seen.returns[i, t].item() == pytest.approx(own[t] if t < len(own) else 0.0, abs=1e-5)
    assert (seen.values == 0).all()


@pytest.mark.parametrize("score", [toy, token_toy])
def test_rloo_compares_a_response_with_the_others_to_its_prompt(kind, score):
    state, config = begun(rloo, kind, group=4)
    seen = rloo.collect(state, prompts(4, vocabulary=8), score, config)
    names = seen.rollout.prompts.example_ids
    assert names == [name for name in prompts(4).example_ids for _ in range(4)]
    assert len({tuple(row) for row in seen.rollout.responses.tolist()}) > 8  # not one response four times
    total = [toy(seen.rollout)[0][i].item() - 0.3 * seen.kl[i].sum().item() for i in range(16)]
    for i in range(16):
        others = [total[j] for j in range(16) if names[j] == names[i] and j != i]
        expected = (total[i] - sum(others) / 3) * seen.rollout.mask[i]
        torch.testing.assert_close(seen.advantages[i], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("normalise", [True, False])
def test_grpo_compares_scores_and_leaves_the_kl_to_its_loss(kind, normalise):
    state, config = begun(grpo, kind, group=4, normalise=normalise)
    seen = grpo.collect(state, prompts(4, vocabulary=8), toy, config)
    for rows in torch.arange(16).split(4):
        scores = toy(take(seen.rollout, rows))[0]
        expected = scores - scores.mean()
        expected = expected / (scores.std() + 1e-6) if normalise and scores.std() > 0 else expected
        torch.testing.assert_close(
            seen.advantages[rows], expected[:, None] * seen.rollout.mask[rows], atol=1e-5, rtol=0
        )
    assert seen.advantages.abs().max() > 0.1
    torch.testing.assert_close(seen.rewards.sum(1), seen.scores)  # no KL in it
    log_ratio = seen.rollout.logprobs - seen.ref_logprobs
    torch.testing.assert_close(seen.kl, (-log_ratio).exp() - 1 + log_ratio, atol=1e-5, rtol=1e-5)


def test_grpos_kl_is_the_bare_policys_and_its_clip_is_ppos():
    """Sampled from a truncated, tempered distribution; each part of the loss by its formula, after the policy has
    moved."""
    state, config = begun(grpo, group=4, top_k=5, temperature=0.7, clip=0.1)
    seen = grpo.collect(state, prompts(4, vocabulary=8), toy, config)
    with torch.no_grad():
        for parameter in state.policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    loss, metrics = grpo.minibatch_loss(state, seen, config)
    rollout, mask = seen.rollout, seen.rollout.mask
    raw = models.head(state.policy, models.hidden_states(state.policy, rollout)[mask])
    bare = raw.log_softmax(-1).gather(1, rollout.responses[mask][:, None]).squeeze(1)
    allowed = rollout.allowed.unpack(mask)
    scored = (
        (raw / 0.7).masked_fill(~allowed, -1e9).log_softmax(-1).gather(1, rollout.responses[mask][:, None]).squeeze(1)
    )
    ratio, advantage = (scored - rollout.behavior_logprobs[mask]).exp(), seen.advantages[mask]
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
    log_ratio = bare - seen.ref_logprobs[mask]
    k3 = (-log_ratio).exp() - 1 + log_ratio
    assert metrics["policy/clip_fraction"] > 0.1 and (bare - scored).abs().max() > 0.1
    torch.testing.assert_close(loss, (0.3 * k3 - surrogate).sum() / (16 * config.max_new_tokens), atol=1e-5, rtol=1e-4)


def test_grpos_loss_is_per_token_of_the_horizon_that_no_response_reaches():
    """Not per token of the longest: where all ratios are 1, by hand from the rollout's own numbers."""
    state, config = begun(grpo, group=4, max_new_tokens=50)
    seen = grpo.collect(state, prompts(4, vocabulary=8), toy, config)
    mask = seen.rollout.mask
    assert mask.shape[1] < 50 and seen.rollout.terminated.all()
    loss, metrics = grpo.minibatch_loss(state, seen, config)
    gained, far = (sum(table[mask].tolist()) / (16 * 50) for table in (seen.advantages, seen.kl))
    assert far > 0.01 and abs(gained) > 0.001
    assert metrics["policy/loss"].item() == pytest.approx(-gained, abs=1e-5)
    assert metrics["policy/kl_loss"].item() == pytest.approx(far, abs=1e-5)
    assert loss.item() == pytest.approx(0.3 * far - gained, abs=1e-5)


@pytest.mark.parametrize("module", [rloo, grpo])
def test_an_update_samples_as_many_responses_as_its_settings_say(module):
    """And each update its own prompts, as many as it has groups."""
    config = settings(module, group=4, updates=2)
    state, seen = module.init(gpt2(), config, seed=0), []

    def watch(rollout):
        seen.append(rollout.prompts.example_ids)
        return toy(rollout)

    assert len(list(module.train(state, prompts(32), watch, config))) == 2
    for update, names in enumerate(seen):
        assert names == [name for name in batch_of(prompts(32), 4, 0, update).example_ids for _ in range(4)]
    assert seen[0] != seen[1]


@pytest.mark.parametrize("module", [reinforce, rloo, grpo])
def test_without_a_value_network_there_is_none_to_report(module):
    config = settings(module, updates=1)
    state = module.init(gpt2(), config, seed=0)
    assert not hasattr(state, "value")
    (metrics,) = module.train(state, prompts(32), toy, config)
    assert "objective/score" in metrics and not [name for name in metrics if name.startswith("value/")]


# scores paid token by token
# ---------------------------------------------------------------------------------------------


def both(module, kind="causal", **changes):
    """The same rollout with its score at the end, and with the same sum token by token."""
    state, config = begun(module, kind, min_new_tokens=2, **changes)
    if hasattr(state, "value") and config.value == "separate":
        torch.manual_seed(0)
        torch.nn.init.normal_(state.value.head.weight)
    return [module.collect(state, prompts(16, vocabulary=8), score, config) for score in (toy, token_toy)]


@pytest.mark.parametrize(
    "module, extra",
    [
        (ppo, {}),
        (nlpo, {}),
        (dropout, {"mode": "same"}),
        (mismatch, {"breaks": ["scoring"]}),
        (a2c, {}),
    ],
)
def test_a_score_per_token_has_the_same_return_and_other_advantages(kind, module, extra):
    end, tokens = both(module, kind, gamma=1.0, lam=1.0, whiten_advantages=False, **extra)
    assert end.scores.shape == tokens.scores.shape == (16,)
    torch.testing.assert_close(end.scores, tokens.scores)
    torch.testing.assert_close(end.rewards.sum(1), tokens.rewards.sum(1))
    torch.testing.assert_close(end.returns[:, 0], tokens.returns[:, 0])  # of the whole response
    torch.testing.assert_close(end.advantages[:, 0], tokens.advantages[:, 0])
    paid = token_toy(tokens.rollout)[0]
    assert (paid[:, :-1] > 0).any()
    so_far = paid.cumsum(1) - paid  # what has been paid before a token is not among its returns
    torch.testing.assert_close(end.returns - so_far * end.rollout.mask, tokens.returns, atol=1e-5, rtol=0)
    assert (end.advantages - tokens.advantages).abs().max() > 0.05
    for given in ({"gamma": 0.9, "lam": 1.0}, {"gamma": 1.0, "lam": 0.5}):
        end, tokens = both(module, kind, whiten_advantages=False, **given, **extra)
        assert (end.advantages[:, 0] - tokens.advantages[:, 0]).abs().max() > 0.01


@pytest.mark.parametrize("module", [bandit, rloo, grpo])
def test_where_the_response_is_one_action_it_does_not_matter_when_it_is_paid(kind, module):
    end, tokens = both(module, kind)
    torch.testing.assert_close(end.advantages, tokens.advantages, atol=1e-4, rtol=0)
    torch.testing.assert_close(end.returns, tokens.returns)
    assert not torch.equal(end.rewards, tokens.rewards) and end.advantages.abs().max() > 0.01


# learning
# ---------------------------------------------------------------------------------------------------------------

PASS = 0.8
TOYS = {  # learner: (updates, settings)
    "a2c": (32, {"gamma": 1.0}),
    "reinforce": (32, {"gamma": 1.0}),
    "rloo": (32, {"group": 4}),
    "grpo": (20, {"group": 4, "epochs": 2, "minibatches": 1}),
}


def toy_curve(name: str, kind: str, **changes) -> list[float]:
    """Training score of each update: the share of one token among 24, 0.04 by chance, 6 tokens, 32 episodes an
    update."""
    updates, given = TOYS[name]
    module, policy = LEARNERS[name], MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    common = {"updates": updates, "episodes_per_update": 32, "learning_rate": 3e-2, "kl_coef": 0.0, "min_new_tokens": 6}
    config = settings(module, **{**common, **given, **changes})
    state = module.init(policy, config, seed=0)
    return [m["objective/score"] for m in module.train(state, prompts(32, vocabulary=24), toy, config)]


@pytest.mark.parametrize("name", TOYS)
def test_learns_the_toy(kind, name):
    curve = toy_curve(name, kind)
    assert curve[0] < 0.2 and max(curve[-5:]) > PASS, curve


@pytest.mark.parametrize("name", ["a2c", "reinforce", "rloo", "grpo"])
def test_a_kl_penalty_holds_the_policy_back(name):
    """The reward's k1 and GRPO's term of the loss alike."""
    ends = {}
    for beta in (0.0, 3.0):
        module, policy = LEARNERS[name], gpt2(24, spread=0.02)
        config = settings(module, updates=8, learning_rate=1e-2, kl_coef=beta, min_new_tokens=6)
        ends[beta] = list(module.train(module.init(policy, config, seed=0), prompts(32, vocabulary=24), toy, config))[
            -1
        ]
    assert ends[3.0]["objective/kl"] < 0.5 * ends[0.0]["objective/kl"] and ends[0.0]["objective/kl"] > 0.05


# what stops a run
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [a2c, reinforce, rloo, grpo])
def test_a_broken_ratio_stops_the_run_unless_the_experiment_says_so(module):
    policy, config = gpt2(), settings(module)
    state = module.init(policy, config, seed=0)
    seen = module.collect(state, prompts(16), toy, config)
    drawn = dataclasses.replace(
        seen.rollout, behavior_logprobs=seen.rollout.behavior_logprobs - 0.01 * seen.rollout.mask
    )
    wrong, before = dataclasses.replace(seen, rollout=drawn), weights(policy)
    with pytest.raises(common.TrainingError, match="update 1: the ratio of the first minibatch is off 1 by 0.01"):
        module.update(state, wrong, config)
    assert torch.equal(weights(policy), before)
    metrics = module.update(state, wrong, settings(module, breaks=("ratio",)))
    assert metrics["policy/first_ratio_error"] == pytest.approx(0.01, abs=1e-3)


@pytest.mark.parametrize("module", [a2c, reinforce, rloo, grpo])
def test_a_policy_that_breaks_before_its_update_has_diverged(module):
    policy, config = gpt2(), settings(module, breaks=("ratio",))
    state = module.init(policy, config, seed=0)
    seen = module.collect(state, prompts(16), toy, config)
    with torch.no_grad():
        policy.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(common.Diverged, match="update 1: .*(is nan|not finite)"):
        module.update(state, seen, config)


@pytest.mark.parametrize(
    "module, given, reason",
    [
        (
            rloo,
            {"group": 1},
            "group.*expected at least 2 .a response is compared with the others to its prompt., got 1",
        ),
        (
            grpo,
            {"group": 1},
            "group.*expected at least 2 .a response is compared with the others to its prompt., got 1",
        ),
        (rloo, {"group": 3}, r"episodes_per_update 16: expected a multiple of group \(3\), because every prompt"),
        (grpo, {"group": 3}, r"episodes_per_update 16: expected a multiple of group \(3\), because every prompt"),
        (grpo, {"episodes_per_update": 0}, "episodes_per_update 0: expected a multiple of group"),
        (grpo, {"minibatches": 17}, r"minibatches 17: expected at most episodes_per_update \(16\)"),
        (grpo, {"clip": 0.0}, "clip.*greater than 0"),
        (rloo, {"gamma": 0.9}, "gamma.*expected 1 .the response is one action: nothing to discount., got 0.9"),
        (
            reinforce,
            {"episodes_per_update": 1},
            "expected at least 2 .an episode's baseline is the mean of the others., got 1",
        ),
        (reinforce, {"gamma": 1.1}, "gamma.*less than or equal to 1"),
        (reinforce, {"kl_coef": -0.1}, "kl_coef.*greater than or equal to 0"),
        (a2c, {"epochs": 2}, "epochs.*expected 1 .a2c takes one step on each rollout.*got 2"),
        (a2c, {"minibatches": 2}, "minibatches.*expected 1 .a2c takes one step"),
        (a2c, {"clip": 0.1}, "clip.*expected 0.2 .a2c takes one step.*got 0.1"),
        (reinforce, {"clip": 0.2}, "clip.*no such setting"),
        (grpo, {"gamma": 1.0}, "gamma.*no such setting"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(module, given, reason):
    with pytest.raises(pydantic.ValidationError, match=f"(?s){reason}"):
        settings(module, **given)


def test_a_single_prompt_has_no_others_to_compare_with():
    state, config = begun(reinforce)
    with pytest.raises(ValueError, match="group: expected at least 2.*got 1 rows"):
        reinforce.collect(state, prompts(1, vocabulary=8), toy, config)
