"""What is refused before training because it would go wrong silently, each with a model or a record that does."""

from pathlib import Path

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
)

import rlnlp
from rlnlp import decoding, encoding, models
from rlnlp.decoding import Decoding
from rlnlp.learners import ppo
from rlnlp.rollout import sample, sampling_from
from rlnlp.static_rollout import sample_static
from rlnlp.trainable import check_policy
from rlnlp.types import Prompts, Sampling
from rlnlp.vocabulary import limit_vocabulary
from tests import tiny
from workbook.runs import algorithms

ENDS = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64}


def mamba():
    torch.manual_seed(0)
    return MambaForCausalLM(MambaConfig(**SMALL, **ENDS, state_size=8, initializer_range=0.5)).eval()


def gemma(**changes):
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SMALL, **HEADS, **ENDS, **changes)).eval()


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, **HEADS, **ENDS, initializer_range=0.5)).eval()


@pytest.mark.parametrize("make", [tiny.gpt2, tiny.t5, llama, lambda: gemma(final_logit_softcapping=None)])
def test_models_of_attention_are_taken(make):
    check_policy(make())


def test_a_recurrent_model_is_refused_and_samples_otherwise_than_it_scores():
    with pytest.raises(ValueError, match="'mamba'.: token by token, .* its logits are off"):
        check_policy(mamba())
    rollout = sample(mamba(), tiny.prompts(8), sampling_from(mamba(), 5), torch.Generator().manual_seed(0))
    assert (models.score_tokens(mamba(), rollout) - rollout.logprobs).abs().max() > 0.1


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("make", tiny.MAKE.values())
def test_a_model_that_forgets_what_it_read_is_refused(make, limited, monkeypatch):
    """Its store of keys and values is emptied after each token."""

    def forgetful(decoder, tokens):
        append(decoder, tokens)
        decoder.cache.crop(-1) if decoder.memory is None else decoder.cache.self_attention_cache.crop(-1)
        decoder.mask = decoder.mask[:, 1:] if decoder.memory is None else decoder.mask

    model, append = make(), models.Decoder.append
    if limited:
        limit_vocabulary(model, list(range(20)))
    check_policy(model)
    monkeypatch.setattr(models.Decoder, "append", forgetful)
    with pytest.raises(ValueError, match="token by token"):
        check_policy(model)


def test_a_model_without_a_cache_is_refused_in_one_message():
    sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    with pytest.raises(ValueError, match="'openai-gpt'.: it cannot be decoded token by token with a cache: "):
        check_policy(OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes)).eval())


def test_soft_capped_logits_are_refused_however_small_they_are():
    model = gemma()
    assert model.config.final_logit_softcapping == 30.0
    with pytest.raises(ValueError, match="its logits are not its output embedding"):
        check_policy(model)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_are_refused_by_the_learner_itself(kind):
    with pytest.raises(ValueError, match=f"its weights are {kind}"):
        ppo.init(tiny.gpt2().to(kind), ppo.Config(), seed=0)


def test_gradient_checkpointing_is_said_to_have_no_effect():
    model = tiny.gpt2()
    model.gradient_checkpointing_enable()
    with pytest.warns(UserWarning, match="gradient checkpointing has no effect"):
        ppo.init(model, ppo.Config(), seed=0)


def test_of_several_ends_one_has_to_be_chosen():
    model = tiny.gpt2()
    model.generation_config.eos_token_id = [7, 1]
    with pytest.raises(ValueError, match="its eos_token_id are 1, 7, and a response ends with one of them"):
        sampling_from(model, 4)
    model.generation_config.eos_token_id = [7, 7]
    assert sampling_from(model, 4).eos_id == 7
    model.generation_config.eos_token_id = 1
    assert sampling_from(model, 4).eos_id == 1


def test_what_does_not_fit_the_context_is_refused_before_the_first_update():
    long, config = tiny.prompts(4, length=60), ppo.Config(updates=1, episodes_per_update=4, max_new_tokens=5)
    message = "prompt example-0: 60 tokens and a response of up to 5 make 65, but the model's context is 64"
    state, scored = ppo.init(tiny.gpt2(positions=64), config, seed=0), []
    with pytest.raises(ValueError, match=message):
        next(ppo.train(state, long, scored.append, config))
    with pytest.raises(ValueError, match=message):
        sample(state.policy, long, state.sampling, torch.Generator())
    with pytest.raises(ValueError, match=message):
        sample_static(state.policy, long, state.sampling, torch.Generator())
    assert not scored
    models.check_context(state.policy, long, 4)
    relative = tiny.t5()
    relative.config.n_positions = 16  # as the published ones say, of what they were trained on
    models.check_context(relative, long, 600)


