"""Supervised fine-tuning at scale: the warm start of the benchmark's reinforcement learning, and its rival.

Maximum likelihood of every reference of every prompt, teacher-forced, padding masked: loss = mean over the batch's real
response tokens of -log p. AdamW with warm-up and a schedule; what is kept is the best by loss on validation references.
``rlnlp.learners.supervised`` is the algorithm to read: first references only, a constant rate, the last weights.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from tqdm.auto import tqdm

from rlnlp.checkpoint import pack, unpack
from rlnlp.losses import cross_entropy
from rlnlp.models import head, hidden_states
from rlnlp.rollout import batch_of, from_references, sampling_from, trim
from rlnlp.settings import Settings
from rlnlp.types import Prompts, Rollout, stream, take
from workbook.draws.training import TrainingError, adamw
from workbook.draws.training import learning_rate as cosine
from workbook.store.states import load_state, save_state

SAVE_EVERY_S = 20.0


class Config(Settings):
    epochs: float = Field(10.0, ge=0, le=1e4, description="passes over all (prompt, reference) pairs")
    batch_size: int = Field(32, ge=1, le=10**5, description="pairs per optimiser step; paper 16 to 64 by task")
    learning_rate: float = Field(2e-3, gt=0, le=1, description="AdamW peak; T5-base 1e-5 to 1e-4 in the paper")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="after the warm-up: to 2 % of the peak, or")
    warmup_fraction: float = Field(0.05, ge=0, lt=1, description="share of the steps with linear warm-up")
    weight_decay: float = Field(0.01, ge=0, le=1e3, description="AdamW, on matrices only")
    max_grad_norm: float = Field(1.0, gt=0, le=1e6, description="L2 norm at which gradients are clipped")
    dropout: bool = Field(False, description="the model's own dropout is on in training")


@dataclasses.dataclass
class Tuning:
    """What training changes: the model, its best weights so far and when they were found, the optimiser, the step."""

    model: nn.Module
    best: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    best_step: int = 0


def pairs(prompts: Prompts) -> Prompts:
    """Each prompt once for each of its references, that being its only one. Raises ``ValueError`` naming the example
    without any."""
    for name, references in zip(prompts.example_ids, prompts.references, strict=True):
        if not references:
            raise ValueError(f"supervised: example {name} has no reference to imitate")
    rows = [row for row, references in enumerate(prompts.references) for _ in references]
    single = [[reference] for references in prompts.references for reference in references]
    return dataclasses.replace(take(prompts, torch.tensor(rows)), references=single)


def loss_of(model, rollout: Rollout) -> Tensor:
    """Mean negative log-likelihood in nats of the real response tokens."""
    rollout = trim(rollout)
    logits = head(model, hidden_states(model, rollout)[rollout.mask]).float()
    return cross_entropy(logits, rollout.responses[rollout.mask])


@torch.no_grad()
def held_out(model, tokenizer, prompts: Prompts, max_new_tokens: int, batch_size: int = 128) -> float:
    """Nats per token of all references under the model, as a mean over tokens, not over batches."""
    every, sampling, total, tokens = pairs(prompts), sampling_from(model, max_new_tokens), 0.0, 0
    for rows in torch.arange(len(every)).split(batch_size):
        rollout = from_references(take(every, rows), tokenizer, sampling)
        count = int(rollout.mask.sum())
        total, tokens = total + loss_of(model, rollout).item() * count, tokens + count
    return total / tokens


def rate(config: Config, step: int, steps: int) -> float:
    """Learning rate of a step, 0 to steps - 1."""
    if config.schedule == "cosine":
        return cosine(step, steps, config.learning_rate, config.warmup_fraction)
    return config.learning_rate * min(1.0, (step + 1) / max(1.0, config.warmup_fraction * steps))


def steps_of(config: Config, prompts: Prompts) -> tuple[int, int]:
    """(optimiser steps of all epochs, those between two looks at the validation references: one epoch)."""
    count = sum(map(len, prompts.references))
    return round(config.epochs * count / config.batch_size), max(1, math.ceil(count / config.batch_size))


def fine_tune(
    model,
    tokenizer,
    train: Prompts,
    validation: Prompts,
    config: Config,
    max_new_tokens: int,
    seed: int,
    states: str | Path | None = None,
    steps: int | None = None,
    save_every_s: float = SAVE_EVERY_S,
    progress: str = "",
):
    """(the best weights by validation loss, in evaluation mode; the curve).

    The model as given counts as a candidate: what imitation only spoils is returned as it was. Batches depend on seed
    and step alone. steps: instead of ``config.epochs``. states: folder from whose state a kill continues, digit for
    digit on one CPU thread. progress: what its bar says, empty = none is shown. Curve: step, train (mean nats per token
    since the entry before; the first entry has none) and validation loss, per epoch. Raises ``TrainingError`` naming
    the step whose loss is not finite; ``ValueError`` for an example without references.
    """
    every, sampling = pairs(train), sampling_from(model, max_new_tokens)
    planned, look = steps_of(config, train)
    steps = planned if steps is None else steps
    state = Tuning(model.eval(), copy.deepcopy(model).eval(), adamw(model, config))
    known = {"curve": [], "best": math.inf, "summed": 0.0, "since": 0}
    if states and (saved := load_state(states)):
        unpack(state, saved[0], saved[1].pop("numbers"))
        known = saved[1]
    if not known["curve"]:
        known["best"] = held_out(model, tokenizer, validation, max_new_tokens)
        known["curve"].append({"step": 0, "validation": known["best"]})
    saved_at = time.monotonic()
    bar = {"desc": progress, "unit": "step", "disable": not progress}
    for _ in tqdm(range(state.step, steps), total=steps, initial=state.step, **bar):
        batch = from_references(batch_of(every, config.batch_size, seed, state.step), tokenizer, sampling)
        known["summed"] += _step(state, batch, config, rate(config, state.step, steps), seed)
        state.step, known["since"] = state.step + 1, known["since"] + 1
        if state.step % look == 0 or state.step == steps:
            _look(state, known, held_out(model, tokenizer, validation, max_new_tokens))
        if states and time.monotonic() - saved_at > save_every_s:
            tensors, numbers = pack(state)
            save_state(states, tensors, {**known, "numbers": numbers})
            saved_at = time.monotonic()
    return state.best, known["curve"]


def _step(state: Tuning, batch: Rollout, config: Config, rate: float, seed: int) -> float:
    """One optimiser step; returns its loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "dropout", state.step))
        state.model.train(config.dropout)
        loss = loss_of(state.model, batch)
        state.model.eval()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(state.model.parameters(), config.max_grad_norm)
    if not math.isfinite(loss.item() + 0.0 * norm.item()):
        raise TrainingError(f"supervised: loss or gradient is not finite at step {state.step}; a lower learning_rate")
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    return loss.item()


def _look(state: Tuning, known: dict, validation: float) -> None:
    """One entry of the curve; the weights are kept where they are the best so far."""
    known["curve"].append({"step": state.step, "train": known["summed"] / known["since"], "validation": validation})
    known["summed"], known["since"] = 0.0, 0
    if validation < known["best"]:
        known["best"], state.best_step = validation, state.step
        state.best.load_state_dict(state.model.state_dict())
