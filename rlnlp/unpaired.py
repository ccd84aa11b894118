"""Two arms that share no seeds, spreads and fractions: one value per seed, first [n] against second [m].

``alternative`` is the direction of first - second that is claimed, everywhere. Every result has ``.evidence`` for
`verdicts.decide`. Arms that share their seeds belong in `stats.paired`, which sees much smaller effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as scipy_stats

from rlnlp.stats import ALPHA, Alternative, TooFewSeeds, direction, finite, opposite
from rlnlp.verdicts import Evidence, directed, untestable

MAX_PARTITIONS = 20_000  # ways to deal the values to two arms up to which all of them are enumerated


@dataclass(frozen=True)
class Welch:
    """Difference of two means with its 1 - alpha interval (always two-sided) and Welch's p.

    n, m: values per arm; p: in the direction of ``alternative``; p_permutation, p_opposite: exact permutation p in
    that direction and the other, None where `smallest_p_unpaired` exceeds alpha and for published numbers.
    """

    n: int
    m: int
    difference: float
    low: float
    high: float
    alternative: Alternative
    alpha: float
    p: float
    p_two_sided: float
    p_permutation: float | None = None
    p_opposite: float | None = None

    @property
    def evidence(self) -> Evidence:
        """As for pairs: the two-sided Welch p and the exact one-sided permutation p. Published means give none."""
        sign = direction(self.alternative)
        if self.p_permutation is None:
            return untestable(self.alpha)
        return directed(sign * self.difference, self.p_two_sided, self.p_permutation, self.p_opposite, self.alpha)


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
    """A test whose p is exact. estimate: difference of fractions (`fisher`) or rank correlation (`curves.spearman`);
    n: values (both arms together); p: in the direction of ``alternative``, p_opposite: in the other; None where
    smallest_p exceeds alpha.
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
        direction(self.alternative)
        if self.p is None:
            return untestable(self.alpha)
        return Evidence(self.p, self.p_opposite, 0.0, 0.0, self.alpha)


def welch(
    first: Sequence[float], second: Sequence[float], alternative: Alternative = "two-sided", alpha: float = ALPHA
) -> Welch:
    """Welch's t test and interval of mean(first) - mean(second), and the exact permutation p beside it.

    first [n >= 2], second [m >= 2], no seed in common (scipy.stats.ttest_ind, equal_var=False). Limits: no spread in
    either arm gives p = 0 (1 for equal means) and an interval of width 0.
    Raises: TooFewSeeds for one value in an arm; ValueError for values that are not finite.
    """
    a, b = finite(first), finite(second)
    found = welch_published(*_moments(a), *_moments(b), alternative, alpha)
    if smallest_p_unpaired(len(a), len(b), alternative) > alpha:
        return found
    p = permutation(a, b, alternative, alpha)
    against = permutation(a, b, opposite(alternative), alpha)
    return replace(found, p_permutation=p, p_opposite=against)


def welch_published(
    mean1: float,
    sd1: float,
    n1: int,
    mean2: float,
    sd2: float,
    n2: int,
    alternative: Alternative = "two-sided",
    alpha: float = ALPHA,
) -> Welch:
    """`welch` from means, standard deviations (with n - 1) and numbers of values, as papers print them.

    Degrees of freedom: Welch-Satterthwaite. Raises: TooFewSeeds for n < 2; ValueError for a negative sd.
    """
    if min(n1, n2) < 2:
        raise TooFewSeeds(f"Welch's test needs two values in each arm, found {n1} and {n2}")
    if min(sd1, sd2) < 0:
        raise ValueError(f"a standard deviation is not negative, found {sd1:g} and {sd2:g}")
    difference = float(mean1 - mean2)
    p, p_two_sided = (_welch_p(mean1, sd1, n1, mean2, sd2, n2, side) for side in (alternative, "two-sided"))
    half = 0.0
    if sd1 or sd2:
        v1, v2 = sd1**2 / n1, sd2**2 / n2
        freedom = (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
        half = float(scipy_stats.t.ppf(1 - alpha / 2, freedom) * math.sqrt(v1 + v2))
    return Welch(n1, n2, difference, difference - half, difference + half, alternative, alpha, p, p_two_sided)


def smallest_p_unpaired(n: int, m: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p that dealing n + m values to two arms can give: 1 / C(n + m, n) one-sided, twice that two-sided."""
    if min(n, m) < 1:
        raise ValueError(f"expected at least one value in each arm, found {n} and {m}")
    return min(1.0, (2 if alternative == "two-sided" else 1) / math.comb(n + m, n))


def permutation(
    first: Sequence[float],
    second: Sequence[float],
    alternative: Alternative = "two-sided",
    alpha: float | None = ALPHA,
) -> float:
    """Permutation p of mean(first) - mean(second), over every way to deal the values to two arms of these sizes.

    first [n], second [m] (scipy.stats.permutation_test; two-sided: twice the smaller side). Exact up to
    MAX_PARTITIONS ways (8 against 8 is exact, 9 against 9 is not), beyond that as many seeded random ones.
    Limits: arms that do not overlap give `smallest_p_unpaired`; all values equal give 1.
    Raises: TooFewSeeds where `smallest_p_unpaired` > alpha (alpha None: no refusal).
    """
    a, b = finite(first), finite(second)
    floor = smallest_p_unpaired(len(a), len(b), alternative)
    if alpha is not None and floor > alpha:
        raise TooFewSeeds(
            f"{len(a)} and {len(b)} values: the smallest p ({alternative}) is {floor:g} > {alpha:g}, so no test is made"
        )
    return float(
        scipy_stats.permutation_test(
            (a, b),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            vectorized=True,
            n_resamples=MAX_PARTITIONS,
            alternative=alternative,
            rng=np.random.default_rng(0),
        ).pvalue
    )


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


def _moments(x: np.ndarray) -> tuple[float, float, int]:
    """Mean, standard deviation (exactly 0 for equal values) and number."""
    return float(x.mean()), float(x.std(ddof=1)) if np.ptp(x) else 0.0, len(x)


def _welch_p(mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int, alternative: Alternative) -> float:
    if sd1 or sd2:
        found = scipy_stats.ttest_ind_from_stats(
            mean1, sd1, n1, mean2, sd2, n2, equal_var=False, alternative=alternative
        )
        return float(found.pvalue)
    seen = mean1 != mean2 and (alternative == "two-sided" or (mean1 > mean2) == (alternative == "greater"))
    return 0.0 if seen else 1.0
