"""Proximal policy optimisation on text (Schulman et al. 2017, arXiv:1707.06347; Ziegler et al. 2019, arXiv:1909.08593).

In: a policy, prompts and a score. Out: one dict of metrics per update; the policy is trained in place.
One update = sample a response to each prompt, score it, spread the score and a KL penalty over its tokens, estimate
advantages, then a few epochs of clipped gradient steps over whole episodes, teacher-forced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import ConfigDict, Field, model_validator
from torch import Tensor, nn

from rlnlp.learners.common import About, Metrics, Score, TrainingError, describe, gradient_step, loop, rewarded
from rlnlp.losses import KLCoefficient, entropy, gae, ppo_clip, value_loss, whiten
from rlnlp.models import (
    SharedValue,
    ValueModel,
    behavior_logits,
    chosen_logprobs,
    frozen_copy,
    head,
    hidden_states,
    scatter,
)
from rlnlp.rollout import sample, sampling_from, trim, truncation
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Rollout, Sampler, Sampling, generator, replaceable, take

ABOUT = About("PPO", ("sampling", "learner"), searched_as="ppo", mean_over="tokens")
NOT_ONE = (
    "the ratio of the first minibatch is off 1 by {:.2g} (allowed {:g}): the policy does not score its own samples as "
    "it drew them. An experiment that breaks this on purpose says so: breaks: [ratio]"
)


class Config(Horizon):
    """PPO's settings; the text below a setting is its description.

    The invariants that an experiment can break on purpose: ``ratio``, the first ratio is 1; ``scoring``, tokens are
    scored by the distribution they were sampled from; ``finite``, numbers are finite.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    updates: int = Field(30, ge=0)
    """updates (one collect + one update each); paper 50"""
    episodes_per_update: int = Field(64, ge=1)
    """episodes; paper 1,280 tokens = 27 episodes of 48"""
    epochs: int = Field(2, ge=1)
    """passes over a rollout; paper 5"""
    minibatches: int = Field(2, ge=1)
    """gradient steps per epoch"""
    learning_rate: float = Field(1e-5, ge=0)
    """AdamW step of the policy; paper 1e-6 for GPT-2, a tiny model made from scratch 1e-3"""
    value_learning_rate: float = Field(0.0, ge=0)
    """AdamW step of the value network; 0 = as the policy's"""
    gamma: float = Field(1.0, ge=0, le=1)
    """discount per token, below 1 short texts pay; paper's text 0.95, its tables and code 0.99"""
    lam: float = Field(0.95, ge=0, le=1)
    """GAE lambda; paper 0.95"""
    clip: float = Field(0.2, gt=0)
    """ratio clip; paper 0.2"""
    value_clip: float = Field(0.0, ge=0)
    """largest move of a value, reward units; 0 = off, as in the paper"""
    value_coef: float = Field(0.5, ge=0)
    """weight of the value loss; paper 0.5"""
    entropy_coef: float = Field(0.0, ge=0)
    """weight of the entropy bonus; paper 0"""
    max_grad_norm: float = Field(0.5, gt=0)
    """joint gradient norm of policy and value; paper 0.5"""
    kl_coef: float = Field(0.05, ge=0)
    """beta, reward units per nat; start value if kl_target > 0"""
    kl_target: float = Field(0.0, ge=0)
    """nats per token that an adaptive beta steers to; 0 = fixed beta"""
    kl_gain: float = Field(0.1, gt=0, le=1)
    """adaptive beta's relative step per update; code 0.1, paper's text 0.2"""
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k1")
    """KL estimate paid as a reward; paper k1. Only k1's gradient is the KL's: the others' vanish near the reference"""
    whiten_advantages: bool = Field(True)
    """per rollout, over real tokens; RL4LMs does it per minibatch"""
    value: Literal["separate", "shared"] = Field("separate")
    """value network of its own, or a head on the trunk"""
    max_new_tokens: int = Field(24, ge=1)
    """horizon T, tokens; paper 48"""
    min_new_tokens: int = Field(0, ge=0)
    """EOS is blocked before this many tokens; paper 48"""
    temperature: float = Field(1.0, gt=0)
    """divides the logits, in sampling and in scoring"""
    top_k: int = Field(0, ge=0)
    """tokens kept when sampling; 0 = all; paper 50"""
    top_p: float = Field(1.0, gt=0, le=1)
    """mass kept when sampling; 1 = all"""
    breaks: tuple[Literal["ratio", "scoring", "finite"], ...] = ()
    """invariants this experiment is meant to break; with finite, a run that diverges ends early instead of failing"""

    @model_validator(mode="after")
    def _together(self):
        if self.kl_target and not self.kl_coef:
            raise ValueError("kl_coef 0: expected > 0 with a kl_target (an adaptive beta is only ever multiplied)")
        self.at_most("minibatches", "episodes_per_update")
        return self


