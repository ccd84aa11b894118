"""The static path: the readable path's records token for token, and a step that reads nothing back and never grows."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

import rlnlp.static
from rlnlp import models, rollout, samplers
from rlnlp.precision import EVEN, refresh, rounded
from rlnlp.recorded import Step
from rlnlp.static import StaticDecoder, attention_mask
from rlnlp.static_rollout import BLOCK, StaticSampler, Truncation, draw, nucleus, sample_static
from rlnlp.types import Allowed, NotFinite, Prompts, Sampling
from rlnlp.vocabulary import limit_vocabulary
from tests.tiny import EOS, PAD, gpt2, prompts, t5

V, T = 601, 21  # more than two blocks of tokens, no multiple of one; more steps than two looks apart


@pytest.fixture(scope="module")
def policy():
    """Ends often enough that some rows end early, some at the horizon."""
    model = gpt2(V, seed=1)
    model.lm_head.weight.data[EOS] *= 2.0
    return model


@pytest.fixture(scope="module")
def older():
    model = gpt2(V, seed=2)
    model.lm_head.weight.data[EOS] *= 2.0
    return model


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


RULES = {  # name: (min_new_tokens, temperature, the readable path's rules, the static path's)
    "plain": (0, 1.0, {}, {}),
    "tempered": (0, 0.7, {}, {}),
    "top_k, EOS blocked": (T, 1.0, {"sampler": samplers.top_k(50)}, {"sampler": Truncation(50)}),
    "top_k by the readable rule": (3, 1.0, {"sampler": samplers.top_k(5)}, {"sampler": samplers.top_k(5)}),
    "top_p": (0, 1.0, {"sampler": samplers.top_p(0.8)}, {"sampler": Truncation(0, 0.8)}),
    "top_k, then top_p": (0, 1.3, {"sampler": rollout.truncation(40, 0.6)}, {"sampler": Truncation(40, 0.6)}),
    "nlpo": (2, 1.0, {"mask_rule": samplers.top_p(0.9)}, {"mask_rule": Truncation(0, 0.9)}),
    "nlpo, top_k": (
        0,
        1.0,
        {"sampler": samplers.top_k(50), "mask_rule": samplers.top_p(0.4, 20)},
        {"sampler": Truncation(50), "mask_rule": Truncation(0, 0.4, 20)},
    ),
}


def both(policy, older, name, kept=None, batch=None, seed=5):
    """The rollouts of the readable path and of the static one, from the same numbers."""
    minimum, temperature, readable, static = RULES[name]
    sampling = rollout.sampling_from(policy, T, temperature, minimum)
    batch = prompts(24, vocabulary=V) if batch is None else batch
    masked = {"mask_model": older} if "mask_rule" in readable else {}
    ours = sample_static(policy, batch, sampling, generator(seed), **static, **masked, kept=kept)
    return rollout.sample(policy, batch, sampling, generator(seed), **readable, **masked), ours


def check_equal(readable, static):
    for name in ("responses", "mask", "terminated"):
        assert torch.equal(getattr(readable, name), getattr(static, name)), name
    for name in ("logprobs", "behavior_logprobs"):
        torch.testing.assert_close(getattr(static, name), getattr(readable, name), atol=1e-5, rtol=0)
    assert (readable.allowed is None) == (static.allowed is None)
    if readable.allowed is not None:
        assert torch.equal(readable.allowed.bits, static.allowed.bits)
        assert readable.allowed.vocabulary == static.allowed.vocabulary == V


@pytest.mark.parametrize("name", RULES)
def test_the_static_path_draws_what_the_readable_path_draws(policy, older, name):
    readable, static = both(policy, older, name)
    check_equal(readable, static)
    if not RULES[name][0]:
        assert 2 < len(set(readable.mask.sum(1).tolist())), "rows of several lengths"


def test_a_kept_sampler_begins_again_with_other_prompts_and_other_weights(policy, older):
    """What a graph that lives for a training must do: the memory is the same, nothing of the last batch is left."""
    policy, kept = copy.deepcopy(policy), {}
    first = both(policy, older, "nlpo, top_k", kept)[1]
    before = copy.deepcopy(first)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator(1)))
    check_equal(*both(policy, older, "nlpo, top_k", kept, prompts(24, vocabulary=V, seed=8), seed=6))
    assert len(kept) == 1
    for name in ("responses", "mask", "logprobs"):
        assert torch.equal(getattr(first, name), getattr(before, name)), "an earlier rollout was overwritten"
    both(policy, older, "nlpo", kept)
    assert len(kept) == 2


def rotary() -> LlamaForCausalLM:
    """A model with rotary positions and grouped heads."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=EOS, eos_token_id=EOS, pad_token_id=PAD,
        initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_a_model_with_rotary_positions_and_grouped_heads():
    check_equal(*both(rotary(), None, "plain"))


