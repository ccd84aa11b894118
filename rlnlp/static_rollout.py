"""``rollout.sample`` in steps of fixed shapes: the same records, without a host sync or a sort within a step.

Rows that end stay in the batch, and nothing is read back but, now and then, whether any still runs. A sampler kept
from call to call (``kept``) keeps its recorded graph: weights are read in place, so that one serves a whole training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlnlp import samplers
from rlnlp.models import check_context, chosen_logprobs, playable, restrict
from rlnlp.recorded import Step
from rlnlp.static import StaticDecoder
from rlnlp.types import Allowed, NotFinite, Prompts, Rollout, Sampler, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOOK = 8  # steps between two looks at whether any episode still runs
BLOCK = 256  # tokens whose probabilities are added before those of the blocks are
WHOLE = 2.0**62  # units of probability: integers add up to the same in any order, and 2 of it still fit in 63 bits


@dataclass(frozen=True)
class Truncation:
    """The sampler that keeps the ``top_k`` most probable tokens (0 = all), then of these the mass ``top_p``.

    What ``rollout.truncation`` keeps, without its sort; a value, so that two that are equal share one recorded step.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_tokens: int = 1

    def __post_init__(self) -> None:
        samplers.top_p(self.top_p, self.min_tokens)
        if self.top_k:
            samplers.top_k(self.top_k)

    def __call__(self, logits: Tensor, state: Any = None) -> tuple[Tensor, Tensor, Any]:
        if not self.top_k:
            return logits, nucleus(logits, self.top_p, self.min_tokens), state
        kept = samplers.top_k(self.top_k)(logits)[1]
        if self.top_p < 1:
            kept = kept & nucleus(logits.masked_fill(~kept, -torch.inf), self.top_p, self.min_tokens)
        return logits, kept, state


def without_sort(rule: Sampler | None) -> Sampler | None:
    """The ``Truncation`` that keeps what ``rule`` keeps, where that is top-k, top-p or both in turn; else ``rule``."""
    parts = {name: numbers for name, *numbers in getattr(rule, "parts", ())}
    if not parts or [name for name, *_ in rule.parts] != sorted(parts):  # each once, top_k first
        return rule
    return Truncation(*parts.get("top_k", (0,)), *parts.get("top_p", ()))


def order(logits: Tensor) -> Tensor:
    """int32 in the order of float32 ``logits``, equal where they are."""
    bits = (logits + 0.0).view(torch.int32)  # + 0: the two zeros are one number
    return torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


def nucleus(logits: Tensor, p: float, min_tokens_to_keep: int = 1) -> Tensor:
    """What ``samplers.top_p`` allows of ``logits`` [B, V] float32, bool [B, V].

    Cut is what is least probable, until it would exceed 1 - p. The logit up to which everything can go is found by
    halving the range of float32, 32 masked sums; of tokens tied above it, the first in the order of tokens go too.
    """
    if p == 1:
        return torch.ones_like(logits, dtype=torch.bool)
    V, none = logits.shape[-1], logits.new_zeros(())
    probabilities, key = logits.softmax(-1), order(logits)

    def mass(cut: Tensor) -> Tensor:
        return torch.where(cut, probabilities, none).sum(-1, keepdim=True, dtype=torch.float64)

    if min_tokens_to_keep == 1:
        high = key.amax(-1, keepdim=True)
    else:
        high = key.topk(min(min_tokens_to_keep, V), -1).values[..., -1:]
    low = torch.full_like(high, -(2**31))
    for _ in range(32):  # all up to low can be cut, up to high not, or not without cutting one that must be kept
        middle = (low & high) + ((low ^ high) >> 1)
        fits = mass(key <= middle).float() <= 1 - p
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    below, tied = key < high, key == high
    gone, each = mass(below), torch.where(tied, probabilities, none).amax(-1, keepdim=True).double()
    ties = ((1 - p - gone) / each).floor()
    ties = ties + ((gone + (ties + 1) * each).float() <= 1 - p)  # a float32 sum rounds down to the bound, too
    ties = torch.minimum(ties, V - min_tokens_to_keep - below.sum(-1, keepdim=True))
    return ~(below | (tied & (tied.cumsum(-1, dtype=torch.int32) <= ties)))


