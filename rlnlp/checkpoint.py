"""A learner's state as plain tensors and plain numbers, and back: what a resume needs, without pickle."""

from __future__ import annotations

import dataclasses
import zlib
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from rlnlp.losses import KLCoefficient


def _fields(state: Any) -> dict[str, Any]:
    """Field -> what a checkpoint may hold of it: not the frozen ``reference``, also under a second name, because
    ``init`` makes it again from the same base model."""
    parts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    reference = parts.pop("reference", parts)
    return {name: part for name, part in parts.items() if part is not reference}


def _networks(state: Any) -> dict[str, nn.Module]:
    return {name: part for name, part in _fields(state).items() if isinstance(part, nn.Module)}


def _stores(state: Any) -> dict[str, Any]:
    """Parts that hold as much as they have seen: a replay."""
    return {k: v for k, v in _fields(state).items() if hasattr(v, "load_tensors") and not isinstance(v, nn.Module)}


def _weights(state: Any) -> dict[str, Tensor]:
    """Tensors whose names and shapes are those of any state that ``init`` makes with the same arguments."""
    found = {name: value for name, value in _fields(state).items() if isinstance(value, Tensor)}
    for part, network in _networks(state).items():  # tied weights once
        found |= {f"{part}.{k}": v for k, v in (*network.named_parameters(), *network.named_buffers())}
    return found


def _layouts(state: Any) -> dict[str, int]:
    """Field -> a checksum of which weights of a network are frozen, and of what an optimiser moves, in its order."""
    known, lines = {id(weight): name for name, weight in _weights(state).items()}, {}
    for part, network in _networks(state).items():
        lines[part] = [name for name, weight in network.named_parameters() if weight.requires_grad]
    for part, value in _fields(state).items():
        if isinstance(value, torch.optim.Optimizer):
            moved = [weight for group in value.param_groups for weight in group["params"]]
            lines[part] = [type(value).__name__, *(known.get(id(w), str([*w.shape])) for w in moved)]
    return {f"{part}.trained": zlib.crc32("\n".join(names).encode()) for part, names in lines.items()}


def _numbers(state: Any) -> dict[str, float | str | None]:
    found: dict[str, float | str | None] = {**_layouts(state)}
    for name, value in _fields(state).items():
        if isinstance(value, KLCoefficient):
            found[f"{name}.coef"] = value.coef
        elif value is None or isinstance(value, Integral):
            found[name] = None if value is None else int(value)
        elif isinstance(value, Real):
            found[name] = float(value).hex()  # JSON has no infinity
    return found


def pack(state: Any) -> tuple[dict[str, Tensor], dict[str, float | str | None]]:
    """(tensors, numbers) of a state dataclass: networks, optimiser, replay, KL controller, tensors and numbers.

    Of an optimiser the moments, not the settings. What else ``init`` makes again is left out.
    """
    tensors = {name: v.detach().clone().contiguous() for name, v in _weights(state).items()}
    for part, value in _fields(state).items():
        if isinstance(value, torch.optim.Optimizer):
            for place, slots in value.state_dict()["state"].items():
                tensors |= {f"{part}.{place}.{k}": torch.as_tensor(v).clone() for k, v in slots.items()}
    for part, value in _stores(state).items():
        tensors |= {f"{part}.{k}": v.detach().clone().contiguous() for k, v in value.tensors().items()}
    return tensors, _numbers(state)


def size(state: Any) -> int:
    """About how many bytes ``pack`` makes of a state: a policy and a value network, each with two moments."""
    return 6 * sum(weight.numel() * weight.element_size() for weight in state.policy.parameters())


def _check(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float | str | None]) -> None:
    """Raise ``ValueError``, before anything of the state changes, where it has other parts than what was packed, or
    trains other weights of them: moments would become those of another weight."""
    if (seed := numbers.get("seed")) != getattr(state, "seed", seed):
        raise ValueError(f"checkpoint: expected one of seed {state.seed}, got one of seed {seed}")
    kind, own = f"{type(state).__module__}.{type(state).__qualname__}", _numbers(state)
    if other := sorted(own.keys() ^ numbers.keys()):
        has = "without" if other[0] in own else "with"
        raise ValueError(f"checkpoint: expected one of {kind}, of this version; got one {has} {other[0]}")
    optimizers = {part for part, value in _fields(state).items() if isinstance(value, torch.optim.Optimizer)}
    mine: dict[str, Any] = {name: [*weight.shape] for name, weight in _weights(state).items()}
    mine |= {f"{part}.{k}": "a tensor" for part, value in _stores(state).items() for k in value.tensors()}
    for name in sorted(mine.keys() | {name for name in tensors if name.partition(".")[0] not in optimizers}):
        has = mine.get(name, "no such tensor")
        got = "no such tensor" if name not in tensors else has if has == "a tensor" else [*tensors[name].shape]
        if has != got:
            raise ValueError(f"checkpoint: {name}: expected {has} of {kind}, got {got}")
    for name, layout in _layouts(state).items():
        if layout != numbers[name]:
            part = name.removesuffix(".trained")
            what = "optimiser, of the weights" if part in optimizers else "weights to be frozen (requires_grad)"
            raise ValueError(f"checkpoint: {part}: expected the {what} that it was saved with")


@torch.no_grad()
def unpack(state: Any, tensors: dict[str, Tensor], numbers: dict[str, float | str | None]) -> None:
    """Put what ``pack`` returned into a state freshly made by ``init`` with the same arguments.

    Raises ``ValueError``, with the state as it was, for one of another seed, with other parts (another learner's, as
    far as its parts differ), for a model with other weights or with others of them frozen, and for a replay too small.
    """
    _check(state, tensors, numbers)

    def of(part: str) -> dict[str, Tensor]:
        return {name.removeprefix(f"{part}."): v for name, v in tensors.items() if name.startswith(f"{part}.")}

    for part, value in _stores(state).items():
        value.load_tensors(of(part))
    for name, weight in _weights(state).items():
        weight.copy_(tensors[name])
    for part, value in _fields(state).items():
        if isinstance(value, torch.optim.Optimizer):
            slots: dict[int, dict[str, Tensor]] = {}
            for key, tensor in of(part).items():
                place, _, name = key.partition(".")
                slots.setdefault(int(place), {})[name] = tensor.clone()
            value.load_state_dict({"state": slots, "param_groups": value.state_dict()["param_groups"]})
        elif isinstance(value, KLCoefficient):
            value.coef = numbers[f"{part}.coef"]
        elif part in numbers:
            number = numbers[part]
            setattr(state, part, float.fromhex(number) if isinstance(number, str) else number)
