"""Looks at growing data: how much of alpha is spent at each, and so at which level its tests are made.

    levels([8, 16, 32])      # (0.0125, 0.0161, 0.0322): two-sided, 0.05 over the three looks together

A claim that is tested at the first `n` seeds and again at more has several chances to be wrong. With alpha spent in
proportion to the seeds seen (Lan and DeMets 1983, Biometrika 70:659, the linear spending function), the chance that any
look is wrong stays alpha, and a claim that is settled may leave. An interval at a look's level is adjusted for looks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from workbook.statistics.paired import ALPHA

POINTS = 400  # of the numerical integration over what the sum may be at a look


def levels(looks: Sequence[int], alpha: float = ALPHA) -> tuple[float, ...]:
    """The two-sided level of the tests at each look, alpha over all looks together, spent in proportion to n.

    looks: growing numbers of seeds, the last one the maximum. Sums of normal increments (Armitage, McPherson and Rowe
    1969): at look k the boundary c_k has P(|Z_k| > c_k, no earlier boundary crossed) = alpha (n_k - n_(k-1)) / n_last;
    t tests at these levels err a little less often.
    Limits: one look gives alpha; levels are at most alpha. Raises: ValueError for looks that do not grow.
    """
    n = np.array([0, *looks])
    if len(n) < 2 or (np.diff(n) <= 0).any():
        raise ValueError(f"expected growing numbers of seeds, found {list(looks)}")
    found: list[float] = []
    points, density = np.zeros(1), np.ones(1)  # of the sum where no boundary has been crossed; density: with weights
    for before, now in zip(n[:-1], n[1:]):
        spread, scale, spend = np.sqrt(now - before), np.sqrt(now), alpha * (now - before) / n[-1]

        def spent(bound: float, points=points, density=density, spread=spread, scale=scale) -> float:
            edge = bound * scale
            tails = special.ndtr((points - edge) / spread) + special.ndtr((-points - edge) / spread)
            return float(density @ tails)

        bound = optimize.brentq(lambda c, spent=spent, spend=spend: spent(c) - spend, 0.0, 10.0, xtol=1e-12)
        found.append(float(2 * special.ndtr(-bound)))
        nodes, weights = np.polynomial.legendre.leggauss(POINTS)
        inside = nodes * bound * scale
        kernel = np.exp(-(((inside[:, None] - points) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
        points, density = inside, (kernel @ density) * weights * bound * scale
    return tuple(found)
