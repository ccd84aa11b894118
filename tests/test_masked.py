"""PPO under any truncation rule: the first ratio is 1, a delayed mask is the older copy's own, and both kinds learn."""

import itertools

import pytest
import torch
from transformers import EtaLogitsWarper, MinPLogitsWarper, TypicalLogitsWarper

from rlnlp import checkpoint, models
from rlnlp.learners import common, masked, nlpo, ppo
from rlnlp.samplers import RULES
from tests.tiny import MAKE, gpt2, prompts

TARGET = 7  # the toy's score is the share of this token in a response
VALUES = {
    "none": 0,
    "top_k": 10,
    "top_p": 0.7,
    "min_p": 0.1,
    "typical": 0.6,
    "epsilon": 0.02,
    "eta": 0.05,
    "mirostat": 2.5,
}


def toy(rollout):
    hits = ((rollout.responses == TARGET) & rollout.mask).sum(1) / rollout.mask.sum(1)
    return hits.float(), {"hits": hits.float()}


def settings(module=masked, **changes):
    base = {
        "updates": 3,
        "episodes_per_update": 8,
        "epochs": 1,
        "minibatches": 2,
        "learning_rate": 3e-3,
        "max_new_tokens": 6,
        "kl_coef": 0.05,
    }
    return module.Config(**{**base, **changes})


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(module, config, kind, seed=1):
    """(metrics of each update, state, its weights at the end) of a run on the toy."""
    policy = MAKE[kind](seed=2, layers=1)
    state = module.init(policy, config, seed=seed)
    return list(module.train(state, prompts(32), toy, config)), state, weights(policy)


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("rule", RULES)
def test_the_first_ratio_is_one_under_every_rule(kind, rule, delay):
    """The mask of the rollout is the mask of its update, whichever model it came from and however far that has
    moved."""
    config = settings(
        mask_rule=rule, mask_value=VALUES[rule], mask_delay=delay, learning_rate=1e-2, temperature=0.8, min_new_tokens=2
    )
    curve, state, _ = trained(masked, config, kind)
    assert len(curve) == 3 and max(m["policy/first_ratio_error"] for m in curve) < 1e-4
    assert [m["masked/synced"] for m in curve] == ([0.0] * 3 if delay == 0 else [1.0, 0.0, 1.0])
    assert (state.mask_model is None) == (delay == 0)
    drawn = masked.rollout(state, prompts(16), config)
    sizes = drawn.allowed.unpack(drawn.mask).sum(1)
    assert (sizes == 50).all() if rule == "none" else (sizes < 45).float().mean() > 0.8  # the rule acts


def same(ours, theirs):
    for mine, other in zip(ours[0], theirs[0], strict=True):
        assert {k: v for k, v in mine.items() if k in other} == {
            k: v for k, v in other.items() if not k.startswith("nlpo/")
        }
    assert torch.equal(ours[2], theirs[2])


@pytest.mark.parametrize("more", [{}, {"top_k": 20, "temperature": 0.8}])
def test_a_delayed_nucleus_is_nlpo(kind, more):
    ours = trained(masked, settings(mask_rule="top_p", mask_value=0.6, mask_delay=2, updates=4, **more), kind)
    theirs = trained(nlpo, settings(nlpo, mask_top_p=0.6, sync_every=2, updates=4, **more), kind)
    same(ours, theirs)
    assert [m["masked/synced"] for m in ours[0]] == [m["nlpo/synced"] for m in theirs[0]]


@pytest.mark.parametrize("rule, own", [("top_p", {"top_p": 0.6}), ("top_k", {"top_k": 9}), ("none", {})])
def test_a_synced_rule_is_ppo_with_that_truncation(kind, rule, own):
    value = next(iter(own.values()), 0)
    same(trained(masked, settings(mask_rule=rule, mask_value=value), kind), trained(ppo, settings(ppo, **own), kind))


def test_a_rule_comes_before_the_learners_own_truncation():
    """top-k of 12, then mass 0.5 of what is left: the other order keeps other tokens."""
    config = settings(mask_rule="top_k", mask_value=12, top_p=0.5)
    same(trained(masked, config, "causal"), trained(ppo, settings(ppo, top_k=12, top_p=0.5), "causal"))
    swapped = settings(mask_rule="top_p", mask_value=0.5, top_k=12)
    assert not torch.equal(trained(masked, swapped, "causal")[2], trained(masked, config, "causal")[2])


# the mask model
# ---------------------------------------------------------------------------------------------------------

WARPERS = {"min_p": (MinPLogitsWarper, 0.2), "typical": (TypicalLogitsWarper, 0.5), "eta": (EtaLogitsWarper, 0.05)}


