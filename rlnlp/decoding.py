"""Decodings: how text is generated from a policy once it is trained, recorded so that numbers can say how."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from rlnlp.models import CHUNK, context_of, evaluating, head, hidden_states, prompt_inputs, restrict, score_tokens
from rlnlp.rollout import from_references, repeat, sample, sampling_from, truncation
from rlnlp.samplers import kept, named, random_mass, top_p
from rlnlp.types import Prompts, Rollout, Sampling, generator, take
from rlnlp.vocabulary import ABSENT, limited

if TYPE_CHECKING:  # the arms' settings are read without transformers, which takes seconds to import
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MASKED_AT_RANDOM = 64  # rows at once under a random mask, whose numbers are those of a batch and not of a row


@dataclass(frozen=True)
class Decoding:
    """How text was generated for an evaluation.

    name: plain (ancestral), top_p, own (as in training), greedy (top_k = 1), beam, ...
    mask_top_p: NLPO's mask model restricts the policy to this mass (None = no mask); mask_random: to a random set of it
    beams: > 1 is beam search, which is deterministic; it goes with min_new_tokens alone
    best_of: this many samples per prompt, of which the one with the highest training reward is kept
    rule, rule_value: a rule of ``samplers.RULES`` and its number, before top_k and top_p; rule_of: whose distribution
    it truncates: the policy's own, or the mask model's, whose tokens are then the only ones the policy may choose
    Raises ``ValueError`` for beam search together with a setting of sampling, two masks, and a rule that cannot be
    used.
    """

    name: str
    max_new_tokens: int
    temperature: float = 1.0
    min_new_tokens: int = 0
    top_k: int = 0
    top_p: float = 1.0
    mask_top_p: float | None = None
    mask_min_tokens: int = 1
    mask_random: bool = False
    beams: int = 1
    best_of: int = 1
    rule: str = "none"
    rule_value: float = 0.0
    rule_of: Literal["policy", "mask_model"] = "policy"

    def __post_init__(self) -> None:
        if self.beams < 1 or self.best_of < 1:
            raise ValueError(
                f"decoding {self.name!r}: expected beams and best_of >= 1, got {self.beams} and {self.best_of}"
            )
        named(self.rule, self.rule_value)
        if self.rule_of not in ("policy", "mask_model"):
            raise ValueError(f"decoding {self.name!r}: expected rule_of policy or mask_model, got {self.rule_of!r}")
        if self.rule == "none" and self.rule_of != "policy":
            raise ValueError(f"decoding {self.name!r}: rule_of {self.rule_of} without a rule that it could be of")
        if self.mask_top_p is not None and self.rule_of == "mask_model":
            raise ValueError(
                f"decoding {self.name!r}: a mask model has one rule: mask_top_p cannot go with rule_of mask_model"
            )
        drawing = ("temperature", "top_k", "top_p", "mask_top_p", "best_of", "rule", "rule_of")
        if self.beams > 1 and (changed := [name for name in drawing if getattr(self, name) != getattr(Decoding, name)]):
            raise ValueError(
                f"decoding {self.name!r}: beam search draws nothing, so it cannot go with {', '.join(changed)}"
            )

    def record(self) -> str:
        """One line for tables: every setting but the name; those of masks, beams and best of n only where they act."""
        hidden = {"name", *(k for k in ("mask_random", "beams", "best_of") if getattr(self, k) == getattr(Decoding, k))}
        if self.mask_top_p is None:
            hidden |= {"mask_top_p", "mask_min_tokens", "mask_random"}
        if self.rule == "none":
            hidden |= {"rule", "rule_value", "rule_of"}
        return ", ".join(f"{k}={v}" for k, v in asdict(self).items() if k not in hidden)


def generate(
    policy: PreTrainedModel,
    prompts: Prompts,
    decoding: Decoding,
    stream: str,
    batch_size: int,
    mask_model: PreTrainedModel | None = None,
    select: Callable[[Rollout], Tensor] | None = None,
) -> list[Rollout]:
    """Responses to every prompt, in batches; each prompt's random numbers depend on the name ``stream`` and its place
    among the prompts alone: two policies compared on one stream get the same ones, whatever the size of a batch, and
    the first prompts get what they get without the others.

    select: rollout -> [B], what best of n maximises. Raises ``ValueError`` where a decoding needs a mask model or a
    selector and none was given.
    """
    rule, n = None if decoding.rule == "none" else named(decoding.rule, decoding.rule_value), decoding.best_of
    own, mask_rule = (rule, None) if decoding.rule_of == "policy" else (None, rule)
    masked = decoding.mask_top_p is not None or mask_rule is not None
    if masked and mask_model is None:
        raise ValueError(f"decoding {decoding.name!r} needs a mask model and none was given")
    if n > 1 and select is None:
        raise ValueError(f"decoding {decoding.name!r} keeps the best of {n} samples and was not told by what")
    settings = sampling_from(policy, decoding.max_new_tokens, decoding.temperature, decoding.min_new_tokens)
    rollouts, numbers = [], generator("evaluation", stream)  # one after another: a batch goes on where the last ended
    together = MASKED_AT_RANDOM if decoding.mask_random else max(1, batch_size // n)  # as many samples, whatever n is
    for rows in torch.arange(len(prompts)).split(together):
        batch = take(prompts, rows)
        if decoding.beams > 1:
            rollouts.append(beam_search(policy, batch, settings, decoding.beams))
            continue
        if decoding.mask_top_p is not None and decoding.mask_random:
            mask_rule = random_mass(
                decoding.mask_top_p, generator("evaluation", stream, "mask", int(rows[0])), decoding.mask_min_tokens
            )
        elif decoding.mask_top_p is not None:
            mask_rule = top_p(decoding.mask_top_p, decoding.mask_min_tokens)
        drawn = sample(
            policy,
            repeat(batch, n),
            settings,
            numbers,
            truncation(decoding.top_k, decoding.top_p, own),
            mask_model if masked else None,
            mask_rule,
        )
        rollouts.append(drawn if n == 1 else take(drawn, best_rows(select(drawn), n)))
    return rollouts


@torch.no_grad()
def beam_search(
    policy: PreTrainedModel, prompts: Prompts, sampling: Sampling, beams: int, length_penalty: float = 1.0
) -> Rollout:
    """The response that maximises (sum of log-probabilities) / (its length, EOS included) ^ length_penalty among those
    that ``beams`` beams find; beams = 1 is greedy, and the penalty is then idle.

    transformers' own search with none of its other settings but ``min_new_tokens`` and the horizon, whatever the
    model's own generation settings are. Deterministic, so there is no distribution that was sampled from:
    ``behavior_logprobs`` are zero. Raises ``ValueError`` for a temperature and for beams < 1.
    """
    if beams < 1 or sampling.temperature != 1.0:
        raise ValueError(f"beam search: expected >= 1 beams at temperature 1, got {beams} at {sampling.temperature}")
    from transformers import GenerationConfig

    settings = GenerationConfig(
        num_beams=beams,
        length_penalty=length_penalty if beams > 1 else None,
        do_sample=False,
        max_new_tokens=sampling.max_new_tokens,
        min_new_tokens=sampling.min_new_tokens,
        eos_token_id=sampling.eos_id,
        pad_token_id=sampling.pad_id,
        decoder_start_token_id=getattr(policy.config, "decoder_start_token_id", None),
    )
    own, policy.generation_config = policy.generation_config, settings  # generate() fills gaps from the model's own
    try:
        with evaluating(policy):
            tokens = policy.generate(**prompt_inputs(policy, prompts))
    finally:
        policy.generation_config = own
    responses = tokens[:, 1 if policy.config.is_encoder_decoder else prompts.ids.shape[1] :]
    ended = responses == sampling.eos_id
    mask = ended.long().cumsum(1) - ended.long() == 0  # real up to and including the first EOS
    zeros = torch.zeros(responses.shape, device=responses.device)
    rollout = Rollout(
        prompts,
        responses.masked_fill(~mask, sampling.pad_id),
        mask,
        ended.any(1),
        behavior_logprobs=zeros,
        logprobs=zeros,
        sampling=sampling,
    )
    return dataclasses.replace(rollout, logprobs=score_tokens(policy, rollout))


def best_rows(scores: Tensor, n: int) -> Tensor:
    """The row [B] with the highest of ``scores`` [B n] among each prompt's ``n`` rows, as ``repeat`` laid them out."""
    best = scores.view(-1, n).argmax(1)
    return torch.arange(len(best), device=best.device) * n + best


