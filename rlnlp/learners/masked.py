"""PPO that samples under any truncation rule (CS224N report "Reinforcement Learning for Language Models").

A rule of ``samplers.RULES`` says which tokens the policy may choose: its own truncation (synced, the report's "usual"
mask), or that of an older copy of it (delayed, the report's "learned" mask). NLPO is the delayed top-p mask. The
truncated distribution is renormalised both when sampling and when scoring, and the mask of the rollout is the mask of
its update. The report updates "an unmasked policy", scored over all tokens; ``mismatch`` is that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from pydantic import Field, model_validator

from rlnlp import models
from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score
from rlnlp.learners.nlpo import State, check_mask, masked_loop
from rlnlp.learners.ppo import update  # noqa: F401  of the protocol; `masked_loop` calls it
from rlnlp.rollout import sample, truncation
from rlnlp.samplers import named
from rlnlp.types import Experience, Prompts, Rollout, generator

ABOUT = About("PPO under a mask", ("sampling", "learner"), searched_as="ppo", mean_over="tokens")


class Config(ppo.Config):
    mask_rule: str = Field(
        "top_p", description="the truncation: a key of samplers.RULES; report top_p, typical, epsilon, eta, mirostat"
    )
    mask_value: float = Field(
        0.95,
        description="the rule's number: top_p and typical mass, epsilon and eta probability, min_p share of the "
        "highest probability, top_k tokens, mirostat bits, none 0; report 0.95, 0.2, 1e-7, 3e-4, mirostat 4",
    )
    mask_delay: int = Field(
        0,
        ge=0,
        description="updates between copies of the policy into the mask model; 0 = the policy's own truncation; "
        "report 0 and 100",
    )

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
    """Sample one response per prompt from the policy restricted to what the rule allows; top_k and top_p cut what is
    left."""
    rule, delayed = named(config.mask_rule, config.mask_value), config.mask_delay > 0
    return sample(
        state.policy,
        prompts,
        state.sampling,
        generator(state.seed, "rollout", state.update),
        truncation(config.top_k, config.top_p, first=None if delayed else rule),
        state.mask_model,
        rule if delayed else None,
    )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience of a truncated rollout."""
    return ppo.experience(state, rollout(state, prompts, config), score, config)


def due(state: State, config: Config) -> bool:
    """Whether the coming rollout is the first after a sync: every ``mask_delay`` updates, the first one included."""
    return config.mask_delay > 0 and state.update % config.mask_delay == 0


def check_sync(state: State, drawn: Rollout, config: Config) -> None:
    """NLPO's check, for this rule."""
    rule = named(config.mask_rule, config.mask_value)
    check_mask(state, drawn, truncation(config.top_k, config.top_p, first=rule))


def decoding(config: Config) -> dict:
    """As trained: under the rule, of the policy itself or of the mask model."""
    if config.mask_rule == "none":
        return {}
    whose = "mask_model" if config.mask_delay else "policy"
    return {"rule": config.mask_rule, "rule_value": config.mask_value, "rule_of": whose}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """NLPO's loop."""
    for metrics, synced in masked_loop(state, prompts, score, config, collect, due, check_sync):
        yield {**metrics, "masked/synced": float(synced)}
