"""Fractions of two arms, seen as independent: k of n seeds against k of m.

``alternative`` is the direction of first - second that is claimed, everywhere. Every result has ``.evidence`` for
`rule.decide`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats as scipy_stats

from workbook.statistics.paired import ALPHA, Alternative, direction, opposite
from workbook.statistics.rule import Evidence, untestable


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


def share_below(k: int, n: int, share: float) -> float:
    """p that the fraction behind k of n is below `share`: that of k or fewer if it were `share` (exact binomial)."""
    return float(scipy_stats.binom.cdf(k, n, share))
