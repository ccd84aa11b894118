"""The learners of single questions (bandit, dropout, mismatch, filtered, best of n) against something independent of
each."""

import copy
import dataclasses

import pydantic
import pytest
import torch
from torch import nn

from rlnlp import models
from rlnlp.learners import common, nlpo, ppo, supervised
from rlnlp.losses import cross_entropy
from rlnlp.rollout import batch_of, repeat, sample, sampling_from
from rlnlp.samplers import top_p
from rlnlp.types import generator, take
from tests.test_learners import settings, toy, weights
from tests.tiny import EOS, MAKE, gpt2, prompts
from workbook.arms import bandit, best_of_n, dropout, filtered, mismatch


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


def run(module, make, seed=1, **changes):
    """(curve, final weights) of a few updates."""
    policy, config = make(seed=2), settings(module, updates=3, **changes)
    return list(module.train(module.init(policy, config, seed), prompts(32), toy, config)), weights(policy)


def assert_same(ours, theirs):
    assert ours[0] == theirs[0], "the metrics differ"
    assert torch.equal(ours[1], theirs[1]), "the policies differ"


# bandit
# -----------------------------------------------------------------------------------------------------------------


def test_bandit_with_one_token_is_ppo_without_discount(kind):
    """A response of one token is one action for both. Not digit for digit: PPO's return is (R - V) + V, the bandit's
    R."""
    given = {"max_new_tokens": 1, "value_learning_rate": 1e-2}
    ours, theirs = run(bandit, MAKE[kind], **given)[0], run(ppo, MAKE[kind], gamma=1.0, lam=1.0, **given)[0]
    assert ours[0] == theirs[0]
    for mine, other in zip(ours, theirs):
        for metrics in (mine, other):  # where every response is paid the same, it is a share of rounding
            metrics.pop("value/explained_variance")
        assert mine == pytest.approx(other, rel=1e-3, abs=1e-4)


def test_bandit_with_more_tokens_is_not_ppo(kind):
    assert run(bandit, MAKE[kind])[0] != run(ppo, MAKE[kind], gamma=1.0, lam=1.0)[0]


def bandit_state(kind, **changes):
    policy, config = MAKE[kind](8), settings(bandit, kl_coef=0.3, **changes)  # 8 tokens: many responses end early
    state = bandit.init(policy, config, seed=0)
    models.sync(state.reference, MAKE[kind](8, seed=1))  # a KL that is not zero
    nn.init.normal_(state.value.head.weight)
    return state, config


def test_bandit_pays_one_return_per_response_against_one_baseline(kind):
    state, config = bandit_state(kind, whiten_advantages=False)
    seen = bandit.collect(state, prompts(16, vocabulary=8), toy, config)
    rollout, mask = seen.rollout, seen.rollout.mask
    assert rollout.terminated.any() and not rollout.terminated.all()
    kl = (rollout.logprobs - models.score_tokens(state.reference, rollout)) * mask
    returns = toy(rollout)[0] - 0.3 * kl.sum(1)
    prompt_only = dataclasses.replace(
        rollout, **{n: getattr(rollout, n)[:, :1] for n in ("responses", "mask", "behavior_logprobs", "logprobs")}
    )
    baseline = state.value(prompt_only).detach()  # V(s_0) cannot depend on the response
    assert baseline.std() > 0.01 and kl.sum(1).abs().max() > 0.1
    for t in range(mask.shape[1]):
        torch.testing.assert_close(seen.advantages[:, t], (returns - baseline) * mask[:, t], atol=1e-5, rtol=1e-5)
    whitened = bandit.experience(state, rollout, toy, config.replace(whiten_advantages=True)).advantages[:, 0]
    assert whitened.mean().abs() < 1e-5 and whitened.std() == pytest.approx(1, abs=1e-4)


def test_bandit_trains_the_value_of_the_first_state_alone(kind):
    state, config = bandit_state(kind)
    seen = bandit.collect(state, prompts(16, vocabulary=8), toy, config)
    _, metrics = bandit.minibatch_loss(state, seen, config)
    values = models.scatter(state.value(seen.rollout), seen.rollout.mask)[:, 0]
    assert metrics["value/loss"] == pytest.approx(((values - seen.returns[:, 0]) ** 2).mean().item(), rel=1e-5)
    assert metrics["value/loss"] != pytest.approx(ppo.minibatch_loss(state, seen, config)[1]["value/loss"], rel=1e-2)


