"""Samplers: rules that say which tokens may be chosen next.

A sampler is a function ``(logits [B, V], state) -> (logits [B, V], allowed [B, V] bool, state)``. ``logits`` come back
unchanged and unmasked (temperature is a setting of the rollout, ``types.Sampling``, because it is scored too);
``allowed`` always keeps at least one token; ``state`` is None for a rule without memory, else it has an ``observe``,
which is told the tokens [B] drawn and returns the state. A rule applied to an older copy of the policy is NLPO's mask.
What truncates by top-k and top-p alone says so (``parts``), and what draws random numbers of its own (``random``).
Tokens that are equally probable are kept or cut together, except by top-p and the random mask. A new rule is a
function and an entry in ``RULES``.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlnlp.types import Sampler


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

    rule.parts = (("top_k", k),)
    return rule


def _check_mass(p: float, min_tokens_to_keep: int) -> None:
    if not 0 < p <= 1:
        raise ValueError(f"top_p: expected 0 < p <= 1, got {p}")
    if min_tokens_to_keep < 1:
        raise ValueError(f"min_tokens_to_keep: expected >= 1, got {min_tokens_to_keep}")


def _ascending(logits: Tensor) -> Tensor:
    """[..., V] sorted. numpy's sort moves values alone and uses the processor's vectors: of 64 rows of 16,000 in a
    nineteenth of the time that torch's takes on a CPU, which sorts places too."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.sort(logits.detach().numpy()))
    return logits.sort(dim=-1).values


def top_p(p: float, min_tokens_to_keep: int = 1) -> Sampler:
    """The smallest set of most probable tokens whose mass reaches p (Holtzman et al. 2020, arXiv:1904.09751).

    p in (0, 1]; p = 1 keeps everything, p near 0 keeps ``min_tokens_to_keep``. Of tokens that are equally probable
    where it cuts, those with the larger ids are kept. Equal to transformers' TopPLogitsWarper. RL4LMs keeps at least
    100 tokens by default, which makes a sweep over small p no sweep at all; the default here is 1.
    """
    _check_mass(p, min_tokens_to_keep)

    def rule(logits: Tensor, state=None):
        if p == 1:  # nothing may fall to a rounded cumulative sum
            return logits, torch.ones_like(logits, dtype=torch.bool), state
        ordered = _ascending(logits)
        removed = ordered.softmax(-1).cumsum(-1) <= 1 - p  # mass of a token and everything less probable
        removed[..., -min_tokens_to_keep:] = False
        cut = removed.sum(-1, keepdim=True)
        least = ordered.gather(-1, cut)
        left = ~(logits < least)
        over = left.sum(-1, keepdim=True) + cut - logits.shape[-1]  # tokens as probable as the least, and too many
        if over.any():
            tied = logits == least
            left &= ~(tied & (tied.cumsum(-1) <= over))
        return logits, left, state

    rule.parts = (("top_p", p, min_tokens_to_keep),)
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

    rule.random = True
    return rule


def min_p(share: float) -> Sampler:
    """Tokens at least ``share`` times as probable as the most probable one (Nguyen et al. 2024, arXiv:2407.01082).

    {x: p(x) >= share * max p}, share in [0, 1]; 0 keeps everything, 1 the most probable. Equal to transformers'.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"min_p: expected 0 <= share <= 1, got {share}")

    def rule(logits: Tensor, state=None):
        probabilities = logits.softmax(-1)
        return logits, probabilities >= share * probabilities.amax(-1, keepdim=True), state

    return rule


def _surprise(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(-log p [B, V], entropy [B, 1]) in nats; a token without mass adds nothing to the entropy (0 log 0 = 0)."""
    surprise = -logits.log_softmax(-1)
    return surprise, (surprise * (-surprise).exp()).nansum(-1, keepdim=True)


