"""Effects of several studies together: how much they differ beyond chance, and what a further study might find.

found = random_effects([0.2, 0.5, -0.1], [0.01, 0.02, 0.01])     # effects, their squared standard errors

tau2 is the Paule-Mandel estimate (1982; no normality needed, exact where the variances are), its interval the Q profile
(Viechtbauer 2007); the mean's interval is Hartung and Knapp's (2001), never narrower than that of a t with the standard
variance (their factor is not let below 1; Roever, Knapp & Friede 2015). With two to four studies all of these say
little: the intervals show how little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from workbook.statistics.paired import ALPHA, finite

LARGEST = 1e6  # of tau2, in variances of the studies' means: beyond it, an end of its interval is called unknown


@dataclass(frozen=True)
class Pooled:
    """k studies. q, p_q: Cochran's Q and its chi-square p; i2: share of the spread beyond chance, 0 to 1; tau2:
    variance of true effects, with its 1 - alpha interval (high None: no end in these data); low, high: of the mean;
    new_low, new_high: prediction interval, of the true effect in a further study. None: takes two studies."""

    k: int
    mean: float
    low: float | None
    high: float | None
    q: float | None = None
    p_q: float | None = None
    i2: float | None = None
    tau2: float | None = None
    tau2_low: float | None = None
    tau2_high: float | None = None
    new_low: float | None = None
    new_high: float | None = None


def random_effects(
    effects: Sequence[float], variances: Sequence[float], alpha: float = ALPHA, at_least: float = 1.0
) -> Pooled:
    """Effects [k] with sampling variances [k] > 0, taken as known and independent. at_least: bound on Hartung and
    Knapp's factor (0: as they published it).

    Prediction interval: mean ± t(k - 1) sqrt(tau2 + variance of the mean) (as metafor's with their interval; Higgins et
    al. 2009 take k - 2, which two studies do not have). Limits: one study gives its effect and no more; equal effects
    give tau2 = 0 and Q = 0. Raises: ValueError for no study, unlike lengths, or a variance that is not positive.
    """
    y, v = finite(effects), finite(variances)
    if len(y) != len(v) or (v <= 0).any():
        raise ValueError(f"expected a variance > 0 for each effect, found {list(y)} and {list(v)}")
    k = len(y)
    if k == 1:
        half = stats.norm.ppf(1 - alpha / 2) * np.sqrt(v[0])
        return Pooled(1, float(y[0]), float(y[0] - half), float(y[0] + half))
    q = generalised_q(y, v, 0.0)
    tau2 = _crossing(y, v, k - 1)
    if tau2 is None:
        raise ValueError(f"effects {list(y)} differ more than variances {list(v)} allow for")
    w = 1 / (v + tau2)
    mean = float(w @ y / w.sum())
    factor = max(at_least, generalised_q(y, v, tau2) / (k - 1))
    variance = float(factor / w.sum())
    t = float(stats.t.ppf(1 - alpha / 2, k - 1))
    half, wide = t * variance**0.5, t * (variance + tau2) ** 0.5
    return Pooled(
        k,
        mean,
        mean - half,
        mean + half,
        q,
        float(stats.chi2.sf(q, k - 1)),
        max(0.0, (q - (k - 1)) / q) if q > 0 else 0.0,
        tau2,
        _crossing(y, v, float(stats.chi2.ppf(1 - alpha / 2, k - 1))),
        _crossing(y, v, float(stats.chi2.ppf(alpha / 2, k - 1))),
        mean - wide,
        mean + wide,
    )


def generalised_q(y: np.ndarray, v: np.ndarray, tau2: float) -> float:
    """Weighted squares of y [k] around their mean, with weights 1 / (v + tau2); Cochran's Q at 0, falling in tau2."""
    w = 1 / (v + tau2)
    return float(w @ (y - w @ y / w.sum()) ** 2)


def _crossing(y: np.ndarray, v: np.ndarray, level: float) -> float | None:
    """The tau2 >= 0 at which Q falls to the level: 0 where it is below from the start, None where it never is."""
    if generalised_q(y, v, 0.0) <= level:
        return 0.0
    top = LARGEST * float(v.mean() + y.var())
    if generalised_q(y, v, top) > level:
        return None
    return float(optimize.brentq(lambda tau2: generalised_q(y, v, tau2) - level, 0.0, top, xtol=1e-14, rtol=1e-12))
