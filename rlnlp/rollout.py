"""Sample whole episodes in one batch with a key-value cache; rows that end leave the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlnlp.models import Decoder, playable, restrict
from rlnlp.samplers import Sampler, chain, top_k, top_p
from rlnlp.types import Allowed, NotFinite, Prompts, Rollout, Sampling, take
from rlnlp.types import generator as named_generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def sampling_from(
    model: PreTrainedModel, max_new_tokens: int, temperature: float = 1.0, min_new_tokens: int = 0
) -> Sampling:
    """Sampling settings with the model's own end and padding ids. Raises ``ValueError`` where it names no end token."""
    eos = model.generation_config.eos_token_id
    eos = eos if eos is not None else model.config.eos_token_id
    eos = eos[0] if isinstance(eos, (list, tuple)) else eos
    if eos is None:
        raise ValueError("model: neither generation_config nor config names eos_token_id, so episodes could not end")
    pad = model.generation_config.pad_token_id
    pad = pad if pad is not None else model.config.pad_token_id
    return Sampling(eos, eos if pad is None else pad, max_new_tokens, temperature, min_new_tokens)


def truncation(top_k_tokens: int = 0, top_p_mass: float = 1.0, first: Sampler | None = None) -> Sampler | None:
    """The truncation that settings describe: ``first``, then top-k, then top-p of what is left; None where all are off
    (None, 0 and 1)."""
    rules = [] if first is None else [first]
    rules += ([top_k(top_k_tokens)] if top_k_tokens else []) + ([top_p(top_p_mass)] if top_p_mass < 1 else [])
    return None if not rules else rules[0] if len(rules) == 1 else chain(*rules)


def observe(state: Any, tokens: Tensor) -> Any:
    """A sampler's state once the ``tokens`` [B] are drawn from what it allowed: told to those that have an
    ``observe``."""
    if isinstance(state, list):
        return [observe(one, tokens) for one in state]
    return state.observe(tokens) if hasattr(state, "observe") else state


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Tokens [b] by inverting the cumulative distribution of ``logits`` [b, V] at ``uniform`` [b] float64 in [0, 1).

    One number per row, so that a row's tokens do not depend on which other rows are in the batch. Tokens at -inf have
    no mass and cannot be drawn.
    """
    cumulative = logits.softmax(-1).double().cumsum(-1)
    if torch.isnan(cumulative[:, -1]).any():
        raise NotFinite("the policy's logits are not finite: nothing can be sampled from them")
    return torch.searchsorted(cumulative, (uniform.unsqueeze(1) * cumulative[:, -1:]), right=True).squeeze(1)


class _Episodes:
    """The episodes of a batch while they are sampled: what a ``Rollout`` holds of each, and which of them still run."""

    def __init__(self, prompts: Prompts, sampling: Sampling) -> None:
        B, T, device = len(prompts), sampling.max_new_tokens, prompts.ids.device
        self.prompts, self.sampling, self.allowed = prompts, sampling, None
        self.responses = torch.full((B, T), sampling.pad_id, dtype=torch.long, device=device)
        self.mask = torch.zeros(B, T, dtype=torch.bool, device=device)
        self.behavior_logprobs, self.logprobs = (torch.zeros(B, T, device=device) for _ in range(2))
        self.running = torch.ones(B, dtype=torch.bool, device=device)

    def write(self, rows: Tensor, t: int, tokens: Tensor, drawn: Tensor, bare: Tensor, allowed: Tensor | None) -> None:
        """Step ``t`` of the ``rows`` [b] still in the batch; those of them that have already ended stay padding.

        tokens [b]; drawn, bare [b, V]: the logits that they were drawn from, and those of the bare policy; allowed
        [b, V] bool, None = all (at every step or at none).
        """
        live, at = self.running[rows], tokens.unsqueeze(1)
        self.responses[rows, t] = torch.where(live, tokens, self.responses[rows, t])
        self.behavior_logprobs[rows, t] = (drawn.gather(1, at).squeeze(1) - drawn.logsumexp(-1)) * live
        self.logprobs[rows, t] = (bare.gather(1, at).squeeze(1) - bare.logsumexp(-1)) * live
        self.mask[rows, t], self.running[rows] = live, live & (tokens != self.sampling.eos_id)
        if allowed is not None:
            if self.allowed is None:
                shape, V = (*self.mask.shape, -(-allowed.shape[1] // 8)), allowed.shape[1]
                self.allowed = Allowed(torch.zeros(shape, dtype=torch.uint8, device=self.mask.device), V)
            self.allowed.bits[rows, t] = Allowed.pack(allowed)

    def rollout(self) -> Rollout:
        """All of them, as long as the longest response."""
        allowed = self.allowed and dataclasses.replace(self.allowed, bits=self.allowed.bits * self.mask.unsqueeze(-1))
        records = self.responses, self.mask, ~self.running, self.behavior_logprobs, self.logprobs
        return _real_columns(Rollout(self.prompts, *records, self.sampling, allowed))


@torch.no_grad()
def sample(
    policy: PreTrainedModel,
    prompts: Prompts,
    sampling: Sampling,
    generator: torch.Generator,
    sampler: Sampler | None = None,
    mask_model: PreTrainedModel | None = None,
    mask_rule: Sampler | None = None,
    follow: Callable[[Tensor], None] | None = None,
) -> Rollout:
    """One response per prompt.

    sampler     truncation of the policy's own tempered distribution; None = all tokens
    mask_model  NLPO: the tokens that ``mask_rule`` allows under this model are the only ones the policy may choose, and
                ``sampler`` then truncates what is left. An argument, not something stored, so that a sync is visible
                in the very next sample.
    generator   CPU generator; consumes B x T numbers whatever happens, one per row and position
    follow      called with the positions [k] of the rows that stay whenever ended rows leave the batch: for whoever
                holds something per row of the policy's batch (dropout masks)
    Returns a ``Rollout`` [B, T] with T = the longest response in the batch.
    """
    was_training = policy.training
    policy.eval()
    B, T, device = len(prompts), sampling.max_new_tokens, prompts.ids.device
    uniform = torch.rand(B, T, generator=generator, dtype=torch.float64).to(device)
    episodes = _Episodes(prompts, sampling)
    decoders = [Decoder(policy, prompts)] + ([Decoder(mask_model, prompts)] if mask_model is not None else [])
    rules = ([] if mask_model is None else [(1, mask_rule)]) + ([] if sampler is None else [(0, sampler)])
    rows, states = torch.arange(B, device=device), [None] * len(rules)
    for t in range(T):
        all_logits, allowed = [decoder.logits() for decoder in decoders], None
        logits, steps = all_logits[0], torch.full((len(rows),), t, device=device)
        for i, (which, rule) in enumerate(rules):
            _, kept, states[i] = rule(restrict(all_logits[which], sampling, steps, allowed), states[i])
            allowed = kept if allowed is None else allowed & kept
        restricted, free = restrict(logits, sampling, steps, allowed), playable(logits, sampling, steps)
        tokens = draw(restricted, uniform[rows, t])
        states = observe(states, tokens)
        episodes.write(rows, t, tokens, restricted, free, allowed)
        if not episodes.running.any() or t == T - 1:
            break
        for decoder in decoders:
            decoder.append(tokens)
        # Compacting copies the caches: worth it once a quarter of the rows has ended. A rule with a state keeps all.
        alive = episodes.running[rows].nonzero().squeeze(1)
        if len(alive) <= 0.75 * len(rows) and all(state is None for state in states):
            rows = rows[alive]
            for decoder in decoders:
                decoder.keep(alive)
            if follow is not None:
                follow(alive)
    policy.train(was_training)
    return episodes.rollout()


def _real_columns(rollout: Rollout) -> Rollout:
    """Without the response columns that are padding in every row."""
    used = int(rollout.mask.any(0).sum())
    cut = {name: getattr(rollout, name)[:, :used] for name in ("responses", "mask", "behavior_logprobs", "logprobs")}
    if rollout.allowed is not None:
        cut["allowed"] = dataclasses.replace(rollout.allowed, bits=rollout.allowed.bits[:, :used])
    return dataclasses.replace(rollout, **cut)


def repeat(prompts: Prompts, n: int) -> Prompts:
    """Each prompt ``n`` times in a row, for several samples per prompt."""
    return take(prompts, torch.arange(len(prompts)).repeat_interleave(n)) if n > 1 else prompts


def decode(rollout: Rollout, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Response texts, special tokens left out."""
    return tokenizer.batch_decode(
        [row[keep].tolist() for row, keep in zip(rollout.responses, rollout.mask)], skip_special_tokens=True
    )