@pytest.mark.parametrize("learner", sorted({*algorithms.names()} - {"best_of_n"}))  # which trains nothing
def test_each_learner_refuses_it_though_nothing_is_sampled(learner):
    module = algorithms.module(learner)
    given = {"dropout": {"mode": "same"}, "mismatch": {"breaks": ["scoring"]}}.get(learner, {})
    given |= {"group": 2} if "group" in module.Config.model_fields else {}
    config = module.Config(**given, updates=1, episodes_per_update=4, max_new_tokens=5)
    policy, tokenizer = tiny.gpt2(positions=64), lambda *_, **__: {"input_ids": [2, 3]}
    state = module.init(policy, config, 0, **({"tokenizer": tokenizer} if module.ABOUT.imitates else {}))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("collect", "rollout"):
            patch.setattr(module, name, None, raising=False)
        with pytest.raises(ValueError, match="make 65, but the model's context is 64"):
            next(iter(module.train(state, tiny.prompts(4, length=60), lambda rollout: None, config)))


def test_of_an_encoder_decoder_prompt_and_response_have_to_fit_alone():
    class Config:
        is_encoder_decoder, max_position_embeddings = True, 64

    class Bart:
        config = Config

    models.check_context(Bart, tiny.prompts(4, length=60), 64)
    with pytest.raises(ValueError, match="60 tokens or a response of up to 65 make 65, but the model's context is 64"):
        models.check_context(Bart, tiny.prompts(4, length=60), 65)
    with pytest.raises(ValueError, match="70 tokens or a response of up to 3 make 70, but the model's context is 64"):
        models.check_context(Bart, tiny.prompts(4, length=70), 3)


def test_padding_does_not_count_as_context():
    prompts = tiny.prompts(2, length=8)
    short = Prompts(prompts.ids, prompts.mask & (torch.arange(8) > 3), *[["", ""]] * 3)
    models.check_context(tiny.gpt2(positions=8), short, 4)
    with pytest.raises(ValueError, match="context is 8"):
        models.check_context(tiny.gpt2(positions=8), short, 5)


def test_a_cut_prompt_keeps_the_token_that_every_text_begins_with():
    class Tokenizer:
        bos_token_id, pad_token_id = 9, 0

        def __call__(self, texts, verbose):
            return {"input_ids": [[9, *map(int, text.split())] for text in texts]}

    def cut(most):
        return encoding.encode_prompts(["2 3 4 5", "2"], Tokenizer(), most)

    assert cut(3).ids.tolist() == [[9, 4, 5], [0, 9, 2]] and cut(3).meta == [{"cut": 2}, {"cut": 0}]
    assert cut(1).ids.tolist() == [[5], [2]]
    assert cut(5).ids[0].tolist() == [9, 2, 3, 4, 5]


def test_padding_between_tokens_and_ids_that_are_none_are_refused():
    mask = torch.tensor([[True, True, True], [True, False, True]])
    with pytest.raises(ValueError, match=r"row 1 \(b\) has padding between its tokens"):
        Prompts(torch.ones(2, 3, dtype=torch.long), mask, ["", ""], [[], []], ["a", "b"])
    for name in ("eos_id", "pad_id"):
        with pytest.raises(ValueError, match=f"sampling.{name}: expected the id of a token, 0 or more, got -1"):
            Sampling(**{"eos_id": 1, "pad_id": 0, "max_new_tokens": 4, name: -1})


@pytest.mark.parametrize("learner", ["ppo", "grpo", "dqn"])
def test_whole_numbers_are_scores(learner):
    module, policy = getattr(rlnlp, learner), tiny.gpt2()
    config = module.Config(
        updates=1, episodes_per_update=4, max_new_tokens=4, **{"grpo": {"group": 2}}.get(learner, {})
    )

    def count(rollout):
        return rollout.responses.eq(7).sum(1), {"sevens": rollout.responses.eq(7).sum(1)}

    state = module.init(policy, config, seed=0)
    (metrics,) = module.train(state, tiny.prompts(4), count, config)
    assert 0 <= metrics["objective/score"] <= 4


@pytest.mark.parametrize("make", tiny.MAKE.values())
def test_evaluations_of_a_model_in_training_mode_are_those_without_dropout(make):
    calm, model, prompts = make(), make(), tiny.prompts(8)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.5
    model.train()
    for name in ("beams", "top_k"):
        how = Decoding(name, 5, **{name: 2})
        mine, theirs = (decoding.generate(each, prompts, how, "s", 8)[0] for each in (model, calm))
        assert torch.equal(mine.responses, theirs.responses) and torch.equal(mine.logprobs, theirs.logprobs)
    assert torch.equal(models.score_tokens(model, mine), models.score_tokens(calm, mine))
    assert models.exact_kl(model, calm, mine)[0].abs().max() < 1e-6
    assert decoding.kept_of(model, mine) == decoding.kept_of(calm, mine)
    assert all(part.training for part in model.modules())