def typical(p: float) -> Sampler:
    """The tokens whose surprise is closest to the entropy, until their mass reaches p (Meister et al. 2022,
    arXiv:2202.00666).

    Sorted by |h + log p(x)|, the shortest prefix with mass >= p, and what is tied with its last token. p in (0, 1]; 1
    keeps everything, near 0 the most typical token, which need not be the most probable one: the one rule that can
    cut that. Equal to transformers' (which refuses 1).
    """
    if not 0 < p <= 1:
        raise ValueError(f"typical: expected 0 < p <= 1, got {p}")

    def rule(logits: Tensor, state=None):
        surprise, entropy = _surprise(logits)
        distance = (surprise - entropy).abs()
        ordered, order = distance.sort(dim=-1, stable=True)
        short = logits.gather(-1, order).softmax(-1).cumsum(-1) < p
        last = short.sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
        return logits, (distance <= ordered.gather(-1, last)) | (p == 1), state

    return rule


def _above(logits: Tensor, threshold: Tensor | float) -> Tensor:
    """Tokens more probable than ``threshold`` ([B, 1] or one number), and always the most probable."""
    return (logits.softmax(-1) > threshold) | (logits == logits.amax(-1, keepdim=True))


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name}: expected 0 <= epsilon < 1, because no token is more probable than 1, got {value}")


def epsilon(threshold: float) -> Sampler:
    """Tokens more probable than epsilon, and always the most probable (Hewitt et al. 2022, arXiv:2210.15191).

    {x: p(x) > epsilon}; 0 keeps all that has mass, near 1 is greedy. transformers keeps p = epsilon too.
    At most V epsilon of the mass is cut.
    """
    _check_probability("epsilon", threshold)
    return lambda logits, state=None: (logits, _above(logits, threshold), state)


def eta(threshold: float) -> Sampler:
    """Epsilon sampling whose threshold falls with the entropy h, in nats (Hewitt et al. 2022, arXiv:2210.15191).

    {x: p(x) > min(epsilon, alpha exp(-h))} with alpha = sqrt(epsilon) and ``threshold`` = epsilon, and always the most
    probable. 0 keeps all that has mass; at h < -0.5 log epsilon it is epsilon sampling. transformers keeps p = eta too.
    """
    _check_probability("eta", threshold)

    def rule(logits: Tensor, state=None):
        _, entropy = _surprise(logits)
        return logits, _above(logits, (math.sqrt(threshold) * (-entropy).exp()).clamp(max=threshold)), state

    return rule


@dataclasses.dataclass(frozen=True)
class Feedback:
    """What mirostat remembers between two tokens: mu [B] bits, and the distribution it saw last (logits [B, V])."""

    mu: Tensor
    logits: Tensor
    tau: float
    learning_rate: float

    def observe(self, tokens: Tensor) -> Feedback:
        """mu <- mu - learning_rate (surprise - tau) with the surprise in bits of the ``tokens`` [B] drawn."""
        logits = self.logits.double()
        logprobs = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
        return dataclasses.replace(self, mu=self.mu - self.learning_rate * (-logprobs / math.log(2) - self.tau))


