"""A learner's state as plain tensors and plain numbers, and back: what a resume needs, without pickle."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import torch
from torch import Tensor, nn

from rlnlp.losses import KLCoefficient


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}  # tied weights once


def _networks(state: Any) -> dict[str, nn.Module]:
    """Field -> network that a checkpoint holds: not the frozen ``reference``, also under a second name, because
    ``init`` makes it again from the same base model."""
    parts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    reference = parts.pop("reference", None)
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module) and part is not reference}


def _trained(state: Any, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The weights that an optimiser moves, by name, in its own order; by their place where no network has them."""
    known = {id(w): f"{part}.{name}" for part, net in _networks(state).items() for name, w in net.named_parameters()}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return {known.get(id(weight), str(place)): weight for place, weight in enumerate(weights)}


def _tensors(state: Any) -> dict[str, Tensor]:
    """Tensors of a state whose names and shapes are those of any state that ``init`` makes with the same arguments."""
    found = {f"{part}.{k}": v for part, network in _networks(state).items() for k, v in _weights(network).items()}
    for f in dataclasses.fields(state):
        if isinstance(value := getattr(state, f.name), Tensor | float):
            found[f.name] = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64)
    return found


def _numbers(state: Any) -> dict[str, float]:
    """Counters, the KL controller's beta, and of each network which weights are frozen: a checksum of the others'
    names."""
    found = {}
    for part, network in _networks(state).items():
        names = [name for name, weight in network.named_parameters() if weight.requires_grad]
        found[f"{part}.trained"] = zlib.crc32("\n".join(names).encode())
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        if isinstance(value, KLCoefficient):
            found[f"{f.name}.coef"] = value.coef
        elif isinstance(value, int):
            found[f.name] = value
    return found


def pack(state: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(tensors, numbers) of a state dataclass: networks, optimiser, replay, KL controller, tensors and numbers.

    Of an optimiser the moments, by the names of their weights. Settings, and what else ``init`` makes again, are left
    out.
    """
    tensors = {name: v.detach().clone().contiguous() for name, v in _tensors(state).items()}
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        if isinstance(value, torch.optim.Optimizer):
            for name, weight in _trained(state, value).items():
                slots = value.state.get(weight, {})
                tensors.update({f"{f.name}.{name}.{k}": torch.as_tensor(v).clone() for k, v in slots.items()})
        elif not isinstance(value, nn.Module) and hasattr(value, "tensors"):
            tensors.update({f"{f.name}.{k}": v.detach().clone().contiguous() for k, v in value.tensors().items()})
    return tensors, _numbers(state)


def size(state: Any) -> int:
    """About how many bytes ``pack`` makes of a state: a policy and a value network, each with two moments."""
    return 6 * sum(weight.numel() * weight.element_size() for weight in state.policy.parameters())


def _check(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Raise ``ValueError``, before anything of the state changes, where it has other parts than what was packed, or
    trains other weights of them: moments would become those of another weight."""
    if (seed := numbers.get("seed")) != getattr(state, "seed", seed):
        raise ValueError(f"checkpoint: expected one of seed {state.seed}, got one of seed {seed}")
    kind, own = f"{type(state).__module__}.{type(state).__qualname__}", _numbers(state)
    if other := sorted(own.keys() ^ numbers.keys()):
        has = "without" if other[0] in own else "with"
        raise ValueError(f"checkpoint: expected one of {kind}, of this version; got one {has} {other[0]}")
    mine, parts = _tensors(state), {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    still = {
        name: v for name, v in tensors.items() if name in mine or isinstance(parts.get(name.split(".")[0]), nn.Module)
    }
    for name in sorted(mine.keys() | still.keys()):
        has, got = ([*side[name].shape] if name in side else "no such tensor" for side in (mine, still))
        if has != got:
            raise ValueError(f"checkpoint: {name}: expected {has} of {kind}, got {got}")
    if other := [name for name in own if name.endswith(".trained") and own[name] != numbers[name]]:
        part = other[0].removesuffix(".trained")
        raise ValueError(
            f"checkpoint: {part}: expected the weights to be frozen (requires_grad) that were when it was saved"
        )
    for field, optimizer in parts.items():
        if isinstance(optimizer, torch.optim.Optimizer):
            trained = _trained(state, optimizer)
            for name in [name for name in tensors if name.startswith(f"{field}.")]:
                weight, tensor = trained.get(name.removeprefix(f"{field}.").rpartition(".")[0]), tensors[name]
                if weight is None or tensor.dim() and tensor.shape != weight.shape:
                    raise ValueError(f"checkpoint: {name} {[*tensor.shape]}: the {field} of {kind} has no such weight")


@torch.no_grad()
def unpack(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Put what ``pack`` returned into a state freshly made by ``init`` with the same arguments.

    Raises ``ValueError``, with the state as it was, for one of another seed, with other parts (another learner's, as
    far as its parts differ), and for a model with other weights or with others of them frozen.
    """
    _check(state, tensors, numbers)
    for name, weight in _tensors(state).items():
        weight.copy_(tensors[name])
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        mine = {k.removeprefix(f.name + "."): v for k, v in tensors.items() if k.startswith(f.name + ".")}
        if isinstance(value, torch.optim.Optimizer):
            places = {name: place for place, name in enumerate(_trained(state, value))}
            slots: dict[int, dict[str, Tensor]] = {}
            for key, tensor in mine.items():
                weight, _, name = key.rpartition(".")
                slots.setdefault(places[weight], {})[name] = tensor.clone()
            value.load_state_dict({"state": slots, "param_groups": value.state_dict()["param_groups"]})
        elif isinstance(value, float):
            setattr(state, f.name, float(tensors[f.name]))
        elif not isinstance(value, nn.Module | Tensor) and hasattr(value, "tensors"):
            value.load_tensors(mine)
        elif isinstance(value, KLCoefficient):
            value.coef = float(numbers[f"{f.name}.coef"])
        elif isinstance(value, int):
            setattr(state, f.name, numbers[f.name])
