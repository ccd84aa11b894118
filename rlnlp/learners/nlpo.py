"""Natural language policy optimisation (Ramamurthy et al. 2022, arXiv:2210.01241, algorithm 1).

PPO whose samples may only use tokens from the nucleus of an older copy of the policy, the mask model. The masked
distribution is renormalised both when sampling and when scoring, and the mask of the rollout is the mask of its update.
Three differences from RL4LMs, each of which makes its mask inert or wrong: a sync here reaches the sampler, log-probs
are renormalised, and the mask model reads its own encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from pydantic import Field
from torch import nn

from .. import models
from ..rollout import batch_of, sample
from ..samplers import top_p, truncation
from ..seeds import generator
from ..types import Experience, Prompts, Rollout
from . import ppo
from .ppo import Metrics, Score, update


class Config(ppo.Config):
    mask_top_p: float = Field(0.9, gt=0, le=1, description="mass the mask model keeps; 1 = all tokens; paper 0.9")
    mask_min_tokens: int = Field(1, ge=1, description="tokens the mask always keeps; RL4LMs 100, which hides small p")
    sync_every: int = Field(5, ge=1, description="updates between copies of the policy into the mask model; paper 5 and 20")


@dataclass
class State(ppo.State):
    mask_model: nn.Module | None = None


def init(policy, config: Config, seed: int) -> State:
    """PPO's state and a mask model equal to the policy."""
    base = ppo.init(policy, config, seed)
    return State(**{f.name: getattr(base, f.name) for f in fields(base)}, mask_model=models.frozen_copy(policy))


def rollout(state: State, prompts: Prompts, config: Config) -> Rollout:
    """Sample one response per prompt from the policy restricted to the mask model's nucleus."""
    return sample(
        state.policy, prompts, state.sampling, generator(state.seed, "rollout", state.update),
        sampler=truncation(config.top_k, config.top_p),
        mask_model=state.mask_model, mask_rule=top_p(config.mask_top_p, config.mask_min_tokens),
    )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience of a masked rollout."""
    return ppo.experience(state, rollout(state, prompts, config), score, config)


def sync(state: State, config: Config) -> bool:
    """Copy the policy into the mask model after every ``sync_every`` updates; True if it did."""
    due = state.update % config.sync_every == 0
    if due:
        models.sync(state.mask_model, state.policy)
    return due


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop; the mask model is refreshed after the update, so the next rollout uses it."""
    while state.update < config.updates:
        batch = batch_of(prompts, config.episodes_per_update, state.seed, state.update)
        metrics = update(state, collect(state, batch, score, config), config)
        yield {"update": state.update, **metrics, "nlpo/synced": float(sync(state, config))}
