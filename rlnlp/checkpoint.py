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


def _check_names(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Raise ``ValueError`` where a state has not the parts that were packed, or a network not the weights."""
    kind = f"{type(state).__module__}.{type(state).__qualname__}"
    parts = {f.name: value for f in dataclasses.fields(state) if (value := getattr(state, f.name)) is not None}
    if other := sorted({name.split(".")[0] for name in (*tensors, *numbers)} - parts.keys()):
        raise ValueError(f"checkpoint: expected one of {kind}, got one with {', '.join(other)}")
    reference = parts.pop("reference", None)
    networks = {name: part for name, part in parts.items() if isinstance(part, nn.Module) and part is not reference}
    mine = {f"{part}.{name}": [*w.shape] for part in networks for name, w in _weights(networks[part]).items()}
    packed = {name: [*w.shape] for name, w in tensors.items() if name.split(".")[0] in networks}
    for name in sorted({*mine, *packed}):
        if mine.get(name) != packed.get(name):
            has, got = (side.get(name, "no such weight") for side in (mine, packed))
            raise ValueError(f"checkpoint: {name}: expected {has} of {kind}, got {got}")


@torch.no_grad()
def unpack(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Put what ``pack`` returned into a state freshly made by ``init`` with the same arguments.

    Raises ``ValueError`` for a state of another seed, of another learner or of a model with other weights.
    """
    if (seed := numbers.get("seed")) != getattr(state, "seed", seed):
        raise ValueError(f"checkpoint: expected one of seed {state.seed}, got one of seed {seed}")
    _check_names(state, tensors, numbers)
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
