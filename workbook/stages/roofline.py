"""What shapes need on a GPU at least: bytes and operations of decoding and of updates, and the rates that bound them.

Needs the standard library alone: `bench/gpu` takes it to machines that have little more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

H200 = {"copy_tb_s": 4.3, "fp32": 60.0, "tf32": 400.0, "bf16": 790.0}  # TB/s, TFLOP/s; where nothing was measured
TARGETS = {"decode_share": 0.35, "update_share": 0.4}  # what the bench is to show of them, at 64 episodes or more


@dataclass(frozen=True)
class Shape:
    """A GPT-2 of ``layers`` x ``width`` with heads of ``head`` numbers."""

    layers: int
    width: int
    vocabulary: int = 50257
    positions: int = 1024
    head: int = 64

    @property
    def trunk(self) -> int:
        """Weights of the layers: 12 d^2 + 13 d each, and the last norm."""
        return self.layers * (12 * self.width**2 + 13 * self.width) + 2 * self.width

    @property
    def total(self) -> int:
        """All weights, the tied embedding once."""
        return self.trunk + (self.vocabulary + self.positions) * self.width


def step_bytes(shape: Shape, B: int, P: int, T: int, precision: str) -> float:
    """Bytes of one decode step: weights once, keys and values of the mean length, fp32 logits written and read twice.

    scale: B episodes, prompts of P tokens, T to come. Embedded positions are looked up, not read whole.
    """
    size = 2 if precision == "bf16" else 4
    weights = size * (shape.trunk + shape.vocabulary * shape.width)
    cache = B * (P + T / 2) * shape.layers * 2 * shape.width * size
    return weights + cache + 3 * 4 * B * shape.vocabulary


def prefill_flops(shape: Shape, B: int, P: int) -> float:
    """2 operations a weight and token of the trunk."""
    return 2.0 * shape.trunk * B * P


def update_flops(shape: Shape, episodes: int, P: int, T: int) -> float:
    """Forward and backward of policy and value network: 6 a weight and token, attention, the head at responses.

    The last token predicts nothing, so that an episode has P + T - 1 positions.
    """
    length = P + T - 1
    trunk = 6.0 * shape.trunk + 12.0 * shape.layers * shape.width * length
    return episodes * (2 * trunk * length + 6.0 * shape.vocabulary * shape.width * T)


def optimizer_bytes(shape: Shape) -> float:
    """The step, and rounding weights and gradients to bf16, 12 bytes a weight of both networks."""
    return step_of_weights_bytes(shape) + 12.0 * 2 * shape.total


def step_of_weights_bytes(shape: Shape) -> float:
    """AdamW 28 bytes a weight of both networks, the clip 12."""
    return 40.0 * 2 * shape.total


@dataclass(frozen=True)
class Rates:
    """What a GPU does at fixed shapes. copy: bytes/s, of which decoding gets the share ``decode``; product: FLOP/s in
    bf16, of which updates get the share ``update``.

    None where not measured: gradient_s: seconds of a learner's gradient step of few tokens, which waits for launches
    and moves the optimiser's bytes. Of runs without recorded steps: sustained: FLOP/s in fp32; step_s: seconds of a
    decode step.
    """

    copy: float
    product: float
    decode: float
    update: float
    sustained: float | None
    step_s: float | None
    gradient_s: float | None
    why: str

    def seconds(self, flops: float, decoded: float, stepped: float, steps: float) -> float:
        """Of arithmetic, of bytes that decoding reads, and of gradient steps, one after the other: as many as there are
        times what one was measured to take, else the bytes that the optimiser moves."""
        waited = steps * self.gradient_s if self.gradient_s else stepped / self.copy
        return flops / (self.product * self.update) + decoded / (self.copy * self.decode) + waited


def rates(path: Path) -> Rates:
    """The rates of ``bench.gpu --report``'s file; those that it has not are computed, and ``why`` says which."""
    return rates_of(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}, path.name)


def rates_of(known: dict, file: str) -> Rates:
    """``rates`` of what a file of that name says."""
    assumed = {name: value for name, value in {**H200, **TARGETS}.items() if known.get(name) is None}
    of = {**known, **assumed}
    said = ", ".join(f"{name} {value:g}" for name, value in assumed.items() if name in ("copy_tb_s", "bf16", *TARGETS))
    why = "computed: " if not known else f"measured on {known['device']} ({file})" + "; computed: " * bool(said)
    sustained = known.get("update_fp32_share") and 1e12 * of["fp32"] * known["update_fp32_share"]
    step_s = known.get("readable_ms") and known["readable_ms"] / 1e3
    said += f"; a gradient step {known['gradient_s']:.2g} s" if known.get("gradient_s") else ""
    shares = of["decode_share"], of["update_share"]
    more = sustained or None, step_s or None, known.get("gradient_s")
    return Rates(1e12 * of["copy_tb_s"], 1e12 * of["bf16"], *shares, *more, why + said)
