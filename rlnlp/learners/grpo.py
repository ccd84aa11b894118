"""Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300), with the score of the whole response.

    A_i = (R_i - mean R) / std R   over the K responses to a prompt, at all tokens of response i
    L = -mean min(ratio A, clip(ratio) A) + beta mean k3,   k3 = pi_ref / pi - 1 - log(pi_ref / pi)

PPO's clipped epochs without a value network, and the KL as a term of the loss, not of the reward: on samples of the
policy itself the gradient of k3 is that of KL(reference || policy), not of the KL that the other learners penalise.
``normalise`` off is Dr. GRPO (Liu et al. 2025, arXiv:2503.20783). Both means divide by a constant, as there: over
each response first, as in the paper, a token of a long response would count less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from rlnlp.learners import ppo, reinforce
from rlnlp.learners.common import About, Metrics, Score, finite, loop, scored
from rlnlp.learners.reinforce import State
from rlnlp.learners.rloo import check_group, check_groups
from rlnlp.losses import group_relative, kl_estimate, per_response, ppo_clip, token_rewards
from rlnlp.models import behavior_logits, chosen_logprobs, head, hidden_states, score_tokens, task_logits
from rlnlp.rollout import repeat, trim
from rlnlp.settings import Horizon
from rlnlp.types import Experience, Prompts, Rollout

ABOUT = About("GRPO", ("sampling", "learner"), searched_as="grpo", mean_over="episodes")

init = reinforce.init


class Config(Horizon):
    updates: int = Field(30, ge=0, description="updates (one collect + one update each)")
    episodes_per_update: int = Field(64, description="responses, group x prompts; paper 1,024")
    group: int = Field(8, description="K, responses per prompt, at least 2; paper 64")
    normalise: bool = Field(True, description="divide by the group's standard deviation; paper on, Dr. GRPO off")
    epochs: int = Field(2, ge=1, description="passes over a rollout; paper 1")
    minibatches: int = Field(2, ge=1, description="gradient steps per epoch")
    learning_rate: float = Field(1e-5, ge=0, description="AdamW step; paper 1e-6 for 7 B parameters")
    clip: float = Field(0.2, gt=0, description="ratio clip")
    max_grad_norm: float = Field(0.5, gt=0, description="gradient norm")
    kl_coef: float = Field(
        0.05, ge=0, description="beta, weight of k3 in the loss, advantage units per nat; paper 0.04"
    )
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens; paper 1,024")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    temperature: float = Field(1.0, gt=0, description="divides the logits, in sampling and in scoring")
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="mass kept when sampling; 1 = all")
    breaks: tuple[Literal["ratio", "scoring", "finite"], ...] = Field(
        (), description="invariants this experiment is meant to break; see ppo"
    )

    @field_validator("group")
    @classmethod
    def _group(cls, value: int) -> int:
        return check_group(value)

    @model_validator(mode="after")
    def _together(self):
        check_groups(self.episodes_per_update, self.group)
        self.at_most("minibatches", "episodes_per_update")
        return self


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """``group`` responses to each of B prompts, in B x group rows, a prompt's rows together."""
    return experience(state, ppo.rollout(state, repeat(prompts, config.group)), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """Scores and their advantages within each group; the KL is k3 and is in no reward."""
    scores, parts = scored(score, rollout)
    mask, zeros = rollout.mask, torch.zeros_like(rollout.logprobs)
    rewards, scores = token_rewards(scores, zeros, mask, 0.0), per_response(scores, mask)
    ref_logprobs = score_tokens(state.reference, rollout)
    kl = kl_estimate(logprobs=rollout.logprobs, ref_logprobs=ref_logprobs, kind="k3") * mask
    spread = [value.unsqueeze(1) * mask for value in (group_relative(scores, config.group, config.normalise), scores)]
    return Experience(rollout, scores, parts, ref_logprobs, kl, rewards, zeros, *spread)


def minibatch_loss(state: State, batch: Experience, config: Config) -> tuple[Tensor, Metrics]:
    """Clipped surrogate + kl_coef x k3, summed over tokens, per episode and token of the horizon."""
    mask, episodes = batch.rollout.mask, trim(batch.rollout)
    raw = head(state.policy, hidden_states(state.policy, episodes)[episodes.mask]).float()
    logits, tokens = behavior_logits(raw, episodes), batch.rollout.responses[mask]
    logprobs = chosen_logprobs(logits, tokens)
    policy_part, seen = ppo_clip(logprobs, batch.rollout.behavior_logprobs[mask], batch.advantages[mask], config.clip)
    bare = logprobs if logits is raw else chosen_logprobs(task_logits(raw, episodes), tokens)  # the KL is of no mask
    kl_part = kl_estimate(logprobs=bare, ref_logprobs=batch.ref_logprobs[mask], kind="k3").mean()
    real = len(tokens) / (len(batch) * config.max_new_tokens)
    return real * (policy_part + config.kl_coef * kl_part), {
        "policy/loss": real * policy_part.detach().double(),
        "policy/kl_loss": real * kl_part.detach().double(),
        **seen,
    }


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """PPO's update with this loss; raises what PPO's does. There are no values to report."""
    with finite(state):  # k3 reads log-probabilities before the loss can be looked at
        metrics = ppo.update(state, experience, config, minibatch_loss)
    return {name: value for name, value in metrics.items() if not name.startswith("value/")}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """Yield the metrics of each update until ``config.updates`` are done."""
    yield from loop(state, prompts, score, config, collect, update, config.group)
