"""Losses of the learners: tensors over N real tokens in, a scalar and diagnostics out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean negative log-likelihood in nats per token of ``tokens`` [N] under ``logits`` [N, V]."""
    return nn.functional.cross_entropy(logits, tokens)


def policy_gradient(logprobs: Tensor, advantages: Tensor, count: int | None = None) -> Tensor:
    """The loss whose gradient is the policy gradient, Williams 1992 ("Simple statistical gradient-following
    algorithms").

    L = -sum_n A_n log pi(a_n | s_n) / count

    logprobs    [N]  nats, of the distribution that was sampled from
    advantages  [N]  reward units, constants
    count       what the sum is divided by; None = N. N depends on the responses that were drawn: where they differ in
                length only a constant keeps the mean over rollouts proportional to the gradient of the expected return
    """
    return -(logprobs * advantages).sum() / (len(logprobs) if count is None else count)


def ppo_clip(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate, Schulman et al. 2017 (arXiv:1707.06347), eq. 7, negated.

    L = -mean min(ratio A, clip(ratio, 1 - clip, 1 + clip) A),   ratio = exp(logprobs - old_logprobs)

    All [N], nats and reward units; both log-probabilities are of the distribution that was sampled from.
    At ratio 1 its gradient is the policy gradient; clip = inf gives the unclipped surrogate.
    Diagnostics: ``ratio`` [N]; ``clip_fraction``, the share of tokens with |ratio - 1| > clip; ``approx_kl``, the mean
    of ratio - 1 - log ratio in nats, a non-negative estimate of KL(old || new).
    """
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    with torch.no_grad():
        diagnostics = {
            "ratio": ratio.detach(),
            "clip_fraction": ((ratio - 1).abs() > clip).float().mean(),
            "approx_kl": (torch.expm1(log_ratio) - log_ratio).mean(),
        }
    return loss, diagnostics


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Mean squared error of the value estimates [N]; no factor 1/2, as in RL4LMs.

    clip > 0 also bounds how far a value may move from its old one and keeps the larger error (Schulman's code);
    clip = 0 is plain mean squared error.
    """
    error = (values - returns) ** 2
    if clip:
        bounded = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.max(error, (bounded - returns) ** 2)
    return error.mean()


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy in nats of the distributions ``logits`` [N, V]; -inf entries have no mass and no gradient."""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == -torch.inf, 0.0)).sum(-1).mean()


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over N tokens; 1 is perfect, 0 a constant guess.

    Constant returns leave nothing to explain: 0."""
    variance = returns.var(unbiased=False)
    return 0.0 if variance == 0 else float(1 - (returns - values).var(unbiased=False) / variance)