def draw(probabilities: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """(tokens [B], finite [B] bool): ``rollout.draw`` of ``probabilities`` [B, V] float32 at ``uniform`` [B] float64.

    The cumulative distribution in two levels, blocks and then one block, in integer units of 2^-62: whole sums, the
    same in any order. A token without mass cannot be drawn. Rows that are not finite get some token.
    """
    V = probabilities.shape[1]
    blocks, device = V // BLOCK, probabilities.device
    front = probabilities[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK)).sum(-1, dtype=torch.float64)
    rest = probabilities[:, blocks * BLOCK :].sum(-1, keepdim=True, dtype=torch.float64)
    masses = torch.cat([front, rest], 1)
    ends = (masses * WHOLE).long().cumsum(1)
    at = torch.minimum((uniform.unsqueeze(1) * ends[:, -1:]).long(), ends[:, -1:] - 1)
    block = (ends <= at).sum(1, keepdim=True).clamp(max=blocks)
    at = at - torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)), 0)
    tokens = block * BLOCK + torch.arange(BLOCK, device=device)
    inside = probabilities.gather(1, tokens.clamp(max=V - 1)) * (tokens < V)
    ends = (inside.double() * WHOLE).long().cumsum(1)
    at = torch.minimum(at, ends[:, -1:] - 1).clamp(min=0)
    token = block * BLOCK + (ends <= at).sum(1, keepdim=True)
    return token.clamp(0, V - 1).squeeze(1), torch.isfinite(masses.sum(1))


@contextmanager
def in_place() -> Iterator[None]:
    """Within it cuda writes a column at once. Where torch has to be deterministic it sorts the places first, a dozen
    kernels for each of some thirty writes a step; here none is written twice, and the numbers are the same."""
    asked, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warns)


