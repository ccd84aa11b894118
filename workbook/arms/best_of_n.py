"""Best of n: the policy stays as it is; decoding draws n responses per prompt and keeps the one with the highest
reward.

The control for what a learned reward gives without any training. ``decoding.Decoding(best_of=n)`` decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, field_validator
from torch import nn

from rlnlp.learners.common import About, Metrics, Score, TrainingError
from rlnlp.losses import kl_estimate
from rlnlp.models import frozen_copy, score_tokens
from rlnlp.rollout import sampling_from
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy
from rlnlp.types import Experience, Prompts, Sampling
from workbook.arms.filtered import best_of

ABOUT = About("best of n", ("sampling",), explores=False)


class Config(Horizon):
    fixed: ClassVar[dict[str, float]] = {"updates": 0}

    updates: int = Field(0, description="0: nothing is trained")
    n: int = Field(8, ge=1, description="responses per prompt, of which the best is kept")
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens; paper 48")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens; paper 48")
    temperature: float = Field(1.0, gt=0, description="divides the logits when sampling")
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="mass kept when sampling; 1 = all")

    @field_validator("updates")
    @classmethod
    def _none(cls, value: int) -> int:
        if value != 0:
            raise ValueError(f"expected 0 (best of n trains nothing), got {value}")
        return value


@dataclass
class State:
    policy: nn.Module
    reference: nn.Module
    sampling: Sampling
    seed: int
    update: int = 0


def init(policy, config: Config, seed: int) -> State:
    """Policy and reference are the same model. Raises ``ValueError`` for a model we cannot view."""
    check_policy(policy)
    settings = sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens)
    return State(policy.eval(), frozen_copy(policy), settings, seed)


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """The best of ``n`` responses to each prompt, as a decoding of this policy gives it."""
    kept, scores, parts, _, _ = best_of(state, prompts, score, config, config.n)
    ref, zeros = score_tokens(state.reference, kept), torch.zeros_like(kept.logprobs)
    kl = kl_estimate(logprobs=kept.logprobs, ref_logprobs=ref, kind="k1") * kept.mask
    return Experience(kept, scores, parts, ref, kl, zeros, zeros, zeros, zeros)


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """Raises ``TrainingError``: there is nothing to update."""
    raise TrainingError("best_of_n: nothing is trained, so there is no update")


def decoding(config: Config) -> dict:
    """The best of n responses."""
    return {"best_of": config.n}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """No updates, no metrics."""
    yield from ()
