"""Which tokens a value-based learner may try and may count on: epsilon, random tokens, a sampler's tokens in given
states."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlnlp import models, vocabulary
from rlnlp.rollout import draw
from rlnlp.samplers import Remembered
from rlnlp.types import Rollout, Sampler


def falling(update: int, start: float, end: float, over: int) -> float:
    """From ``start`` at update 0 linearly to ``end`` at update ``over``, then constant; ``over`` = 0 is ``end`` at
    once."""
    return start + (min(1.0, update / over) if over else 1.0) * (end - start)


def exploring(probability: float, greedy: bool, numbers: torch.Generator) -> Sampler:
    """With that probability one uniformly random token of those that can be chosen; else the best one, or all of them.

    Tokens at -inf (not allowed) and those that a limited vocabulary lacks cannot be chosen. ``numbers`` is a CPU
    generator, of which every row takes its own two numbers a step: a state, though there is nothing to remember, keeps
    ended rows in the batch.
    """

    def rule(logits: Tensor, state=None):
        can = logits > vocabulary.ABSENT / 2
        coin, which = torch.rand(2, len(logits), generator=numbers, dtype=torch.float64).to(logits.device)
        random = draw(torch.zeros_like(logits).masked_fill(~can, -torch.inf), which)
        none = torch.zeros_like(can)
        rest = none.scatter(1, logits.argmax(1, keepdim=True), True) if greedy else can
        return (
            logits,
            torch.where((coin < probability).unsqueeze(1), none.scatter(1, random.unsqueeze(1), True), rest),
            Remembered(),
        )

    return rule


@torch.no_grad()
def allowed_at(model: nn.Module, rule: Sampler, episodes: Rollout, rows: Tensor, steps: Tensor) -> Tensor:
    """The tokens [N, V] that ``rule`` allows under ``model`` in the states ``steps`` [N] of the episodes ``rows`` [N].

    A rule with a memory is led through the tokens before those states.
    """
    hidden, sampling = models.hidden_states(model, episodes), episodes.sampling
    logits = models.restrict(models.head(model, hidden[rows, steps]).float(), sampling, steps, None)
    _, allowed, memory = rule(logits, None)
    if memory is None:
        return allowed
    memory = None
    for t in range(int(steps.max()) + 1):
        at = torch.full((len(episodes),), t, device=steps.device)
        logits = models.restrict(models.head(model, hidden[:, t]).float(), sampling, at, None)
        _, now, memory = rule(logits, memory)
        memory = memory.observe(episodes.responses[:, t])
        allowed = torch.where((steps == t).unsqueeze(1), now[rows], allowed)
    return allowed
