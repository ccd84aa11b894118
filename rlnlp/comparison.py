"""Policies side by side, on the same prompts with the same random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlnlp import metrics
from rlnlp.encoding import check_tokenizer
from rlnlp.models import exact_kl
from rlnlp.rollout import decode, sample, sampling_from
from rlnlp.scoring import Reward, evaluate_reward
from rlnlp.types import Prompts, generator, take

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH = 64  # prompts sampled at once


class Table(list):
    """Rows as dicts with the same names, which print as a table: ``pandas.DataFrame(table)`` reads it."""

    def __str__(self) -> str:
        rows = [list(self[0]), *([_shown(value) for value in row.values()] for row in self)] if self else []
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join(
            "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths)))
            for row in rows
        )


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def one_line(update: dict[str, float]) -> str:
    """An update's number, score, KL to the start and length of the responses, of the metrics that a learner yields."""
    names = {
        "score": "objective/score",
        "KL, nats/token": "objective/kl",
        "tokens": "episodes/length",
        "loss": "supervised/loss",
    }
    found = [f"{label} {update[name]:.3f}" for label, name in names.items() if name in update]
    return f"update {update['update']}: {', '.join(found)}"


def _check(policies: dict[str, PreTrainedModel], prompts: Prompts, tokenizer: PreTrainedTokenizerBase) -> None:
    if not policies:
        raise ValueError("policies: expected at least one, name -> model, got none")
    check_tokenizer(tokenizer)
    if not isinstance(prompts, Prompts):
        raise ValueError(f"prompts: expected what rlnlp.prompts_for returns, got {type(prompts).__name__}")
    for name, policy in policies.items():
        if not hasattr(policy, "get_output_embeddings"):
            raise ValueError(
                f"policies: {name!r}: expected a model, got {type(policy).__name__}"
                + "; a learner's state has it as state.policy" * hasattr(policy, "policy")
            )
        if (first := next(other for other in policies if policies[other] is policy)) != name:
            raise ValueError(
                f"policies: {first!r} and {name!r} are one model, with the same weights under both names; expected "
                "copies: learner.init(copy.deepcopy(model), ...) trains one and leaves the model as it is"
            )
    sizes = {name: policy.get_output_embeddings().out_features for name, policy in policies.items()}
    if len({*sizes.values()}) > 1:
        raise ValueError(f"policies: expected one vocabulary, for one tokenizer; they choose among {sizes} tokens")


@torch.no_grad()
def compare(
    policies: dict[str, PreTrainedModel],
    prompts: Prompts,
    reward: Reward,
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int = 24,
    seed: int = 0,
) -> Table:
    """What each policy writes to each prompt once, sampled from its whole distribution, in numbers; a row per policy.

    policies: name -> model; the first is the start, to which KL is measured.
    score: mean of ``reward``; KL: exact, nats per token, to the first policy; tokens: mean length of a response;
    ended: share that ended before ``max_new_tokens``; distinct-2: different word pairs of all; first: what stands
    after the first prompt. Raises ``RewardError`` as ``scoring.evaluate_reward``, ``ValueError`` for no policies,
    for one model under two names, for models of different vocabularies, and for arguments that are something else.
    """
    _check(policies, prompts, tokenizer)
    start, table, training = next(iter(policies.values())), Table(), [p for p in policies.values() if p.training]
    for policy in training:  # dropout would put even the start at a distance from itself
        policy.eval()
    try:
        for name, policy in policies.items():
            sampling = sampling_from(policy, max_new_tokens)
            texts, far, tokens, ended = [], 0.0, 0, 0
            for rows in torch.arange(len(prompts)).split(BATCH):
                rollout = sample(policy, take(prompts, rows), sampling, generator(seed, "compare", int(rows[0])))
                texts += decode(rollout, tokenizer)
                far += exact_kl(policy, start, rollout)[0].sum().item()
                tokens += int(rollout.mask.sum())
                ended += int(rollout.terminated.sum())
            table.append(
                {
                    "policy": name,
                    "score": evaluate_reward(reward, prompts, texts)[0].mean().item(),
                    "KL": far / tokens,
                    "tokens": tokens / len(prompts),
                    "ended": ended / len(prompts),
                    "distinct-2": metrics.distinct(texts, 2),
                    "first": texts[0][:40],
                }
            )
    finally:
        for policy in training:
            policy.train()
    return table
