"""Measure a policy on a fixed split with a fixed decoding that is recorded with the numbers.

In: a policy, prompts, a ``Decoding``, scorers. Out: one flat row of metrics and the texts they were computed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from . import metrics
from .models import exact_kl, score_tokens
from .rewards import evaluate_reward
from .rollout import decode, from_references, sample, sampling_from
from .samplers import top_p, truncation
from .seeds import generator
from .types import Prompts, Rollout, take


@dataclass(frozen=True)
class Decoding:
    """How text was generated for an evaluation.

    name: plain (ancestral), top_p, or own (as in training); mask_top_p < 1 or mask: NLPO's mask model restricts it.
    """

    name: str
    max_new_tokens: int
    temperature: float = 1.0
    min_new_tokens: int = 0
    top_k: int = 0
    top_p: float = 1.0
    mask_top_p: float | None = None
    mask_min_tokens: int = 1

    def record(self) -> str:
        """One line for tables: every setting but the name."""
        masked = self.mask_top_p is not None
        given = {k: v for k, v in asdict(self).items() if k != "name" and (masked or not k.startswith("mask"))}
        return ", ".join(f"{k}={v}" for k, v in given.items())


def generate(
    policy: PreTrainedModel, prompts: Prompts, decoding: Decoding, stream: str, batch_size: int,
    mask_model: PreTrainedModel | None = None,
) -> list[Rollout]:
    """Responses to every prompt, in batches; the random numbers depend on the name ``stream`` and the batch alone, so
    that two policies compared on one stream get the same ones."""
    masked = decoding.mask_top_p is not None
    if masked and mask_model is None:
        raise ValueError(f"decoding {decoding.name!r} needs a mask model and none was given")
    settings = sampling_from(policy, decoding.max_new_tokens, decoding.temperature, decoding.min_new_tokens)
    return [
        sample(
            policy, take(prompts, rows), settings, generator("evaluation", stream, int(rows[0])),
            truncation(decoding.top_k, decoding.top_p),
            mask_model if masked else None,
            top_p(decoding.mask_top_p, decoding.mask_min_tokens) if masked else None,
        )
        for rows in torch.arange(len(prompts)).split(batch_size)
    ]


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
) -> tuple[dict[str, float], list[str], Tensor]:
    """Returns (row, responses, scores [B]).

    score / score_response: the reward on prompt + response, as published, and, by ``alone``, on the response alone
    judge: a scorer nobody trained on, on the response (told where the prompt stopped); None where there is no judge
    generation_log_perplexity: nats per token of the responses under ``evaluator``, a language model that took no part
    kl / kl_deployed: exact KL to the reference per token in nats, of the bare policy and of the decoding's distribution
    kl_deployed_per_response: the latter summed over each response
    distinct_1, distinct_2, msttr, entropy_2, repetition, shared_5gram, length, terminated: see ``metrics``
    """
    rollouts = generate(policy, prompts, decoding, stream, batch_size, mask_model)
    responses = [text for rollout in rollouts for text in decode(rollout, tokenizer)]
    scores, _ = evaluate_reward(reward, prompts, responses)
    nll, raw, deployed, tokens, ended = 0.0, 0.0, 0.0, 0, 0
    for rollout in rollouts:
        nll -= score_tokens(evaluator, rollout).sum().item()
        kls = exact_kl(policy, reference, rollout)
        raw, deployed = raw + kls[0].sum().item(), deployed + kls[1].sum().item()
        tokens += int(rollout.mask.sum())
        ended += int(rollout.terminated.sum())
    row = {
        "score": scores.mean().item(),
        "score_response": None if alone is None else evaluate_reward(alone, prompts, responses)[0].mean().item(),
        "judge": None if judge is None else float(np.mean(judge(responses, prompts.texts))),
        "generation_log_perplexity": nll / tokens,
        "kl": raw / tokens,
        "kl_deployed": deployed / tokens,
        "kl_deployed_per_response": deployed / len(prompts),
        "length": tokens / len(prompts),
        "terminated": ended / len(prompts),
        **metrics.diversity(responses),
    }
    return row, responses, scores


@torch.no_grad()
def human_log_perplexity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> float:
    """Mean negative log-likelihood in nats per token of human texts under ``model``; its exponential is what the papers
    print as "perplexity". It measures what the model has forgotten, not how fluent its own text is.

    Each text starts after EOS and is cut at the model's context (512 tokens if it names none).
    """
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
