"""What curves of training say: a metric update by update, refreshes of a mask, what a run had used by then."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbook.results.results import Results


def curve(results: Results, condition: str, metric: str) -> pd.DataFrame | None:
    """A training metric, update x seed; None for a run without it."""
    if metric not in results.curves:
        return None
    own = results.curves[results.curves.condition == condition]
    if not len(own) or own[metric].isna().all():
        return None
    return own.pivot(index="update", columns="seed", values=metric).reindex(columns=results.seeds)


def syncs(results: Results, condition: str) -> list[int]:
    """The updates whose rollout was the first after a refresh of the mask, without the first one of all."""
    if "nlpo/synced" not in results.curves:
        return []
    own = results.curves[results.curves.condition == condition]
    return sorted({int(u) for u in own["update"][(own["nlpo/synced"] == 1) & (own["update"] > 1)]})


def last_cycle(results: Results, condition: str, cycle: int) -> np.ndarray | None:
    """[n seeds]: mean training score over the last `cycle` updates; None for a condition without a curve."""
    grid = curve(results, condition, "objective/score")
    return None if grid is None else grid.tail(cycle).mean().to_numpy(dtype=float)


def dip(results: Results, condition: str) -> np.ndarray | None:
    """[n seeds]: mean change of the training score right after a refresh; None without a curve or a refresh."""
    grid, places = curve(results, condition, "objective/score"), syncs(results, condition)
    return None if grid is None or not places else grid.diff().reindex(places).mean().to_numpy(dtype=float)


def used(results: Results, condition: str, unit: str) -> pd.Series | None:
    """What a run had used by the end of each update, mean over seeds: update -> tokens sampled, or gradient steps.

    tokens: mean length of the update's episodes times their number; gradient_steps: as the learner reports them, else
    as it is configured: gradient_steps, or epochs times minibatches (1 where it has none of them). None without curves.
    """
    grid, learner = curve(results, condition, "episodes/length"), results.configs[condition]["learner"]
    if grid is None:
        return None
    if unit == "tokens":
        return (grid * learner["episodes_per_update"]).cumsum().mean(axis=1)
    each = learner.get("gradient_steps", learner.get("epochs", 1) * learner.get("minibatches", 1))
    names = [c for c in results.curves if c.endswith("/gradient_steps")]
    reported = [g for name in names if (g := curve(results, condition, name)) is not None]
    return (sum(reported) if reported else grid * 0 + each).cumsum().mean(axis=1)