@dataclass
class State:
    """All that training changes, and what it needs that does not change: the frozen reference, the rules of sampling.

    ``value`` maps (rollout, hidden states of the policy or None) to values [N]; ``update`` counts finished updates.
    """

    policy: nn.Module
    reference: nn.Module
    value: nn.Module
    optimizer: torch.optim.Optimizer
    kl: KLCoefficient
    sampling: Sampling
    sampler: Sampler | None
    seed: int
    update: int = 0


def init(policy, config: Config, seed: int) -> State:
    """Reference = a frozen copy of ``policy`` as it is now. Raises ``ValueError`` for a model we cannot view."""
    check_policy(policy)
    value = SharedValue(policy) if config.value == "shared" else ValueModel(policy)
    groups = [
        {"params": trained(policy), "lr": config.learning_rate},
        {"params": list(value.parameters()), "lr": config.value_learning_rate or config.learning_rate},
    ]
    return State(
        policy.eval(),
        frozen_copy(policy),
        value.eval(),
        torch.optim.AdamW(groups, eps=1e-5, weight_decay=0.0, fused=True),
        KLCoefficient(config.kl_coef, config.kl_target, config.kl_gain),
        sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens),
        truncation(config.top_k, config.top_p),
        seed,
    )


def rollout(state: State, prompts: Prompts) -> Rollout:
    """Sample one response per prompt from the policy as it is now."""
    return sample(state.policy, prompts, state.sampling, generator(state.seed, "rollout", state.update), state.sampler)


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """One response per prompt, scored, with token rewards, values and advantages."""
    return experience(state, rollout(state, prompts), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """What the learner needs to know of a rollout: its rewards, their values and advantages."""
    scores, parts, ref_logprobs, kl, rewards = rewarded(state, rollout, score, config)
    mask = rollout.mask
    values = scatter(state.value(rollout), mask)
    raw = gae(rewards, values, mask, config.gamma, config.lam)
    returns = (raw + values) * mask
    advantages = whiten(raw, mask, returns) if config.whiten_advantages else raw
    return Experience(rollout, scores, parts, ref_logprobs, kl, rewards, values, advantages, returns)


def policy_and_values(state: State, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Logits [N, V] of the distribution the rollout was sampled from, and values [N]; one trunk pass if it is
    shared."""
    hidden = hidden_states(state.policy, rollout)[rollout.mask]
    return behavior_logits(head(state.policy, hidden).float(), rollout), state.value(rollout, hidden)


def minibatch_loss(
    state: State, batch: Experience, config: Config, valued: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped surrogate + value_coef x value loss - entropy_coef x entropy, as means over the batch's real tokens.

    valued: [B, T] bool, the tokens whose values are trained; None = all real ones.
    """
    mask, old = batch.rollout.mask, batch.rollout.behavior_logprobs
    logits, values = policy_and_values(state, trim(batch.rollout))
    logprobs = chosen_logprobs(logits, batch.rollout.responses[mask])
    policy_part, seen = ppo_clip(logprobs, old[mask], batch.advantages[mask], config.clip)
    if valued is not None:
        values, mask = values[valued[mask]], valued
    value_part = value_loss(values, batch.values[mask], batch.returns[mask], config.value_clip)
    loss = policy_part + config.value_coef * value_part
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy(logits)
    return loss, {"policy/loss": policy_part.detach(), "value/loss": value_part.detach(), **seen}


@replaceable
def update(state: State, experience: Experience, config: Config, loss_of: Callable = minibatch_loss) -> Metrics:
    """Epochs of minibatch steps on one experience; returns the update's metrics.

    loss_of: (state, minibatch, config) -> (loss, metrics []), for learners whose loss is not ``minibatch_loss``.
    Raises ``TrainingError`` where the first ratio is not 1 (sampling and scoring disagree), ``Diverged`` where a loss
    or gradient is not finite.
    """
    order, seen = generator(state.seed, "minibatches", state.update), []
    for _ in range(config.epochs):
        for rows in torch.randperm(len(experience), generator=order).tensor_split(config.minibatches):
            batch = take(experience, rows)
            loss, metrics = loss_of(state, batch, config)
            metrics = {name: value.item() for name, value in metrics.items()}
            if not seen and "ratio" not in config.breaks and metrics["policy/ratio_error"] > 1e-3:
                raise TrainingError(f"update {state.update + 1}: {NOT_ONE.format(metrics['policy/ratio_error'], 1e-3)}")
            norm = gradient_step(state, loss, config.max_grad_norm, batch.rollout)
            seen.append({**metrics, "policy/gradient_norm": norm})
    means = {name: sum(m[name] for m in seen) / len(seen) for name in seen[0]}
    metrics = {**describe(state, experience), **means, "policy/first_ratio_error": seen[0]["policy/ratio_error"]}
    state.kl.update(metrics["objective/kl"])
    state.update += 1
    return metrics


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """Yield the metrics of each update until ``config.updates`` are done; the caller plots, evaluates, saves and
    stops."""
    yield from loop(state, prompts, score, config, collect, update)
