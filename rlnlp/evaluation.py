"""Measure a policy on a fixed split with a fixed decoding that is recorded with the numbers.

In: a policy, prompts, a ``Decoding``, scorers. Out: one flat row of metrics and the texts they were computed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from . import metrics
from .models import ABSENT, CHUNK, exact_kl, head, hidden_states, limited, restrict, score_tokens
from .rewards import evaluate_reward
from .rollout import beam_search, best_rows, decode, from_references, repeat, sample, sampling_from
from .samplers import kept, named, random_mass, top_p, truncation
from .seeds import generator
from .types import Prompts, Rollout, take


@dataclass(frozen=True)
class Decoding:
    """How text was generated for an evaluation.

    name: plain (ancestral), top_p, own (as in training), greedy (top_k = 1), beam, ...
    mask_top_p: NLPO's mask model restricts the policy to this mass (None = no mask); mask_random: to a random set of it
    beams: > 1 is beam search, which is deterministic; it goes with min_new_tokens alone
    best_of: this many samples per prompt, of which the one with the highest training reward is kept
    rule, rule_value: a rule of ``samplers.RULES`` and its number, before top_k and top_p; rule_of: whose distribution it
    truncates: the policy's own, or the mask model's, whose tokens are then the only ones the policy may choose
    Raises ``ValueError`` for beam search together with a setting of sampling, two masks, and a rule that cannot be used.
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
            raise ValueError(f"decoding {self.name!r}: expected beams and best_of >= 1, got {self.beams} and {self.best_of}")
        named(self.rule, self.rule_value)
        if self.rule_of not in ("policy", "mask_model"):
            raise ValueError(f"decoding {self.name!r}: expected rule_of policy or mask_model, got {self.rule_of!r}")
        if self.rule == "none" and self.rule_of != "policy":
            raise ValueError(f"decoding {self.name!r}: rule_of {self.rule_of} without a rule that it could be of")
        if self.mask_top_p is not None and self.rule_of == "mask_model":
            raise ValueError(f"decoding {self.name!r}: a mask model has one rule: mask_top_p cannot go with rule_of mask_model")
        drawing = ("temperature", "top_k", "top_p", "mask_top_p", "best_of", "rule", "rule_of")
        if self.beams > 1 and (changed := [name for name in drawing if getattr(self, name) != getattr(Decoding, name)]):
            raise ValueError(f"decoding {self.name!r}: beam search draws nothing, so it cannot go with {', '.join(changed)}")

    def record(self) -> str:
        """One line for tables: every setting but the name; those of masks, beams and best of n only where they act."""
        hidden = {"name", *(k for k in ("mask_random", "beams", "best_of") if getattr(self, k) == getattr(Decoding, k))}
        if self.mask_top_p is None:
            hidden |= {"mask_top_p", "mask_min_tokens", "mask_random"}
        if self.rule == "none":
            hidden |= {"rule", "rule_value", "rule_of"}
        return ", ".join(f"{k}={v}" for k, v in asdict(self).items() if k not in hidden)


