"""Trust region policy optimisation on text (Schulman et al. 2015, arXiv:1502.05477).

PPO's rollout, rewards and advantages; then one step of the policy along the natural gradient,

    maximise  mean_t ratio_t A_t   subject to   mean_s KL(old(.|s) || new(.|s)) <= kl_bound,

first with the KL's quadratic model, s = c (F + damping I)^-1 g with s.F s / 2 = kl_bound (appendix C), then shrunk
until the surrogate gains and the exact KL, over the whole vocabulary at every state of the rollout, keeps the bound.
A step that never does is not taken. KL and ratio are of the distribution that was sampled from. The value network has
Adam.

The stable-baselines code that RL4LMs uses measures KL(new || old) and scales with the damped F, a shorter first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlnlp.learners.common import About, Diverged, Metrics, Score, TrainingError, describe, gradient_step, loop
from rlnlp.learners.ppo import State, collect
from rlnlp.losses import KLCoefficient, nothing_but_rounding, value_loss
from rlnlp.models import ValueModel, behavior_logits, frozen_copy, head, hidden_states, sync
from rlnlp.optim import categorical_kl, fisher_product, flat, line_search, natural_step
from rlnlp.rollout import sampling_from, trim, truncation
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Rollout, generator, take

ABOUT = About("TRPO", ("sampling", "learner"), fp32=True)

Part = tuple[Rollout, Tensor]  # some of the episodes, and the advantages [N] of their tokens


class Config(Horizon):
    updates: int = Field(30, ge=0, description="updates (one collect + one step of the policy each)")
    episodes_per_update: int = Field(64, ge=1, description="episodes")
    kl_bound: float = Field(
        0.01, gt=0, description="largest mean KL(old || new) of one update, nats per token; paper 0.01"
    )
    damping: float = Field(
        0.1, ge=0, description="added to the Fisher matrix's diagonal; code of the paper and RL4LMs 0.1"
    )
    cg_steps: int = Field(10, ge=1, description="conjugate-gradient steps, a Fisher product each; paper 10, RL4LMs 15")
    fisher_episodes: int = Field(
        16,
        ge=1,
        description="episodes whose states the Fisher matrix is averaged over (the first so many; paper: a tenth of "
        "the states); the bound itself is checked on all",
    )
    backtracks: int = Field(10, ge=1, description="steps tried, the full one included; paper 10")
    shrink: float = Field(0.8, gt=0, lt=1, description="each tried step's share of the one before; RL4LMs 0.8")
    value_epochs: int = Field(5, ge=0, description="passes of the value network over a rollout; RL4LMs 10")
    minibatches: int = Field(
        2,
        ge=1,
        description="gradient steps of the value network per pass; parts in which the policy's gradient and KL are "
        "computed",
    )
    learning_rate: float = Field(
        1e-3, ge=0, description="AdamW step of the value network; the policy's has no rate: kl_bound sets it"
    )
    max_grad_norm: float = Field(0.5, gt=0, description="gradient norm of the value network; PPO's 0.5")
    gamma: float = Field(1.0, ge=0, le=1, description="discount per token; RL4LMs 0.99")
    lam: float = Field(0.95, ge=0, le=1, description="GAE lambda; RL4LMs 0.95")
    kl_coef: float = Field(
        0.05, ge=0, description="beta of the KL to the reference, reward units per nat; start value if kl_target > 0"
    )
    kl_target: float = Field(0.0, ge=0, description="nats per token that an adaptive beta steers to; 0 = fixed beta")
    kl_gain: float = Field(0.1, gt=0, le=1, description="adaptive beta's relative step per update; code 0.1")
    kl_estimator: Literal["k1", "k2", "k3"] = Field(
        "k1", description="KL estimate paid as a reward; PPO's config says why k1"
    )
    whiten_advantages: bool = Field(True, description="per rollout, over real tokens")
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens; paper 48")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    temperature: float = Field(1.0, gt=0, description="divides the logits, in sampling and in scoring")
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="mass kept when sampling; 1 = all")

    @model_validator(mode="after")
    def _together(self):
        if self.kl_target and not self.kl_coef:
            raise ValueError("kl_coef 0: expected > 0 with a kl_target (an adaptive beta is only ever multiplied)")
        self.at_most("minibatches", "episodes_per_update")
        return self


def init(policy, config: Config, seed: int) -> State:
    """PPO's state, whose optimiser knows the value network alone. Raises ``ValueError`` for a model we cannot view."""
    check_policy(policy)
    trained(policy)  # is there anything?
    value = ValueModel(policy)
    return State(
        policy.eval(),
        frozen_copy(policy),
        value.eval(),
        torch.optim.AdamW(value.parameters(), lr=config.learning_rate, eps=1e-5, weight_decay=0.0, fused=True),
        KLCoefficient(config.kl_coef, config.kl_target, config.kl_gain),
        sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens),
        truncation(config.top_k, config.top_p),
        seed,
    )


def sampled_logprobs(policy, rollout: Rollout) -> Tensor:
    """Log-probabilities [N, V] of the distribution the rollout was sampled from, with this policy's weights."""
    logits = head(policy, hidden_states(policy, rollout)[rollout.mask]).float()
    return behavior_logits(logits, rollout).log_softmax(-1)


def chosen(logprobs: Tensor, rollout: Rollout) -> Tensor:
    """Of log-probabilities [N, V], those [N] of the tokens that were sampled."""
    return logprobs.gather(1, rollout.responses[rollout.mask].unsqueeze(1)).squeeze(1)


