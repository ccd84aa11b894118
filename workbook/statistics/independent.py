"""Spreads and fractions of two arms, seen as independent: one value per seed, first [n] against second [m].

``alternative`` is the direction of first - second that is claimed, everywhere. Every result has ``.evidence`` for
`rule.decide`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from workbook.statistics.paired import ALPHA, Alternative, TooFewSeeds, direction, finite, opposite
from workbook.statistics.rule import Evidence, directed, untestable


@dataclass(frozen=True)
class Spread:
    """Are two arms equally stable? n, m values; log_ratio: log(sd first / sd second), with its 1 - alpha interval
    (approximate, None where an arm has no spread); p: Brown-Forsythe in the direction of ``alternative``; None below 3.
    """

    n: int
    m: int
    log_ratio: float
    low: float | None
    high: float | None
    alternative: Alternative
    alpha: float
    towards: float  # mean distance from the median, first - second: what the test compares
    p: float | None
    p_two_sided: float | None

    @property
    def evidence(self) -> Evidence:
        sign = direction(self.alternative)
        if self.p is None:
            return untestable(self.alpha)
        return directed(sign * self.towards, self.p_two_sided, 0.0, 0.0, self.alpha)


@dataclass(frozen=True)
class Exact:
    """A test whose p is exact. estimate: difference of fractions (`fisher`); n: values (both arms together);
    p: in the direction of ``alternative``, p_opposite: in the other; None where smallest_p exceeds alpha.
    """

    n: int
    estimate: float
    alternative: Alternative
    alpha: float
    smallest_p: float
    p: float | None
    p_opposite: float | None

    @property
    def evidence(self) -> Evidence:
        towards = direction(self.alternative) * self.estimate
        if self.p is None:
            return untestable(self.alpha)
        return Evidence(self.p, self.p_opposite, 0.0, 0.0, self.alpha, towards=towards)


def smallest_p_unpaired(n: int, m: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p that dealing n + m values to two arms can give: 1 / C(n + m, n) one-sided, twice that two-sided."""
    if min(n, m) < 1:
        raise ValueError(f"expected at least one value in each arm, found {n} and {m}")
    return min(1.0, (2 if alternative == "two-sided" else 1) / math.comb(n + m, n))


def brown_forsythe(
    first: Sequence[float], second: Sequence[float], alternative: Alternative = "two-sided", alpha: float = ALPHA
) -> Spread:
    """Brown-Forsythe test (1974) of equal spread: the t test of the distances from each arm's median.

    first [n], second [m]. alternative "greater": first is more spread out than second. p_two_sided is that of
    scipy.stats.levene(center="median"); one-sided it is halved on the side seen. The interval of the log ratio of the
    standard deviations is that of the F ratio: exact for normal values, too narrow for heavy tails.
    Limits: fewer than 3 values in an arm give no p. At 5 and 5 the test is timid (error rate 0.006 at alpha 0.05, and
    it finds a sevenfold ratio of normal values in one case of four); at 10 and 10 it finds a threefold one in 0.6.
    Arms that share seeds are treated as independent, which errs on the timid side.
    """
    a, b = finite(first), finite(second)
    if min(len(a), len(b)) < 2:
        raise TooFewSeeds(f"a spread needs two values in each arm, found {len(a)} and {len(b)}")
    sd_a, sd_b = a.std(ddof=1) if np.ptp(a) else 0.0, b.std(ddof=1) if np.ptp(b) else 0.0
    towards = float(np.abs(a - np.median(a)).mean() - np.abs(b - np.median(b)).mean())
    log_ratio, low, high = 0.0 if sd_a == sd_b else math.copysign(math.inf, sd_a - sd_b), None, None
    if sd_a and sd_b:
        log_ratio = math.log(sd_a / sd_b)
        quantiles = scipy_stats.f.ppf([1 - alpha / 2, alpha / 2], len(a) - 1, len(b) - 1)
        low, high = (float(log_ratio - math.log(q) / 2) for q in quantiles)
    p = p_two_sided = None
    if min(len(a), len(b)) >= 3:
        p_two_sided = float(scipy_stats.levene(a, b, center="median").pvalue) if sd_a or sd_b else 1.0
        p = p_two_sided
        if alternative != "two-sided":
            p = p_two_sided / 2 if direction(alternative) * towards > 0 else 1 - p_two_sided / 2
    return Spread(len(a), len(b), log_ratio, low, high, alternative, alpha, towards, p, p_two_sided)


def fisher(k1: int, n1: int, k2: int, n2: int, alternative: Alternative = "two-sided", alpha: float = ALPHA) -> Exact:
    """Fisher's exact test of k1 of n1 against k2 of n2 (diverged seeds, say); estimate: k1 / n1 - k2 / n2.

    scipy.stats.fisher_exact. smallest_p: that of all against none, `smallest_p_unpaired`. Limits: equal fractions 0 or
    1 give p = 1. Raises: ValueError for counts outside 0..n.
    """
    if not (0 <= k1 <= n1 and 0 <= k2 <= n2):
        raise ValueError(f"expected counts between 0 and n, found {k1} of {n1} and {k2} of {n2}")
    table = [[k1, n1 - k1], [k2, n2 - k2]]
    floor = smallest_p_unpaired(n1, n2, alternative)
    p = against = None
    if floor <= alpha:
        p, against = (float(scipy_stats.fisher_exact(table, s).pvalue) for s in (alternative, opposite(alternative)))
    return Exact(n1 + n2, k1 / n1 - k2 / n2, alternative, alpha, floor, p, against)
