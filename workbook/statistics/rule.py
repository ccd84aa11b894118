"""The rule, fixed before the results it judges: what a test says for a claim, and what a claim of several comes to.

    decide(result)                               # "holds here" | "fails here" | "inconclusive" | too few seeds
    decide(combine([first, second], how="all"))  # a claim with several parts; combinations combine again
    [decide(e) for e in adjusted(results)]       # each of a claim's own contrasts, after Holm

A result is whatever has ``.evidence``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

HOLDS, FAILS, INCONCLUSIVE, FEW = "holds here", "fails here", "inconclusive", "too few seeds for a test; direction only"


@dataclass(frozen=True)
class Evidence:
    """What one test, or several combined, says for a claim and against it; each number in [0, 1].

    p_for: p of the claim; p_against: p of its opposite. For t tests these are the two-sided p, counted as 1 where the
    mean lies on the other side. exact_for, exact_against: the exact one-sided permutation p that must be <= alpha
    too and that Holm never touches (0 where the test has none). testable: False where the smallest attainable p
    exceeds alpha; all p are 1 then.
    """

    p_for: float
    p_against: float
    exact_for: float
    exact_against: float
    alpha: float
    testable: bool = True

    @property
    def evidence(self) -> Evidence:
        return self

    @property
    def opposite(self) -> Evidence:
        """The evidence for the claim's opposite."""
        return Evidence(self.p_against, self.p_for, self.exact_against, self.exact_for, self.alpha, self.testable)

    @property
    def p(self) -> float:
        """The p of the claim: it holds here exactly if this is <= alpha."""
        return max(self.p_for, self.exact_for)


def directed(towards: float, p_two_sided: float, exact_for: float, exact_against: float, alpha: float) -> Evidence:
    """Evidence of a two-sided p; towards: the effect seen, positive if it lies in the claimed direction."""
    p_for, p_against = (p_two_sided, 1.0) if towards > 0 else (1.0, p_two_sided)
    return Evidence(p_for, p_against, exact_for, exact_against, alpha)


def untestable(alpha: float) -> Evidence:
    """Evidence of a design whose smallest attainable p exceeds alpha."""
    return Evidence(1.0, 1.0, 1.0, 1.0, alpha, testable=False)


def decide(result) -> str:
    """The rule: `HOLDS`, `FAILS`, `INCONCLUSIVE` or `FEW`.

    result: anything with ``.evidence``: `Paired` with a direction, `Equivalence`, the results of `independent`
    and `ordered`, or the `Evidence` that `adjusted` and `combine` return.

    For arms paired by seed -
    holds here: the mean lies in the claimed direction, the two-sided t p <= alpha (after Holm, if `adjusted`) and the
    exact one-sided sign-flip p <= alpha (never adjusted); so for one contrast the 1 - alpha interval excludes 0;
    fails here: the same in the opposite direction; no effect found is inconclusive, and so is an effect shown to be
    small (only the profile `paper` counts that against a claim, in `judge.judge`);
    too few seeds for a test: the smallest attainable p exceeds alpha.
    For an equivalence - holds here: TOST p <= alpha; fails here: the 1 - alpha interval lies wholly beyond the margin.
    """
    e = result.evidence
    if max(e.p_for, e.exact_for) <= e.alpha:
        return HOLDS
    if max(e.p_against, e.exact_against) <= e.alpha:
        return FAILS
    return INCONCLUSIVE if e.testable else FEW


def adjusted(results: Sequence) -> list[Evidence]:
    """Evidence of each of a claim's own contrasts after Holm over all of them, in their order; `decide` takes each.

    p_for and p_against are two families (each keeps its own error rate at alpha); exact_for and exact_against stay.
    Limits: one result is unchanged; an untestable one counts in the family, with p = 1.
    """
    found = [r.evidence for r in results]
    p_for, p_against = holm([e.p_for for e in found]), holm([e.p_against for e in found])
    return [replace(e, p_for=p, p_against=q) for e, p, q in zip(found, p_for, p_against)]


def combine(results: Sequence, how: Literal["all", "any"]) -> Evidence:
    """The evidence for a claim with several parts; may be combined again. `decide` and ``.p`` say what comes of it.

    all: holds here iff every part holds, unadjusted (intersection-union test, Berger 1982: the largest p);
         fails here iff some part fails after Holm over the parts;
    any: holds here iff some part holds after Holm over the parts; fails here iff every part fails, unadjusted;
    otherwise inconclusive, or too few seeds if a part cannot be tested. So a wrong "holds here" and a wrong
    "fails here" each have probability <= alpha, however the parts depend on each other.
    Raises: ValueError without parts, or for parts at different alpha.
    """
    parts = [r.evidence for r in results]
    if how not in ("all", "any"):
        raise ValueError(f'parts combine by "all" or "any", found {how!r}')
    if len({e.alpha for e in parts}) != 1:
        raise ValueError(f"expected parts at one alpha, found {sorted({e.alpha for e in parts})}")
    if how == "any":  # some part is true unless all parts are false
        return combine([e.opposite for e in parts], "all").opposite
    p_against, exact_against = min(((e.p_against, e.exact_against) for e in adjusted(parts)), key=max)
    return Evidence(
        p_for=max(e.p_for for e in parts),
        p_against=p_against,
        exact_for=max(e.exact_for for e in parts),
        exact_against=exact_against,
        alpha=parts[0].alpha,
        testable=all(e.testable for e in parts),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) step-down correction of a family of p values, in their order: the i-th smallest times m + 1 - i.

    Limits: one p is unchanged; m equal p become min(1, m p). (statsmodels' multipletests gives the same but collects
    garbage on every call, a quarter of a second in a notebook.)
    """
    p, m = np.asarray(p_values, dtype=float), len(p_values)
    order = np.argsort(p)
    stepped = np.minimum(np.maximum.accumulate(p[order] * (m - np.arange(m))), 1.0)
    return stepped[np.argsort(order)].tolist()
