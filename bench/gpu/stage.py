"""What a stage works with: its rows, its clocks, and what several stages ask."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.gpu.scale import Scale

LIMIT, PATIENCE = 110, 170  # seconds: a stage begins nothing more; a stage that has not ended is killed


@dataclass
class Stage:
    """What a stage is given, and the rows that it leaves."""

    name: str
    scale: Scale
    device: str
    precisions: tuple[str, ...]
    limit: float = LIMIT
    began: float = dataclasses.field(default_factory=time.monotonic)
    rows: list[dict] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def row(self, name: str, **facts) -> Iterator[dict]:
        """A row to fill in. An error is the row's content: what comes after it is still measured."""
        import torch

        gc.collect()  # a sampler and its step hold each other: the last row's memory goes now
        if torch.cuda.is_initialized():  # a stage that forks must not do it first
            torch.cuda.reset_peak_memory_stats()
        made = {"name": name, **facts}
        try:
            yield made
        except Exception as error:  # noqa: BLE001 (out of memory, a kernel that is not there: a finding)
            made["error"] = f"{type(error).__name__}: {error}"[:300]
        if torch.cuda.is_initialized():
            made["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.rows.append(made)
        print(f"  {self.name}: " + ", ".join(f"{k} {short(v)}" for k, v in made.items()), file=sys.stderr, flush=True)

    def time_for(self, seconds: float, what: str) -> bool:
        """Whether ``seconds`` more are left; what is not begun is listed."""
        if time.monotonic() - self.began + seconds <= self.limit:
            return True
        self.left_out.append(what)
        return False


def timed(work: Callable, stage: Stage, *given, prepare: Callable = lambda: None, repeats: int = 0) -> dict:
    """Milliseconds of ``work(*given)``: median and interval over repeats, by events on cuda; ``prepare`` is not timed.

    repeats: 0 = the scale's, after its warm-up; else so many after one that is not counted.
    """
    import torch

    from bench.numbers import median_interval

    spans, warm, repeats = [], 1 if repeats else stage.scale.warm, repeats or stage.scale.repeats
    for number in range(-warm, repeats):
        prepare()
        if stage.device == "cuda":
            ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            ends[0].record()
            work(*given)
            ends[1].record()
            ends[1].synchronize()
            span = ends[0].elapsed_time(ends[1])
        else:
            began = time.perf_counter()
            work(*given)
            span = (time.perf_counter() - began) * 1e3
        if number >= 0:
            spans.append(span)
    median, low, high, _ = median_interval(spans)
    return {"n": repeats, "median_ms": median, "low_ms": low, "high_ms": high}


class Clock:
    """Wall seconds between marks, with the device's work done at each."""

    def __init__(self, device: str) -> None:
        self.device, self.spans = device, {}
        self.last = self.now()

    def now(self) -> float:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self, name: str) -> dict[str, float]:
        """The seconds since the last mark are ``name``'s."""
        now = self.now()
        self.spans[name], self.last = now - self.last, now
        return self.spans


def short(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def was_recorded(engine) -> bool:
    """Whether gradient steps of a state with this engine were replayed from a graph, of every size."""
    graphs = [steps.step.graph for steps in engine.recorded.values()]
    return bool(graphs) and None not in graphs


def by_worth(stage: Stage) -> list[str]:
    """Precisions in the order in which they are measured: the fastest, the most exact, what lies between."""
    return list(dict.fromkeys([*stage.precisions[::-2], *stage.precisions]))


def compiler(stage: Stage) -> dict:
    """Arguments of torch.compile, for these shapes and no others; on the CPU traced only: no C++ compiler is needed."""
    return {"dynamic": False} if stage.device == "cuda" else {"dynamic": False, "backend": "eager"}
