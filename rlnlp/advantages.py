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


def rewards_to_go(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """What still comes, discounted: G_t = r_t + gamma G_{t+1}, [B, T] in reward units; zero outside ``mask``."""
    return gae(rewards, torch.zeros_like(rewards), mask, gamma, 1.0)


def _groups(values: Tensor, group: int) -> Tensor:
    if group < 2 or len(values) % group:
        raise ValueError(f"group: expected at least 2, and rows in whole groups, got {len(values)} rows in groups of {group}")
    return values.unflatten(0, (-1, group))


def leave_one_out(values: Tensor, group: int) -> Tensor:
    """Each row minus the mean of the other rows of its group, Kool et al. 2019 ("Buy 4 REINFORCE samples").

    A_i = R_i - sum_{j != i} R_j / (K - 1)

    values   [B] or [B, T]  reward units; rows in groups of ``group`` = K, as ``rollout.repeat`` lays them out
    Returns  of the same shape; it sums to 0 over a group
    Raises   ValueError  for a group of one, and where B is not a multiple of K
    The baseline of a row does not depend on that row, so it adds no bias. A_i = K / (K - 1) (R_i - mean of the group).
    """
    grouped = _groups(values, group)
    others = (grouped.sum(1, keepdim=True) - grouped) / (group - 1)
    return (grouped - others).flatten(0, 1)


def group_relative(scores: Tensor, group: int, normalise: bool) -> Tensor:
    """Each score minus the mean of its group and, with ``normalise``, over its deviation; Shao et al. 2024
    (arXiv:2402.03300), section 4.1.

    A_i = (R_i - mean R) / (std R + 1e-6)

    scores   [B]  reward units; rows in groups of ``group`` = K, as ``rollout.repeat`` lays them out
    Returns  [B]  reward units, or standard deviations (unbiased variance) with ``normalise``
    Raises   ValueError  for a group of one, and where B is not a multiple of K
    The mean holds the row itself, so that the gradient is (K - 1) / K of the true one; the division weights prompts by
    1 / std, which no constant undoes. A group of equal scores gives exactly 0, in both.
    """
    grouped = _groups(scores, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    flat = grouped.amax(1, keepdim=True) == grouped.amin(1, keepdim=True)  # a rounded mean over a rounded std is not 0
    if normalise:
        centred = centred / (grouped.std(1, keepdim=True) + 1e-6)
    return centred.masked_fill(flat, 0.0).flatten()
