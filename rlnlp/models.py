"""One view of causal and encoder-decoder language models: what the learners and the sampler need of either.

In: a transformers model and token ids. Out: hidden states that predict response tokens, logits where they are needed.
The language-model head runs only at real response positions: at GPT-2's vocabulary it is a third of a small model's
work.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rlnlp.types import Prompts, Rollout, Sampling

if TYPE_CHECKING:  # its modelling code takes seconds to import; reading the settings must not wait for it
    from transformers import Cache, PreTrainedModel


CHUNK = 4096  # positions whose logits over the whole vocabulary are in memory at once, where no gradient is needed
FEW = 128  # of them looked at together by a CPU: what is made of their logits stays in its cache


def positions(mask: Tensor) -> Tensor:
    """Position ids [B, L] of a left-padded batch: a row's first real token is position 0 however much padding it
    has."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def _right_padded(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Move left padding to the right: encoders with absolute positions (BART) must see a prompt start at position 0."""
    order = (~mask).long().argsort(dim=1, stable=True)
    return ids.gather(1, order), mask.gather(1, order)


def encode(model: PreTrainedModel, prompts: Prompts) -> tuple[Tensor, Tensor]:
    """The encoder's hidden states [B, P, H] and their mask [B, P]; each model encodes for itself, never for another."""
    ids, mask = _right_padded(prompts.ids, prompts.mask)
    return model.get_encoder()(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask


def prompt_inputs(model: PreTrainedModel, prompts: Prompts) -> dict[str, Tensor]:
    """What transformers' ``generate`` needs of prompts: ids and mask [B, P], padded on the side that suits the
    model."""
    ids, mask = (
        _right_padded(prompts.ids, prompts.mask) if model.config.is_encoder_decoder else (prompts.ids, prompts.mask)
    )
    return {"input_ids": ids, "attention_mask": mask.long()}


def trunk(model: PreTrainedModel, ids: Tensor, mask: Tensor, memory: Tensor | None, cache: Cache | None) -> Tensor:
    """Hidden states [B, L, H] of the tokens ``ids`` [B, L].

    mask    [B, S] of what is attended to: the tokens in the cache and ``ids``; with a memory, the prompt
    memory  [B, P, H] of an encoder-decoder model, else None (``encode``); its own tokens need no mask, because they
            are right padded and causal attention never looks ahead
    cache   keys and values of earlier tokens, to which those of ``ids`` are added; None = there are none
    """
    if memory is None:
        run, places = model.base_model, positions(mask)[:, -ids.shape[1] :]
        attention = {"attention_mask": mask.long(), "position_ids": places}
    else:
        run, attention = model.get_decoder(), {"encoder_hidden_states": memory, "encoder_attention_mask": mask.long()}
    return run(input_ids=ids, past_key_values=cache, use_cache=cache is not None, **attention).last_hidden_state


def hidden_states(model: PreTrainedModel, rollout: Rollout) -> Tensor:
    """Teacher-forced hidden states [B, T, H]; entry t is what predicts response token t. One pass per episode."""
    prompts, inputs = rollout.prompts, rollout.responses[:, :-1]
    if model.config.is_encoder_decoder:
        memory, mask = encode(model, prompts)
        start = inputs.new_full((len(inputs), 1), model.config.decoder_start_token_id)
        return trunk(model, torch.cat([start, inputs], 1), mask, memory, None)
    mask = torch.cat([prompts.mask, rollout.mask[:, :-1]], 1)
    return trunk(model, torch.cat([prompts.ids, inputs], 1), mask, None, None)[:, prompts.ids.shape[1] - 1 :]


def head(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Logits [..., V] of hidden states [..., H]. ``trainable.check_policy`` holds it against the model's forward."""
    if getattr(model.config, "scale_decoder_outputs", False):
        hidden = hidden * model.config.d_model**-0.5
    logits = model.get_output_embeddings()(hidden)
    bias = getattr(model, "final_logits_bias", None)
    return logits if bias is None else logits + bias


def context_of(model: PreTrainedModel, unnamed: int = 512) -> int:
    """Positions of a model, tokens; ``unnamed`` for one that names none (T5)."""
    config = model.config
    return getattr(config, "n_positions", None) or getattr(config, "max_position_embeddings", None) or unnamed


def check_context(model: PreTrainedModel, prompts: Prompts, max_new_tokens: int) -> None:
    """Refuse prompts that, with a response of ``max_new_tokens``, do not fit the model; of an encoder-decoder each has
    to fit alone. A model without positions of its own (T5) has no limit.

    Raises: ``ValueError`` naming the longest prompt's id and the numbers.
    """
    context, together = context_of(model, 0), max if model.config.is_encoder_decoder else operator.add
    if context <= 0 or hasattr(model.config, "relative_attention_num_buckets"):
        return
    if together(prompts.ids.shape[1], max_new_tokens) <= context:
        return  # and no number was read
    lengths = prompts.mask.sum(1)
    longest = int(lengths.argmax())
    if (needed := together(prompt := int(lengths[longest]), max_new_tokens)) > context:
        either = "or" if together is max else "and"
        raise ValueError(
            f"prompt {prompts.example_ids[longest]}: {prompt} tokens {either} a response of up to "
            f"{max_new_tokens} make {needed}, but the model's context is {context} tokens; shorten prompts "
            "(task.prompt_tokens, max_prompt_tokens) or responses (max_new_tokens)"
        )


def restrict(logits: Tensor, sampling: Sampling, steps: Tensor, allowed: Tensor | None) -> Tensor:
    """Logits [N, V] of the distribution that was (or will be) sampled from: tempered, EOS blocked early, truncated.

    ``steps`` [N] int64 is each row's position in its response; ``allowed`` [N, V] bool or None = all. A log-softmax of
    the result is renormalised over what is left, which the original library's masked distribution is not.
    """
    if sampling.temperature != 1.0:
        logits = logits / sampling.temperature
    logits = playable(logits, sampling, steps)
    return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def playable(logits: Tensor, sampling: Sampling, steps: Tensor) -> Tensor:
    """Logits [N, V] of what the task lets any policy choose: EOS blocked at the first ``min_new_tokens`` positions.

    Policy and reference are compared on this: probability that one of them has on an end that cannot come is no
    difference in what they do.
    """
    if not sampling.min_new_tokens:
        return logits
    left = logits.clone()
    left[:, sampling.eos_id].masked_fill_(steps < sampling.min_new_tokens, -torch.inf)
    return left


def behavior_logits(logits: Tensor, rollout: Rollout) -> Tensor:
    """Raw logits [N, V] at the rollout's N real tokens, turned into those of the distribution it was sampled from."""
    steps = rollout.mask.nonzero()[:, 1]
    allowed = None if rollout.allowed is None else rollout.allowed.unpack(rollout.mask)
    return restrict(logits, rollout.sampling, steps, allowed)


def task_logits(logits: Tensor, rollout: Rollout) -> Tensor:
    """Raw logits [N, V] at the rollout's N real tokens, with what the task forbids (``playable``) and nothing else."""
    return playable(logits, rollout.sampling, rollout.mask.nonzero()[:, 1])


def chosen_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities [N] in nats of ``tokens`` [N] under ``logits`` [N, V]."""
    return -nn.functional.cross_entropy(logits, tokens, reduction="none")


def logits_at(model: PreTrainedModel, hidden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(which [n], logits [n, V] float32) of the N positions of ``hidden`` [N, H], part by part and in their order."""
    part = FEW if hidden.device.type == "cpu" else CHUNK
    for rows in torch.arange(len(hidden), device=hidden.device).split(CHUNK):
        yield from zip(rows.split(part), head(model, hidden[rows]).float().split(part), strict=True)


def scatter(values: Tensor, mask: Tensor) -> Tensor:
    """Values [N] at the True cells of ``mask`` [B, T], row by row; zero elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


@torch.no_grad()
def score_tokens(model: PreTrainedModel, rollout: Rollout, hidden: Tensor | None = None) -> Tensor:
    """Log-probabilities [B, T] in nats of the response tokens under the model at temperature 1, without a mask, where
    EOS may not be chosen before ``min_new_tokens`` (``playable``); a text that ends before all the same was given, not
    sampled, and its end counts as it would freely. hidden: [N, H] of the model at the real tokens, None = one pass."""
    if hidden is None:
        with evaluating(model):
            hidden = hidden_states(model, rollout)[rollout.mask]
    tokens = rollout.responses[rollout.mask]
    steps = rollout.mask.nonzero()[:, 1].masked_fill(tokens == rollout.sampling.eos_id, rollout.sampling.min_new_tokens)
    parts = [
        chosen_logprobs(playable(logits, rollout.sampling, steps[at]), tokens[at])
        for at, logits in logits_at(model, hidden)
    ]
    return scatter(torch.cat(parts), rollout.mask)


@torch.no_grad()
def exact_kl(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    rollout: Rollout,
    hidden: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """KL(policy || reference) in nats per position [B, T], summed over the whole vocabulary, no sampling of tokens.

    Returns (raw, deployed): the bare policy's against the bare reference, and that of the distribution which generated
    the rollout (tempered, truncated, renormalised) against the reference in the same task (``playable``). The
    reference itself is at 0 in both, unless it was tempered or truncated. hidden: [N, H] of both at the real tokens,
    None = a pass of each.
    """

    def kl(logits: Tensor, ref: Tensor) -> Tensor:
        p = logits.log_softmax(-1)
        terms = (p - ref.log_softmax(-1)).mul_(p.exp())
        return terms.masked_fill_(p == -torch.inf, 0.0).sum(-1)  # 0 log 0 = 0

    mask = rollout.mask
    steps = mask.nonzero()[:, 1]
    allowed = None if rollout.allowed is None else rollout.allowed.unpack(mask)
    if hidden is None:
        with evaluating(policy), evaluating(reference):
            hidden = hidden_states(policy, rollout)[mask], hidden_states(reference, rollout)[mask]
    mine, theirs = hidden
    raw, deployed = [], []
    for (at, logits), (_, ref) in zip(logits_at(policy, mine), logits_at(reference, theirs), strict=True):
        raw.append(kl(logits, ref))
        kept = None if allowed is None else allowed[at]
        same = playable(ref, rollout.sampling, steps[at])
        deployed.append(kl(restrict(logits, rollout.sampling, steps[at], kept), same))
    return scatter(torch.cat(raw), mask), scatter(torch.cat(deployed), mask)


class ValueModel(nn.Module):
    """V(s_t) by a network of its own: the policy's trunk copied, and a linear head that starts at zero."""

    def __init__(self, policy: PreTrainedModel):
        super().__init__()
        self.trunk = copy.deepcopy(policy).requires_grad_(True)
        # Never run; without this an untied output layer would be kept and trained.
        self.trunk.set_output_embeddings(nn.Identity())
        self.head = at_zero(nn.Linear(policy.get_output_embeddings().in_features, 1).to(policy.device))

    def forward(self, rollout: Rollout, hidden: Tensor | None = None) -> Tensor:
        """Values [N] in reward units at the rollout's N real tokens: the state before token t is chosen.

        hidden: what the policy's hidden states are, which is of no use to a network of its own.
        """
        return self.head(hidden_states(self.trunk, rollout)[rollout.mask]).squeeze(-1)


class SharedValue(nn.Linear):
    """V(s_t) by a linear head, zero at the start, on the hidden states of the policy itself.

    The policy is no part of this module: its weights are not among its parameters.
    """

    def __init__(self, policy: PreTrainedModel):
        super().__init__(policy.get_output_embeddings().in_features, 1)
        at_zero(self).to(policy.device)
        self.policy = (policy,)

    def forward(self, rollout: Rollout, hidden: Tensor | None = None) -> Tensor:
        """As ``ValueModel``; hidden: [N, H] of the policy at the real tokens, None = one more pass."""
        hidden = hidden_states(self.policy[0], rollout)[rollout.mask] if hidden is None else hidden
        return super().forward(hidden).squeeze(-1)


def at_zero(layer: nn.Linear) -> nn.Linear:
    """A layer whose output is zero: the values are at the start, so that the first advantages are the returns."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy without gradients, in evaluation mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within it the model is in evaluation mode, without dropout; then as it was."""
    training = model.training
    model.train(False) if training else None
    try:
        yield
    finally:
        model.train(training) if training else None


@torch.no_grad()
def sync(target: nn.Module, source: nn.Module) -> None:
    """Copy every weight and buffer of ``source`` into ``target`` in place, so that no holder of ``target`` goes
    stale."""
    target.load_state_dict(source.state_dict())


class Decoder:
    """One model generating one batch token by token, with a key-value cache and, where it has one, an encoder of its
    own.

    Each model gets its own Decoder, so that a mask model never sees the policy's encoder output or cache.
    """

    def __init__(self, model: PreTrainedModel, prompts: Prompts):
        from transformers import DynamicCache, EncoderDecoderCache

        self.model, self.cache = model, DynamicCache(config=model.config)
        self.next_input, self.mask, self.memory = prompts.ids, prompts.mask, None
        if model.config.is_encoder_decoder:
            self.memory, self.mask = encode(model, prompts)
            self.cache = EncoderDecoderCache(self.cache, DynamicCache(config=model.config))
            self.next_input = prompts.ids.new_full((len(prompts), 1), model.config.decoder_start_token_id)

    def logits(self) -> Tensor:
        """Raw logits [b, V] of the next token for the rows still in the batch."""
        hidden = trunk(self.model, self.next_input, self.mask, self.memory, self.cache)
        return head(self.model, hidden[:, -1]).float()

    def append(self, tokens: Tensor) -> None:
        """Feed the tokens [b] just chosen."""
        self.next_input = tokens.unsqueeze(1)
        if self.memory is None:
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], 1)

    def keep(self, rows: Tensor) -> None:
        """Drop every row but ``rows`` [k] from the batch."""
        self.cache.batch_select_indices(rows)
        self.mask, self.next_input = self.mask[rows], self.next_input[rows]
        self.memory = None if self.memory is None else self.memory[rows]