def test_sampling_stops_soon_after_the_last_row_has_ended(policy):
    sure = copy.deepcopy(policy)
    sure.lm_head = torch.nn.Linear(32, V)
    sure.lm_head.bias.data[EOS] = 1e4
    sampling, batch = rollout.sampling_from(policy, T), prompts(4, vocabulary=V)
    sampler = StaticSampler(sure, batch, sampling)
    assert sampler(batch, torch.rand(4, T, dtype=torch.float64)).responses.tolist() == [[EOS]] * 4
    assert sampler.step.calls == 7  # after the prompts' own step; the look is before step 8


class Watched(TorchDispatchMode):
    """Raises where the host would wait for a number; keeps the shapes of what every operation returned."""

    WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "_to_copy", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        if name in self.WAITS and (name != "_to_copy" or kwargs.get("device") not in (None, args[0].device)):
            raise AssertionError(f"{name} waits for the device")
        if name == "copy_" and args[0].device != args[1].device:
            raise AssertionError("a copy between devices waits for one")
        if name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1]):
            raise AssertionError("a boolean index waits for the device")
        out = function(*args, **kwargs)
        self.shapes.append((name, tuple(out.shape) if isinstance(out, torch.Tensor) else None))
        return out


@torch.no_grad()
@pytest.mark.parametrize("name", ["plain", "top_p", "nlpo, top_k"])
def test_a_step_waits_for_nothing_and_is_the_same_work_every_time(policy, older, name):
    minimum, temperature, readable, static = RULES[name]
    masked = {"mask_model": older} if "mask_rule" in readable else {}
    batch, seen = prompts(8, vocabulary=V), []
    sampler = StaticSampler(policy, batch, rollout.sampling_from(policy, T, temperature, minimum), **static, **masked)
    work = sampler.step.work

    def watched():
        memory = {key: value.data_ptr() for key, value in vars(sampler).items() if isinstance(value, torch.Tensor)}
        with Watched() as mode:
            work()
        seen.append(mode.shapes)
        for key, place in memory.items():
            assert getattr(sampler, key).data_ptr() == place, f"{key} moved"

    sampler.step = Step(watched, batch.ids.device)
    sampler(batch, torch.rand(8, T, dtype=torch.float64))
    assert len(seen) >= 7 and len(seen[0]) > 50 and all(one == seen[0] for one in seen)


def test_what_the_readable_path_does_would_be_noticed(policy):
    """The watch sees waiting where there is some: the readable step and rule both wait."""
    batch = prompts(4, vocabulary=V)
    with pytest.raises(AssertionError, match="waits for the device"), Watched():
        rollout.sample(policy, batch, rollout.sampling_from(policy, 2), generator())


