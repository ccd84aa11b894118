"""A learner's state as plain tensors and plain numbers, and back: what a resume needs, without pickle."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from rlnlp.losses import KLCoefficient


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}  # tied weights once


def pack(state: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(tensors, numbers) of a state dataclass: networks, optimiser, replay, KL controller and counters.

    The frozen ``reference`` is left out, also under a second name: ``init`` makes it again from the same base model.
    """
    tensors, numbers = {}, {}
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        if f.name == "reference" or value is getattr(state, "reference", state):
            continue
        if isinstance(value, nn.Module):
            tensors.update({f"{f.name}.{k}": v.detach().clone().contiguous() for k, v in _weights(value).items()})
        elif isinstance(value, torch.optim.Optimizer):
            for index, slots in value.state_dict()["state"].items():
                tensors.update({f"{f.name}.{index}.{k}": torch.as_tensor(v).clone() for k, v in slots.items()})
        elif hasattr(value, "tensors"):
            tensors.update({f"{f.name}.{k}": v.detach().clone().contiguous() for k, v in value.tensors().items()})
        elif isinstance(value, KLCoefficient):
            numbers[f"{f.name}.coef"] = value.coef
        elif isinstance(value, int):
            numbers[f.name] = value
    return tensors, numbers


def size(state: Any) -> int:
    """About how many bytes ``pack`` makes of a state: a policy and a value network, each with two moments."""
    return 6 * sum(weight.numel() * weight.element_size() for weight in state.policy.parameters())


@torch.no_grad()
def unpack(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Put what ``pack`` returned into a state freshly made by ``init`` with the same arguments.

    Raises ``ValueError`` for a state of another seed, ``KeyError`` or ``RuntimeError`` where names or shapes differ.
    """
    if (seed := numbers.get("seed")) != getattr(state, "seed", seed):
        raise ValueError(f"checkpoint: expected one of seed {state.seed}, got one of seed {seed}")
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        mine = {k.removeprefix(f.name + "."): v for k, v in tensors.items() if k.startswith(f.name + ".")}
        if f.name == "reference" or value is getattr(state, "reference", state):
            continue
        if isinstance(value, nn.Module):
            for name, weight in _weights(value).items():
                weight.copy_(mine[name])
        elif isinstance(value, torch.optim.Optimizer):
            slots: dict[int, dict[str, Tensor]] = {}
            for key, tensor in mine.items():
                index, name = key.split(".", 1)
                slots.setdefault(int(index), {})[name] = tensor.clone()
            value.load_state_dict({"state": slots, "param_groups": value.state_dict()["param_groups"]})
        elif hasattr(value, "tensors"):
            value.load_tensors(mine)
        elif isinstance(value, KLCoefficient):
            value.coef = float(numbers[f"{f.name}.coef"])
        elif isinstance(value, int):
            setattr(state, f.name, numbers[f.name])
