"""REINFORCE on text (Williams 1992), without a value network.

    A_t = G_t - mean over the batch's other episodes of their G_t,   G_t = r_t + gamma G_{t+1}

One gradient step on each rollout; r_t is the score and PPO's KL penalty. The baseline of an episode knows nothing of
that episode, so that at gamma = 1 the gradient is unbiased; it knows nothing of its prompt either, which is what RLOO
adds. An episode that has ended counts with its last return, so that the baseline of a long response is never a mean
of few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, loop, rewarded
from rlnlp.learners.ppo import rollout
from rlnlp.losses import KLCoefficient, leave_one_out, policy_gradient, rewards_to_go
from rlnlp.models import behavior_logits, chosen_logprobs, frozen_copy, head, hidden_states
from rlnlp.rollout import sampling_from, trim, truncation
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Rollout, Sampler, Sampling

ABOUT = About("REINFORCE", ("sampling", "learner"), searched_as="reinforce", mean_over="episodes")


class Config(Horizon):
    epochs: ClassVar[int] = 1  # what PPO's update reads
    minibatches: ClassVar[int] = 1

    updates: int = Field(30, ge=0, description="updates (one collect + one gradient step each)")
    episodes_per_update: int = Field(64, description="episodes, at least 2: each is another's baseline")
    learning_rate: float = Field(1e-5, ge=0, description="AdamW step of the policy")
    gamma: float = Field(1.0, ge=0, le=1, description="discount per token; Williams 1")
    max_grad_norm: float = Field(0.5, gt=0, description="gradient norm")
    kl_coef: float = Field(0.05, ge=0, description="beta, reward units per nat")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k1", description="KL estimate paid as a reward; see ppo")
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    temperature: float = Field(1.0, gt=0, description="divides the logits, in sampling and in scoring")
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="mass kept when sampling; 1 = all")
    breaks: tuple[Literal["ratio", "scoring", "finite"], ...] = Field(
        (), description="invariants this experiment is meant to break; see ppo"
    )

    @field_validator("episodes_per_update")
    @classmethod
    def _others(cls, value: int) -> int:
        if value < 2:
            raise ValueError(f"expected at least 2 (an episode's baseline is the mean of the others), got {value}")
        return value


@dataclass
class State:
    """All that training changes, and the frozen reference. ``update`` counts finished updates."""

    policy: nn.Module
    reference: nn.Module
    optimizer: torch.optim.Optimizer
    kl: KLCoefficient
    sampling: Sampling
    sampler: Sampler | None
    seed: int
    update: int = 0


def init(policy, config: Config, seed: int) -> State:
    """Reference = a frozen copy of ``policy`` as it is now. Raises ``ValueError`` for a model we cannot view."""
    check_policy(policy)
    optimizer = torch.optim.AdamW(trained(policy), lr=config.learning_rate, eps=1e-5, weight_decay=0.0, fused=True)
    sampling = sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens)
    sampler, kl = truncation(config.top_k, config.top_p), KLCoefficient(config.kl_coef)
    return State(policy.eval(), frozen_copy(policy), optimizer, kl, sampling, sampler, seed)


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """One response per prompt, scored, with returns and advantages. Raises ``ValueError`` for a single prompt."""
    return experience(state, rollout(state, prompts), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """PPO's rewards, their discounted sums, and those minus the other episodes' mean."""
    scores, parts, ref_logprobs, kl, rewards = rewarded(state, rollout, score, config)
    mask = rollout.mask
    returns = rewards_to_go(rewards, mask, config.gamma)
    last = returns.gather(1, mask.sum(1, keepdim=True) - 1)
    advantages = leave_one_out(torch.where(mask, returns, last), len(rollout)) * mask
    return Experience(rollout, scores, parts, ref_logprobs, kl, rewards, torch.zeros_like(kl), advantages, returns)


def minibatch_loss(state: State, batch: Experience, config: Config) -> tuple[Tensor, Metrics]:
    """-sum_t A_t log pi(a_t | s_t), per episode and token of the horizon: a constant divisor, so that no length
    counts more."""
    mask, episodes = batch.rollout.mask, trim(batch.rollout)
    logits = head(state.policy, hidden_states(state.policy, episodes)[episodes.mask]).float()
    logprobs = chosen_logprobs(behavior_logits(logits, episodes), batch.rollout.responses[mask])
    loss = policy_gradient(logprobs, batch.advantages[mask], len(batch) * config.max_new_tokens)
    log_ratio = logprobs.detach() - batch.rollout.behavior_logprobs[mask]
    return loss, {"policy/loss": loss.detach(), "policy/ratio_error": log_ratio.expm1().abs().max()}


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """PPO's update with one epoch, one minibatch and this loss; raises what PPO's does. There are no values to
    report."""
    metrics = ppo.update(state, experience, config, minibatch_loss)
    return {name: value for name, value in metrics.items() if not name.startswith("value/")}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