@torch.no_grad()
@pytest.mark.parametrize("name", ["plain", "nlpo, top_k"])
def test_every_tensor_of_a_step_is_made_on_the_models_device(policy, older, name):
    """No GPU is needed: on the meta device a tensor of the CPU among the inputs is an error, and so is a read-back."""
    minimum, temperature, readable, static = RULES[name]
    policy, older = (copy.deepcopy(model).to("meta") for model in (policy, older))
    batch = object.__new__(Prompts)  # its own check reads numbers, which these tensors do not have
    ids = torch.zeros(4, 6, dtype=torch.long, device="meta")
    for key, value in {"ids": ids, "mask": ids == 0, "texts": [""] * 4}.items():
        object.__setattr__(batch, key, value)
    masked = {"mask_model": older} if "mask_rule" in readable else {}
    sampler = StaticSampler(policy, batch, Sampling(EOS, PAD, T, temperature, minimum), **static, **masked)
    sampler.step()  # from the prompts; it makes the cache
    for _ in range(3):
        with Watched():
            sampler.step()
    tensors = [value for one in [sampler, *sampler.decoders] for value in vars(one).values()]
    tensors = [value for value in tensors if isinstance(value, torch.Tensor)]
    tensors += [layer.keys for one in sampler.decoders for layer in one.cache.layers]
    assert len(tensors) >= 14 and {tensor.device.type for tensor in tensors} == {"meta"}


@torch.no_grad()
@pytest.mark.parametrize("one_token", [False, True])
def test_a_decoder_gives_the_readable_decoders_logits(policy, one_token):
    batch, tokens = prompts(8, vocabulary=V), torch.randint(2, V, (4, 8), generator=generator())
    if one_token:
        batch = dataclasses.replace(batch, ids=batch.ids[:, -1:], mask=batch.mask[:, -1:])
    readable, static = models.Decoder(policy, batch), StaticDecoder(policy, batch, 5)
    for token in tokens:
        torch.testing.assert_close(static.logits(), readable.logits(), atol=1e-5, rtol=0)
        for decoder in (readable, static):
            decoder.append(token)


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_a_mask_is_of_the_products_kind_and_its_rows_are_aligned(precision, kind):
    seen = torch.rand(3, 1, 5, 11) < 0.5
    mask = attention_mask(seen, precision)
    assert mask.dtype == kind and torch.equal(mask == 0, seen) and torch.equal(mask == -torch.inf, ~seen)
    assert mask.shape == seen.shape and all(step % 8 == 0 for step in mask.stride()[:-1])


@torch.no_grad()
def test_rotary_keys_in_fp32_and_values_in_bf16_share_a_cache():
    model, batch = rotary(), prompts(4, vocabulary=V)
    readable, static = models.Decoder(model, batch), StaticDecoder(model, batch, 3, "bf16")
    for token in torch.randint(2, V, (3, 4), generator=generator()):
        torch.testing.assert_close(static.logits(), readable.logits(), atol=0.3, rtol=0)
        for decoder in (readable, static):
            decoder.append(token)


def test_a_limited_vocabulary_stays_limited_in_bf16(policy):
    few = copy.deepcopy(policy)
    limit_vocabulary(few, [EOS, 5, 7])
    drawn = sample_static(few, prompts(8, vocabulary=V), rollout.sampling_from(few, T), generator(), precision="bf16")
    assert {5} < set(drawn.responses[drawn.mask].tolist()) <= {EOS, 5, 7}


@torch.no_grad()
def test_weights_rounded_once_are_the_weights_autocast_rounds(policy, monkeypatch):
    policy, batch = copy.deepcopy(policy), prompts(8, vocabulary=V)
    decoder = StaticDecoder(policy, batch, 3, "bf16")
    for weight in policy.parameters():
        weight.mul_(1.1)
    monkeypatch.setattr(rlnlp.static, "rounded", lambda model: model)  # autocast rounds at every step
    written = StaticDecoder(policy, batch, 3, "bf16")  # in the same shapes: processors round sums of others otherwise
    decoder.start(batch)
    for token in (5, 7):
        expected = written.logits()
        assert torch.equal(decoder.logits(), expected) and expected.any()
        for one in (decoder, written):
            one.append(torch.full((8,), token))
    kinds = {name: weight.dtype for name, weight in decoder.model.named_parameters(remove_duplicate=False)}
    assert kinds["transformer.wte.weight"] == kinds["transformer.ln_f.weight"] == torch.float32
    assert kinds["lm_head.weight"] == kinds["transformer.h.0.mlp.c_fc.weight"] == torch.bfloat16
    assert V % EVEN and len(decoder.model.lm_head.weight) == V + -V % EVEN and decoder.logits().shape == (8, V)
    assert all(weight.dtype == torch.float32 for weight in policy.parameters())


