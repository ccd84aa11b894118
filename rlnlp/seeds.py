"""Random streams derived from names, so that nothing about randomness has to be saved to resume a run."""

from __future__ import annotations

import hashlib

import torch


def stream(*names: object) -> int:
    """A 63-bit seed for the stream of that name, e.g. ``stream(seed, "rollout", update)``; equal names, equal seed."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*names: object) -> torch.Generator:
    """A CPU generator at the start of the stream of that name."""
    return torch.Generator().manual_seed(stream(*names))