def mirostat(tau: float, learning_rate: float = 1.0, top: int = 100) -> Sampler:
    """Top-k whose k is steered so that tokens surprise by ``tau`` bits on average (Basu et al. 2021, arXiv:2007.14966).

    k = (e 2^mu / (1 - N^-e))^(1/s), e = s - 1, rounded, from 1 to N; mu starts at 2 tau and follows
    ``Feedback.observe``. s is Zipf's exponent by least squares on the gaps of the ``top`` tokens i = 1, 2, ... by
    probability: s = sum t_i b_i / sum t_i^2, t_i = log((i + 1) / i), b_i = log(p_i / p_(i+1)). N counts the tokens
    that have mass. The surprise is that under the whole distribution the rule saw, not under its top k. One mu per
    row; it is not bounded. tau > 0; near 0 is greedy, above log2 V in the end keeps everything. At e = 0 the fraction
    is its limit, 1 / log N. The authors' program keeps one token more than k and estimates s on 3,000 gaps; the paper
    says k and 100 tokens. The formula in the CS224N report has another sign and scope of the exponent.
    """
    if not 0 < tau < math.inf:
        raise ValueError(f"mirostat: expected a finite target > 0 bits, got {tau}")

    def rule(logits: Tensor, state: Feedback | None = None):
        mu = logits.new_full(logits.shape[:1], 2 * tau, dtype=torch.float64) if state is None else state.mu
        ordered = logits.sort(dim=-1, descending=True).values
        n = (logits.softmax(-1) > 0).sum(-1).clamp(min=1)
        head = ordered[:, :top].double()
        rank = torch.arange(1, head.shape[1], dtype=torch.float64, device=logits.device)
        real = rank < n.unsqueeze(1)
        steps = (1 / rank).log1p() * real
        gaps = (head[:, :-1] - head[:, 1:]).masked_fill(~real, 0.0)
        s = (steps * gaps).sum(-1) / steps.square().sum(-1)
        size, e = n.double().log(), s - 1
        fraction = torch.where(e == 0, 1 / size, e / -torch.expm1(-e * size))
        wanted = (fraction.log() + mu * math.log(2)) / s
        k = torch.minimum(wanted.nan_to_num(0.0).clamp(min=0), size).exp().round().long()
        return logits, logits >= ordered.gather(-1, k.unsqueeze(1) - 1), Feedback(mu, logits, tau, learning_rate)

    return rule


class Remembered(list):
    """The states of a chain's rules, None for a rule without memory."""

    def observe(self, tokens: Tensor) -> Remembered:
        return Remembered(None if state is None else state.observe(tokens) for state in self)


def chain(*rules: Sampler) -> Sampler:
    """Apply rules in turn, each to the distribution the ones before it left; a token must be allowed by all. Raises
    ``ValueError`` without a rule."""
    if not rules:
        raise ValueError("chain: expected one rule or more; none() allows every token")

    def rule(logits: Tensor, states=None):
        states, allowed = list(states or [None] * len(rules)), None
        for i, one in enumerate(rules):
            logits, kept, states[i] = one(logits, states[i])
            allowed = kept if allowed is None else allowed & kept
            logits = logits.masked_fill(~allowed, -torch.inf) if i < len(rules) - 1 else logits
        return logits, allowed, Remembered(states) if any(state is not None for state in states) else None

    known = [getattr(one, "parts", ()) for one in rules]
    rule.parts = sum(known, ()) if all(known) else ()
    rule.random = any(getattr(one, "random", False) for one in rules)
    return rule


def _without(value: float) -> Sampler:
    if value != 0:
        raise ValueError(f"none: expected 0, because the rule without a rule has no number, got {value}")
    return none()


def _whole(value: float) -> Sampler:
    if value != math.floor(value):
        raise ValueError(f"top_k: expected a whole number of tokens, got {value}")
    return top_k(int(value))


RULES: dict[str, Callable[[float], Sampler]] = {
    "none": _without,  # 0
    "top_k": _whole,  # tokens
    "top_p": top_p,  # mass
    "min_p": min_p,  # share of the highest probability
    "typical": typical,  # mass
    "epsilon": epsilon,  # probability
    "eta": eta,  # probability
    "mirostat": mirostat,  # bits
}


def named(rule: str, value: float) -> Sampler:
    """The sampler that settings name: a key of ``RULES`` and its one number.

    Raises ``ValueError`` for an unknown name, with the nearest one, and for a number that the rule cannot use, with
    the reason.
    """
    if rule not in RULES:
        near = difflib.get_close_matches(rule, RULES, 1)
        raise ValueError(
            f"sampler {rule!r}: expected one of {', '.join(RULES)}" + (f"; nearest {near[0]}" if near else "")
        )
    if not math.isfinite(value):
        raise ValueError(f"{rule}: expected a finite number, got {value}")
    return RULES[rule](value)


def kept(logits: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """(mass [N], tokens [N] int64): the share of the distribution ``logits`` [N, V] that is ``allowed`` [N, V], and
    how many."""
    return (logits.softmax(-1) * allowed).sum(-1), allowed.sum(-1)
