"""How many seeds would settle an effect: numbers to plan with, never to decide with.

The numbers of seeds assume values that are about normal with the spread given. `rule.decide` also demands
`fewest_seeds`, whatever the spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special
from scipy import stats as scipy_stats

from workbook.statistics.paired import ALPHA

MOST_SEEDS = 10_000
POWER = 0.8


def fewest_seeds(alpha: float = ALPHA) -> int:
    """Paired seeds below which no verdict is given: the least n with 2^-n <= alpha (5 at 0.05)."""
    return next(n for n in range(1, MOST_SEEDS) if 2.0**-n <= alpha)


def n_needed(effect: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """Paired seeds at which a two-sided t test finds a difference `effect` with this power.

    effect: pre-stated, sd: of the seed-wise differences, same unit (power as statsmodels' TTestPower has it).
    Limits: sd = 0 gives 2, the fewest a t test takes; more than MOST_SEEDS, or effect = 0, gives inf.
    Raises: ValueError for numbers that are not finite or an sd < 0.
    """
    size = _size(effect, sd)

    def attained(n: int) -> float:
        reach = scipy_stats.t.ppf(1 - alpha / 2, n - 1) * _spreads(n)
        return float(np.mean(special.ndtr(size * math.sqrt(n) - reach) + special.ndtr(-size * math.sqrt(n) - reach)))

    return _least(attained, power)


def n_needed_equivalence(margin: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """Paired seeds at which `paired.equivalence` holds with this power if the true difference is 0.

    margin > 0 and sd of the seed-wise differences, in the metric's unit. Power of both one-sided t tests together: the
    mean, over the sample sd s, of P(|mean| < margin - t s / sqrt(n)). Limits and errors: as `n_needed`.
    """
    size = _size(margin, sd)

    def attained(n: int) -> float:
        room = size * math.sqrt(n) - scipy_stats.t.ppf(1 - alpha, n - 1) * _spreads(n)
        return float(np.mean(2 * special.ndtr(np.maximum(room, 0)) - 1))

    return _least(attained, power)


def _least(attained: Callable[[int], float], power: float) -> float:
    """The least n from 2 to MOST_SEEDS whose attained power, growing with n, reaches `power`; else inf."""
    low, high = 1, MOST_SEEDS  # the power at low is too small, at high it is not
    if attained(high) < power:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attained(middle) >= power else (middle, high)
    return high


def _spreads(n: int) -> np.ndarray:
    """Sample sd of n normal values over the true one, at 2000 equally likely quantiles (for averages over it)."""
    return np.sqrt(scipy_stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, n - 1) / (n - 1))


def _size(effect: float, sd: float) -> float:
    """effect / sd; inf for no spread."""
    if not (math.isfinite(effect) and 0 <= sd < math.inf):
        raise ValueError(f"expected a finite effect and a finite sd of 0 or more, found {effect!r} and {sd!r}")
    if sd == 0:
        return math.inf if effect else 0.0
    return effect / sd
