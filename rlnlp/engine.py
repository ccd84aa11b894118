"""Other means to the ends of ``rollout.sample`` and ``ppo.update``: bf16, recorded steps, several processes.

A policy and its learner's state may have an ``engine`` (``types.replaceable``); without one everything is done as it is
written, and that is the specification. What an engine changes is how a sum is rounded, never what is summed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlnlp import shards as sharding
from rlnlp.learners import ppo
from rlnlp.learners.common import Diverged, Metrics, TrainingError, describe
from rlnlp.models import behavior_logits, chosen_logprobs, head, hidden_states, scatter, task_logits
from rlnlp.precision import in_bf16
from rlnlp.static_rollout import Truncation, sample_static, without_sort
from rlnlp.static_update import StaticSteps, cells, guarded_step, serves
from rlnlp.types import Experience, Prompts, Rollout, Sampler, Sampling, generator, take

RATIO = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}  # largest |first ratio - 1|: minibatches have other shapes
MEAN, MOST = 2e-2, 0.25  # nats between the sampler's log-probability of a token and the scorer's: mean, largest
ROWS = 64  # episodes that are scored again in one pass


@dataclass(eq=False)
class Engine:
    """How a policy is sampled from and learned from.

    precision  of the models' products: fp32, tf32 (whoever starts a run switches it on: it is the process's) or bf16
    static     decode, and take PPO's gradient steps, by recorded steps, where that is possible (``static_rollout``,
               ``static_update``)
    shards     a batch is cut into so many parts, which the ``team`` shares; 1 = it is not cut
    mean_over  what the learner's loss is a mean over (``About.mean_over``), for shards
    """

    precision: str = "fp32"
    static: bool = False
    shards: int = 1
    mean_over: str = ""
    team: sharding.Team = field(default_factory=sharding.Alone)
    kept: dict = field(default_factory=dict)  # recorded decode steps, see ``sample_static``,
    recorded: dict = field(default_factory=dict)  # and gradient steps, by minibatch, see ``steps``
    mismatch: Metrics = field(default_factory=dict)  # of the last rollout: what is reported,
    furthest: float = 0.0  # and of a single token
    evaluates: bool = False  # within ``uncut``

    def __post_init__(self) -> None:
        sharding.own(self.shards, self.team)
        if self.shards > 1 and not self.mean_over:
            raise ValueError(f"shards {self.shards}: expected a learner with ppo's update, of which shards are a sum")

    def __deepcopy__(self, memo: dict) -> Engine:
        return self  # a copy of a policy is sampled from by the same means

    def __call__(self, work: Callable, first: Any, *rest, **named) -> Any:
        """``work`` by these means: a rollout of a policy, or an update of a learner's state."""
        means = self.rollout if isinstance(first, nn.Module) else self.update
        return means(work, first, *rest, **named)

    def install(self, policy: nn.Module) -> None:
        """Give it to a policy, before a learner copies it."""
        policy.engine = self
        if self.precision == "bf16":
            in_bf16(policy)

    @contextmanager
    def uncut(self) -> Iterator[None]:
        """Within it no batch is cut, and none of more than ``ROWS`` is scored again: for what one process does alone,
        an evaluation, which reads no log-probability of its samples, and an episode that is shown."""
        before, self.shards, self.evaluates = self.shards, 1, True
        try:
            yield
        finally:
            self.shards, self.evaluates = before, False
            self.kept.clear()  # samplers of an evaluation's batches, larger than any of training,
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # and what it took of the card, which others have a share of

    def rollout(
        self,
        readable: Callable,
        policy: nn.Module,
        prompts: Prompts,
        sampling: Sampling,
        generator: torch.Generator,
        sampler: Sampler | None = None,
        mask_model: nn.Module | None = None,
        mask_rule: Sampler | None = None,
        **follow,
    ) -> Rollout:
        """``rollout.sample``; where precision lets sampling and scoring differ, log-probabilities are the scorer's."""
        rules = without_sort(sampler), without_sort(mask_rule if mask_model is not None else None)
        recorded = self.static and not follow and all(map(recordable, filter(None, (policy, mask_model))))
        recorded = recorded and all(rule is None or isinstance(rule, Truncation) for rule in rules)

        def draw(some: Prompts, numbers: torch.Generator) -> Rollout:
            if not recorded:
                return readable(policy, some, sampling, numbers, sampler, mask_model, mask_rule, **follow)
            for left in list(self.kept)[:-1]:  # memory of shapes that were left behind
                del self.kept[left]
            given = (rules[0], mask_model, rules[1], self.precision, self.kept)
            return sample_static(policy, some, sampling, numbers, *given)

        if self.shards > 1 and (follow or any(getattr(rule, "random", False) for rule in (sampler, mask_rule))):
            raise ValueError("shards: expected a rollout without random numbers other than a row's own")
        cut = (draw, prompts, sampling, generator, self.shards, self.team)
        drawn = sharding.rollout(*cut) if self.shards > 1 else draw(prompts, generator)
        return drawn if self.precision == "fp32" or self.evaluates and len(drawn) > ROWS else self.scored(policy, drawn)

    @torch.no_grad()
    def scored(self, policy: nn.Module, drawn: Rollout) -> Rollout:
        """The rollout with log-probabilities of passes like those of training, and how far the sampler's were off."""
        found = []
        for rows in torch.arange(len(drawn), device=drawn.mask.device).split(ROWS):
            some = take(drawn, rows)
            logits, tokens = head(policy, hidden_states(policy, some)[some.mask]).float(), some.responses[some.mask]
            both = (behavior_logits(logits, some), task_logits(logits, some))
            found.append([scatter(chosen_logprobs(each, tokens), some.mask) for each in both])
        behavior, bare = (torch.cat(parts) for parts in zip(*found))
        off = (behavior - drawn.behavior_logprobs).abs()[drawn.mask]
        self.mismatch, self.furthest = {"rollout/mismatch": off.mean().item()}, off.max().item()
        return dataclasses.replace(drawn, behavior_logprobs=behavior, logprobs=bare)

    def report(self) -> Metrics:
        """What the last rollout says of it. Raises ``TrainingError`` where sampler and scorer are too far apart."""
        mean, most = self.mismatch.get("rollout/mismatch", 0.0), self.furthest
        if mean > MEAN or most > MOST:
            raise TrainingError(
                f"in {self.precision} the sampler's log-probabilities are off the scorer's by {mean:.2g} nats on "
                f"average and {most:.2g} at most (allowed {MEAN:g} and {MOST:g})"
            )
        return dict(self.mismatch)

    def update(
        self, written: Callable, state: Any, experience: Experience, config: Any, loss_of: Callable = ppo.minibatch_loss
    ) -> Metrics:
        """``ppo.update``, with shards, and with one look at what the device computed, at the end.

        No step is taken from the first loss or gradient on that is not finite; the first ratio may be off by what the
        precision rounds. Raises what ``ppo.update`` does.
        """
        if self.shards > 1:
            loss_of = partial(sharding.loss, loss_of, shards=self.shards, team=self.team, mean_over=self.mean_over)
        order, seen, used = generator(state.seed, "minibatches", state.update), [], []
        names, step = experience.rollout.prompts.example_ids, self.steps(state, experience, config, loss_of)
        for _ in range(config.epochs):
            for rows in torch.randperm(len(experience), generator=order).tensor_split(config.minibatches):
                seen.append(step(rows))
                used.append(", ".join(names[i] for i in rows[:8].tolist()))
        read = torch.stack([torch.stack([value.double() for value in each.values()]) for each in seen]).tolist()
        seen = [dict(zip(each, row)) for each, row in zip(seen, read)]
        error, bound, name = seen[0]["policy/ratio_error"], RATIO[self.precision], f"update {state.update + 1}"
        if "ratio" not in config.breaks and error > bound:
            raise TrainingError(f"{name}: {ppo.NOT_ONE.format(error, bound)}")
        for each, examples in zip(seen, used):
            for what, found in (("loss", each["loss"]), ("gradient norm", each["policy/gradient_norm"])):
                if not math.isfinite(found):
                    raise Diverged(f"{name}: the {what} is {found}; examples of this minibatch: {examples}")
        means = {name: sum(m[name] for m in seen) / len(seen) for name in seen[0] if name != "loss"}
        metrics = {**describe(state, experience), **means, "policy/first_ratio_error": error, **self.report()}
        state.kl.update(metrics["objective/kl"])
        state.update += 1
        return metrics

    def steps(
        self, state: Any, experience: Experience, config: Any, loss_of: Callable
    ) -> Callable[[Tensor], dict[str, Tensor]]:
        """A gradient step on some episodes of the experience, rows [n]: loss, metrics and norm, each []."""
        stopped = experience.rollout.mask.new_zeros(())
        if self.static and loss_of is ppo.minibatch_loss and recordable(state.policy) and serves(state, experience):
            whole, rates = cells(experience), tuple(group["lr"] for group in state.optimizer.param_groups)
            shape = *whole["ids"].shape[1:], *whole["responses"].shape[1:], "bits" in whole
            # a StaticSteps holds its state, so that no other one can come by its id
            alike = (*shape, id(state), rates, repr(config), dataclasses.astuple(experience.rollout.sampling))
            if any(key[1:] != alike for key in self.recorded):
                self.recorded.clear()  # memory of what was left behind

            def recorded(rows: Tensor) -> dict[str, Tensor]:
                key = (len(rows), *alike)
                if key not in self.recorded:
                    self.recorded[key] = StaticSteps(state, experience, len(rows), config)
                return self.recorded[key](whole, rows, stopped)

            return recorded

        def written(rows: Tensor) -> dict[str, Tensor]:
            loss, metrics = loss_of(state, take(experience, rows), config)
            norm = guarded_step(state, loss, config.max_grad_norm, stopped)
            return {"loss": loss.detach(), **metrics, "policy/gradient_norm": norm}

        return written


def recordable(model: nn.Module) -> bool:
    """Whether ``static.StaticDecoder`` serves a model: causal, with sdpa attention over all that came before."""
    config = model.config
    window = getattr(config, "sliding_window", None) or "sliding_attention" in (getattr(config, "layer_types", 0) or ())
    return not config.is_encoder_decoder and config._attn_implementation == "sdpa" and not window
