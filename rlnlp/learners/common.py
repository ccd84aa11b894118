"""What learners share: their errors, what they say about themselves, the loop, and what a rollout pays and shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlnlp.losses import explained_variance, kl_estimate, masked_mean, per_response, token_rewards
from rlnlp.models import check_context, score_tokens
from rlnlp.rollout import batch_of
from rlnlp.types import Experience, NotFinite, Prompts, Rollout

Score = Callable[[Rollout], tuple[Tensor, dict[str, Tensor]]]  # [B], paid at the end, or [B, T], paid token by token
Metrics = dict[str, float]


class TrainingError(RuntimeError):
    """Training cannot go on: a broken invariant or a number that is not finite. The message names update and
    examples."""


class Diverged(TrainingError):
    """A loss, a gradient or a number that the policy produced is not finite. The policy is as the last step left it."""


@dataclass(frozen=True)
class About:
    """What a learner's file says of itself, as its ``ABOUT``; nothing else knows a learner by its name.

    label        what figures and tables call it
    sections     shared sections of the settings that its own are taken from
    searched_as  the learner whose searched learning rate it uses; empty = the rate of its settings
    imitates     it is shown references to imitate, and ``init`` is given the tokenizer that reads them
    explores     it learns from rewards of what it tries, so that it can start anywhere that has a reward
    mean_over    it has ppo's update and its loss is a mean over "tokens" or "episodes", so that a batch can be cut into
                 shards; empty = it cannot
    fp32         it is trained in fp32 only: tf32 and bf16 do not have the digits that it asks for
    """

    label: str
    sections: tuple[str, ...]
    searched_as: str = ""
    imitates: bool = False
    explores: bool = True
    mean_over: str = ""
    fp32: bool = False


@contextmanager
def finite(state) -> Iterator[None]:
    """Within it, a number of a model that is not finite ends training as ``Diverged``, with the update named."""
    try:
        yield
    except NotFinite as error:
        raise Diverged(f"update {state.update + 1}: {error}") from error


def check_start(state, prompts: Prompts, config) -> None:
    """Raise ``ValueError``, before the first update, where a prompt and a response do not fit the policy
    (``check_context``), and for a length or temperature that ``init`` had otherwise: samples stay as it had them."""
    check_context(state.policy, prompts, config.max_new_tokens)
    for name, had in vars(state.sampling).items() if hasattr(state, "sampling") else ():
        if (got := getattr(config, name, had)) != had:
            raise ValueError(f"config.{name}: expected {had:g}, as init had it, got {got:g}: make a new state")


def loop(
    state, prompts: Prompts, score: Score, config, collect: Callable, update: Callable, group: int = 1
) -> Iterator[Metrics]:
    """A learner's training from its own ``collect`` and ``update``: each update on its own batch of prompts.

    group: responses that ``collect`` samples to each of them. Raises as ``check_start``.
    """
    check_start(state, prompts, config)
    while state.update < config.updates:
        batch = batch_of(prompts, config.episodes_per_update // group, state.seed, state.update)
        with finite(state):
            seen = collect(state, batch, score, config)
        yield {"update": state.update + 1, **update(state, seen, config)}


def gradient_step(state, loss: Tensor, max_norm: float, episodes: Rollout) -> float:
    """One step of ``state.optimizer`` down ``loss``; returns the gradient's norm, which is clipped at ``max_norm``.

    Raises ``Diverged``, before the weights are touched, where the loss or the norm is not finite.
    """
    loss.backward()
    norm = nn.utils.clip_grad_norm_([w for group in state.optimizer.param_groups for w in group["params"]], max_norm)
    for what, found in (("loss", loss), ("gradient norm", norm)):
        if not torch.isfinite(found):
            ids = ", ".join(episodes.prompts.example_ids[:8])
            raise Diverged(f"update {state.update + 1}: the {what} is {found}; examples of this minibatch: {ids}")
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)  # now: gradients and the next pass's activations never coexist whole
    return norm.item()


def scored(score: Score, rollout: Rollout) -> tuple[Tensor, dict[str, Tensor]]:
    """(scores [B] or [B, T], parts [B]) of a rollout from ``score``, in float32: whole numbers have no mean."""
    scores, parts = score(rollout)
    return scores.float(), {name: part.float() for name, part in parts.items()}


@torch.no_grad()
def rewarded(state, rollout: Rollout, score: Score, config) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor, Tensor]:
    """(scores [B], their parts, ref_logprobs, kl, rewards [B, T]): r_t = score, at the end or token by token, - beta
    kl_t.

    ``state`` has reference and kl; ``config`` has kl_estimator.
    """
    scores, parts = scored(score, rollout)
    ref_logprobs = score_tokens(state.reference, rollout)
    kl = kl_estimate(logprobs=rollout.logprobs, ref_logprobs=ref_logprobs, kind=config.kl_estimator) * rollout.mask
    rewards = token_rewards(scores, kl, rollout.mask, state.kl.coef)
    return per_response(scores, rollout.mask), parts, ref_logprobs, kl, rewards


def describe(state, experience: Experience) -> Metrics:
    """What a rollout says before it is learned from."""
    rollout, mask = experience.rollout, experience.rollout.mask
    log_ratio = kl_estimate(logprobs=rollout.logprobs, ref_logprobs=experience.ref_logprobs, kind="k1")
    return {
        "objective/score": experience.scores.mean().item(),
        "objective/kl": masked_mean(log_ratio, mask).item(),
        "objective/kl_per_episode": (log_ratio * mask).sum(1).mean().item(),
        "objective/kl_coef": state.kl.coef,
        "objective/reward": experience.rewards.sum(1).mean().item(),
        "objective/entropy": -masked_mean(rollout.behavior_logprobs, mask).item(),
        "value/explained_variance": explained_variance(experience.values[mask], experience.returns[mask]),
        "episodes/length": mask.sum(1).float().mean().item(),
        "episodes/terminated": rollout.terminated.float().mean().item(),
    }