@torch.no_grad()
def kept_of(policy: PreTrainedModel, rollout: Rollout, hidden: Tensor | None = None) -> tuple[float, float]:
    """(mass, tokens) summed over the rollout's real tokens: the share of the policy's distribution (tempered, EOS
    blocked as when sampling) that was allowed, and how many tokens of those that exist were; 1 and all of them where
    nothing is cut. hidden: [N, H] of the policy at the real tokens, None = one pass."""
    mask = rollout.mask
    if rollout.allowed is None:
        existing = len(policy.config.allowed_token_ids) if limited(policy) else policy.config.vocab_size
        return float(mask.sum()), float(mask.sum()) * existing
    if hidden is None:
        with evaluating(policy):
            hidden = hidden_states(policy, rollout)[mask]
    allowed, steps = rollout.allowed.unpack(mask), mask.nonzero()[:, 1]
    mass, tokens = 0.0, 0.0
    for rows in torch.arange(len(steps), device=mask.device).split(CHUNK):
        logits = restrict(head(policy, hidden[rows]).float(), rollout.sampling, steps[rows], None)
        part = kept(logits, allowed[rows] & (logits > ABSENT / 2))
        mass, tokens = mass + part[0].sum().item(), tokens + part[1].sum().item()
    return mass, tokens


@torch.no_grad()
def human_log_perplexity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> float | None:
    """Mean negative log-likelihood in nats per token of human texts under ``model``; its exponential is what the papers
    print as "perplexity". It measures what the model has forgotten, not how fluent its own text is.

    None for a model whose vocabulary was limited: tokens of human texts do not exist for it.
    Each text starts after EOS and is cut at the model's context (512 tokens if it names none).
    """
    if limited(model):
        return None
    context = context_of(model)
    settings = sampling_from(model, max_new_tokens=context - 1)
    total, tokens = 0.0, 0
    ordered = sorted(texts, key=len)  # rows of a batch about equally long
    for start in range(0, len(ordered), 32):
        part = ordered[start : start + 32]
        ids = torch.full((len(part), 1), settings.eos_id, device=model.device)
        prompts = Prompts(ids, torch.ones_like(ids, dtype=torch.bool), part, [[t] for t in part], part)
        rollout = from_references(prompts, tokenizer, settings)
        total -= score_tokens(model, rollout).sum().item()
        tokens += int(rollout.mask.sum())
    return total / tokens