@torch.no_grad()
def test_a_rounded_copy_follows_its_model(policy):
    model, other = copy.deepcopy(policy), rounded(gpt2(V, seed=9))
    refresh(other, model)
    for (name, ours), theirs in zip(
        rounded(model).named_parameters(remove_duplicate=False), other.parameters(), strict=False
    ):
        assert torch.equal(dict(other.named_parameters(remove_duplicate=False))[name], ours), name
        assert not theirs.requires_grad


@torch.no_grad()
def test_bf16_samples_are_close_to_what_they_are_scored_at(policy):
    sampling, batch = rollout.sampling_from(policy, T), prompts(24, vocabulary=V)
    drawn = sample_static(policy, batch, sampling, generator(), precision="bf16")
    off = (models.score_tokens(policy, drawn) - drawn.logprobs).abs()
    assert drawn.logprobs.dtype == torch.float32 and 1e-4 < off.max() < 0.5 and off.mean() < 0.05


def test_a_rounded_copy_follows_numbers_without_a_dimension():
    model = gpt2(V)
    model.scale = torch.nn.Parameter(torch.tensor(2.0))
    copied = rounded(model)
    model.scale.data.fill_(3.0)
    refresh(copied, model)
    assert copied.scale.item() == 3.0


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, False)])
def test_a_step_writes_in_place_and_leaves_determinism_as_it_was(policy, asked):
    """Where torch is to be deterministic, cuda sorts before each write of a column."""

    @dataclasses.dataclass(frozen=True)
    class Spy:
        def __call__(self, logits, state=None):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return logits, torch.ones_like(logits, dtype=torch.bool), state

    seen, given = [], rollout.sampling_from(policy, T)
    state = torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled
    torch.use_deterministic_algorithms(asked[0], warn_only=asked[1])
    try:
        sample_static(policy, prompts(4, vocabulary=V), given, generator(), Spy())
        assert len(seen) >= 2 and not any(seen) and tuple(each() for each in state) == asked
    finally:
        torch.use_deterministic_algorithms(False)


def logits_of(kind, rows, size, seed):
    made = torch.randn(rows, size, generator=generator(seed)) * 3
    if kind == "tied":
        made = made.round() / 2
    if kind == "nearly tied":
        made = made.round() + 1e-7 * torch.randint(0, 3, made.shape, generator=generator(seed))
    if kind == "with tokens that cannot be":
        made[torch.rand(made.shape, generator=generator(seed + 1)) < 0.4] = -torch.inf
        made[:, 0] = 0.0
    if kind == "all equal":
        made = torch.full((rows, size), -2.5)
    if kind == "zeros of both signs":
        made = torch.where(
            made > 2, 1.0, torch.where(torch.rand(made.shape, generator=generator(seed)) < 0.5, 0.0, -0.0)
        )
    return made


KINDS = ["random", "tied", "nearly tied", "with tokens that cannot be", "all equal", "zeros of both signs"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 10, 601])  # a tenth is what sums of float32 round
def test_top_p_without_a_sort_keeps_what_the_sort_keeps(kind, size):
    for seed in range(5):
        logits = logits_of(kind, 40, size, seed)
        for p in (1e-9, 0.05, 0.3, 0.5, 0.75, 0.9, 0.99, 1 - 1e-6, 1.0):
            for least in (1, 3, size + 5):
                expected = samplers.top_p(p, least)(logits)[1]
                wrong = (nucleus(logits, p, least) != expected).sum()
                assert not wrong, f"{kind}, {size}, p {p}, at least {least}: {wrong} tokens"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, BLOCK, 2 * BLOCK + 1, 5000])