@pytest.mark.parametrize("name", ["gamma", "lam"])
def test_bandit_has_no_discount(name):
    assert bandit.Config.fixed == {"gamma": 1.0, "lam": 1.0} and bandit.Config().gamma == bandit.Config().lam == 1.0
    with pytest.raises(pydantic.ValidationError, match=rf"{name}\n.*expected 1 \(the response is one action.*got 0.9"):
        bandit.Config(**{name: 0.9})


# dropout
# ----------------------------------------------------------------------------------------------------------------

MODES = ("update_only", "independent", "same")


def dropped(mode, rate, kind="causal", policy=None, **changes):
    policy = policy or MAKE[kind](seed=2)
    config = settings(dropout, mode=mode, rate=rate, breaks=() if mode == "same" else ("ratio",), **changes)
    return dropout.init(policy, config, seed=1), config


@pytest.mark.parametrize("mode", MODES)
def test_dropout_at_rate_zero_is_ppo(kind, mode):
    assert_same(run(dropout, MAKE[kind], rate=0.0, mode=mode), run(ppo, MAKE[kind]))


def pretrained_with_dropout(seed=2):
    """A model whose own config says 0.3, as one that was trained with dropout has."""
    model = gpt2(seed=seed)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.3
    return model


def test_a_base_with_dropout_of_its_own_uses_only_ours():
    assert_same(run(dropout, pretrained_with_dropout, rate=0.0, mode="same"), run(ppo, gpt2))
    ours, theirs = (run(dropout, make, rate=0.2, mode="same") for make in (pretrained_with_dropout, gpt2))
    assert_same(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_only_the_rollouts_own_masks_start_at_ratio_one(kind, mode):
    """Rows leave the batch and minibatches are permuted on the way: masks must follow their episodes through both."""
    given = {"max_new_tokens": 12, "epochs": 1, "minibatches": 3, "learning_rate": 0.0}
    spread = {"causal": 0.12, "encoder-decoder": 0.4}[kind]  # with 4 tokens many rows end early, and not all
    state, config = dropped(mode, 0.2, kind, MAKE[kind](4, spread=spread), **given)
    seen = dropout.collect(state, prompts(32, vocabulary=4), toy, config)
    ends = seen.rollout.mask.sum(1)
    assert (ends < 6).float().mean() > 0.5 and ends.max() > 6
    metrics = dropout.update(state, seen, config)
    if mode == "same":
        assert metrics["policy/ratio_error"] < 1e-5 and metrics["policy/clip_fraction"] == 0  # all three minibatches
    else:
        assert metrics["policy/first_ratio_error"] > 0.1


def test_update_only_samples_without_dropout_and_the_others_with(kind):
    plain = ppo.rollout(ppo.init(MAKE[kind](seed=2), settings(ppo), seed=1), prompts(16))
    for mode in MODES:
        state, config = dropped(mode, 0.3, kind)
        seen = dropout.collect(state, prompts(16), toy, config)
        same = torch.equal(seen.rollout.logprobs[:, 0], plain.logprobs[:, 0])
        assert same == (mode == "update_only") and bool(seen.masks) != same


def test_every_forward_pass_of_an_update_draws_new_masks(monkeypatch):
    drawn, real = [], dropout.draw

    def watch(state, rows, rate, *name):
        drawn.append(real(state, rows, rate, *name))
        return drawn[-1]

    monkeypatch.setattr(dropout, "draw", watch)
    for mode, expected in (("update_only", 8), ("independent", 10), ("same", 2)):
        drawn.clear()
        state, config = dropped(mode, 0.5, updates=2)
        list(dropout.train(state, prompts(32), toy, config))
        first = [masks["transformer.drop"] for masks in drawn]
        assert len(first) == expected
        assert all(not torch.equal(a[:8], b[:8]) for i, a in enumerate(first) for b in first[:i])


def test_masks_are_inverted_dropout_of_the_rate():
    state, _ = dropped("same", 0.25)
    for mask in dropout.draw(state, 4000, 0.25, "x").values():
        assert mask.shape == (4000, 32) and mask.unique().tolist() == pytest.approx([0, 1 / 0.75])
        assert (mask > 0).float().mean().item() == pytest.approx(0.75, abs=0.01)
        assert mask.mean().item() == pytest.approx(1, abs=0.02)
    sites = list(dropout.draw(state, 2, 0.25, "x").values())
    assert all(not torch.equal(a, b) for i, a in enumerate(sites) for b in sites[:i])


class Multiply(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x * self.by


def test_a_row_is_computed_by_the_policy_with_its_masks_written_in():
    """Each dropout module replaced by a plain multiplication, one row at a time, one full forward pass: no hooks, no
    cache."""
    state, config = dropped("same", 0.3)
    seen = dropout.collect(state, prompts(8), toy, config)
    assert state.sites == ["transformer.drop"] + [
        f"transformer.h.{i}.{site}" for i in range(2) for site in ("attn.resid_dropout", "mlp.dropout")
    ]
    for row in range(8):
        model, one = copy.deepcopy(state.policy), take(seen, torch.tensor([row]))
        for site, mask in one.masks.items():
            parent, _, name = site.rpartition(".")
            setattr(model.get_submodule(parent), name, Multiply(mask))
        logprobs = models.score_tokens(model, one.rollout)
        torch.testing.assert_close(logprobs, seen.rollout.logprobs[[row]], atol=1e-5, rtol=0)
        assert (logprobs - models.score_tokens(state.policy, one.rollout)).abs().max() > 1e-2


def test_reference_value_and_evaluation_have_no_dropout(kind):
    state, config = dropped("independent", 0.3, kind)
    nn.init.normal_(state.value.head.weight)
    seen = dropout.collect(state, prompts(16), toy, config)
    torch.testing.assert_close(seen.ref_logprobs, models.score_tokens(state.reference, seen.rollout))
    torch.testing.assert_close(seen.values, models.scatter(state.value(seen.rollout), seen.rollout.mask).detach())
    dropout.update(state, seen, config)
    fresh = MAKE[kind](seed=5)
    models.sync(fresh, state.policy)
    assert torch.equal(models.score_tokens(state.policy, seen.rollout), models.score_tokens(fresh, seen.rollout))
    assert hooks(state.policy) == hooks(state.reference) == hooks(state.value) == 0


def hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules() if isinstance(module, nn.Dropout))


def test_masks_leave_the_policy_when_a_pass_fails():
    state, _ = dropped("same", 0.3)
    with pytest.raises(RuntimeError, match="stop"), dropout.applied(state.policy, dropout.draw(state, 4, 0.3, "x")):
        assert hooks(state.policy) == 5
        raise RuntimeError("stop")
    assert hooks(state.policy) == 0


@pytest.mark.parametrize(
    "given, message",
    [
        ({"mode": "update_only"}, r"breaks \[\]: expected \[ratio\] with mode update_only"),
        ({"mode": "independent"}, r"breaks \[\]: expected \[ratio\] with mode independent"),
        ({"mode": "same", "value": "shared"}, "value shared: expected separate"),
        ({"mode": "same", "rate": 1.0}, "less than 1"),
    ],
)
def test_dropout_refuses(given, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        dropout.Config(**given)


def test_a_model_without_dropout_modules_is_refused():
    model = gpt2()
    for site in dropout.init(gpt2(), settings(dropout, mode="same"), 0).sites:
        parent, _, name = site.rpartition(".")
        setattr(model.get_submodule(parent), name, nn.Identity())
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel: no nn.Dropout with output \[B, L, H\] runs"):
        dropout.init(model, settings(dropout, mode="same"), 0)


# mismatch
# ---------------------------------------------------------------------------------------------------------------

SCORING = {"breaks": ("scoring",)}


def test_mismatch_without_truncation_is_ppo(kind):
    assert_same(run(mismatch, MAKE[kind], **SCORING), run(ppo, MAKE[kind]))


def test_mismatch_samples_truncated_and_scores_over_the_whole_vocabulary(kind):
    given = {"top_p": 0.5, "temperature": 0.8, "min_new_tokens": 2}
    policy, config = MAKE[kind](), settings(mismatch, **SCORING, **given)
    state = mismatch.init(policy, config, seed=0)
    drawn, plain = mismatch.rollout(state, prompts(32)), ppo.rollout(state, prompts(32))
    assert torch.equal(drawn.responses, plain.responses)  # sampled alike
    torch.testing.assert_close(drawn.behavior_logprobs, models.score_tokens(policy, drawn), atol=2e-5, rtol=0)
    assert (plain.behavior_logprobs - drawn.behavior_logprobs)[drawn.mask].mean() > 0.3  # the mass that was cut away
    seen = mismatch.collect(state, prompts(32), toy, config)
    _, metrics = ppo.minibatch_loss(state, seen, config)
    assert metrics["policy/ratio_error"] < 1e-4  # the new log-probabilities are of the same kind
    logits = models.behavior_logits(models.head(policy, models.hidden_states(policy, drawn)[drawn.mask]), drawn)
    scored, early = torch.isfinite(logits), drawn.mask.nonzero()[:, 1] < 2
    assert scored[:, torch.arange(scored.shape[1]) != EOS].all()  # nothing is masked when scoring,
    assert torch.equal(scored[:, EOS], ~early)  # but for the end that the task does not allow yet


def test_mismatch_says_so():
    with pytest.raises(pydantic.ValidationError, match=r"breaks \[\]: expected \[scoring\]"):
        mismatch.Config(top_p=0.9)


# NLPO's mask sources
# ----------------------------------------------------------------------------------------------------


def test_an_initial_mask_is_never_refreshed(kind):
    policy = MAKE[kind]()
    before, config = weights(policy), settings(nlpo, mask_source="initial", sync_every=1, mask_top_p=0.6)
    state = nlpo.init(policy, config, seed=0)
    for metrics in nlpo.train(state, prompts(32), toy, config):
        assert metrics["nlpo/synced"] == 0 and torch.equal(weights(state.mask_model), before)
    assert not torch.equal(weights(policy), before)


def test_a_random_mask_keeps_the_mass_under_the_mask_model_and_not_its_nucleus(kind):
    policy, p = MAKE[kind](), 0.6
    config = settings(nlpo, mask_source="random", mask_top_p=p)
    state = nlpo.init(policy, config, seed=0)
    models.sync(state.mask_model, MAKE[kind](seed=9))
    state.update = 1
    drawn = nlpo.rollout(state, prompts(32), config)
    allowed = drawn.allowed.unpack(drawn.mask)
    logits = models.head(state.mask_model, models.hidden_states(state.mask_model, drawn)[drawn.mask]).detach()
    kept = (logits.softmax(-1) * allowed).sum(1)
    assert (kept > p - 1e-5).all() and kept.mean() < p + 0.2
    nucleus = top_p(p)(logits, None)[1]
    assert (allowed != nucleus).any(1).float().mean() > 0.9
    assert allowed.gather(1, drawn.responses[drawn.mask][:, None]).all()
    state.update = 2
    again = nlpo.rollout(state, prompts(32), config)
    assert not torch.equal(again.allowed.bits[:, 0], drawn.allowed.bits[:, 0])  # a new set every rollout


def test_a_random_mask_is_drawn_under_a_model_that_is_still_synced():
    policy, config = gpt2(), settings(nlpo, mask_source="random", sync_every=2, updates=5, mask_top_p=0.6)
    state = nlpo.init(policy, config, seed=0)
    synced = [metrics["nlpo/synced"] for metrics in nlpo.train(state, prompts(32), toy, config)]
    assert synced == [1, 0, 1, 0, 1]


# filtered and best of n
# -------------------------------------------------------------------------------------------------


def test_filtered_with_one_sample_is_supervised_learning_on_samples_of_the_start(kind):
    config = filtered.Config(
        updates=3, episodes_per_update=8, samples_per_prompt=1, max_new_tokens=6, learning_rate=1e-2
    )
    policy, twin, start = MAKE[kind](), MAKE[kind](), MAKE[kind]()
    curve = list(filtered.train(filtered.init(policy, config, 4), prompts(32), toy, config))
    optimizer = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.0, fused=True)
    for update in range(3):
        drawn = sample(
            start, batch_of(prompts(32), 8, 4, update), sampling_from(start, 6), generator(4, "rollout", update)
        )
        loss = cross_entropy(
            models.head(twin, models.hidden_states(twin, drawn)[drawn.mask]), drawn.responses[drawn.mask]
        )
        assert curve[update]["supervised/loss"] == pytest.approx(loss.item(), abs=1e-5)
        loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(models.score_tokens(policy, drawn), models.score_tokens(twin, drawn), atol=1e-4, rtol=0)


def test_filtered_keeps_the_best_of_each_prompt(kind):
    config = filtered.Config(episodes_per_update=8, samples_per_prompt=5, max_new_tokens=6)
    state, batch = filtered.init(MAKE[kind](), config, 0), prompts(8)

    def distinct(rollout):  # no ties
        return (rollout.responses * rollout.mask).sum(1).float() + rollout.responses[:, 0] / 100, {}

    seen = filtered.collect(state, batch, distinct, config)
    assert seen.rollout.prompts.example_ids == batch.example_ids
    torch.testing.assert_close(distinct(seen.rollout)[0], seen.scores)
    assert torch.equal(seen.scores, seen.sampled_scores.max(1).values) and (seen.sampled_scores.std(1) > 0).all()
    torch.testing.assert_close(seen.ref_logprobs, models.score_tokens(state.reference, seen.rollout), atol=2e-5, rtol=0)
    metrics = filtered.update(state, seen, config)
    assert metrics["filtered/score"] == pytest.approx(seen.sampled_scores.mean().item())
    assert metrics["filtered/best_score"] == pytest.approx(seen.scores.mean().item())
    assert metrics["filtered/best_score"] > metrics["filtered/score"]


def test_filtered_learns_what_best_of_n_gives_and_not_more(kind):
    """Its teacher never moves: the teacher's scores stay as they are, and the policy comes near them."""
    policy = MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    config = filtered.Config(
        updates=80,
        episodes_per_update=16,
        learning_rate=1e-2,
        max_new_tokens=6,
        min_new_tokens=6,
        samples_per_prompt=16,
    )
    state = filtered.init(policy, config, 0)
    curve = list(filtered.train(state, prompts(32, vocabulary=24), toy, config))
    plain, best = (sum(m[f"filtered/{k}"] for m in curve) / 80 for k in ("score", "best_score"))
    assert plain < 0.1 and best > 2 * plain
    drawn = sample(policy, repeat(prompts(32, vocabulary=24), 16), state.sampling, generator(9))
    assert toy(drawn)[0].mean().item() == pytest.approx(best, rel=0.25)


def test_filtered_sees_no_labelled_reviews():
    with pytest.raises(pydantic.ValidationError, match="expected 1 .filtered learns from its own samples.*got 0.5"):
        filtered.Config(data_fraction=0.5)


def test_best_of_one_is_a_plain_sample_and_of_more_is_better(kind):
    policy = MAKE[kind]()
    before, scores = weights(policy), []
    for n in (1, 4, 16):
        config = best_of_n.Config(n=n, max_new_tokens=6)
        state = best_of_n.init(policy, config, 0)
        assert list(best_of_n.train(state, prompts(32), toy, config)) == []
        seen = best_of_n.collect(state, prompts(32), toy, config)
        if n == 1:
            plain = sample(policy, prompts(32), sampling_from(policy, 6), generator(0, "rollout", 0))
            assert torch.equal(seen.rollout.responses, plain.responses)
        scores.append(seen.scores.mean().item())
    assert scores[0] < scores[1] < scores[2] and torch.equal(weights(policy), before)


def test_best_of_n_trains_nothing():
    with pytest.raises(pydantic.ValidationError, match="expected 0 .best of n trains nothing.*got 3"):
        best_of_n.Config(updates=3)
    with pytest.raises(common.TrainingError, match="nothing is trained"):
        best_of_n.update(None, None, best_of_n.Config())


# supervised
# -------------------------------------------------------------------------------------------------------------


def test_supervised_keeps_the_policy_it_started_from(kind):
    policy, config = MAKE[kind](), supervised.Config(updates=2, data_fraction=0.1, max_new_tokens=6)
    before = weights(policy)
    state = supervised.init(policy, config, 0, tokenizer=lambda text, add_special_tokens: {"input_ids": [5, 6]})
    list(supervised.train(state, prompts(64), None, config))
    assert torch.equal(weights(state.reference), before) and not torch.equal(weights(policy), before)
    for fraction in (0.0, 1.1):
        with pytest.raises(pydantic.ValidationError, match="data_fraction"):
            supervised.Config(data_fraction=fraction)
