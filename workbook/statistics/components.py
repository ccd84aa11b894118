"""Where the spread of a contrast comes from: the draw (its corpus, base model and reward model), or the RL run on it.

parts = components(d)        # d [runs, draws]: the same contrast, run again from nothing on the same draws
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Components:
    """Variances of one number of one run on one draw: of draws, and of runs within a draw; total: their sum. Either is
    an estimate without bias (so that of draws may be below 0); share: of the draw in the total, from 0 to 1."""

    draw: float
    run: float

    @property
    def total(self) -> float:
        return max(self.draw, 0.0) + self.run

    @property
    def share(self) -> float:
        return max(self.draw, 0.0) / self.total if self.total > 0 else 0.0


def components(d: np.ndarray) -> Components:
    """Analysis of variance of one-way random effects: run = mean square within draws, draw = (mean square between
    draws - within) / runs. For balanced data that is restricted maximum likelihood too, where it is not below 0.

    d [..., r >= 2 runs, n >= 2 draws]; more dimensions are further contrasts, of which the mean squares are averaged.
    Raises: ValueError for fewer runs or draws, or a number that is not finite.
    """
    d = np.asarray(d, dtype=float)
    if d.ndim < 2 or min(d.shape[-2:]) < 2 or not np.isfinite(d).all():
        raise ValueError(f"expected finite numbers of two or more runs on two or more draws, found shape {d.shape}")
    runs = d.shape[-2]
    within = float(d.var(axis=-2, ddof=1).mean())
    between = float(runs * d.mean(axis=-2).var(axis=-1, ddof=1).mean())
    return Components((between - within) / runs, within)


def without_each_draw(d: np.ndarray) -> list[Components]:
    """`components`, leaving out one draw after the other: how much hangs on a single one."""
    return [components(np.delete(d, i, axis=-1)) for i in range(d.shape[-1])] if d.shape[-1] > 2 else []