def trim(rollout: Rollout) -> Rollout:
    """Drop prompt and response columns that are padding in every row: a minibatch of short rows costs a short pass."""
    prompts = rollout.prompts
    start = int(prompts.mask.any(0).long().argmax())
    prompts = dataclasses.replace(prompts, ids=prompts.ids[:, start:], mask=prompts.mask[:, start:])
    return dataclasses.replace(_real_columns(rollout), prompts=prompts)


def from_references(prompts: Prompts, tokenizer: PreTrainedTokenizerBase, sampling: Sampling) -> Rollout:
    """The prompts' first references as if they had been sampled: what supervised learning trains on.

    A reference longer than ``max_new_tokens`` is cut there and does not end in EOS. Raises ``ValueError`` naming the
    example whose reference is missing. Log-probabilities are zero: nobody sampled these tokens.
    """
    for example, references in zip(prompts.example_ids, prompts.references):
        if not references:
            raise ValueError(f"supervised: example {example} has no reference response")
    T, rows = sampling.max_new_tokens, []
    for references in prompts.references:
        ids = tokenizer(references[0], add_special_tokens=False)["input_ids"]
        rows.append((ids + [sampling.eos_id])[:T])
    used = max(map(len, rows))
    device = prompts.ids.device
    mask = torch.tensor([[t < len(row) for t in range(used)] for row in rows], device=device)
    responses = torch.tensor([row + [sampling.pad_id] * (used - len(row)) for row in rows], device=device)
    terminated = torch.tensor([row[-1] == sampling.eos_id for row in rows], device=device)
    zeros = torch.zeros(mask.shape, device=device)
    return Rollout(prompts, responses, mask, terminated, zeros, zeros, sampling)


def batch_of(prompts: Prompts, size: int, seed: int, update: int) -> Prompts:
    """The prompts of one update: ``size`` of them, walking through seeded permutations of all, each prompt once a
    pass."""
    positions = range(update * size, (update + 1) * size)
    orders = {}
    for epoch in {position // len(prompts) for position in positions}:
        orders[epoch] = torch.randperm(len(prompts), generator=named_generator(seed, "prompts", epoch))
    rows = torch.stack([orders[position // len(prompts)][position % len(prompts)] for position in positions])
    return take(prompts, rows)