def surrogate_gradient(policy, parts: list[Part]) -> tuple[Tensor, float]:
    """(g [P], largest |ratio - 1|): the gradient of mean_t ratio_t A_t where the ratio is 1, the policy gradient."""
    parameters, tokens = trained(policy), sum(len(advantages) for _, advantages in parts)
    total, error = None, 0.0
    for rollout, advantages in parts:
        logprobs = chosen(sampled_logprobs(policy, rollout), rollout)
        ratio = (logprobs - rollout.behavior_logprobs[rollout.mask]).exp()
        error = max(error, (ratio - 1).abs().max().item())
        gain = (ratio * advantages).sum() / tokens
        gradient = flat(torch.autograd.grad(gain, parameters, allow_unused=True, materialize_grads=True))
        total = gradient if total is None else total + gradient
    return total, error


@torch.no_grad()
def gain_and_kl(old, new, parts: list[Part]) -> tuple[float, float]:
    """mean_t (ratio_t - 1) A_t in advantage units, and the exact mean KL(old || new) in nats, over all tokens of
    ``parts``."""
    gain = kl = tokens = 0.0
    for rollout, advantages in parts:
        before, after = sampled_logprobs(old, rollout), sampled_logprobs(new, rollout)
        gain += (torch.expm1(chosen(after, rollout) - chosen(before, rollout)) * advantages).sum().item()
        kl += categorical_kl(before, after).sum().item()
        tokens += len(advantages)
    return gain / tokens, kl / tokens


def full_step(policy, rollout: Rollout, gradient: Tensor, config: Config) -> Tensor:
    """The natural step [P] to the bound, with the Fisher matrix of the first ``fisher_episodes`` episodes' states."""
    episodes = trim(take(rollout, torch.arange(min(config.fisher_episodes, len(rollout)))))
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
        product = fisher_product(sampled_logprobs(policy, episodes), trained(policy))
        return natural_step(product, gradient, config.kl_bound, config.damping, config.cg_steps)


def move(state: State, parts: list[Part], step: Tensor, config: Config) -> tuple[float, float, float]:
    """Take the largest tried share of ``step`` that keeps its promises; returns (share, surrogate gain, exact KL).

    Where none does, or the step is none (advantages of 0), all three are 0 and the policy is as it was.
    """
    if not step.any():
        return 0.0, 0.0, 0.0
    old, parameters = frozen_copy(state.policy), trained(state.policy)
    found = 0.0, 0.0

    @torch.no_grad()
    def accepted(share: float) -> bool:
        nonlocal found
        sync(state.policy, old)
        for parameter, change in zip(parameters, step.split([p.numel() for p in parameters]), strict=True):
            parameter += share * change.view_as(parameter)
        found = gain_and_kl(old, state.policy, parts)
        return found[0] > 0 and found[1] <= config.kl_bound  # NaN is neither

    if share := line_search(accepted, config.shrink, config.backtracks):
        return share, *found
    sync(state.policy, old)
    return 0.0, 0.0, 0.0


def fit_values(state: State, experience: Experience, config: Config) -> float:
    """Epochs of AdamW steps of the value network on the returns; the mean loss. Raises ``Diverged`` if one is not
    finite."""
    order, losses = generator(state.seed, "minibatches", state.update), []
    for _ in range(config.value_epochs):
        for rows in torch.randperm(len(experience), generator=order).tensor_split(config.minibatches):
            batch = take(experience, rows)
            mask = batch.rollout.mask
            loss = value_loss(state.value(trim(batch.rollout)), batch.values[mask], batch.returns[mask], clip=0.0)
            gradient_step(state, loss, config.max_grad_norm, batch.rollout)
            losses.append(loss.item())
    return sum(losses) / max(len(losses), 1)


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """One step of the policy, then the value network's epochs; returns the update's metrics.

    Raises ``TrainingError`` where a ratio is not 1 before the step (sampling and scoring disagree), ``Diverged`` where
    the policy's gradient or the value network's is not finite.
    """
    advantages, parts = experience.advantages, []
    if not config.whiten_advantages:  # a natural step has the bound's size, along rounding noise too
        flat = nothing_but_rounding(advantages.abs().amax(), experience.returns)
        advantages = advantages.masked_fill(flat, 0.0)
    for rows in torch.arange(len(experience)).tensor_split(config.minibatches):
        part = take(experience.rollout, rows)
        parts.append((trim(part), advantages[rows][part.mask]))
    gradient, error = surrogate_gradient(state.policy, parts)
    if not torch.isfinite(gradient).all():
        raise Diverged(f"update {state.update + 1}: the gradient norm is {gradient.norm().item()}")
    if error > 1e-3:
        raise TrainingError(
            f"update {state.update + 1}: a ratio is off 1 by {error:.2g} before the step (allowed 1e-3): the policy "
            "does not score its own samples as it drew them"
        )
    share, gain, kl = move(state, parts, full_step(state.policy, experience.rollout, gradient, config), config)
    metrics = {
        **describe(state, experience),
        "value/loss": fit_values(state, experience, config),
        "policy/gradient_norm": gradient.norm().item(),
        "policy/ratio_error": error,
        "trpo/kl": kl,
        "trpo/gain": gain,
        "trpo/share": share,
    }
    state.kl.update(metrics["objective/kl"])
    state.update += 1
    return metrics


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
