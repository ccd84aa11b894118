"""PPO that samples under any truncation rule (CS224N report "Reinforcement Learning for Language Models").

A rule of ``samplers.RULES`` says which tokens the policy may choose: its own truncation (synced, the report's "usual"
mask), or that of an older copy of it (delayed, the report's "learned" mask). NLPO is the delayed top-p mask. The truncated
distribution is renormalised both when sampling and when scoring, and the mask of the rollout is the mask of its update.
The report updates "an unmasked policy", scored over all tokens; ``mismatch`` is that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch
from pydantic import Field, model_validator

from .. import models
from ..rollout import batch_of, sample
from ..samplers import named, truncation
from ..seeds import generator
from ..types import Allowed, Experience, Prompts, Rollout
from . import ppo
from .nlpo import State
from .ppo import Metrics, Score, TrainingError, finite, update


class Config(ppo.Config):
    mask_rule: str = Field("top_p", description="the truncation: a key of samplers.RULES; report top_p, typical, epsilon, eta, mirostat")
    mask_value: float = Field(0.95, description="the rule's number: top_p and typical mass, epsilon and eta probability, min_p share of the highest probability, top_k tokens, mirostat bits, none 0; report 0.95, 0.2, 1e-7, 3e-4, mirostat 4")
    mask_delay: int = Field(0, ge=0, description="updates between copies of the policy into the mask model; 0 = the policy's own truncation; report 0 and 100")

    @model_validator(mode="after")
    def _rule(self):
        named(self.mask_rule, self.mask_value)
        return self


def init(policy, config: Config, seed: int) -> State:
    """PPO's state, and a mask model equal to the policy where the mask is delayed."""
    base = ppo.init(policy, config, seed)
    mask_model = models.frozen_copy(policy) if config.mask_delay else None
    return State(**{f.name: getattr(base, f.name) for f in fields(base)}, mask_model=mask_model)


def rollout(state: State, prompts: Prompts, config: Config) -> Rollout:
    """Sample one response per prompt from the policy restricted to what the rule allows; top_k and top_p cut what is left."""
    rule, delayed = named(config.mask_rule, config.mask_value), config.mask_delay > 0
    return sample(
        state.policy, prompts, state.sampling, generator(state.seed, "rollout", state.update),
        truncation(config.top_k, config.top_p, first=None if delayed else rule),
        state.mask_model, rule if delayed else None,
    )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience of a truncated rollout."""
    return ppo.experience(state, rollout(state, prompts, config), score, config)


def due(state: State, config: Config) -> bool:
    """Whether the coming rollout is the first after a sync: every ``mask_delay`` updates, the first one included."""
    return config.mask_delay > 0 and state.update % config.mask_delay == 0


@torch.no_grad()
def check_sync(state: State, drawn: Rollout, config: Config) -> None:
    """Raise ``TrainingError`` if the first tokens' mask in the rollout after a sync is not the policy's own truncation.

    Call it before the policy is updated. One pass over the prompts.
    """
    logits = models.Decoder(state.policy, drawn.prompts).logits()
    first = torch.zeros(len(drawn), dtype=torch.long, device=logits.device)
    own = truncation(config.top_k, config.top_p, first=named(config.mask_rule, config.mask_value))
    _, allowed, _ = own(models.restrict(logits, state.sampling, first, None), None)
    if not torch.equal(Allowed.pack(allowed), drawn.allowed.bits[:, 0]):
        raise TrainingError(f"update {state.update + 1}: the mask model was synced and the sampler does not use it")


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop; a mask model is refreshed before the rollout that is due, and that rollout is checked to use it.

    After the last update the mask model is the one the last rollouts used, as in NLPO.
    """
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
        yield {"update": state.update, **metrics, "masked/synced": float(synced)}
