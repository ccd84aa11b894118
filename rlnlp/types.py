"""The frozen records that flow between modules, each of which checks itself, and the random streams that all derive
from names.

Shapes: B prompts (episodes), P prompt length (left padded), T response length (right padded), V vocabulary.
``mask`` always means "real token". Everything outside ``mask`` is finite and zero.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record")
Sampler = Callable[[Tensor, Any], tuple[Tensor, Tensor, Any]]  # what a rule is given and returns: see ``samplers``


class NotFinite(ValueError):
    """NaN or an infinity where the models' numbers are read: training has diverged, if it is a model in training."""


def stream(*names: object) -> int:
    """A 63-bit seed for the stream of that name, e.g. ``stream(seed, "rollout", update)``; equal names, equal seed."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:8], "big") >> 1


def generator(*names: object) -> torch.Generator:
    """A CPU generator at the start of the stream of that name."""
    return torch.Generator().manual_seed(stream(*names))


def replaceable(work: Callable) -> Callable:
    """``work(first, ...)``, or ``engine(work, first, ...)`` where ``first`` (a policy, a learner's state) has one: the
    same work by other means (``rlnlp.engine``), of which whoever reads ``work`` need not know."""

    @functools.wraps(work)
    def call(first, *rest, **named):
        return getattr(first, "engine", operator.call)(work, first, *rest, **named)

    return call


def expect(**checks: tuple[Tensor, tuple[int | None, ...]]) -> None:
    """Raise ``ValueError`` naming the first tensor whose shape differs (``None`` matches any size), ``NotFinite``
    naming the first that holds NaN or an infinity."""
    for name, (tensor, shape) in checks.items():
        if tensor.dim() != len(shape) or any(s not in (None, t) for s, t in zip(shape, tensor.shape)):
            raise ValueError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            bad = (~torch.isfinite(tensor)).nonzero()[0].tolist()
            raise NotFinite(f"{name}: not finite at index {bad}: {tensor[tuple(bad)].item()}")


@dataclass(frozen=True)
class Prompts:
    """What episodes start from.

    ids [B, P] int64, left padded; mask [B, P] bool; texts: B strings; references: B lists of reference responses
    (possibly empty); example_ids: B names of the examples; meta: B dicts of whatever the task knows (label, ...).
    """

    ids: Tensor
    mask: Tensor
    texts: list[str]
    references: list[list[str]]
    example_ids: list[str]
    meta: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.meta:
            object.__setattr__(self, "meta", [{} for _ in self.texts])
        B, P = self.ids.shape
        expect(ids=(self.ids, (B, P)), mask=(self.mask, (B, P)))
        for name in ("texts", "references", "example_ids", "meta"):
            if len(getattr(self, name)) != B:
                raise ValueError(f"prompts.{name}: expected {B} entries, got {len(getattr(self, name))}")
        if self.mask.dtype != torch.bool:
            raise ValueError(f"prompts.mask: expected bool, got {self.mask.dtype}")
        if (wrong := (self.mask[:, :-1] & ~self.mask[:, 1:]).any(1) | ~self.mask.any(1)).any():
            row = f"row {int(wrong.nonzero()[0])} ({self.example_ids[int(wrong.nonzero()[0])]})"
            raise ValueError(f"prompts.mask: {row} has padding between its tokens, is not left padded, or is empty")

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Sampling:
    """How response tokens were drawn; scoring reads the same record, so that the two cannot differ.

    temperature divides the logits (> 0); EOS is blocked at the first ``min_new_tokens`` positions.
    """

    eos_id: int
    pad_id: int
    max_new_tokens: int
    temperature: float = 1.0
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("eos_id", "pad_id"):
            if getattr(self, name) < 0:
                raise ValueError(f"sampling.{name}: expected the id of a token, 0 or more, got {getattr(self, name)}")
        if self.temperature <= 0:
            raise ValueError(f"sampling.temperature: expected > 0, got {self.temperature}")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens or self.max_new_tokens < 1:
            raise ValueError(f"sampling: expected 0 <= min_new_tokens <= max_new_tokens >= 1, got {self}")


@dataclass(frozen=True)
class Allowed:
    """Tokens a sampler could choose, one bit each: bits [B, T, ceil(V / 8)] uint8. 19 MB where float32 takes 617."""

    bits: Tensor
    vocabulary: int

    @staticmethod
    def pack(allowed: Tensor) -> Tensor:
        """Booleans [..., V] to bits [..., ceil(V / 8)]; bit j of byte i is token 8 i + j.

        Nothing is copied to the device, so that a CUDA graph can record it.
        """
        padded = torch.nn.functional.pad(allowed, (0, -allowed.shape[-1] % 8)).unflatten(-1, (-1, 8)).to(torch.uint8)
        return (padded << torch.arange(8, dtype=torch.uint8, device=allowed.device)).sum(-1, dtype=torch.uint8)

    def unpack(self, mask: Tensor) -> Tensor:
        """Booleans [N, V] for the N positions where ``mask`` [B, T] holds, row by row."""
        bits = self.bits[mask].unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=mask.device)
        return (bits & 1).bool().flatten(-2)[:, : self.vocabulary]


@dataclass(frozen=True)
class Rollout:
    """One episode per row: a token is a step, a response is an episode.

    responses [B, T] int64; mask [B, T] True up to and including EOS; terminated [B] EOS was emitted (else cut at T);
    behavior_logprobs [B, T] nats under the distribution sampled from (tempered, masked, renormalised);
    logprobs [B, T] nats under the policy at temperature 1 without a mask, EOS blocked as ``sampling`` says, for the KL
    to the reference (``models.score_tokens``);
    sampling: the settings; allowed: tokens the sampler could choose, None = all.
    """

    prompts: Prompts
    responses: Tensor
    mask: Tensor
    terminated: Tensor
    behavior_logprobs: Tensor
    logprobs: Tensor
    sampling: Sampling
    allowed: Allowed | None = None

    def __post_init__(self) -> None:
        B, T = self.responses.shape
        expect(terminated=(self.terminated, (B,)))
        expect(**{name: (getattr(self, name), (B, T)) for name in ("mask", "behavior_logprobs", "logprobs")})
        if len(self.prompts) != B:
            raise ValueError(f"rollout.prompts: expected {B} prompts, got {len(self.prompts)}")
        if (self.mask[:, 1:] & ~self.mask[:, :-1]).any():
            raise ValueError("rollout.mask: responses must be right padded (True cells first)")
        if self.allowed is not None:
            expect(allowed=(self.allowed.bits, (B, T, None)))

    def __len__(self) -> int:
        return len(self.responses)


@dataclass(frozen=True)
class Experience:
    """A rollout a learner can use.

    scores [B] task score, in the reward function's unit; reward_parts: dict of [B]; ref_logprobs [B, T] nats;
    kl [B, T] nats, the penalised estimate; rewards, values, advantages, returns [B, T].
    """

    rollout: Rollout
    scores: Tensor
    reward_parts: dict[str, Tensor]
    ref_logprobs: Tensor
    kl: Tensor
    rewards: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.rollout.responses.shape)
        expect(scores=(self.scores, shape[:1]), **{k: (part, shape[:1]) for k, part in self.reward_parts.items()})
        names = ("ref_logprobs", "kl", "rewards", "values", "advantages", "returns")
        expect(**{name: (getattr(self, name), shape) for name in names})

    def __len__(self) -> int:
        return len(self.rollout)


def changed(record: Record, **parts) -> Record:
    """The record with other parts, cut from those it has: they were checked, and no number is read to do so again."""
    made = copy.copy(record)
    made.__dict__.update(parts)
    return made


def _map(value, on_tensor, on_list):
    if isinstance(value, Tensor | list):
        return on_tensor(value) if isinstance(value, Tensor) else on_list(value)
    if isinstance(value, dict):
        return {key: _map(item, on_tensor, on_list) for key, item in value.items()}
    return changed(value, **_map(vars(value), on_tensor, on_list)) if dataclasses.is_dataclass(value) else value


def take(record: Record, rows: Tensor) -> Record:
    """The episodes ``rows`` [N] (int64 indices) of a record, in that order."""
    indices = rows.tolist()
    return _map(record, lambda t: t[rows], lambda items: [items[i] for i in indices])


def to(record: Record, device: str | torch.device) -> Record:
    """The record with every tensor on ``device``."""
    return _map(record, lambda t: t.to(device), lambda items: items)
