"""Maximum likelihood on reference responses: supervised fine-tuning, the papers' warm start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import nn

from rlnlp.learners.common import About, Metrics, Score, gradient_step, loop
from rlnlp.losses import cross_entropy
from rlnlp.models import frozen_copy, head, hidden_states
from rlnlp.rollout import from_references, sampling_from, trim
from rlnlp.settings import ByHand
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Sampling

ABOUT = About("supervised", ("sampling", "supervised"), imitates=True, explores=False)


class Config(ByHand):
    updates: int = Field(100, ge=0, description="updates, one batch of references each")
    episodes_per_update: int = Field(32, ge=1, description="references per update; paper 16 on IMDB")
    learning_rate: float = Field(1e-5, ge=0, description="AdamW step; paper 1e-5 for GPT-2")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient norm")
    max_new_tokens: int = Field(24, ge=1, description="references are cut here, tokens")
    data_fraction: float = Field(
        1.0, gt=0, le=1, description="share of the labelled positive reviews that it sees; paper 0.1, 0.5, 1"
    )


@dataclass
class State:
    """``reference`` is the policy as it began, for evaluation; nothing here penalises the distance to it."""

    policy: nn.Module
    reference: nn.Module
    optimizer: torch.optim.Optimizer
    sampling: Sampling
    tokenizer: object
    seed: int
    update: int = 0


def init(policy, config: Config, seed: int, tokenizer=None) -> State:
    """``tokenizer`` turns the prompts' references into tokens. ``data_fraction`` is for whoever makes the prompts."""
    check_policy(policy)
    optimizer = torch.optim.AdamW(trained(policy), lr=config.learning_rate, weight_decay=0.0, fused=True)
    return State(
        policy.eval(), frozen_copy(policy), optimizer, sampling_from(policy, config.max_new_tokens), tokenizer, seed
    )


def collect(state: State, prompts: Prompts, score: Score | None, config: Config) -> Experience:
    """The references as a rollout; nothing is sampled or scored, so every number but the tokens is zero."""
    rollout = from_references(prompts, state.tokenizer, state.sampling)
    zeros, none = torch.zeros_like(rollout.logprobs), torch.zeros(len(rollout), device=rollout.mask.device)
    return Experience(rollout, none, {}, zeros, zeros, zeros, zeros, zeros, zeros)


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """One gradient step on the mean negative log-likelihood of the response tokens; the prompt is not trained on."""
    rollout = trim(experience.rollout)
    logits = head(state.policy, hidden_states(state.policy, rollout)[rollout.mask]).float()
    loss = cross_entropy(logits, rollout.responses[rollout.mask])
    norm = gradient_step(state, loss, config.max_grad_norm, rollout)
    state.update += 1
    return {"supervised/loss": loss.item(), "policy/gradient_norm": norm}


def train(state: State, prompts: Prompts, score: Score | None, config: Config) -> Iterator[Metrics]:
    """Yield the metrics of each update until ``config.updates`` are done."""
    yield from loop(state, prompts, score, config, collect, update)
