"""Temporal-difference targets and target networks: tensors in, tensors out; no settings.

y = R_n + gamma^n max_a' Q_target(s', a')   (Watkins 1989; n steps: Sutton & Barto 2018, section 7.1)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlnlp.types import expect


def n_step_returns(rewards: Tensor, gamma: float) -> Tensor:
    """Sum over k of gamma^k r_{t+k}, [N], of the next n rewards [N, n], which are zero after an episode's end."""
    powers = float(gamma) ** torch.arange(rewards.shape[1], device=rewards.device, dtype=rewards.dtype)
    return (rewards * powers).sum(1)


def chosen(q: Tensor, tokens: Tensor) -> Tensor:
    """Of values ``q`` [N, V], those [N] of ``tokens`` [N]."""
    return q.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def best_value(q: Tensor, chooser: Tensor | None = None) -> Tensor:
    """max over tokens of ``q`` [N, V], -inf where a token may not be chosen; [N], reward units.

    chooser  [N, V] values that choose the token ``q`` then judges: the online network's in double Q-learning (van
    Hasselt
             et al. 2016, arXiv:1509.06461), which keeps one network's noise from being both chosen and believed.
    chooser = q is the plain maximum; a token at -inf in ``chooser`` is never chosen unless all are.
    """
    return q.max(-1).values if chooser is None else chosen(q, chooser.argmax(-1))


def targets(returns: Tensor, discounts: Tensor, best: Tensor) -> Tensor:
    """y [N] = returns + discounts best; where ``discounts`` is 0 the episode has ended and ``best`` is not read."""
    expect(discounts=(discounts, tuple(returns.shape)), best=(best, tuple(returns.shape)))
    return returns + discounts * best


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move every weight of ``target`` a share ``tau`` of the way to ``source``: target <- (1 - tau) target + tau source
    (Lillicrap et al. 2016, arXiv:1509.02971). tau = 1 copies."""
    for mine, theirs in zip(target.parameters(), source.parameters(), strict=True):
        mine.lerp_(theirs, tau)


def td_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Mean over N of (y - Q(s, a))^2, y taken as a constant; Mnih et al. 2015, eq. 2 of its methods."""
    return ((targets.detach() - values) ** 2).mean()
