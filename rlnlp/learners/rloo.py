"""REINFORCE leave-one-out (Kool et al. 2019; for language models Ahmadian et al. 2024, arXiv:2402.14740).

    A_i = R_i - sum_{j != i} R_j / (K - 1),   R = score - beta x sum of the response's KL terms

K responses to each prompt, each of them one action with one return, as in the bandit; its baseline is the mean return
of the other responses to the same prompt. No value network, one gradient step on each rollout, REINFORCE's loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field, field_validator, model_validator

from rlnlp.learners import ppo, reinforce
from rlnlp.learners.common import About, Metrics, Score, loop, rewarded
from rlnlp.learners.reinforce import State, update
from rlnlp.losses import leave_one_out
from rlnlp.rollout import repeat
from rlnlp.types import Experience, Prompts, Rollout

ABOUT = About("RLOO", ("sampling", "learner"), searched_as="reinforce", mean_over="episodes")

init = reinforce.init


def check_group(value: int) -> int:
    """``value``; raises ``ValueError`` for a group of one."""
    if value < 2:
        raise ValueError(f"expected at least 2 (a response is compared with the others to its prompt), got {value}")
    return value


def check_groups(episodes_per_update: int, group: int) -> None:
    """Raise ``ValueError`` where an update's responses are not whole groups."""
    if episodes_per_update < 1 or episodes_per_update % group:
        raise ValueError(
            f"episodes_per_update {episodes_per_update}: expected a multiple of group ({group}), because every "
            f"prompt of an "
            f"update gets {group} responses"
        )


class Config(reinforce.Config):
    fixed: ClassVar[dict[str, float]] = {"gamma": 1.0}

    episodes_per_update: int = Field(64, description="responses, group x prompts")
    group: int = Field(4, description="K, responses per prompt, at least 2; paper 2 and 4")
    gamma: float = Field(1.0, description="1: one action has nothing to discount")

    @field_validator("gamma")
    @classmethod
    def _one(cls, value: float) -> float:
        if value != 1:
            raise ValueError(f"expected 1 (the response is one action: nothing to discount), got {value}")
        return value

    @field_validator("group")
    @classmethod
    def _group(cls, value: int) -> int:
        return check_group(value)

    @model_validator(mode="after")
    def _whole_groups(self):
        check_groups(self.episodes_per_update, self.group)
        return self


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """``group`` responses to each of B prompts, in B x group rows, a prompt's rows together."""
    return experience(state, ppo.rollout(state, repeat(prompts, config.group)), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """One return per response, and that minus the mean of its group's others, at all its tokens."""
    scores, parts, ref_logprobs, kl, rewards = rewarded(state, rollout, score, config)
    mask, zeros, returns = rollout.mask, torch.zeros_like(kl), rewards.sum(1)
    advantages = leave_one_out(returns, config.group)
    spread = [value.unsqueeze(1) * mask for value in (advantages, returns)]
    return Experience(rollout, scores, parts, ref_logprobs, kl, rewards, zeros, *spread)


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """Yield the metrics of each update until ``config.updates`` are done."""
    yield from loop(state, prompts, score, config, collect, update, config.group)
