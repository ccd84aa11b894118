"""Natural language policy optimisation (Ramamurthy et al. 2022, arXiv:2210.01241, algorithm 1).

PPO whose samples may only use tokens from the nucleus of an older copy of the policy, the mask model. The masked
distribution is renormalised both when sampling and when scoring, and the mask of the rollout is the mask of its update.
Three differences from RL4LMs, each of which makes its mask inert or wrong: a sync here reaches the sampler, log-probs
are renormalised, and the mask model reads its own encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from rlnlp import models
from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, TrainingError, check_start, finite
from rlnlp.learners.ppo import update
from rlnlp.rollout import batch_of, sample, truncation
from rlnlp.samplers import random_mass, top_p
from rlnlp.types import Allowed, Experience, Prompts, Rollout, Sampler, generator

ABOUT = About("NLPO", ("sampling", "learner", "nlpo"), searched_as="nlpo", mean_over="tokens")


class Config(ppo.Config):
    mask_top_p: float = Field(0.9, gt=0, le=1, description="mass the mask model keeps; 1 = all tokens; paper 0.9")
    mask_min_tokens: int = Field(1, ge=1, description="tokens the mask always keeps; RL4LMs 100, which hides small p")
    sync_every: int = Field(
        5, ge=1, description="updates between copies of the policy into the mask model; paper 5 and 20"
    )
    mask_source: Literal["lagged", "initial", "random"] = Field(
        "lagged",
        description="lagged = paper; initial = the mask model is never refreshed, what RL4LMs runs; random = a random "
        "set of tokens of the same mass under the lagged model",
    )


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
        state.policy,
        prompts,
        state.sampling,
        generator(state.seed, "rollout", state.update),
        sampler=state.sampler,
        mask_model=state.mask_model,
        mask_rule=mask_rule(state, config),
    )


def mask_rule(state: State, config: Config) -> Sampler:
    """What the mask model allows in the coming rollout: its nucleus, or a random set of tokens of the same mass."""
    if config.mask_source == "random":
        return random_mass(config.mask_top_p, generator(state.seed, "mask", state.update), config.mask_min_tokens)
    return top_p(config.mask_top_p, config.mask_min_tokens)


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience of a masked rollout."""
    return ppo.experience(state, rollout(state, prompts, config), score, config)


def due(state: State, config: Config) -> bool:
    """Whether the coming rollout is the first after a sync: every ``sync_every`` updates, the first one included."""
    return config.mask_source != "initial" and state.update % config.sync_every == 0


def check_sync(state: State, drawn: Rollout, config: Config) -> None:
    """``check_mask`` for a nucleus; a random mask has none to compare with."""
    if config.mask_source != "random":
        check_mask(state, drawn, truncation(config.top_k, config.top_p, first=mask_rule(state, config)))


@torch.no_grad()
def check_mask(state: State, drawn: Rollout, own: Sampler) -> None:
    """Raise ``TrainingError`` if the first tokens' mask after a sync is not what ``own`` allows the policy.

    Call it before the policy is updated. One pass over the prompts.
    """
    logits = models.Decoder(state.policy, drawn.prompts).logits()
    first = torch.zeros(len(drawn), dtype=torch.long, device=logits.device)
    _, allowed, _ = own(models.restrict(logits, state.sampling, first, None), None)
    if not torch.equal(Allowed.pack(allowed), drawn.allowed.bits[:, 0]):
        raise TrainingError(f"update {state.update + 1}: the mask model was synced and the sampler does not use it")


def masked_loop(
    state: State, prompts: Prompts, score: Score, config, collect: Callable, due: Callable, check_sync: Callable
) -> Iterator[tuple[Metrics, bool]]:
    """PPO's loop, and whether each update was synced: the mask model is refreshed before the rollout that is ``due``,
    which is checked to use it.

    After the last update the mask model is therefore still the one the last rollouts used: evaluating "as trained"
    does not silently become sampling under a mask of the final policy.
    """
    check_start(state, prompts, config)
    while state.update < config.updates:
        synced = due(state, config)
        if synced:
            models.sync(state.mask_model, state.policy)
        batch = batch_of(prompts, config.episodes_per_update, state.seed, state.update)
        with finite(state):
            seen = collect(state, batch, score, config)
        if synced:
            check_sync(state, seen.rollout, config)
        metrics = update(state, seen, config)
        yield {"update": state.update, **metrics}, synced


def decoding(config: Config) -> dict:
    """As trained: under the mask model's mask."""
    random = config.mask_source == "random"
    return {"mask_top_p": config.mask_top_p, "mask_min_tokens": config.mask_min_tokens, "mask_random": random}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop under the mask."""
    for metrics, synced in masked_loop(state, prompts, score, config, collect, due, check_sync):
        yield {**metrics, "nlpo/synced": float(synced)}
