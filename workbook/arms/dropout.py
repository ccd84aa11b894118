"""PPO whose policy has dropout: what happens to the ratio, and to training, when the masks are not the rollout's.

Three modes with the same dropout: one mask per episode and site, constant over its tokens (Gal and Ghahramani 2016,
arXiv:1512.05287), scaled by 1 / (1 - rate), on the embeddings and on what is added to the residual stream: every
``nn.Dropout`` of the policy whose output is [B, L, H]. Dropout of attention weights is left out, because its shape
grows with every token. A module that runs twice in a pass (T5's, before and after its layers) uses its mask twice.
Only the policy has dropout, in a rollout and its update alone: value network, reference and evaluation have none.

update_only   sampled without; every forward pass of the update draws new masks
independent   sampled with masks; every forward pass of the update draws others
same          the rollout's masks are used again in its update (Hausknecht and Wagener 2022, arXiv:2202.11818), so that
              the ratio starts at 1
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rlnlp import types
from rlnlp.learners import ppo
from rlnlp.learners.common import About, Metrics, Score, loop
from rlnlp.models import hidden_states
from rlnlp.rollout import sample
from rlnlp.types import Prompts, Rollout, Sampling, generator

ABOUT = About("PPO with dropout", ("sampling", "learner"), searched_as="ppo", fp32=True)  # ratios tell masks apart

Masks = dict[str, Tensor]  # site -> [B, H]: 0 or 1 / (1 - rate)


class Config(ppo.Config):
    rate: float = Field(0.1, ge=0, lt=1, description="probability that a unit is dropped; 0 is PPO")
    mode: Literal["update_only", "independent", "same"] = Field(
        "update_only", description="whose masks the update uses; see the module's text"
    )

    @model_validator(mode="after")
    def _on_purpose(self):
        if self.value == "shared":
            raise ValueError("value shared: expected separate, because dropout is the policy's alone")
        if self.rate and self.mode != "same" and "ratio" not in self.breaks:
            raise ValueError(
                f"breaks {list(self.breaks)}: expected [ratio] with mode {self.mode}: other masks in the update than "
                "in the "
                f"rollout give ratios that do not start at 1; mode same keeps them"
            )
        return self


@dataclass
class State(ppo.State):
    """``sites``: names of the policy's modules that dropout acts on."""

    sites: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experience(types.Experience):
    """PPO's, and the masks of its rollout; empty where it was sampled without dropout."""

    masks: Masks = field(default_factory=dict)


def init(policy, config: Config, seed: int) -> State:
    """PPO's state. Raises ``ValueError`` for a model without a dropout module to act on: a rate would change
    nothing."""
    base = ppo.init(policy, config, seed)
    return State(**{f.name: getattr(base, f.name) for f in fields(base)}, sites=find_sites(policy, base.sampling))


@torch.no_grad()
def find_sites(policy, sampling: Sampling) -> list[str]:
    """Names of the ``nn.Dropout`` modules whose output is [B, L, H], found by one pass over two tokens."""
    found, width = [], policy.get_output_embeddings().in_features
    names = {module: name for name, module in policy.named_modules() if isinstance(module, nn.Dropout)}

    def look(module, inputs, output):
        if output.dim() == 3 and output.shape[-1] == width:
            found.append(names[module])

    handles = [module.register_forward_hook(look) for module in names]
    tokens, zeros = torch.full((1, 2), sampling.eos_id, device=policy.device), torch.zeros(1, 2, device=policy.device)
    real = torch.ones_like(tokens, dtype=torch.bool)
    hidden_states(
        policy, Rollout(Prompts(tokens, real, [""], [[]], [""]), tokens, real, real[:, 0], zeros, zeros, sampling)
    )
    for handle in handles:
        handle.remove()
    if not found:
        raise ValueError(
            f"model {type(policy).__name__}: no nn.Dropout with output [B, L, H] runs, so dropout has no site"
        )
    return sorted(set(found))


def draw(state: State, rows: int, rate: float, *name: object) -> Masks:
    """Masks of ``rows`` episodes from the random stream of that name."""
    numbers, width = generator(state.seed, "dropout", *name), state.policy.get_output_embeddings().in_features
    return {
        site: ((torch.rand(rows, width, generator=numbers) >= rate) / (1 - rate)).to(state.policy.device)
        for site in state.sites
    }


@contextmanager
def applied(policy, masks: Masks) -> Iterator[None]:
    """Within it, each site's output is multiplied by its masks, row by row, in training and in evaluation mode alike.

    The caller may replace the tensors in ``masks`` when the batch changes.
    """

    def multiply(site: str):
        return lambda module, inputs, output: output * masks[site].unsqueeze(1)

    handles = [policy.get_submodule(site).register_forward_hook(multiply(site)) for site in masks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def rollout(state: State, prompts: Prompts, masks: Masks) -> Rollout:
    """PPO's rollout with ``masks`` on the policy; without any it is PPO's."""
    current = dict(masks)

    def follow(rows: Tensor) -> None:
        current.update({site: mask[rows] for site, mask in current.items()})

    with applied(state.policy, current):
        return sample(
            state.policy,
            prompts,
            state.sampling,
            generator(state.seed, "rollout", state.update),
            state.sampler,
            follow=follow,
        )


def collect(state: State, prompts: Prompts, score: Score, config: Config) -> Experience:
    """PPO's experience. The KL penalty is that of the policy that was sampled from, dropout included."""
    masks = {} if config.mode == "update_only" else draw(state, len(prompts), config.rate, "rollout", state.update)
    seen = ppo.experience(state, rollout(state, prompts, masks), score, config)
    return Experience(**{f.name: getattr(seen, f.name) for f in fields(seen)}, masks=masks)


def update(state: State, experience: Experience, config: Config) -> Metrics:
    """PPO's update with dropout in every forward pass of the policy; raises what PPO's does."""
    passes = itertools.count()

    def loss(state: State, batch: Experience, config: Config):
        again = config.mode == "same"
        masks = batch.masks if again else draw(state, len(batch), config.rate, "update", state.update, next(passes))
        with applied(state.policy, masks):
            return ppo.minibatch_loss(state, batch, config)

    return ppo.update(state, experience, config, loss)


def train(state: State, prompts: Prompts, score: Score, config: Config) -> Iterator[Metrics]:
    """PPO's loop."""
    yield from loop(state, prompts, score, config, collect, update)