def test_a_setting_that_is_misspelt_is_told_the_nearest_one():
    with pytest.raises(ValueError, match="learning_rat\n  no such setting; did you mean 'learning_rate'") as told:
        ppo.Config(learning_rat=1e-3, update=3, clip=-1.0)
    assert "update\n  no such setting; did you mean 'updates'" in str(told.value)
    assert "clip\n  Input should be greater than 0" in str(told.value)
    with pytest.raises(ValueError, match=r"xyz\n  no such setting \["):
        ppo.Config().replace(xyz=1.0)


def test_a_constant_reward_that_the_values_know_teaches_nothing():
    """Its advantages are what rounding loses of the returns."""
    config = ppo.Config(episodes_per_update=16, max_new_tokens=4, gamma=1.0, lam=1.0, kl_coef=0.0)
    state = ppo.init(tiny.gpt2(), config, seed=0)
    noise = torch.Generator().manual_seed(0)
    state.value = lambda rollout: 1e4 + 1e-3 * torch.randn(int(rollout.mask.sum()), generator=noise)
    seen = ppo.collect(state, tiny.prompts(16), lambda rollout: (torch.full((16,), 1e4), {}), config)
    assert (seen.advantages == 0).all() and ((seen.returns - seen.values) * seen.rollout.mask).abs().max() > 1e-4


LEARNERS = sorted(path.stem for path in Path(ppo.__file__).parent.glob("[!_]*.py") if path.stem != "common")


@pytest.mark.parametrize("name", LEARNERS)
def test_a_policy_whose_weights_are_all_frozen_is_refused(name):
    module, policy = algorithms.module(name), tiny.gpt2().requires_grad_(False)
    if name == "dqn":  # which trains its head whatever is frozen
        state = module.init(policy, module.Config(), seed=0)
        (group,), head = state.optimizer.param_groups, state.policy.get_output_embeddings().parameters()
        assert {*map(id, group["params"])} == {*map(id, head)}
        return
    more = {"tokenizer": None} if module.ABOUT.imitates else {}
    with pytest.raises(ValueError, match="all of its weights are frozen .*requires_grad_"):
        module.init(policy, module.Config(), seed=0, **more)


@pytest.mark.parametrize("name", LEARNERS)
def test_other_settings_than_those_of_init_are_refused_but_for_how_long(name):
    module, starts = algorithms.module(name), tiny.prompts(4)
    more = {"tokenizer": None} if module.ABOUT.imitates else {}  # no reference is read before the check
    small = {"updates": 1, "episodes_per_update": 4, "max_new_tokens": 4}
    config = module.Config(**small, **({"group": 2} if "group" in module.Config.model_fields else {}))
    state = module.init(tiny.gpt2(), config, 0, **more)

    def score(rollout):
        return rollout.responses.eq(7).sum(1).float(), {}

    changes = {"max_new_tokens": 3, "min_new_tokens": 2, "temperature": 2.0}
    for setting in [setting for setting in changes if setting in module.Config.model_fields]:
        other = config.replace(**{setting: changes[setting]})
        with pytest.raises(ValueError, match=rf"config\.{setting}: expected .*, as init had it, got "):
            next(module.train(state, starts, score, other))
    assert state.update == 0
    state.optimizer.param_groups[0]["lr"] /= 2  # a schedule of one's own
    assert module.ABOUT.imitates or len(list(module.train(state, starts, score, config.replace(updates=2)))) == 2


@pytest.mark.parametrize("end", [50, -1])
def test_an_end_that_has_no_logit_is_refused(end):
    policy = tiny.gpt2()
    policy.generation_config.eos_token_id = end
    with pytest.raises(ValueError, match=f"its eos_token_id is {end}, and it has logits for 50 tokens, 0 to 49"):
        sampling_from(policy, 4)


def test_an_end_that_was_taken_from_the_vocabulary_is_refused():
    policy = tiny.gpt2()
    limit_vocabulary(policy, list(range(20)))
    assert sampling_from(policy, 4).eos_id < 20
    policy.generation_config.eos_token_id = 30
    with pytest.raises(ValueError, match="its eos_token_id is 30, which its smaller vocabulary"):
        sampling_from(policy, 4)


def test_a_head_that_does_not_say_its_size_is_not_asked_for_it():
    policy = tiny.gpt2()
    policy.get_output_embeddings = lambda: torch.nn.Identity()
    assert sampling_from(policy, 4).eos_id == policy.generation_config.eos_token_id
