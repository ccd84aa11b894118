"""Advantages and masked statistics: tensors in, tensors out; no models, no settings."""

from __future__ import annotations

import torch
from torch import Tensor

from .types import expect


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens (a scalar, same unit as ``values``); 0 if there is none."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(values - mean) / (standard deviation + 1e-8) over real tokens, unbiased variance; zero elsewhere.

    Mean and variance read real tokens only: over padding too (as trlx does) a token's sign depends on its neighbours'
    lengths. A single real token gives 0.
    """
    count, mean = mask.sum(), masked_mean(values, mask)
    variance = (((values - mean) ** 2) * mask).sum() / (count - 1).clamp(min=1)
    return (values - mean) / (variance.sqrt() + 1e-8) * mask


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float, bootstrap: Tensor | None = None) -> Tensor:
    """Generalised advantage estimates, Schulman et al. 2016 (arXiv:1506.02438), eq. 16.

    A_t = delta_t + gamma lam A_{t+1},   delta_t = r_t + gamma V_{t+1} - V_t

    rewards    [B, T] float   reward units; KL penalty already subtracted
    values     [B, T] float   V(s_t), same units
    mask       [B, T] bool    real tokens; nothing is read or written outside it
    bootstrap  [B] float      V after the last real token; None = 0: the text MDP ends at EOS or at the horizon T
    Returns    [B, T] float   zero outside mask
    Raises     ValueError     if shapes differ
    lam = gamma = 1 gives (reward to go) - V; lam = 0 gives delta.
    Unlike trlx it does not whiten; unlike TRL the score is on the last token, not one after it.
    """
    B, T = rewards.shape
    expect(values=(values, (B, T)), mask=(mask, (B, T)))
    following = rewards.new_zeros(B) if bootstrap is None else bootstrap
    running = rewards.new_zeros(B)
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(T)):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * following - values[:, t]
        running = torch.where(real, delta + gamma * lam * running, running)
        following = torch.where(real, values[:, t], following)
        advantages[:, t] = running * real
    return advantages
