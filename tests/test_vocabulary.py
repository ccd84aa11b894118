"""A limited vocabulary: against renormalising by hand, and through training, copies and files."""

import copy
import math

import pytest
import torch

from rlnlp import checkpoint, models, pretrained, vocabulary
from rlnlp.decoding import Decoding, generate, human_log_perplexity
from rlnlp.learners import nlpo, ppo
from rlnlp.losses import entropy
from rlnlp.rollout import sample, sampling_from
from rlnlp.trainable import check_policy
from tests.test_learners import settings, toy, weights
from tests.tiny import EOS, MAKE, gpt2, prompts
from workbook.draws import training
from workbook.draws.tokenizer import train_tokenizer

ALLOWED = [EOS, 4, 7, 8, 9, 20, 33]


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


def limited(kind, seed=0):
    model = MAKE[kind](seed=seed)
    vocabulary.limit_vocabulary(model, ALLOWED)
    return model


def by_hand(model, rollout):
    """log pi [N, 7] over the allowed tokens: the whole model's logits at them, renormalised."""
    logits = models.head(model, models.hidden_states(model, rollout)[rollout.mask]).detach()
    return logits[:, ALLOWED].log_softmax(-1)


def test_it_is_the_policy_renormalised_over_the_tokens_that_exist(kind):
    whole, other, small, small_other = MAKE[kind](seed=0), MAKE[kind](seed=1), limited(kind, 0), limited(kind, 1)
    check_policy(small)
    rollout = sample(small, prompts(24), sampling_from(small, 8), torch.Generator().manual_seed(0))
    tokens = rollout.responses[rollout.mask]
    assert len(set(tokens.tolist())) > 4 and set(tokens.tolist()) <= set(ALLOWED)
    mine, theirs = by_hand(whole, rollout), by_hand(other, rollout)
    at = torch.tensor([[ALLOWED.index(t)] for t in tokens.tolist()])
    chosen = mine.gather(1, at).squeeze(1)
    torch.testing.assert_close(rollout.logprobs[rollout.mask], chosen, atol=2e-5, rtol=0)
    torch.testing.assert_close(rollout.behavior_logprobs[rollout.mask], chosen, atol=2e-5, rtol=0)
    torch.testing.assert_close(models.score_tokens(small, rollout)[rollout.mask], chosen, atol=2e-5, rtol=0)
    logits = models.head(small, models.hidden_states(small, rollout)[rollout.mask]).detach()
    assert torch.isfinite(logits).all()
    assert entropy(logits).item() == pytest.approx(-(mine.exp() * mine).sum(1).mean().item(), abs=1e-5)
    for kl in models.exact_kl(small, small_other, rollout):
        torch.testing.assert_close(kl[rollout.mask], (mine.exp() * (mine - theirs)).sum(1), atol=1e-5, rtol=1e-4)


def test_truncation_temperature_and_beams_live_in_it_too(kind):
    small = limited(kind)
    for decoding in (
        Decoding("k", 8, top_k=5, temperature=0.7),
        Decoding("p", 8, top_p=0.9, min_new_tokens=3),
        Decoding("beam", 8, beams=3),
        Decoding("mask", 8, mask_top_p=0.6, mask_random=True),
    ):
        for rollout in generate(small, prompts(24), decoding, "s", 24, mask_model=copy.deepcopy(small)):
            assert set(rollout.responses[rollout.mask].tolist()) <= set(ALLOWED)


@pytest.mark.parametrize("module", [ppo, nlpo])
@pytest.mark.parametrize("value", ["separate", "shared"])
def test_learners_need_no_change(kind, module, value):
    """Copies have it, nothing else is trained, and a resumed run is the uninterrupted one."""
    policy, config = limited(kind), settings(module, updates=4, entropy_coef=0.01, value=value)
    state = module.init(policy, config, seed=0)
    curve = list(module.train(state, prompts(32), toy, config))
    assert all(math.isfinite(v) for metrics in curve for v in metrics.values())
    assert curve[0]["policy/first_ratio_error"] < 1e-4 and abs(curve[0]["objective/kl"]) < 1e-5
    assert torch.equal(state.policy.get_output_embeddings().bias, limited(kind).get_output_embeddings().bias)
    assert (state.reference.get_output_embeddings().bias < 0).sum() == 50 - len(ALLOWED)
    half = module.init(limited(kind), config, seed=0)
    running = module.train(half, prompts(32), toy, config)
    first = [next(running), next(running)]
    resumed = module.init(limited(kind), config, seed=0)
    checkpoint.unpack(resumed, *checkpoint.pack(half))
    assert first + list(module.train(resumed, prompts(32), toy, config)) == curve
    assert torch.equal(weights(resumed.policy), weights(policy))


