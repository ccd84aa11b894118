"""A learner's state as plain tensors and plain numbers, and back: what a resume needs, without pickle."""

from __future__ import annotations

import dataclasses
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


def pack(state: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(tensors, numbers) of a state dataclass: networks, optimiser, replay, KL controller, tensors and numbers.

    Of an optimiser the moments, by the names of their weights. Settings, and what else ``init`` makes again, are left
    out.
    """
    tensors, numbers = {}, {}
    for name, network in _networks(state).items():
        tensors.update({f"{name}.{k}": v.detach().clone().contiguous() for k, v in _weights(network).items()})
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        if isinstance(value, torch.optim.Optimizer):
            trained = _trained(state, value)
            numbers[f"{f.name}.weights"] = len(trained)
            for name, weight in trained.items():
                slots = value.state.get(weight, {})
                tensors.update({f"{f.name}.{name}.{k}": torch.as_tensor(v).clone() for k, v in slots.items()})
        elif isinstance(value, Tensor):
            tensors[f.name] = value.detach().clone().contiguous()
        elif not isinstance(value, nn.Module) and hasattr(value, "tensors"):
            tensors.update({f"{f.name}.{k}": v.detach().clone().contiguous() for k, v in value.tensors().items()})
        elif isinstance(value, KLCoefficient):
            numbers[f"{f.name}.coef"] = value.coef
        elif isinstance(value, int | float):
            numbers[f.name] = value
    return tensors, numbers


def size(state: Any) -> int:
    """About how many bytes ``pack`` makes of a state: a policy and a value network, each with two moments."""
    return 6 * sum(weight.numel() * weight.element_size() for weight in state.policy.parameters())


def _check(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Raise ``ValueError``, before anything of the state changes, where it has other networks than what was packed, or
    trains other weights of them: moments would become those of another weight."""
    if (seed := numbers.get("seed")) != getattr(state, "seed", seed):
        raise ValueError(f"checkpoint: expected one of seed {state.seed}, got one of seed {seed}")
    kind = f"{type(state).__module__}.{type(state).__qualname__}"
    fields = {f.name for f in dataclasses.fields(state)}
    if other := sorted({name.partition(".")[0] for name in (*tensors, *numbers)} - fields):
        raise ValueError(f"checkpoint: expected one of {kind}, got one with {', '.join(other)}")
    networks = _networks(state)
    mine = {f"{part}.{name}": w for part in networks for name, w in _weights(networks[part]).items()}
    packed = {name: tensor for name, tensor in tensors.items() if name.partition(".")[0] in networks}
    for name in sorted(mine.keys() | packed.keys()):
        has, got = ([*side[name].shape] if name in side else "no such weight" for side in (mine, packed))
        if has != got:
            raise ValueError(f"checkpoint: {name}: expected {has} of {kind}, got {got}")
    for field in fields:
        if isinstance(optimizer := getattr(state, field), torch.optim.Optimizer):
            trained = _trained(state, optimizer)
            moved = {
                name.removeprefix(f"{field}.").rpartition(".")[0] for name in tensors if name.startswith(f"{field}.")
            }
            got = int(numbers.get(f"{field}.weights", len(trained)))
            if (other := sorted(moved - trained.keys())) or got != len(trained):
                first = f", such as {other[0]}" if other else ""
                raise ValueError(
                    f"checkpoint: its {field} trains {got} weights{first}, and this state's {len(trained)}: expected "
                    "the same to be frozen (requires_grad) as where it was saved"
                )


@torch.no_grad()
def unpack(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Put what ``pack`` returned into a state freshly made by ``init`` with the same arguments.

    Raises ``ValueError`` for a state of another seed, of another learner, of a model with other weights or with others
    of them frozen.
    """
    _check(state, tensors, numbers)
    networks = _networks(state)
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        mine = {k.removeprefix(f.name + "."): v for k, v in tensors.items() if k.startswith(f.name + ".")}
        if f.name in networks:
            for name, weight in _weights(value).items():
                weight.copy_(mine[name])
        elif isinstance(value, torch.optim.Optimizer):
            places = {name: place for place, name in enumerate(_trained(state, value))}
            slots: dict[int, dict[str, Tensor]] = {}
            for key, tensor in mine.items():
                weight, _, name = key.rpartition(".")
                slots.setdefault(places[weight], {})[name] = tensor.clone()
            value.load_state_dict({"state": slots, "param_groups": value.state_dict()["param_groups"]})
        elif isinstance(value, Tensor):
            value.copy_(tensors[f.name])
        elif not isinstance(value, nn.Module) and hasattr(value, "tensors"):
            value.load_tensors(mine)
        elif isinstance(value, KLCoefficient):
            value.coef = float(numbers[f"{f.name}.coef"])
        elif isinstance(value, int | float):
            setattr(state, f.name, numbers[f.name])
