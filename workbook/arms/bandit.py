"""Text generation as a contextual bandit: the whole response is one action with one return and one baseline.

PPO's clipped steps with the advantage R - V(s_0) at every token, R = score - beta x sum of the response's KL terms.
There is nothing to discount or to bootstrap within one action: gamma = lambda = 1 by construction. PPO at gamma =
lambda = 1 has the same gradient in expectation, but credits a token only with what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field, field_validator

from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, loop
from rlnlp.learners.ppo import State, rollout
from rlnlp.losses import whiten
from rlnlp.types import Experience, Prompts, Rollout

ABOUT = About("bandit", ("sampling", "learner"), searched_as="ppo")

init = ppo.init


class Config(ppo.Config):
    fixed: ClassVar[dict[str, float]] = {"gamma": 1.0, "lam": 1.0}  # settings that this algorithm does not have

    gamma: float = Field(1.0, description="1: one action has nothing to discount")
    lam: float = Field(1.0, description="1: one action has nothing to bootstrap")
    whiten_advantages: bool = Field(True, description="per rollout, over responses: each is one action")

    @field_validator("gamma", "lam")
    @classmethod
    def _one(cls, value: float) -> float:
        if value != 1:
            raise ValueError(f"expected 1 (the response is one action: nothing to discount or bootstrap), got {value}")
        return value


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """One response per prompt, scored; return and advantage of each response at all its tokens."""
    return experience(state, rollout(state, prompts), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """PPO's rewards, summed to one return per response; V(s_0), the value before the first token, is its baseline."""
    seen, mask = ppo.experience(state, rollout, score, config), rollout.mask
    returns = seen.rewards.sum(1, keepdim=True)
    baseline = seen.values[:, :1]
    advantages = returns - baseline
    if config.whiten_advantages:
        advantages = whiten(advantages, torch.ones_like(advantages, dtype=torch.bool), returns)
    return replace(seen, values=baseline * mask, advantages=advantages * mask, returns=returns * mask)


def minibatch_loss(state: State, batch: Experience, config: Config):
    """PPO's loss; of the values only the baseline V(s_0) is trained, on the response's return."""
    first = torch.zeros_like(batch.rollout.mask)
    first[:, 0] = True
    return ppo.minibatch_loss(state, batch, config, valued=first)


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """PPO's update with the bandit's loss; raises what PPO's does."""
    return ppo.update(state, experience, config, minibatch_loss)


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
