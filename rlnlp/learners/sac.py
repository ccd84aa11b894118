"""Discrete soft actor-critic on text, with the base model as the prior (Christodoulou 2019, arXiv:1910.07207; Haarnoja
et al. 2018, arXiv:1812.05905, whose prior is uniform: entropy where here is the KL to the reference).

    V(s) = sum_a pi (Q_target - alpha log(pi / pi_ref)),   critic: Q(s_t, a_t) -> r_t + gamma V(s_{t+1}),
    actor: KL(pi || softmax(log pi_ref + Q / alpha)),      both sums over the whole vocabulary, at states from a replay

One update = sample a response to each prompt, keep it, then gradient steps on whole episodes drawn from the replay; one
pass over an episode trains all its tokens. With lam > 0 the critic's target is the soft lambda-return along the
episode, lam = 1 what was really got: a score paid at the end then reaches the first token at once, for a bias where
the replay is older than the policy (nothing corrects for that). The soft optimum is pi_ref exp((Q - V) / alpha):
alpha is PPO's kl_coef.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rlnlp import models
from rlnlp.learners.common import About, Diverged, Metrics, Score, describe, loop, rewarded
from rlnlp.losses import KLCoefficient, gae, rewards_to_go
from rlnlp.offpolicy import q_heads, td
from rlnlp.offpolicy.replay import Replay, Transitions
from rlnlp.rollout import sample, sampling_from
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Rollout, Sampling, generator, take

ABOUT = About("SAC", ("sampling",), fp32=True)  # off-policy, as dqn


class Config(Horizon):
    updates: int = Field(30, ge=0, description="updates (one collect + gradient_steps each)")
    episodes_per_update: int = Field(64, ge=1, description="episodes")
    gradient_steps: int = Field(8, ge=1, description="per update, once warm_up is reached")
    batch_episodes: int = Field(
        32,
        ge=1,
        description="tokens drawn per gradient step; all tokens of the episodes they stand in are trained, so at most "
        "so many episodes, the long ones more often",
    )
    alpha: float = Field(0.1, gt=0, description="weight of the KL to the reference, reward units per nat")
    learning_rate: float = Field(1e-5, ge=0, description="AdamW step of the actor")
    critic_learning_rate: float = Field(1e-3, ge=0, description="AdamW step of the critic")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient norm, of the actor and of the critic each")
    gamma: float = Field(1.0, ge=0, le=1, description="discount per token")
    lam: float = Field(
        0.95,
        ge=0,
        le=1,
        description="share of the sampled return in the critic's target; 0 = one step, as in the papers",
    )
    tau: float = Field(
        0.05, gt=0, le=1, description="share of the way that the target critic moves per gradient step; papers 0.005"
    )
    head: Literal["mlp", "linear", "logits"] = Field(
        "logits",
        description="Q from the critic's hidden state: 3 x 64 random, one zero layer, or the model's logits x scale",
    )
    scale: float = Field(
        0.05, gt=0, description="reward units per nat of the critic's logits, where the head is logits"
    )
    buffer: int = Field(20_000, ge=1, description="tokens kept for replay")
    warm_up: int = Field(1, ge=1, description="tokens collected before the first gradient step")
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    kl_estimator: ClassVar[str] = "k1"

    @model_validator(mode="after")
    def _together(self):
        if self.buffer < (most := self.episodes_per_update * self.max_new_tokens):
            raise ValueError(
                f"buffer {self.buffer}: expected at least episodes_per_update x max_new_tokens, {most} tokens"
            )
        if self.warm_up > (
            most := self.buffer - self.max_new_tokens + 1
        ):  # responses leave whole: it may never be fuller
            raise ValueError(f"warm_up {self.warm_up}: expected at most buffer - max_new_tokens + 1, {most} tokens")
        return self


@dataclass
class State:
    """All that training changes, and the frozen reference. ``update`` counts finished updates, ``steps`` gradient
    steps."""

    policy: nn.Module
    reference: nn.Module
    critic: nn.Module
    target: nn.Module
    optimizer: torch.optim.Optimizer
    replay: Replay
    kl: KLCoefficient
    sampling: Sampling
    seed: int
    update: int = 0
    steps: int = 0


def init(policy, config: Config, seed: int) -> State:
    """Reference = a frozen copy of ``policy`` as it is now; the critic is a copy with a Q head. Raises as PPO's."""
    check_policy(policy)
    critic = q_heads.critic(policy, config.head, config.scale, generator(seed, "q_head")).eval()
    groups = [
        {"params": trained(policy), "lr": config.learning_rate},
        {"params": list(critic.parameters()), "lr": config.critic_learning_rate},
    ]
    sampling = sampling_from(policy, config.max_new_tokens, min_new_tokens=config.min_new_tokens)
    return State(
        policy.eval(),
        models.frozen_copy(policy),
        critic,
        models.frozen_copy(critic),
        torch.optim.AdamW(groups, weight_decay=0.0, fused=True),
        Replay(config.buffer, sampling, policy.device),
        KLCoefficient(config.alpha),
        sampling,
        seed,
    )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """One response per prompt, sampled from the actor and scored."""
    rollout = sample(state.policy, prompts, state.sampling, generator(state.seed, "rollout", state.update))
    return experience(state, rollout, score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """PPO's token rewards at beta = alpha; values = soft V, advantages = Q(s, a) - alpha log(pi / pi_ref) - V."""
    scores, parts, ref_logprobs, kl, rewards = rewarded(state, rollout, score, config)
    mask = rollout.mask
    soft, got = [], []
    for rows in torch.arange(len(rollout)).split(
        max(1, models.CHUNK // mask.shape[1])
    ):  # a table over the vocabulary each
        part = take(rollout, rows)
        logprobs, ref, q = at_states(state, state.critic, part, config)
        soft.append(soft_value(logprobs, ref, q, config.alpha))
        got.append(chosen(q - config.alpha * log_ratio(logprobs, ref), part))
    values, gained = models.scatter(torch.cat(soft), mask), models.scatter(torch.cat(got), mask)
    return Experience(
        rollout,
        scores,
        parts,
        ref_logprobs,
        kl,
        rewards,
        values,
        gained - values,
        rewards_to_go(rewards, mask, config.gamma),
    )


def at_states(state: State, critic: nn.Module, episodes: Rollout, config: Config) -> tuple[Tensor, Tensor, Tensor]:
    """log pi, log pi_ref and the critic's Q [N, V] at all states of ``episodes``; a blocked EOS has -inf, -inf and
    its Q."""

    def logits(model: nn.Module) -> Tensor:
        return models.head(model, models.hidden_states(model, episodes)[episodes.mask]).float()

    logprobs = models.behavior_logits(logits(state.policy), episodes).log_softmax(-1)
    with torch.no_grad():
        ref = models.behavior_logits(logits(state.reference), episodes).log_softmax(-1)
    return logprobs, ref, config.scale * logits(critic)


def log_ratio(logprobs: Tensor, ref: Tensor) -> Tensor:
    """log(pi / pi_ref) [N, V]; 0 for a token that neither can choose."""
    return (logprobs - ref).masked_fill(ref == -torch.inf, 0.0)


def soft_value(logprobs: Tensor, ref: Tensor, q: Tensor, alpha: float) -> Tensor:
    """V [N] = sum_a pi (Q - alpha log(pi / pi_ref)) of [N, V] each, reward units."""
    return (logprobs.exp() * (q - alpha * log_ratio(logprobs, ref))).sum(-1)


def chosen(table: Tensor, episodes: Rollout) -> Tensor:
    """Of a table [N, V], the entries [N] of the tokens in the episodes."""
    return td.chosen(table, episodes.responses[episodes.mask])


def actor_loss(logprobs: Tensor, ref: Tensor, q: Tensor, alpha: float) -> Tensor:
    """Mean over N states of KL(pi || softmax(log pi_ref + Q / alpha)) in nats; Q and the reference are constants."""
    best = (ref + q.detach() / alpha).log_softmax(-1)
    return (logprobs.exp() * log_ratio(logprobs, best)).sum(-1).mean()


def critic_targets(logprobs: Tensor, ref: Tensor, q: Tensor, batch: Transitions, config: Config) -> Tensor:
    """Soft lambda-returns [N] that Q(s_t, a_t) moves to, from the target critic's ``q``; all [N, V] at whole episodes'
    tokens.

    G_t = r_t + gamma ((1 - lam) V_{t+1} + lam (G_{t+1} - alpha log(pi / pi_ref)(a_{t+1}))),   nothing after the end
    """
    mask = batch.episodes.mask
    penalty = config.alpha * chosen(log_ratio(logprobs, ref), batch.episodes)
    values = models.scatter(soft_value(logprobs, ref, q, config.alpha), mask)
    ahead = gae(models.scatter(batch.returns - penalty, mask), values, mask, config.gamma, config.lam) + values
    return ahead[mask] + penalty


def whole_episodes(replay: Replay, size: int, numbers: torch.Generator) -> Transitions:
    """All tokens, in order, of the episodes in which ``size`` tokens stand that are drawn uniformly."""
    drawn = replay.first + torch.randint(len(replay), (size,), generator=numbers).to(replay.prompts.device)
    first = torch.unique(drawn - replay.cells["step"][drawn % replay.capacity])
    columns = torch.arange(replay.sampling.max_new_tokens, device=first.device)
    real = columns <= replay.cells["left"][first % replay.capacity].unsqueeze(1)
    return replay.transitions((first.unsqueeze(1) + columns)[real] - replay.first, n_step=1, gamma=1.0)


def gradient_step(state: State, config: Config) -> Metrics:
    """One step of actor and critic on episodes of the replay; the target follows. Raises ``Diverged`` if not finite."""
    batch = whole_episodes(state.replay, config.batch_episodes, generator(state.seed, "replay", state.steps))
    episodes = batch.episodes
    logprobs, ref, q = at_states(state, state.critic, episodes, config)
    with torch.no_grad():
        theirs = models.head(state.target, models.hidden_states(state.target, episodes)[episodes.mask]).float()
        wanted = critic_targets(logprobs, ref, config.scale * theirs, batch, config)
    td_loss = ((chosen(q, episodes) - wanted) ** 2).mean()
    distance = actor_loss(logprobs, ref, q, config.alpha)
    (td_loss + distance).backward()  # they share no weight: Q is a constant to the actor
    norms = [nn.utils.clip_grad_norm_(group["params"], config.max_grad_norm) for group in state.optimizer.param_groups]
    if not all(map(torch.isfinite, norms)):
        raise Diverged(
            f"update {state.update + 1}: gradient step {state.steps + 1}: the losses are {distance.item()} and "
            f"{td_loss.item()}, "
            f"the gradient norms {norms[0].item()} and {norms[1].item()} (actor, critic)"
        )
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    td.follow(state.target, state.critic, config.tau)
    state.steps += 1
    return {
        "sac/td_loss": td_loss.item(),
        "sac/actor_kl": distance.item(),
        "sac/q_mean": chosen(q, episodes).mean().item(),
        "policy/gradient_norm": norms[0].item(),
    }


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """Keep an experience's score without its KL, which the critic adds at its own; then the gradient steps."""
    rewards = experience.rewards + state.kl.coef * experience.kl
    state.replay.add(experience.rollout, rewards)
    steps = config.gradient_steps if len(state.replay) >= config.warm_up else 0
    seen = [gradient_step(state, config) for _ in range(steps)]
    names = ("sac/td_loss", "sac/actor_kl", "sac/q_mean", "policy/gradient_norm")
    metrics = {
        **describe(state, experience),
        **{name: sum(m[name] for m in seen) / max(1, steps) for name in names},
        "sac/replay": float(len(state.replay)),
        "sac/gradient_steps": float(steps),
    }
    state.update += 1
    return metrics


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
