"""Deep Q-learning on text (Mnih et al. 2015, Nature 518; over tokens as in the CS224N report "Reinforcement Learning
for Language Models").

In: a policy, prompts and a score. Out: one dict of metrics per update; the policy is trained in place.
One update = sample a response to each prompt with an exploring policy, pay the score and a KL penalty over its tokens,
keep them in a replay, then gradient steps on tokens drawn from it: Q(s, a) towards r + gamma max Q_target(s', .).
The policy is softmax(Q / scale): its logits are Q / scale, so everything that reads a language model reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rlnlp import models
from rlnlp.learners.common import About, Diverged, Metrics, Score, describe, finite, loop, rewarded
from rlnlp.losses import KLCoefficient, rewards_to_go
from rlnlp.offpolicy import q_heads, td
from rlnlp.offpolicy.exploration import allowed_at, exploring, falling
from rlnlp.offpolicy.replay import Replay, Transitions
from rlnlp.rollout import sample, sampling_from
from rlnlp.samplers import named
from rlnlp.settings import Horizon
from rlnlp.trainable import check_policy, trained
from rlnlp.types import Experience, Prompts, Rollout, Sampling, generator

# off-policy: what `learner` has under the same names means something else here
ABOUT = About("DQN", ("sampling",), fp32=True)


class Config(Horizon):
    updates: int = Field(30, ge=0, description="updates (one collect + gradient_steps each)")
    episodes_per_update: int = Field(16, ge=1, description="episodes; the report collects token by token")
    gradient_steps: int = Field(
        16, ge=1, description="per update, once warm_up is reached; the report 1 per token collected"
    )
    batch_size: int = Field(32, ge=1, description="tokens per gradient step, uniform over the replay; report 32")
    learning_rate: float = Field(1e-5, ge=0, description="AdamW step without decay, which is Adam; report 1e-4")
    max_grad_norm: float = Field(
        10.0, gt=0, description="gradient norm; 10 as in Stable-Baselines3, which the report adapts"
    )
    gamma: float = Field(1.0, ge=0, le=1, description="discount per token; report 1")
    n_step: int = Field(
        1,
        ge=1,
        description="rewards before the bootstrap, tokens; >= max_new_tokens = the sampled return of the exploring "
        "policy, no bootstrap and so no max; report 1",
    )
    double: bool = Field(
        False, description="the online network chooses the best token, the target judges it; report no"
    )
    head: Literal["mlp", "linear", "logits"] = Field(
        "mlp",
        description="Q from the hidden state: 3 x 64 random (report), one zero layer, or the model's logits x scale",
    )
    scale: float = Field(0.05, gt=0, description="reward units per nat: the policy is softmax(Q / scale)")
    trunk: Literal["trained", "frozen"] = Field("trained", description="the model under the head; report trained")
    target: Literal["hard", "polyak"] = Field("hard", description="how the target network follows; report hard")
    target_every: int = Field(50, ge=1, description="gradient steps between hard copies; report 50")
    tau: float = Field(
        0.005, gt=0, le=1, description="share of the way that a polyak target moves per gradient step; RL4LMs 0.005"
    )
    explore: Literal["greedy", "softmax"] = Field(
        "greedy",
        description="what is done with probability 1 - epsilon: argmax Q (report), or a draw from softmax(Q / scale)",
    )
    explore_rule: str = Field(
        "none", description="sampler of the frozen reference that exploring is restricted to; report none"
    )
    explore_value: float = Field(0.0, description="that rule's number, in its unit")
    max_rule: str = Field(
        "none", description="sampler of the frozen reference that the target's max is restricted to; report none"
    )
    max_value: float = Field(0.0, description="that rule's number, in its unit")
    epsilon_start: float = Field(
        1.0, ge=0, le=1, description="probability of a uniformly random allowed token, first update; report 1"
    )
    epsilon_end: float = Field(0.05, ge=0, le=1, description="the same, after epsilon_updates; report 0.05")
    epsilon_updates: int = Field(10, ge=0, description="updates over which it falls linearly; report 10,000 tokens")
    kl_coef: float = Field(
        0.0,
        ge=0,
        description="beta, reward units per nat: of log softmax(Q / scale) - log pi_ref at the tokens collected, "
        "random ones too; report 0",
    )
    buffer: int = Field(1_500_000, ge=1, description="tokens kept for replay; report 1.5 million")
    warm_up: int = Field(20, ge=1, description="tokens collected before the first gradient step; RL4LMs 20")
    max_new_tokens: int = Field(24, ge=1, description="horizon T, tokens; report 40")
    min_new_tokens: int = Field(0, ge=0, description="EOS is blocked before this many tokens")
    kl_estimator: ClassVar[str] = "k1"

    @model_validator(mode="after")
    def _together(self):
        named(self.explore_rule, self.explore_value)
        named(self.max_rule, self.max_value)
        if self.buffer < (most := self.episodes_per_update * self.max_new_tokens):
            raise ValueError(
                f"buffer {self.buffer}: expected at least episodes_per_update x max_new_tokens, {most} tokens"
            )
        if self.warm_up > (held := self.buffer - self.max_new_tokens + 1):
            raise ValueError(
                f"warm_up {self.warm_up}: expected at most {held} tokens, which a full buffer is sure to hold"
            )
        return self


@dataclass
class State:
    """All that training changes, and the frozen reference. ``mask_model`` is the reference where a rule restricts
    tokens, else None; ``update`` counts finished updates, ``steps`` gradient steps."""

    policy: nn.Module
    reference: nn.Module
    mask_model: nn.Module | None
    target: nn.Module
    optimizer: torch.optim.Optimizer
    replay: Replay
    kl: KLCoefficient
    sampling: Sampling
    seed: int
    update: int = 0
    steps: int = 0


def init(policy, config: Config, seed: int) -> State:
    """Reference = a frozen copy of ``policy`` as it is now; then the Q head is installed in ``policy``.

    A policy that already has that head keeps its weights (a frozen run is continued with a trained trunk). The model's
    logits stay as they are where the trunk is trained, tied weights tied; under a frozen trunk they become a copy.
    What the caller has frozen stays frozen, but for the head, and but for a policy that already has one, whose trunk an
    earlier run may have frozen.
    Raises ``ValueError`` for a model we cannot view and for one with another Q head.
    """
    check_policy(policy)
    sampling = sampling_from(policy, config.max_new_tokens, min_new_tokens=config.min_new_tokens)
    reference = models.frozen_copy(policy)
    if headed := q_heads.installed(policy):
        q_heads.rescale(policy, config.head, config.scale)
    elif config.head != "logits" or config.trunk == "frozen":
        q_heads.install(policy, config.head, config.scale, generator(seed, "q_head"))
    if headed or config.trunk == "frozen":
        policy.requires_grad_(config.trunk == "trained")
    policy.get_output_embeddings().requires_grad_(True)
    ruled = {config.explore_rule, config.max_rule} != {"none"}
    return State(
        policy.eval(),
        reference,
        reference if ruled else None,
        models.frozen_copy(policy),
        torch.optim.AdamW(trained(policy), config.learning_rate, weight_decay=0.0, fused=True),
        Replay(config.buffer, sampling, policy.device),
        KLCoefficient(config.kl_coef),
        sampling,
        seed,
    )


def epsilon(update: int, config: Config) -> float:
    """The probability of a random token in update number ``update``, from 0."""
    return falling(update, config.epsilon_start, config.epsilon_end, config.epsilon_updates)


def rollout(state: State, prompts: Prompts, config: Config) -> Rollout:
    """One response per prompt from the exploring policy.

    Its ``allowed`` and ``behavior_logprobs`` are those of each token once it is known whether it was to be random.
    """
    rule = None if config.explore_rule == "none" else named(config.explore_rule, config.explore_value)
    numbers = generator(state.seed, "explore", state.update)
    return sample(
        state.policy,
        prompts,
        state.sampling,
        generator(state.seed, "rollout", state.update),
        exploring(epsilon(state.update, config), config.explore == "greedy", numbers),
        state.reference if rule else None,
        rule,
    )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """One response per prompt, scored."""
    return experience(state, rollout(state, prompts, config), score, config)


@torch.no_grad()
def experience(state: State, rollout: Rollout, score: Score, config: Config) -> Experience:
    """PPO's token rewards; values = max Q(s, .) over all tokens, advantages = Q(s, a) - max Q(s, .), returns = what
    was got."""
    scores, parts, ref_logprobs, kl, rewards = rewarded(state, rollout, score, config)
    mask = rollout.mask
    hidden, steps, tokens = (
        models.hidden_states(state.policy, rollout)[mask],
        mask.nonzero()[:, 1],
        rollout.responses[mask],
    )
    known = []
    for rows in torch.arange(len(tokens), device=mask.device).split(models.CHUNK):
        q = q_values(state.policy, hidden[rows], config, state.sampling, steps[rows])
        known.append(torch.stack([td.best_value(q), td.chosen(q, tokens[rows])]))
    best, taken = (models.scatter(values, mask) for values in torch.cat(known, 1))
    to_go = rewards_to_go(rewards, mask, config.gamma)
    return Experience(rollout, scores, parts, ref_logprobs, kl, rewards, best, taken - best, to_go)


def q_values(
    model: nn.Module, hidden: Tensor, config: Config, sampling: Sampling, steps: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """Q [N, V] in reward units of hidden states [N, H] at positions ``steps`` [N]; -inf for tokens that cannot be
    chosen."""
    return config.scale * models.restrict(models.head(model, hidden).float(), sampling, steps, allowed)


@torch.no_grad()
def targets(state: State, batch: Transitions, config: Config, hidden: Tensor) -> Tensor:
    """y [N] of a batch; ``hidden`` [E, T, H] are the policy's own states of its episodes."""
    goes_on = (batch.discounts > 0).nonzero().squeeze(1)
    best = torch.zeros_like(batch.returns)
    if len(goes_on):
        rows, steps = batch.rows[goes_on], batch.next_steps[goes_on]
        allowed = None
        if config.max_rule != "none":
            allowed = allowed_at(state.reference, named(config.max_rule, config.max_value), batch.episodes, rows, steps)
        settings = (config, state.sampling, steps, allowed)
        theirs = hidden if config.trunk == "frozen" else models.hidden_states(state.target, batch.episodes)
        own = q_values(state.policy, hidden[rows, steps], *settings) if config.double else None
        best[goes_on] = td.best_value(q_values(state.target, theirs[rows, steps], *settings), own)
    return td.targets(batch.returns, batch.discounts, best)