@torch.no_grad()
def uncached(model, prompt, prefix):
    if not model.config.is_encoder_decoder:
        return model(torch.cat([prompt, prefix])[None]).logits[:, -1]
    start = torch.tensor([model.config.decoder_start_token_id])
    return model(input_ids=prompt[None], decoder_input_ids=torch.cat([start, prefix])[None]).logits[:, -1]


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("rule", WARPERS)
def test_the_mask_is_the_rule_on_the_right_models_own_logits(kind, rule, delay):
    """Synced: the policy's; delayed: the older copy's, from its own encoder and cache, by transformers' processor."""
    warper, value = WARPERS[rule]
    config, batch = settings(mask_rule=rule, mask_value=value, mask_delay=delay), prompts(5, ragged=False)
    policy = MAKE[kind](seed=0)
    state = masked.init(policy, config, seed=0)
    models.sync(policy, MAKE[kind](seed=9))  # the policy moves far
    drawn = masked.rollout(state, batch, config)
    stored, at = drawn.allowed.unpack(drawn.mask), 0
    for row in range(5):
        for t in range(int(drawn.mask[row].sum())):
            logits = uncached(state.mask_model if delay else policy, batch.ids[row], drawn.responses[row, :t])
            assert torch.equal(stored[at], (warper(value)(None, logits) > -torch.inf)[0]), f"row {row}, token {t}"
            assert stored[at, drawn.responses[row, t]]
            at += 1


@pytest.mark.parametrize("rule", ["typical", "mirostat"])
def test_a_sync_reaches_the_very_next_sample_and_comes_on_schedule(rule):
    policy = gpt2()
    config = settings(mask_rule=rule, mask_value=VALUES[rule], mask_delay=3, updates=7)
    state = masked.init(policy, config, seed=0)
    history = [weights(policy)]
    for metrics in masked.train(state, prompts(32), toy, config):  # check_sync has looked at updates 1, 4 and 7
        history.append(weights(policy))
        since = (metrics["update"] - 1) // 3 * 3
        assert metrics["masked/synced"] == (metrics["update"] - 1 == since)
        assert torch.equal(weights(state.mask_model), history[since])
    assert not torch.equal(weights(state.mask_model), weights(policy))


@pytest.mark.parametrize("rule", ["top_p", "typical", "mirostat"])
def test_a_sync_that_does_not_reach_the_sampler_stops_the_run(kind, rule, monkeypatch):
    config = settings(mask_rule=rule, mask_value=VALUES[rule], mask_delay=2, learning_rate=3e-2)
    monkeypatch.setattr(masked.models, "sync", lambda target, source: None)
    with pytest.raises(
        common.TrainingError, match="update 3: the mask model was synced and the sampler does not use it"
    ):
        trained(masked, config, kind)


# stopping, resuming, refusing
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule, delay", [("typical", 0), ("mirostat", 2), ("eta", 3)])
def test_resumed_equals_uninterrupted(kind, rule, delay):
    config = settings(mask_rule=rule, mask_value=VALUES[rule], mask_delay=delay, updates=4, kl_target=0.01)
    curve, whole, end = trained(masked, config, kind)
    state = masked.init(MAKE[kind](seed=2, layers=1), config, seed=1)
    first = list(itertools.islice(masked.train(state, prompts(32), toy, config), 2))
    tensors, numbers = checkpoint.pack(state)
    resumed = masked.init(MAKE[kind](seed=2, layers=1), config, seed=1)
    checkpoint.unpack(resumed, tensors, numbers)
    assert first + list(masked.train(resumed, prompts(32), toy, config)) == curve
    assert torch.equal(weights(resumed.policy), end)


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("rule", RULES)
def test_a_policy_that_breaks_while_it_samples_has_diverged(rule, delay):
    config = settings(mask_rule=rule, mask_value=VALUES[rule], mask_delay=delay)
    policy = gpt2(layers=1)
    running = masked.train(masked.init(policy, config, seed=0), prompts(32), toy, config)
    next(running)
    with torch.no_grad():
        policy.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(common.Diverged, match="update 2: .*not finite"):
        next(running)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"mask_rule": "tipical"}, "sampler 'tipical': expected one of none, .*; nearest typical"),
        ({"mask_rule": "epsilon", "mask_value": 2}, "epsilon: expected 0 <= epsilon < 1"),
        ({"mask_rule": "top_k", "mask_value": 0}, "top_k: expected >= 1, got 0"),
        ({"mask_rule": "none", "mask_value": 0.9}, "none: expected 0"),
        ({"mask_delay": -1}, "greater than or equal to 0"),
        ({"mask_rul": "top_p"}, "no such setting"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_load(given, message):
    with pytest.raises(ValueError, match=message):
        settings(**given)


# learning
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule, value, delay", [("min_p", 0.3, 0), ("min_p", 0.3, 2), ("none", 0, 0)])
def test_learns_the_toy_sooner_with_a_mask_than_without(kind, rule, value, delay):
    """Share of one token among 24: 0.04 by chance. Under min-p the score passes 0.85 while PPO without it is below
    0.6."""
    policy = MAKE[kind](24, layers=1, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    config = settings(
        updates={"causal": 7, "encoder-decoder": 10}[kind],
        learning_rate={"causal": 5e-3, "encoder-decoder": 1e-2}[kind],
        episodes_per_update=32,
        epochs=3,
        kl_coef=0.0,
        gamma=1.0,
        min_new_tokens=6,
        mask_rule=rule,
        mask_value=value,
        mask_delay=delay,
    )
    state = masked.init(policy, config, seed=0)
    curve = [m["objective/score"] for m in masked.train(state, prompts(32, vocabulary=24), toy, config)]
    assert curve[0] < 0.15
    assert curve[-1] < 0.6 if rule == "none" else curve[-1] > 0.85, curve