def test_two_level_sums_choose_what_one_sum_chooses(kind, size):
    logits, uniform = logits_of(kind, 300, size, 1), torch.rand(300, dtype=torch.float64, generator=generator())
    uniform[0], uniform[1] = 0.0, 1 - 2**-40
    tokens, finite = draw(logits.softmax(-1), uniform)
    assert finite.all() and torch.equal(tokens, rollout.draw(logits, uniform))


def test_a_token_without_mass_is_not_drawn_at_the_ends_of_blocks():
    probabilities = torch.zeros(2 * BLOCK + 3)
    probabilities[[BLOCK - 1, 2 * BLOCK]] = 0.5
    uniform = torch.tensor([0.0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    tokens, _ = draw(probabilities.expand(4, -1), uniform)
    assert tokens.tolist() == [BLOCK - 1, BLOCK - 1, 2 * BLOCK, 2 * BLOCK]


@pytest.mark.parametrize("size", [8, 601])
def test_bits_come_back_as_they_were_packed(size):
    allowed = torch.rand(7, 3, size, generator=generator()) < 0.5
    packed = Allowed.pack(allowed)
    assert packed.shape == (7, 3, -(-size // 8)) and packed[0, 0, 0] == sum(2**i for i in range(8) if allowed[0, 0, i])
    mask = torch.rand(7, 3, generator=generator(1)) < 0.7
    assert torch.equal(Allowed(packed, size).unpack(mask), allowed[mask])


def test_numbers_that_are_not_finite_are_found_when_the_batch_is_read(policy):
    broken = copy.deepcopy(policy)
    broken.lm_head.weight.data[7] = torch.nan
    with pytest.raises(NotFinite, match="the policy's logits are not finite"):
        sample_static(broken, prompts(4, vocabulary=V), rollout.sampling_from(policy, T), generator())


def test_what_this_path_cannot_serve_is_refused(policy):
    batch, sampling = prompts(4, vocabulary=V), rollout.sampling_from(policy, T)
    with pytest.raises(ValueError, match="rules without memory"):
        sample_static(policy, batch, sampling, generator(), samplers.mirostat(3.0))
    with pytest.raises(ValueError, match="expected a causal model with sdpa attention, got an encoder-decoder"):
        sample_static(t5(V), batch, sampling, generator())
    with pytest.raises(ValueError, match="precision: expected fp32, tf32 or bf16, got 'fp16'"):
        sample_static(policy, batch, sampling, generator(), precision="fp16")
    with pytest.raises(ValueError, match=r"expected prompts \(4, 6\), as in the first batch, got \(5, 6\)"):
        StaticDecoder(policy, batch, 3).start(prompts(5, vocabulary=V))
    with pytest.raises(ValueError, match="top_k: expected >= 1"):
        Truncation(top_k=-1)
    with pytest.raises(ValueError, match="top_p: expected 0 < p <= 1"):
        Truncation(top_p=1.5)


def test_the_policys_mode_is_left_as_it_was(policy):
    model = copy.deepcopy(policy).train()
    sample_static(model, prompts(4, vocabulary=V), rollout.sampling_from(policy, 2), generator())
    assert model.training


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", RULES)
def test_a_replayed_graph_is_its_eager_twin_bit_for_bit(policy, older, name):
    minimum, temperature, readable, static = RULES[name]
    device = torch.device("cuda")
    policy, older = copy.deepcopy(policy).to(device), copy.deepcopy(older).to(device)
    batch = prompts(24, vocabulary=V)
    batch = dataclasses.replace(batch, ids=batch.ids.to(device), mask=batch.mask.to(device))
    masked = {"mask_model": older} if "mask_rule" in readable else {}
    sampling, numbers = rollout.sampling_from(policy, T, temperature, minimum), torch.rand(24, T, dtype=torch.float64)
    replayed, eager = (
        StaticSampler(policy, batch, sampling, **static, **masked, graph=graph)(batch, numbers)
        for graph in (True, False)
    )
    for field in ("responses", "mask", "terminated", "logprobs", "behavior_logprobs"):
        assert torch.equal(getattr(replayed, field), getattr(eager, field)), field