def loss_of(state: State, batch: Transitions, config: Config) -> tuple[Tensor, Tensor]:
    """(loss, Q(s, a) [N]) of a batch of transitions."""
    hidden = models.hidden_states(state.policy, batch.episodes)
    q = config.scale * td.chosen(models.head(state.policy, hidden[batch.rows, batch.steps]).float(), batch.tokens)
    return td.td_loss(q, targets(state, batch, config, hidden.detach())), q.detach()


def gradient_step(state: State, config: Config) -> Metrics:
    """One step on tokens drawn from the replay; the target follows. Raises ``Diverged`` where the gradient is not
    finite."""
    numbers = generator(state.seed, "replay", state.steps)
    loss, q = loss_of(state, state.replay.sample(config.batch_size, config.n_step, config.gamma, numbers), config)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(state.optimizer.param_groups[0]["params"], config.max_grad_norm)
    if not torch.isfinite(norm):
        raise Diverged(
            f"update {state.update + 1}: gradient step {state.steps + 1}: the loss is {loss.item()} and the gradient "
            f"norm {norm.item()}"
        )
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    state.steps += 1
    if config.target == "polyak" or state.steps % config.target_every == 0:
        td.follow(state.target, state.policy, config.tau if config.target == "polyak" else 1.0)
    return {"dqn/td_loss": loss.item(), "dqn/q_mean": q.mean().item(), "policy/gradient_norm": norm.item()}


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """Keep an experience, then take the gradient steps; returns the update's metrics (0 where no step was taken).

    Raises ``Diverged`` where a number of the policy or of the target is not finite.
    """
    state.replay.add(experience.rollout, experience.rewards)
    steps = config.gradient_steps if len(state.replay) >= config.warm_up else 0
    with finite(state):
        seen = [gradient_step(state, config) for _ in range(steps)]
    names = ("dqn/td_loss", "dqn/q_mean", "policy/gradient_norm")
    described = describe(state, experience)
    # Of softmax(Q / scale) they would need its own tokens, and these are the exploring policy's, which knows its coin.
    for name in ("objective/entropy", "objective/kl", "objective/kl_per_episode"):
        del described[name]
    metrics = {
        **described,
        **{name: sum(m[name] for m in seen) / max(1, steps) for name in names},
        "dqn/epsilon": epsilon(state.update, config),
        "dqn/tokens": float(experience.rollout.mask.sum()),
        "dqn/gradient_steps": float(steps),
        "dqn/replay": float(len(state.replay)),
    }
    state.update += 1
    return metrics


def decoding(config: Config) -> dict:
    """The policy that the values define: greedy, among the tokens that the max may choose."""
    if config.max_rule == "none":
        return {"top_k": 1}
    return {"top_k": 1, "rule": config.max_rule, "rule_value": config.max_value, "rule_of": "mask_model"}


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
