"""Looks at growing data: how much of alpha is spent at each, and so at which level its tests are made.

    levels([8, 16, 32])                # (0.0125, 0.0161, 0.0322): two-sided, 0.05 over the three looks together
    stage_wise(0.01, [8, 16, 32], 1)   # 0.0198: a p at the second look, with what the first has spent

A claim that is tested at the first `n` seeds and again at more has several chances to be wrong. With alpha spent in
proportion to the seeds seen (Lan and DeMets 1983, Biometrika 70:659, the linear spending function), the chance that any
look is wrong stays alpha, and a claim that is settled may leave. An interval at a look's level is adjusted for looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy import optimize, special

from workbook.statistics.paired import ALPHA

POINTS = 400  # of the numerical integration over what the sum may be at a look


def levels(looks: Sequence[int], alpha: float = ALPHA) -> tuple[float, ...]:
    """The two-sided level of the tests at each look, alpha over all looks together, spent in proportion to n.

    looks: growing numbers of seeds, the last one the maximum. Sums of normal increments (Armitage, McPherson and Rowe
    1969): at look k the boundary c_k has P(|Z_k| > c_k, no earlier boundary crossed) = alpha (n_k - n_(k-1)) / n_last;
    t tests at these levels err a little more often: of 8, 16, 32 seeds in .053 of 200,000 simulated nulls, half of them
    in each direction; one-sided (equality, size) in .050.
    Limits: one look gives alpha; levels are at most alpha. Raises: ValueError for looks that do not grow.
    """
    return tuple(float(2 * special.ndtr(-bound)) for bound, _ in _boundaries(tuple(looks), alpha))


def stage_wise(p: float, looks: Sequence[int], stage: int, alpha: float = ALPHA) -> float:
    """The p over the whole design of what has the two-sided p at its own look, having crossed no boundary before.

    stage: of the look, from 0. What leaves early counts as more extreme than what stays (Tsiatis, Rosner and Mehta
    1984): alpha n_(k-1) / n_last + P(|Z_k| > |z|, no earlier boundary crossed), z having the two-sided p. Of a claim
    whose p is the largest of its parts', it is one too: of the part that is not true it is at most this.
    Limits: at the first look p itself; p at the look's level gives alpha n_k / n_last; p = 1 gives 1.
    """
    before = [0, *looks][stage]
    _, tail = _boundaries(tuple(looks), alpha)[stage]
    return min(1.0, alpha * before / looks[-1] + tail(float(-special.ndtri(p / 2))))


@cache
def _boundaries(looks: tuple[int, ...], alpha: float) -> list[tuple[float, Callable[[float], float]]]:
    """Of each look: its boundary c_k; c -> P(|Z_k| > c, no earlier boundary crossed)."""
    n = np.array([0, *looks])
    if len(n) < 2 or (np.diff(n) <= 0).any():
        raise ValueError(f"expected growing numbers of seeds, found {list(looks)}")
    found: list[tuple[float, Callable[[float], float]]] = []
    points, density = np.zeros(1), np.ones(1)  # of the sum where no boundary has been crossed; density: with weights
    for before, now in zip(n[:-1], n[1:]):
        spread, scale, spend = np.sqrt(now - before), np.sqrt(now), alpha * (now - before) / n[-1]

        def tail(bound: float, points=points, density=density, spread=spread, scale=scale) -> float:
            edge = bound * scale
            tails = special.ndtr((points - edge) / spread) + special.ndtr((-points - edge) / spread)
            return float(density @ tails)

        bound = optimize.brentq(lambda c, tail=tail, spend=spend: tail(c) - spend, 0.0, 10.0, xtol=1e-12)
        found.append((bound, tail))
        nodes, weights = np.polynomial.legendre.leggauss(POINTS)
        inside = nodes * bound * scale
        kernel = np.exp(-(((inside[:, None] - points) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
        points, density = inside, (kernel @ density) * weights * bound * scale
    return found
