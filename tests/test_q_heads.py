"""Q heads: what they compute, that they are saved and loaded, and that a language model with one is read as before."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from rlnlp import models, pretrained, vocabulary
from rlnlp.learners import dqn, ppo
from rlnlp.offpolicy import q_heads
from rlnlp.rollout import sample, sampling_from
from rlnlp.trainable import check_policy
from tests.tiny import EOS, MAKE, PAD, gpt2, prompts

SCALE = 0.25


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


def with_head(kind, head, vocabulary=50):
    model = MAKE[kind](vocabulary)
    q_heads.install(model, head, SCALE, torch.Generator().manual_seed(0))
    return model


def hidden_like(model, rows=5):
    return torch.randn(rows, model.get_output_embeddings().in_features, generator=torch.Generator().manual_seed(2))


def tokenizer(size=50):
    words = {f"w{i}": i for i in range(size)}
    made = Tokenizer(WordLevel(words, unk_token="w2"))
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=f"w{EOS}", pad_token=f"w{PAD}")


def test_the_reports_head_is_three_linear_layers_with_relu_between():
    model = gpt2()
    head = q_heads.install(model, "mlp", SCALE, torch.Generator().manual_seed(0))
    assert [tuple(p.shape) for p in head.parameters()] == [(64, 32), (64,), (64, 64), (64,), (50, 64), (50,)]
    hidden = hidden_like(model)
    w1, b1, w2, b2, w3, b3 = head.parameters()
    by_hand = ((hidden @ w1.T + b1).clamp(min=0) @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(SCALE * head(hidden), by_hand)  # scale x logits are the values
    assert 0.9 / 32**0.5 < w1.abs().max() <= 1 / 32**0.5 and 0.9 / 8 < w3.abs().max() <= 1 / 8
    again = q_heads.install(gpt2(), "mlp", SCALE, torch.Generator().manual_seed(0))
    other = q_heads.install(gpt2(), "mlp", SCALE, torch.Generator().manual_seed(1))
    assert torch.equal(again.weight, head.weight) and not torch.equal(other.weight, head.weight)


def test_a_linear_head_starts_at_zero_and_a_logits_head_as_the_model(kind):
    plain, linear, logits = MAKE[kind](), with_head(kind, "linear"), with_head(kind, "logits")
    hidden = hidden_like(plain)
    assert (linear.get_output_embeddings()(hidden) == 0).all()
    assert linear.get_output_embeddings().layers[0].weight.requires_grad
    torch.testing.assert_close(models.head(logits, hidden), models.head(plain, hidden))
    before = plain.get_input_embeddings().weight
    with torch.no_grad():
        logits.get_output_embeddings().weight.add_(1.0)
    assert torch.equal(logits.get_input_embeddings().weight, before)  # the input embedding is not tied to it any more


@pytest.mark.parametrize("head", q_heads.KINDS)
def test_the_models_own_forward_and_a_rollout_read_the_head(kind, head):
    model = with_head(kind, head)
    check_policy(model)
    rollout = sample(model, prompts(8), sampling_from(model, 5), torch.Generator().manual_seed(0))
    torch.testing.assert_close(models.score_tokens(model, rollout), rollout.logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("limit", [False, True])
@pytest.mark.parametrize("head", q_heads.KINDS)
def test_saved_and_loaded_it_is_the_same_model(kind, head, limit, tmp_path):
    model = with_head(kind, head)
    with torch.no_grad():
        for parameter in model.get_output_embeddings().parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    if limit:
        vocabulary.limit_vocabulary(model, [EOS, 3, 7, 8])
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    loaded, _ = pretrained.load(tmp_path)
    hidden = hidden_like(model)
    assert torch.equal(models.head(loaded, hidden), models.head(model, hidden))
    rollout = sample(model, prompts(4), sampling_from(model, 5), torch.Generator().manual_seed(0))
    again = sample(loaded, prompts(4), sampling_from(loaded, 5), torch.Generator().manual_seed(0))
    assert torch.equal(again.responses, rollout.responses) and torch.equal(again.logprobs, rollout.logprobs)
    if limit:
        assert set(rollout.responses[rollout.mask].tolist()) <= {EOS, 3, 7, 8}
    assert loaded.get_output_embeddings().scale == SCALE and not loaded.training
    names = {name for name, _ in loaded.named_parameters()}
    assert names == {name for name, _ in model.named_parameters()}


def test_a_model_without_one_is_loaded_as_before(kind, tmp_path):
    model = MAKE[kind]()
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    loaded, _ = pretrained.load(tmp_path)
    assert not q_heads.installed(loaded) and type(loaded.get_output_embeddings()) is torch.nn.Linear
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize("limit", [False, True])
def test_another_learner_goes_on_with_a_q_network_as_its_policy(kind, limit):
    policy, config = MAKE[kind](), dqn.Config(head="mlp", updates=1, max_new_tokens=5)
    if limit:
        vocabulary.limit_vocabulary(policy, [EOS, 3, 7, 8])
    dqn.init(policy, config, seed=0)
    settings = ppo.Config(updates=2, episodes_per_update=8, max_new_tokens=5)

    def toy(rollout):
        return (rollout.responses == 7).float().mean(1), {}

    assert len(list(ppo.train(ppo.init(policy, settings, seed=0), prompts(8), toy, settings))) == 2
    if limit:
        drawn = sample(policy, prompts(32), sampling_from(policy, 5), torch.Generator().manual_seed(0))
        assert set(drawn.responses[drawn.mask].tolist()) <= {EOS, 3, 7, 8}


def test_a_critic_is_a_network_of_its_own(kind):
    model = MAKE[kind]().requires_grad_(False)
    first, second = (q_heads.critic(model, "mlp", SCALE, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert (
        not q_heads.installed(model) and q_heads.installed(first) and all(p.requires_grad for p in first.parameters())
    )
    assert not torch.equal(first.get_output_embeddings().weight, second.get_output_embeddings().weight)
    shared = {p.data_ptr() for p in model.parameters()}
    assert not shared & {p.data_ptr() for p in first.parameters()}


def test_another_scale_is_another_policy_with_the_same_values():
    model = with_head("causal", "mlp")
    hidden, head = hidden_like(model), model.get_output_embeddings()
    before = SCALE * models.head(model, hidden)
    q_heads.rescale(model, "mlp", 2.0)
    torch.testing.assert_close(2.0 * models.head(model, hidden), before)
    assert model.config.q_head == {"kind": "mlp", "scale": 2.0} and head is model.get_output_embeddings()
    with pytest.raises(ValueError, match="expected the kind 'mlp' that the model has, got 'linear'"):
        q_heads.rescale(model, "linear", 1.0)


def test_heads_that_do_not_exist_are_refused():
    model = gpt2()
    with pytest.raises(ValueError, match="Q head 'mpl': expected one of mlp, linear, logits"):
        q_heads.install(model, "mpl", 1.0)
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a scale > 0"):
            q_heads.install(model, "mlp", scale)
    assert not q_heads.installed(model)