class StaticSampler:
    """Episodes of one shape, batch after batch, in the same memory; arguments as of ``sample_static``."""

    def __init__(
        self,
        policy: PreTrainedModel,
        prompts: Prompts,
        sampling: Sampling,
        sampler: Sampler | None = None,
        mask_model: PreTrainedModel | None = None,
        mask_rule: Sampler | None = None,
        precision: str = "fp32",
        graph: bool = True,
    ) -> None:
        B, T, device = len(prompts), sampling.max_new_tokens, prompts.ids.device
        self.sampling, models = sampling, [policy] + ([] if mask_model is None else [mask_model])
        self.decoders = [StaticDecoder(model, prompts, T, precision) for model in models]
        self.rules = ([] if mask_model is None else [(1, mask_rule)]) + ([] if sampler is None else [(0, sampler)])
        self.uniform = torch.zeros(B, T, dtype=torch.float64, device=device)
        self.responses = torch.zeros(B, T, dtype=torch.long, device=device)
        self.mask = torch.zeros(B, T, dtype=torch.bool, device=device)
        self.behavior_logprobs, self.logprobs = (torch.zeros(B, T, device=device) for _ in range(2))
        self.running, self.finite = (torch.ones(B, dtype=torch.bool, device=device) for _ in range(2))
        self.t = torch.zeros(1, dtype=torch.long, device=device)
        self.bits: Tensor | None = None
        self.step = Step(self._token, device, graph)

    @torch.no_grad()
    def __call__(self, prompts: Prompts, uniform: Tensor) -> Rollout:
        """One response per prompt; ``uniform`` [B, T] float64 in [0, 1), a number per row and position."""
        self.begin(prompts, uniform)
        T = self.sampling.max_new_tokens
        for t in range(1, T):
            if self.sampling.min_new_tokens < T and t % LOOK == 0 and not self.running.any():
                break
            self.step()
        return self._rollout(prompts)

    @torch.no_grad()
    def begin(self, prompts: Prompts, uniform: Tensor) -> None:
        """Empty the memory and draw the first tokens, from the whole prompts; ``step`` draws one more, T - 1 times."""
        for decoder in self.decoders:
            decoder.start(prompts)
        self.uniform.copy_(uniform)
        self.responses.fill_(self.sampling.pad_id)
        bits = [] if self.bits is None else [self.bits]
        for out in (self.mask, self.behavior_logprobs, self.logprobs, self.t, *bits):
            out.zero_()
        self.running.fill_(True)
        self.finite.fill_(True)
        self._token()

    @torch.no_grad()
    @in_place()
    def _token(self) -> None:
        """Choose, write and feed the next token of every row. Nothing here may read a number back."""
        every, allowed = [decoder.logits() for decoder in self.decoders], None
        logits, steps = every[0], self.t.expand(len(self.mask))
        for which, rule in self.rules:
            _, kept, state = rule(restrict(every[which], self.sampling, steps, allowed), None)
            if state is not None:
                raise ValueError("static sampling: expected rules without memory; rollout.sample has those")
            allowed = kept if allowed is None else allowed & kept
        probabilities = restrict(logits, self.sampling, steps, allowed).softmax(-1)
        tokens, finite = draw(probabilities, self.uniform.index_select(1, self.t).squeeze(1))
        drawn = probabilities.gather(1, tokens.unsqueeze(1)).squeeze(1).log()
        bare = self.rules or self.sampling.temperature != 1.0  # else both are the same distribution
        bare = chosen_logprobs(playable(logits, self.sampling, steps), tokens) if bare else drawn
        self._write(self.responses, tokens, self.sampling.pad_id)
        self._write(self.behavior_logprobs, drawn, 0.0)
        self._write(self.logprobs, bare, 0.0)
        self._write(self.mask, self.running, False)
        if allowed is not None:
            packed = Allowed.pack(allowed)
            if self.bits is None:  # at the first token of the first batch, before anything is recorded
                self.vocabulary, shape = allowed.shape[1], (*self.mask.shape, packed.shape[1])
                self.bits = torch.zeros(shape, dtype=torch.uint8, device=packed.device)
            self._write(self.bits, packed, 0)
        self.finite &= finite
        self.running &= tokens != self.sampling.eos_id
        self.t += 1
        for decoder in self.decoders:
            decoder.append(tokens)

    def _write(self, out: Tensor, values: Tensor, ended: float) -> None:
        """Column t of ``out`` [B, T, ...]: ``values`` [B, ...] of the rows that run, ``ended`` in the others."""
        live = self.running if values.dim() == 1 else self.running.unsqueeze(1)
        out.index_copy_(1, self.t, values.masked_fill(~live, ended).unsqueeze(1))

    def _rollout(self, prompts: Prompts) -> Rollout:
        """Copies of the records, as long as the longest response: the next batch overwrites the memory."""
        if not self.finite.all():
            raise NotFinite("the policy's logits are not finite: nothing can be sampled from them")
        used = int(self.mask.any(0).sum())
        records = (self.responses, self.mask, self.behavior_logprobs, self.logprobs)
        responses, mask, behavior, bare = (record[:, :used].clone() for record in records)
        allowed = None if self.bits is None else Allowed(self.bits[:, :used].clone(), self.vocabulary)
        return Rollout(prompts, responses, mask, ~self.running, behavior, bare, self.sampling, allowed)


def sample_static(
    policy: PreTrainedModel,
    prompts: Prompts,
    sampling: Sampling,
    generator: torch.Generator,
    sampler: Sampler | None = None,
    mask_model: PreTrainedModel | None = None,
    mask_rule: Sampler | None = None,
    precision: str = "fp32",
    kept: dict | None = None,
) -> Rollout:
    """One response per prompt: what ``rollout.sample`` returns of causal models, from the same random numbers.

    sampler, mask_rule  rules without memory and without random numbers of their own; a ``Truncation`` needs no sort
    precision           of the models' products, see ``precision.numerics``; logits and what follows are fp32
    kept                where samplers stay from call to call, by models, shape and settings; None = this call only
    Raises ``ValueError`` for a model or a rule that this path cannot serve, ``NotFinite`` as ``sample``.
    """
    check_context(policy, prompts, sampling.max_new_tokens)
    was_training = policy.training
    policy.eval()
    shape, device = tuple(prompts.ids.shape), prompts.ids.device
    rules = (sampler, mask_rule)
    key = (id(policy), id(mask_model), shape, device, dataclasses.astuple(sampling), rules, precision)
    kept = {} if kept is None else kept
    if key not in kept:  # the sampler holds both models, so that no other model can come by their ids
        kept[key] = StaticSampler(policy, prompts, sampling, sampler, mask_model, mask_rule, precision)
    numbers = torch.rand(shape[0], sampling.max_new_tokens, generator=generator, dtype=torch.float64)
    rollout = kept[key](prompts, numbers)
    policy.train(was_training)
    return rollout