def test_tied_weights_stay_tied_and_no_parameter_is_added():
    whole, small = gpt2(), limited("causal")
    assert small.lm_head.weight is small.transformer.wte.weight
    assert [n for n, _ in small.named_parameters()] == [n for n, _ in whole.named_parameters()]
    assert not any(p is small.lm_head.bias for p in small.parameters())


def test_a_saved_policy_keeps_its_vocabulary(tmp_path):
    tokenizer = train_tokenizer(kind="word", words=[f"w{i}" for i in range(47)])
    small = limited("causal")
    training.save(tmp_path / "policy", small, tokenizer, "card")
    loaded, _ = pretrained.load(tmp_path / "policy")
    rollout = sample(small, prompts(8), sampling_from(small, 8), torch.Generator().manual_seed(0))
    torch.testing.assert_close(models.score_tokens(loaded, rollout), rollout.logprobs, atol=2e-5, rtol=0)
    assert vocabulary.limited(loaded) and not vocabulary.limited(gpt2())


def test_a_second_limit_replaces_the_first(kind):
    small, again = limited(kind), MAKE[kind]()
    vocabulary.limit_vocabulary(small, [EOS, 5])
    vocabulary.limit_vocabulary(again, [EOS, 5])
    assert torch.equal(small.get_output_embeddings().bias, again.get_output_embeddings().bias)
    assert small.config.allowed_token_ids == [EOS, 5]


def test_human_texts_have_no_perplexity_where_their_tokens_do_not_exist():
    tokenizer = train_tokenizer(kind="word", words=[f"w{i}" for i in range(47)])
    assert human_log_perplexity(gpt2(), tokenizer, ["w1 w2", "w3"]) > 0
    assert human_log_perplexity(limited("causal"), tokenizer, ["w1 w2", "w3"]) is None


def test_human_log_perplexity_is_a_mean_over_the_tokens_of_all_texts():
    """One text at a time by the plain model: 33 of unequal length, one of them of more than half the context of 16
    and one beyond it, which is cut there and has no end."""
    tokenizer, model = train_tokenizer(kind="word", words=[f"w{i}" for i in range(47)]), gpt2(positions=16)
    texts = [" ".join(f"w{(7 * i + j * j) % 47}" for j in range(1 + i % 6)) for i in range(31)]
    texts += [" ".join(f"w{j}" for j in range(n)) for n in (12, 20)]
    total, tokens = 0.0, 0
    for text in texts:
        ids = torch.tensor([EOS, *(3 + int(word[1:]) for word in text.split()), EOS])[:16]
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        total += torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum").item()
        tokens += len(ids) - 1
    assert human_log_perplexity(model, tokenizer, texts) == pytest.approx(total / tokens, rel=1e-5)


@pytest.mark.parametrize(
    "ids, message",
    [
        ([4, 7], "the end token 1 is not among the allowed ids"),
        ([EOS, 50], r"expected ids from 0 to 49, got \[50\]"),
        ([EOS, -1], r"expected ids from 0 to 49, got \[-1\]"),
    ],
)
def test_bad_vocabularies_are_refused(ids, message):
    model = gpt2()
    with pytest.raises(ValueError, match=message):
        vocabulary.limit_vocabulary(model, ids)
    assert not vocabulary.limited(model)


def test_an_output_embedding_with_a_bias_is_refused():
    model = gpt2()
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(50))
    with pytest.raises(ValueError, match="the output embedding of GPT2LMHeadModel has a bias of its own"):
        vocabulary.limit_vocabulary(model, ALLOWED)
