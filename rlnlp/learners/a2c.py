"""Advantage actor-critic on text (Mnih et al. 2016, arXiv:1602.01783): one gradient step on each rollout.

PPO's rollout, rewards, values and advantages; then a single step on the whole of it,

    L = -mean_t A_t log pi(a_t | s_t) + value_coef mean_t (V(s_t) - R_t)^2 - entropy_coef H.

It is where PPO starts: with the same advantages PPO's first full-batch gradient is this one, because every ratio is 1.
RL4LMs' A2C does not whiten its advantages and steps with RMSprop; both learners here have AdamW.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, loop
from rlnlp.learners.ppo import State, collect
from rlnlp.losses import entropy, policy_gradient, value_loss
from rlnlp.models import chosen_logprobs
from rlnlp.rollout import trim
from rlnlp.types import Experience, Prompts

ABOUT = About("A2C", ("sampling", "learner"), searched_as="a2c", mean_over="tokens")

init = ppo.init


class Config(ppo.Config):
    fixed: ClassVar[dict[str, float]] = {
        "epochs": 1,
        "minibatches": 1,
        "clip": 0.2,
        "value_clip": 0.0,
    }  # PPO's, not used here

    epochs: int = Field(1, description="1: the samples are the policy's own for one step only")
    minibatches: int = Field(1, description="1: the step is taken on the whole rollout")
    clip: float = Field(0.2, description="not used: every ratio is 1")
    value_clip: float = Field(0.0, description="not used: no value has moved yet")

    @field_validator(*fixed)
    @classmethod
    def _one_step(cls, value: float, info: ValidationInfo) -> float:
        if value != cls.fixed[info.field_name]:
            raise ValueError(
                f"expected {cls.fixed[info.field_name]} (a2c takes one step on each rollout: nothing to repeat, to "
                f"split or "
                f"to clip), got {value}"
            )
        return value


def minibatch_loss(state: State, batch: Experience, config: Config) -> tuple[Tensor, Metrics]:
    """Policy gradient + value_coef x value loss - entropy_coef x entropy, as means over the rollout's real tokens."""
    mask = batch.rollout.mask
    logits, values = ppo.policy_and_values(state, trim(batch.rollout))
    logprobs = chosen_logprobs(logits, batch.rollout.responses[mask])
    policy_part = policy_gradient(logprobs, batch.advantages[mask])
    value_part = value_loss(values, batch.values[mask], batch.returns[mask], 0.0)
    loss = policy_part + config.value_coef * value_part
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy(logits)
    log_ratio = logprobs.detach() - batch.rollout.behavior_logprobs[mask]
    return loss, {
        "policy/loss": policy_part.detach(),
        "value/loss": value_part.detach(),
        "policy/ratio_error": log_ratio.expm1().abs().max(),
    }


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """PPO's update with one epoch, one minibatch and this loss; raises what PPO's does."""
    return ppo.update(state, experience, config, minibatch_loss)


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
