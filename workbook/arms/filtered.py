"""Reward-filtered fine-tuning: supervised learning on the best of several responses of the model it started from.

One round of RAFT (Dong et al. 2023, arXiv:2304.06767): each update samples a few responses per prompt from the frozen
starting model, keeps the one with the highest score and takes supervised's step on it. The control for what a learned
reward gives without a policy gradient. It learns best of n by heart; sampling from the policy as it becomes, without a
penalty, would be another algorithm, and games its reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from rlnlp import types
from rlnlp.decoding import best_rows
from rlnlp.learners import supervised
from rlnlp.learners.common import About, Metrics, Score, loop
from rlnlp.learners.supervised import State
from rlnlp.rollout import repeat, sample, sampling_from, truncation
from rlnlp.settings import Horizon
from rlnlp.types import Prompts, Rollout, generator, take

ABOUT = About("filtered by the reward", ("sampling", "supervised"), explores=False)


class Config(supervised.Config, Horizon):
    fixed: ClassVar[dict[str, float]] = {"data_fraction": 1.0}  # it sees no labelled reviews

    data_fraction: float = Field(1.0, description="1: it learns from its own samples and sees no labelled reviews")
    samples_per_prompt: int = Field(4, ge=1, description="responses per prompt, of which the best is kept; 1 keeps all")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    temperature: float = Field(1.0, gt=0, description="divides the logits when sampling")
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="mass kept when sampling; 1 = all")

    @field_validator("data_fraction")
    @classmethod
    def _all(cls, value: float) -> float:
        if value != 1:
            raise ValueError(
                f"expected 1 (filtered learns from its own samples, not from labelled reviews), got {value}"
            )
        return value


@dataclass(frozen=True)
class Experience(types.Experience):
    """The kept responses, and of all n samples of each prompt the scores [B, n]."""

    sampled_scores: Tensor


def init(policy, config: Config, seed: int) -> State:
    """Supervised's state; no tokenizer is needed."""
    state = supervised.init(policy, config, seed)
    state.sampling = sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens)
    return state


def best_of(state, prompts: Prompts, score: Score, config, n: int) -> tuple[Rollout, Tensor, dict, Rollout, Tensor]:
    """Sample ``n`` responses per prompt from the reference and keep the best: (kept, its scores and their parts, all
    [B n], all scores).

    ``state`` has reference, sampling, seed and update; ``config`` has top_k and top_p.
    """
    drawn = sample(
        state.reference,
        repeat(prompts, n),
        state.sampling,
        generator(state.seed, "rollout", state.update),
        truncation(config.top_k, config.top_p),
    )
    scores, parts = score(drawn)
    rows = best_rows(scores, n)
    return take(drawn, rows), scores[rows], {k: v[rows] for k, v in parts.items()}, drawn, scores


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """``samples_per_prompt`` responses per prompt, the best of each kept; nothing is penalised, so rewards are
    scores."""
    kept, best, parts, _, scores = best_of(state, prompts, score, config, config.samples_per_prompt)
    zeros = torch.zeros_like(kept.logprobs)
    return Experience(
        kept, best, parts, kept.logprobs, zeros, zeros, zeros, zeros, zeros, scores.view(len(prompts), -1)
    )


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """Supervised's step on the kept responses. filtered/score is the mean of all samples, filtered/best_score of
    those kept."""
    metrics = {
        "filtered/score": experience.sampled_scores.mean().item(),
        "filtered/best_score": experience.scores.mean().item(),
        "episodes/length": experience.rollout.mask.sum(1).float().mean().item(),
    }
    return {**metrics, **supervised.update(state, experience, config)}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """Yield the metrics of each update until ``config.updates`` are done."""
    yield from loop(state, prompts, score, config, collect, update)
