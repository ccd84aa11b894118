"""From scores and KL to rewards per token, from those to advantages, and from these to the losses of the learners.

Tensors in, tensors out; no models, no settings. [B, T]: a batch of responses; [N]: their real tokens.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from rlnlp.types import expect

ROUNDING = 1e-6  # of rewards of size 1: what float32 sums of a rollout's tokens are off by, several times over


def kl_estimate(*, logprobs: Tensor, ref_logprobs: Tensor, kind: Literal["k1", "k2", "k3"] = "k1") -> Tensor:
    """Estimate KL(policy || reference) at each token from the one token sampled; Schulman 2020, "Approximating KL".

        l = log pi(a|s) - log pi_ref(a|s);   k1 = l;   k2 = l^2 / 2;   k3 = exp(-l) - 1 + l

    logprobs      [B, T] float   nats, of sampled tokens under the bare policy (no temperature, no mask)
    ref_logprobs  [B, T] float   nats, of the same tokens under the reference
    Returns       [B, T] float   nats; k1 may be negative, k2 and k3 are not; zero where both are zero (padding)
    Raises        ValueError     shapes differ, not finite, or an unknown kind
    Tokens must come from the policy: k1 and k3 are then unbiased, k2 is not. Sampled under a mask or a temperature,
    none is. Equal models give 0; for close models all three have nearly the same mean. k3 overflows float32 at l < -88.
    RL4LMs and TRL penalise k1. Keyword only: swapped arguments change the sign and nothing else would tell.
    """
    expect(logprobs=(logprobs, tuple(ref_logprobs.shape)), ref_logprobs=(ref_logprobs, tuple(logprobs.shape)))
    estimates = {"k1": lambda x: x, "k2": lambda x: x.square() / 2, "k3": lambda x: torch.expm1(-x) + x}
    if kind not in estimates:
        raise ValueError(f"kind: expected k1, k2 or k3, got {kind!r}")
    return estimates[kind](logprobs - ref_logprobs)


class KLCoefficient:
    """beta, the weight of the KL penalty; with a ``target`` it steers the KL there (Ziegler et al. 2019, section 2.2).

        beta <- beta (1 + gain clip((KL - target) / target, -0.2, 0.2)),   once per update

    coef    reward units per nat, >= 0; with a target the start value, > 0 (a product never leaves 0)
    target  nats per token, the mean over the rollout's tokens; 0 = beta stays. (Ziegler's KL is per episode: to use his
            targets, divide them by the response length.) RL4LMs ships 1 to 3, seldom reached: there beta only decays
    gain    relative step, in (0, 1]; RL4LMs' code 0.1, its paper's text 0.2. At most a factor 7.2 up or 7.5 down in 100
            updates at 0.1
    All that a resume needs is ``coef``.
    """

    def __init__(self, coef: float, target: float = 0.0, gain: float = 0.1):
        self.coef, self.target, self.gain = float(coef), target, gain

    def update(self, kl: float) -> float:
        """Adapt to ``kl``, the mean KL of the update's rollout in nats per token; returns the new beta."""
        if self.target:
            self.coef *= 1 + self.gain * min(max((kl - self.target) / self.target, -0.2), 0.2)
        return self.coef


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """One reward per token: the score at the end, minus the KL penalty at each token; Ziegler et al. 2019, eq. 2.

        r_t = [t is the last real token] score - kl_coef kl_t,   or   score_t - kl_coef kl_t

    scores   [B] float     reward units, paid at EOS or at the cut at T alike; or [B, T], paid token by token: what is
                           outside ``mask`` is then not paid
    kl       [B, T] float  nats, from ``kl_estimate``
    mask     [B, T] bool   real tokens, True cells first
    kl_coef  float         reward units per nat, >= 0
    Returns  [B, T] float  zero outside mask; a row sums to (sum of its) score - kl_coef sum(kl)
    Raises   ValueError    shapes differ, not finite, mask not right padded, or a response without a token
    kl_coef = 0 leaves the score alone; score = 0 leaves the penalty. RL4LMs pays nothing where generation stopped
    short of the episode length without EOS; here every response is paid.
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: expected bool, got {mask.dtype}")
    B, T = mask.shape
    if scores.shape not in ((B,), (B, T)):
        raise ValueError(f"scores: expected shape ({B},) or ({B}, {T}), got {tuple(scores.shape)}")
    if not 0 <= kl_coef < float("inf"):
        raise ValueError(f"kl_coef: expected >= 0 and finite, got {kl_coef}")
    lengths = mask.sum(1)
    if not (lengths > 0).all():
        raise ValueError(f"mask: row {int((lengths == 0).nonzero()[0])} has no real token: no place to pay its score")
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError("mask: responses must be right padded (True cells first)")
    scores = scores if scores.dim() == 1 else scores.masked_fill(~mask, 0.0)
    expect(scores=(scores, tuple(scores.shape)), kl=(kl, (B, T)))
    rewards = (-kl_coef * kl).masked_fill(~mask, 0.0)
    if scores.dim() == 2:
        return rewards + scores
    return rewards.scatter_add(1, (lengths - 1).unsqueeze(1), scores.to(kl.dtype).unsqueeze(1))


def per_response(scores: Tensor, mask: Tensor) -> Tensor:
    """One number per response [B] of a score [B] or [B, T]: the score itself, or its sum over real tokens."""
    return scores if scores.dim() == 1 else scores.masked_fill(~mask, 0.0).sum(1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens (a scalar, same unit as ``values``); 0 if there is none."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def whiten(values: Tensor, mask: Tensor, of: Tensor | None = None) -> Tensor:
    """(values - mean) / (standard deviation + 1e-8) over real tokens, unbiased variance; zero elsewhere.

    Mean and variance read real tokens only: over padding too (as trlx does) a token's sign depends on its neighbours'
    lengths. A single real token gives 0. So do values that are equal but for rounding (``nothing_but_rounding``), which
    would else come out as large as any others. of: what they are differences of, of the same shape; None = themselves.
    """
    count, mean = mask.sum(), masked_mean(values, mask)
    spread = ((((values - mean) ** 2) * mask).sum() / (count - 1).clamp(min=1)).sqrt()
    flat = nothing_but_rounding(spread, (values if of is None else of) * mask)
    return ((values - mean) / (spread + 1e-8) * mask).masked_fill(flat, 0.0)


def nothing_but_rounding(size: Tensor, values: Tensor) -> Tensor:
    """Whether ``size`` [], of something computed from ``values``, is no more than float32 loses in computing it: []
    bool."""
    return size <= ROUNDING * torch.cat([values.abs().flatten(), values.new_ones(1)]).amax()


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates, Schulman et al. 2016 (arXiv:1506.02438), eq. 16.

    A_t = delta_t + gamma lam A_{t+1},   delta_t = r_t + gamma V_{t+1} - V_t

    V is 0 after the last real token: the text MDP ends at EOS or at the horizon T, so nothing is bootstrapped.

    rewards    [B, T] float   reward units; KL penalty already subtracted
    values     [B, T] float   V(s_t), same units
    mask       [B, T] bool    real tokens; nothing is read or written outside it
    Returns    [B, T] float   zero outside mask
    Raises     ValueError     if shapes differ
    lam = gamma = 1 gives (reward to go) - V; lam = 0 gives delta.
    Unlike trlx it does not whiten; unlike TRL the score is on the last token, not one after it.
    """
    B, T = rewards.shape
    expect(values=(values, (B, T)), mask=(mask, (B, T)))
    following, running, advantages = rewards.new_zeros(B), rewards.new_zeros(B), torch.zeros_like(rewards)
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
        raise ValueError(
            f"group: expected at least 2, and rows in whole groups, got {len(values)} rows in groups of {group}"
        )
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


def ppo_clip(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate, Schulman et al. 2017 (arXiv:1707.06347), eq. 7, negated.

    L = -mean min(ratio A, clip(ratio, 1 - clip, 1 + clip) A),   ratio = exp(logprobs - old)

    All [N], nats and reward units; both log-probabilities are of the distribution that was sampled from.
    At ratio 1 its gradient is the policy gradient; clip = inf gives the unclipped surrogate.
    Beside the loss, scalars: ``policy/clip_fraction``, the share of tokens with |ratio - 1| > clip;
    ``policy/approx_kl``, the mean of ratio - 1 - log ratio in nats, a non-negative estimate of KL(old || new);
    ``policy/ratio_error``, the largest |ratio - 1|.
    """
    log_ratio = logprobs - old
    ratio = log_ratio.exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    with torch.no_grad():
        metrics = {
            "policy/clip_fraction": ((ratio - 1).abs() > clip).float().mean(),
            "policy/approx_kl": (torch.expm1(log_ratio) - log_ratio).mean(),
            "policy/ratio_error": (ratio - 1).abs().max(),
        }
    return loss, metrics


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
