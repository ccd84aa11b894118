"""Sample whole episodes in one batch with a key-value cache; rows that end leave the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlnlp.models import Decoder, check_context, playable, restrict
from rlnlp.samplers import chain, top_k, top_p
from rlnlp.types import Allowed, NotFinite, Prompts, Rollout, Sampler, Sampling, changed, replaceable, take
from rlnlp.types import generator as named_generator
from rlnlp.vocabulary import ABSENT

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def sampling_from(
    model: PreTrainedModel, max_new_tokens: int, temperature: float = 1.0, min_new_tokens: int = 0
) -> Sampling:
    """Sampling settings with the model's own end and padding ids. Raises ``ValueError`` where it names no end token,
    several (an episode has one), or one that it cannot choose."""
    eos = model.generation_config.eos_token_id
    eos = eos if eos is not None else model.config.eos_token_id
    ends = sorted(set(eos)) if isinstance(eos, (list, tuple)) else [] if eos is None else [eos]
    if not ends:
        raise ValueError("model: neither generation_config nor config names eos_token_id, so episodes could not end")
    if len(ends) > 1:
        raise ValueError(
            f"model: its eos_token_id are {', '.join(map(str, ends))}, and a response ends with one of them: choose "
            "it by model.generation_config.eos_token_id = ... (of a chat model, what ends a turn)"
        )
    (eos,), head = ends, model.get_output_embeddings()
    size = getattr(head, "out_features", eos + 1)  # a head of one's own need not say it
    if not 0 <= eos < size:
        raise ValueError(
            f"model: its eos_token_id is {eos}, and it has logits for {size} tokens, 0 to {size - 1}: no episode could "
            "end; set model.generation_config.eos_token_id"
        )
    if (bias := getattr(head, "bias", None)) is not None and bias[eos] < ABSENT / 2:
        raise ValueError(f"model: its eos_token_id is {eos}, which its smaller vocabulary (limit_vocabulary) has not")
    pad = model.generation_config.pad_token_id
    pad = pad if pad is not None else model.config.pad_token_id
    return Sampling(eos, eos if pad is None else pad, max_new_tokens, temperature, min_new_tokens)


def truncation(top_k_tokens: int = 0, top_p_mass: float = 1.0, first: Sampler | None = None) -> Sampler | None:
    """The truncation that settings describe: ``first``, then top-k, then top-p of what is left; None where all are off
    (None, 0 and 1)."""
    rules = [] if first is None else [first]
    rules += ([top_k(top_k_tokens)] if top_k_tokens else []) + ([top_p(top_p_mass)] if top_p_mass < 1 else [])
    return None if not rules else rules[0] if len(rules) == 1 else chain(*rules)


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Tokens [b] by inverting the cumulative distribution of ``logits`` [b, V] at ``uniform`` [b] float64 in [0, 1).

    One number per row, so that a row's tokens do not depend on which other rows are in the batch. Tokens at -inf have
    no mass and cannot be drawn.
    """
    cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    if torch.isnan(cumulative[:, -1]).any():
        raise NotFinite("the policy's logits are not finite: nothing can be sampled from them")
    return torch.searchsorted(cumulative, (uniform.unsqueeze(1) * cumulative[:, -1:]), right=True).squeeze(1)


def logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities [b] in nats of ``tokens`` [b] under ``logits`` [b, V], while they are sampled."""
    return logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(-1)


def spread(values: Tensor, rows: Tensor, live: Tensor, B: int) -> Tensor:
    """One step's column [B, ...] of a rollout: ``values`` [b, ...] in their ``rows`` [b], zero where an episode has
    ended (not ``live`` [b]) or its row has left the batch."""
    values = values * live.view(-1, *[1] * (values.dim() - 1))
    return values.new_zeros(B, *values.shape[1:]).index_copy(0, rows, values)


@replaceable
@torch.no_grad()
def sample(
    policy: PreTrainedModel,
    prompts: Prompts,
    sampling: Sampling,
    generator: torch.Generator,
    sampler: Sampler | None = None,
    mask_model: PreTrainedModel | None = None,
    mask_rule: Sampler | None = None,
    follow: Callable[[Tensor], None] = lambda alive: None,
) -> Rollout:
    """One response per prompt.

    sampling    temperature, horizon, from where on a response may end
    generator   on the CPU; consumes B x T numbers whatever happens, one per row and position
    sampler     truncation of the policy's own tempered distribution; None = all tokens
    mask_model  NLPO: the tokens that ``mask_rule`` allows under this model are the only ones the policy may choose, and
                ``sampler`` truncates what is left. An argument, nothing stored: a sync is seen in the next sample.
    follow      called with the positions [k] of the rows that stay whenever ended rows leave the batch: for whoever
                holds something per row of the policy's batch (dropout masks)
    Returns a ``Rollout`` [B, T] with T = the longest response in the batch. Raises ``ValueError`` as ``check_context``.
    """
    check_context(policy, prompts, sampling.max_new_tokens)
    was_training = policy.training
    policy.eval()
    B, T, device = len(prompts), sampling.max_new_tokens, prompts.ids.device
    uniform = torch.rand(B, T, generator=generator, dtype=torch.float64).to(device)
    decoders = [Decoder(model, prompts) for model in (policy, mask_model) if model is not None]
    rules = [(which, rule) for which, rule in ((1, mask_rule), (0, sampler)) if rule is not None]
    rows, states, columns = torch.arange(B, device=device), [None] * len(rules), []
    running = torch.ones(B, dtype=torch.bool, device=device)
    for t in range(T):
        every, allowed = [decoder.logits() for decoder in decoders], None
        at = torch.full_like(rows, t)
        for i, (which, rule) in enumerate(rules):
            _, kept, states[i] = rule(restrict(every[which], sampling, at, allowed), states[i])
            allowed = kept if allowed is None else allowed & kept
        bare = playable(every[0], sampling, at)
        drawn = bare if allowed is None and sampling.temperature == 1 else restrict(every[0], sampling, at, allowed)
        tokens, live = draw(drawn, uniform[rows, t]), running[rows]
        states = [None if state is None else state.observe(tokens) for state in states]
        behaved = logprob(drawn, tokens)
        seen = [tokens, live, behaved, behaved if drawn is bare else logprob(bare, tokens)]
        seen += [] if allowed is None else [Allowed.pack(allowed)]
        columns.append([spread(value, rows, live, B) for value in seen])
        running[rows] = live & (tokens != sampling.eos_id)
        if not running.any() or t == T - 1:
            break
        for decoder in decoders:
            decoder.append(tokens)
        # Compacting copies the caches: worth it once a quarter of the rows has ended. A rule with a state keeps all.
        alive = running[rows].nonzero().squeeze(1)
        if len(alive) <= 0.75 * len(rows) and all(state is None for state in states):
            rows = rows[alive]
            for decoder in decoders:
                decoder.keep(alive)
            follow(alive)
    policy.train(was_training)
    tokens, mask, behavior_logprobs, logprobs, *bits = (torch.stack(column, 1) for column in zip(*columns))
    responses, allowed = tokens.masked_fill(~mask, sampling.pad_id), Allowed(bits[0], drawn.shape[1]) if bits else None
    return Rollout(prompts, responses, mask, ~running, behavior_logprobs, logprobs, sampling, allowed)


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
    prompts, used = rollout.prompts, int(rollout.mask.any(0).sum())
    start = int(prompts.mask.any(0).long().argmax())
    cut = {name: getattr(rollout, name)[:, :used] for name in ("responses", "mask", "behavior_logprobs", "logprobs")}
    if rollout.allowed is not None:
        cut["allowed"] = changed(rollout.allowed, bits=rollout.allowed.bits[:, :used])
    return changed(rollout, prompts=changed(prompts, ids=prompts.ids[:, start:], mask=prompts.mask[:, start:]), **cut)


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
    n, start = len(prompts), update * size
    passes = range(start // n, (start + size - 1) // n + 1)
    orders = [torch.randperm(n, generator=named_generator(seed, "prompts", number)) for number in passes]
    return take(prompts, torch.cat(orders)[start % n :][:size])
