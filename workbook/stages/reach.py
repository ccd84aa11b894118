"""What it takes to run a profile on GPUs or processes: hours on one and on eight, disk, and what to fetch before."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbook.runs.made_here import PLAN
from workbook.runs.params import Params
from workbook.stages.costs import Cost
from workbook.stages.outside import Found, planned
from workbook.stages.roofline import Rates
from workbook.stages.shapes import Shape

MANY = (1, 8)  # GPUs, or processes, side by side


def phases(params: Params, draw: Cost, searches: Sequence[Cost], seed: Mapping[str, Cost]) -> list[list[Cost]]:
    """Units of work, in lists that wait for each other: models of each draw, searches, runs, runs that continue others.

    draw: the models of one; seed: condition -> one seed of it.
    """
    runs, then = ([seed[name] for name in names for _ in params.seeds] for names in (params.runs, params.continued))
    return [part for part in ([draw] * len(params.draws), list(searches), runs, then) if part]


def spread(units: Iterable[float], workers: int) -> float:
    """Until the last unit ends, the longest given out first, each to whom is free next. Unit as the units'."""
    ends = [0.0] * workers
    for unit in sorted(units, reverse=True):
        heapq.heapreplace(ends, ends[0] + unit)
    return max(ends)


def hours(found: Sequence[Sequence[Cost]], of: Callable[[Cost], float]) -> dict[str, float]:
    """Workers -> hours of all phases, one after the other. of: hours of a unit."""
    return {str(n): sum(spread(map(of, units), n) for units in found) for n in MANY}


def ways(
    found: Sequence[Sequence[Cost]], rates: Rates, sustained: float, pass_seconds: float, fast: bool
) -> list[dict[str, Any]]:
    """How it may be computed, and in how many hours. fast: on a GPU, where decoding is recorded and
    `precision: bf16` may be set, which is then counted for all, those that do not take it too."""
    today = {"name": "fp32, step by step", "hours": hours(found, lambda c: c.hours(sustained, pass_seconds))}
    if not fast:
        return [today]

    fixed = {"name": "precision: bf16, recorded steps", "hours": hours(found, lambda c: c.fixed_hours(rates))}
    return [today, fixed]


def to_fetch(params: Params, found: Sequence[Found], policy: Shape, reward: Shape | None) -> list[dict[str, Any]]:
    """What is missing, the command that puts it into the mirror or makes it, and its bytes where they are known (fp32
    weights)."""
    wanted = []
    for one in found:
        if one.name == params.bring.model and not one.place and planned(params):
            command = f"python -m workbook.stages.base_model train {os.path.relpath(params.folder / PLAN)}"
            wanted.append({"name": one.name, "command": command, "bytes": None})
        elif not one.place:
            of = {"reward": reward}.get(one.use, policy) if one.kind == "models" else None
            kind = " --repo-type dataset" * (one.kind == "datasets")
            command = f'hf download {one.name}{kind} --local-dir "$RLNLP_MIRROR/{one.kind}/{one.name}"'
            wanted.append({"name": one.name, "command": command, "bytes": 4 * of.parameters if of else None})
    return wanted