def generate(
    policy: PreTrainedModel, prompts: Prompts, decoding: Decoding, stream: str, batch_size: int,
    mask_model: PreTrainedModel | None = None, select: Callable[[Rollout], Tensor] | None = None,
) -> list[Rollout]:
    """Responses to every prompt, in batches; the random numbers depend on the name ``stream`` and the batch alone, so
    that two policies compared on one stream get the same ones.

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
    rollouts = []
    for rows in torch.arange(len(prompts)).split(max(1, batch_size // n)):  # as many samples at once, whatever n is
        batch, name = take(prompts, rows), ("evaluation", stream, int(rows[0]))
        if decoding.beams > 1:
            rollouts.append(beam_search(policy, batch, settings, decoding.beams))
            continue
        if decoding.mask_top_p is not None and decoding.mask_random:
            mask_rule = random_mass(decoding.mask_top_p, generator(*name, "mask"), decoding.mask_min_tokens)
        elif decoding.mask_top_p is not None:
            mask_rule = top_p(decoding.mask_top_p, decoding.mask_min_tokens)
        drawn = sample(
            policy, repeat(batch, n), settings, generator(*name), truncation(decoding.top_k, decoding.top_p, own),
            mask_model if masked else None, mask_rule,
        )
        rollouts.append(drawn if n == 1 else take(drawn, best_rows(select(drawn), n)))
    return rollouts


@torch.no_grad()
def kept_of(policy: PreTrainedModel, rollout: Rollout) -> tuple[float, float]:
    """(mass, tokens) summed over the rollout's real tokens: the share of the policy's distribution (tempered, EOS blocked as
    when sampling) that was allowed, and how many tokens of those that exist were; 1 and all of them where nothing is cut."""
    mask = rollout.mask
    if rollout.allowed is None:
        existing = len(policy.config.allowed_token_ids) if limited(policy) else policy.config.vocab_size
        return float(mask.sum()), float(mask.sum()) * existing
    hidden, allowed, steps = hidden_states(policy, rollout)[mask], rollout.allowed.unpack(mask), mask.nonzero()[:, 1]
    mass, tokens = 0.0, 0.0
    for rows in torch.arange(len(steps), device=mask.device).split(CHUNK):
        logits = restrict(head(policy, hidden[rows]).float(), rollout.sampling, steps[rows], None)
        part = kept(logits, allowed[rows] & (logits > ABSENT / 2))
        mass, tokens = mass + part[0].sum().item(), tokens + part[1].sum().item()
    return mass, tokens


def evaluate(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    evaluator: PreTrainedModel,
    prompts: Prompts,
    tokenizer: PreTrainedTokenizerBase,
    reward: Callable,
    alone: Callable | None,
    judge: Callable | None,
    decoding: Decoding,
    stream: str,
    batch_size: int = 64,
    mask_model: PreTrainedModel | None = None,
    judge_2: Callable | None = None,
    training_reward: Callable | None = None,
) -> tuple[dict[str, float], list[str], Tensor]:
    """Returns (row, responses, scores [B]).

    score / score_response: the reward on prompt + response, as published, and, by ``alone``, on the response alone
    training_score: ``training_reward``, what the policy was trained on and best of n selects by; the score where it is None
    judge, judge_2: scorers nobody trained on, on the response (told where the prompt stopped); None where there is none
    generation_log_perplexity: nats per token of the responses under ``evaluator``, a language model that took no part
    kl / kl_deployed: exact KL to the reference per token in nats, of the bare policy and of the decoding's distribution
    kl_deployed_per_response: the latter summed over each response
    kept_mass / kept_tokens: see ``kept_of``, per response token; None for beam search, which draws nothing
    distinct_1, distinct_2, msttr, entropy_2, repetition, shared_5gram, length, terminated: see ``metrics``

    Beam search samples from nothing, so it has no deployed KL (None). That of best of n is not computable token by
    token; per response it is the upper bound log n - (n - 1) / n to the distribution that was sampled from (Beirami et
    al. 2024, arXiv:2401.01879), given where that is the reference itself and None where the policy was trained or the
    samples were tempered, truncated or kept from ending.
    """
    training = training_reward or reward

    def select(rollout: Rollout) -> Tensor:
        return evaluate_reward(training, rollout.prompts, decode(rollout, tokenizer))[0].to(rollout.responses.device)

    rollouts = generate(policy, prompts, decoding, stream, batch_size, mask_model, select)
    responses = [text for rollout in rollouts for text in decode(rollout, tokenizer)]
    scores, _ = evaluate_reward(reward, prompts, responses)
    trained = scores if training_reward is None else evaluate_reward(training_reward, prompts, responses)[0]
    nll, raw, deployed, tokens, ended, mass, choices = 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0
    for rollout in rollouts:
        nll -= score_tokens(evaluator, rollout).sum().item()
        kls = exact_kl(policy, reference, rollout)
        raw, deployed = raw + kls[0].sum().item(), deployed + kls[1].sum().item()
        left = kept_of(policy, rollout)
        mass, choices = mass + left[0], choices + left[1]
        tokens += int(rollout.mask.sum())
        ended += int(rollout.terminated.sum())
    n, per_token, per_response = decoding.best_of, deployed / tokens, deployed / len(prompts)
    if decoding.beams > 1 or n > 1:
        per_token, per_response = None, None
    untruncated = decoding.temperature == 1 and not decoding.top_k and decoding.top_p == 1 and not decoding.min_new_tokens
    if n > 1 and raw / tokens < 1e-6 and untruncated and decoding.mask_top_p is None and decoding.rule == "none":
        per_response = math.log(n) - (n - 1) / n
    row = {
        "score": scores.mean().item(),
        "score_response": None if alone is None else evaluate_reward(alone, prompts, responses)[0].mean().item(),
        "training_score": trained.mean().item(),
        "judge": None if judge is None else float(np.mean(judge(responses, prompts.texts))),
        "judge_2": None if judge_2 is None else float(np.mean(judge_2(responses, prompts.texts))),
        "generation_log_perplexity": nll / tokens,
        "kl": raw / tokens,
        "kl_deployed": per_token,
        "kl_deployed_per_response": per_response,
        "kept_mass": None if decoding.beams > 1 else mass / tokens,
        "kept_tokens": None if decoding.beams > 1 else choices / tokens,
        "length": tokens / len(prompts),
        "terminated": ended / len(prompts),
        **metrics.diversity(responses),
    }
    return row, responses, scores


@torch.no_grad()
def human_log_perplexity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> float | None:
    """Mean negative log-likelihood in nats per token of human texts under ``model``; its exponential is what the papers
    print as "perplexity". It measures what the model has forgotten, not how fluent its own text is.

    None for a model whose vocabulary was limited: tokens of human texts do not exist for it.
    Each text starts after EOS and is cut at the model's context (512 tokens if it names none).
    """
    if limited(model):
        return None
    context = getattr(model.config, "n_positions", None) or getattr(model.config, "max_position_embeddings", None) or 512
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
