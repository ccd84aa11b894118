"""Samplers: rules that say which tokens may be chosen next.

A sampler is a function ``(logits [B, V], state) -> (logits [B, V], allowed [B, V] bool, state)``. ``logits`` come back
unchanged and unmasked (temperature is a setting of the rollout, ``types.Sampling``, because it is scored too);
``allowed`` always keeps at least one token; ``state`` is None for a rule without memory. A rule applied to an older copy of the policy is NLPO's mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Sampler = Callable[[Tensor, Any], tuple[Tensor, Tensor, Any]]


def none() -> Sampler:
    """Ancestral sampling: every token is allowed."""
    return lambda logits, state=None: (logits, torch.ones_like(logits, dtype=torch.bool), state)


def top_k(k: int) -> Sampler:
    """The k most probable tokens (Fan et al. 2018, arXiv:1805.04833); all tokens tied with the k-th are kept too.

    k >= V keeps everything; k = 1 is greedy. Raises ValueError if k < 1.
    """
    if k < 1:
        raise ValueError(f"top_k: expected >= 1, got {k}")

    def rule(logits: Tensor, state=None):
        kth = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
        return logits, logits >= kth, state

    return rule


def _check_mass(p: float, min_tokens_to_keep: int) -> None:
    if not 0 < p <= 1:
        raise ValueError(f"top_p: expected 0 < p <= 1, got {p}")
    if min_tokens_to_keep < 1:
        raise ValueError(f"min_tokens_to_keep: expected >= 1, got {min_tokens_to_keep}")


def top_p(p: float, min_tokens_to_keep: int = 1) -> Sampler:
    """The smallest set of most probable tokens whose mass reaches p (Holtzman et al. 2020, arXiv:1904.09751).

    p in (0, 1]; p = 1 keeps everything, p near 0 keeps ``min_tokens_to_keep``. Equal to transformers' TopPLogitsWarper.
    RL4LMs keeps at least 100 tokens by default, which makes a sweep over small p no sweep at all; the default here is 1.
    """
    _check_mass(p, min_tokens_to_keep)

    def rule(logits: Tensor, state=None):
        ordered, order = logits.sort(dim=-1, descending=False, stable=True)
        # Mass of a token and everything less probable; at p = 1 nothing may fall to a rounded cumulative sum.
        removed = (ordered.softmax(-1).cumsum(-1) <= 1 - p) & (p < 1)
        removed[..., -min_tokens_to_keep:] = False
        return logits, ~torch.zeros_like(removed).scatter_(-1, order, removed), state

    return rule


def random_mass(p: float, generator: torch.Generator, min_tokens_to_keep: int = 1) -> Sampler:
    """Tokens in random order until their mass reaches p: what top-p keeps without its choice of the probable ones.

    The control for a mask that carries information. ``generator`` is a CPU generator; a call takes B x V numbers of it.
    p in (0, 1]; p = 1 keeps everything. Raises ``ValueError`` as ``top_p``.
    """
    _check_mass(p, min_tokens_to_keep)

    def rule(logits: Tensor, state=None):
        order = torch.rand(logits.shape, generator=generator).argsort(-1).to(logits.device)
        mass = logits.softmax(-1).gather(-1, order)
        kept = (mass.cumsum(-1) - mass < p) | (p == 1)  # the mass before a token has not reached p yet
        kept[..., :min_tokens_to_keep] = True
        return logits, torch.zeros_like(kept).scatter_(-1, order, kept), state

    return rule


def chain(*rules: Sampler) -> Sampler:
    """Apply rules in turn, each to the distribution the ones before it left; a token must be allowed by all."""

    def rule(logits: Tensor, states=None):
        states = list(states or [None] * len(rules))
        allowed = torch.ones_like(logits, dtype=torch.bool)
        for i, one in enumerate(rules):
            logits, kept, states[i] = one(logits.masked_fill(~allowed, -torch.inf), states[i])
            allowed = allowed & kept
        return logits, allowed, states if any(state is not None for state in states) else None

    return rule


def truncation(top_k_tokens: int = 0, top_p_mass: float = 1.0) -> Sampler | None:
    """The truncation that settings describe: top-k, then top-p of what is left; None where both are off (0 and 1)."""
    rules = ([top_k(top_k_tokens)] if top_k_tokens else []) + ([top_p(top_p_mass)] if top_p_mass < 1 else [])
    return None if not rules else rules[0] if len(rules) == 1 else chain(*rules)
