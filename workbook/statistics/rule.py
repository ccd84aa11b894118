"""The rule, fixed before the results it judges: what a test says for a claim, and what a claim of several comes to.

    decide(result)                               # "holds" | "too small" | "opposite" | "open, leans for" | ...
    decide(combine([first, second], how="all"))  # a claim with several parts; combinations combine again
    [decide(e) for e in adjusted(results)]       # each of a claim's own contrasts, after Holm

A result is whatever has ``.evidence``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

HOLDS, HOLDS_SMALLER = "holds", "holds, but smaller than stated"
TOO_SMALL, OPPOSITE = "too small", "opposite"
OPEN, OPEN_FOR, OPEN_AGAINST = "open", "open, leans for", "open, leans against"
FEW = "too few seeds for a test; direction only"
ROUNDING = 1e-9  # a p this near 1: a mean within some 1e-9 standard errors of 0, far more than rounding leaves of it
# (1e-13 of them at 1000 seeds) and far less than any difference that was measured; in these units no scale matters
FOR, AGAINST, OPENS = (HOLDS, HOLDS_SMALLER), (TOO_SMALL, OPPOSITE), (OPEN, OPEN_FOR, OPEN_AGAINST)


@dataclass(frozen=True)
class Evidence:
    """What one test, or several combined, says for a claim and against it; each p in [0, 1].

    p_for: p of the claim; p_against: p of its opposite. For t tests these are the two-sided p, counted as 1 where the
    mean lies on the other side. exact_for, exact_against: the exact one-sided permutation p that must be <= alpha
    too and that Holm never touches (0 where the test has none). p_small: p that the effect, whatever its sign, is
    smaller than the one stated beforehand (TOST; 1 where nothing was stated). towards: the effect seen, positive in
    the claimed direction (only its sign is used). testable: False where the smallest attainable p exceeds alpha; all p
    are 1 then.
    """

    p_for: float
    p_against: float
    exact_for: float
    exact_against: float
    alpha: float
    testable: bool = True
    p_small: float = 1.0
    towards: float = 0.0

    @property
    def evidence(self) -> Evidence:
        return self

    @property
    def opposite(self) -> Evidence:
        """The evidence for the claim's opposite."""
        return replace(
            self,
            p_for=self.p_against,
            p_against=self.p_for,
            exact_for=self.exact_against,
            exact_against=self.exact_for,
            towards=-self.towards,
        )

    @property
    def p(self) -> float:
        """The p of the claim: it holds exactly if this is <= alpha."""
        return max(self.p_for, self.exact_for)

    @property
    def p_refuted(self) -> float:
        """The p of what goes against the claim: an effect the other way, or one too small where the claim does not
        hold."""
        way = self.p_against if self.exact_against <= self.alpha else 1.0
        return min(way, 1.0 if self.p <= self.alpha else self.p_small)


def directed(towards: float, p_two_sided: float, exact_for: float, exact_against: float, alpha: float) -> Evidence:
    """Evidence of a two-sided p; towards: the effect seen, positive if it lies in the claimed direction, counted as 0
    where the p says that it is none (`ROUNDING`)."""
    if p_two_sided >= 1 - ROUNDING:
        towards = 0.0
    p_for, p_against = (p_two_sided, 1.0) if towards > 0 else (1.0, p_two_sided)
    return Evidence(p_for, p_against, exact_for, exact_against, alpha, towards=towards)


def untestable(alpha: float) -> Evidence:
    """Evidence of a design whose smallest attainable p exceeds alpha."""
    return Evidence(1.0, 1.0, 1.0, 1.0, alpha, testable=False)


def decide(result) -> str:
    """The rule: one of `FOR`, `AGAINST` or `OPENS`, or `FEW`.

    result: anything with ``.evidence``: `Paired` with a direction, `Equivalence`, the results of `independent`
    and `ordered`, or the `Evidence` that `adjusted` and `combine` return.

    For arms paired by seed -
    holds: the mean lies in the claimed direction, the two-sided t p <= alpha (after Holm, if `adjusted`) and the
    exact one-sided sign-flip p <= alpha (never adjusted); so for one contrast the 1 - alpha interval excludes 0;
    holds, but smaller than stated: the same, and the 1 - 2 alpha interval lies inside +-the effect stated beforehand;
    too small: it does not hold, and that interval lies inside +-the stated effect (TOST), so that an effect of the
    stated size is excluded both ways, whether or not a small one is there;
    opposite: what holds asks for, in the other direction, and not shown to be too small;
    open: everything else; it leans to where the mean lies;
    too few seeds for a test: the smallest attainable p exceeds alpha.
    For an equivalence - holds: TOST p <= alpha; opposite: the 1 - alpha interval lies wholly beyond the margin.
    """
    e = result.evidence
    if e.p <= e.alpha:
        return HOLDS_SMALLER if e.p_small <= e.alpha else HOLDS
    if e.p_small <= e.alpha:
        return TOO_SMALL
    if max(e.p_against, e.exact_against) <= e.alpha:
        return OPPOSITE
    if not e.testable:
        return FEW
    return OPEN_FOR if e.towards > 0 else OPEN_AGAINST if e.towards < 0 else OPEN


def settled(words: Iterable[str]) -> bool:
    """Whether a claim whose deciding tests have these words is: each of them speaks for it or against it."""
    return all(word in (*FOR, *AGAINST) for word in words)


def adjusted(results: Sequence) -> list[Evidence]:
    """Evidence of each of a claim's own contrasts after Holm over all of them, in their order; `decide` takes each.

    p_for and p_against are two families (each keeps its own error rate at alpha); exact_for and exact_against stay.
    Limits: one result is unchanged; an untestable one counts in the family, with p = 1.
    """
    found = [r.evidence for r in results]
    p_for, p_against = holm([e.p_for for e in found]), holm([e.p_against for e in found])
    return [replace(e, p_for=p, p_against=q) for e, p, q in zip(found, p_for, p_against)]


def stepped_down(results: Sequence) -> list[Evidence]:
    """Evidence of each part of a claim that needs them all, after Holm over what goes against each (`p_refuted`), and
    over the sizes of those that hold (the others count with p = 1), in their order. What is said for a part stays."""
    found = [r.evidence for r in results]
    against = holm([e.p_refuted for e in found])
    sizes = holm([e.p_small if e.p <= e.alpha else 1.0 for e in found])
    return [
        replace(e, p_against=max(e.p_against, p), p_small=size if e.p <= e.alpha else max(e.p_small, p))
        for e, p, size in zip(found, against, sizes)
    ]


def fair(results: Sequence, how: Literal["all", "any"]) -> list[Evidence]:
    """Each part of a claim as the claim's word takes it, after Holm, for the word that stands beside it."""
    if how == "all":
        return stepped_down(results)
    return [replace(r.evidence, p_for=after.p_for) for r, after in zip(results, adjusted(results))]


def combine(results: Sequence, how: Literal["all", "any"]) -> Evidence:
    """The evidence for a claim with several parts; may be combined again. `decide` and ``.p`` say what comes of it.

    all: holds iff every part holds, unadjusted (intersection-union test, Berger 1982: the largest p), and is smaller
         than stated if a part is, after Holm over the parts' p_small; opposite or too small iff some part is, after
         Holm over the parts (a part's p being the smaller of the two), opposite before too small;
    any: holds iff some part holds after Holm over the parts, and is smaller than stated if every such part is;
         refuted iff every part is opposite or too small, unadjusted: opposite if all are opposite, else too small;
    otherwise open, or too few seeds if a part cannot be tested. An open claim leans against if a part that does not
    hold does (all), or if every part does (any). So a wrong "holds" has probability <= alpha, and so has, of parts that
    are as stated, a wrong refutation or a wrong "smaller", however the parts depend on each other. Simulated: of 1, 2,
    3 and 5 independent parts (all) exactly as stated, at 8 seeds, "smaller" is said in .050 each of
    16,000 worlds (.032 where five are correlated .8); without Holm over the sizes it was .045, .091, .138 and .222.
    Raises: ValueError without parts, or for parts at different alpha.
    """
    parts = [r.evidence for r in results]
    if how not in ("all", "any"):
        raise ValueError(f'parts combine by "all" or "any", found {how!r}')
    if len({e.alpha for e in parts}) != 1:
        raise ValueError(f"expected parts at one alpha, found {sorted({e.alpha for e in parts})}")
    alpha, testable = parts[0].alpha, all(e.testable for e in parts)
    if how == "all":
        stepped = stepped_down(parts)
        against = [(e.p_against, e.exact_against) for e in stepped if e.p_small > alpha]  # else too small
        p_against, exact_against = min(against, key=max, default=(1.0, 1.0))
        open_ = [e for e in stepped if e.p > alpha]
        p_small = min(e.p_small for e in open_ or stepped)
        if open_ and max(p_against, exact_against) <= alpha:
            p_small = 1.0  # opposite says more
        return Evidence(
            p_for=max(e.p_for for e in parts),
            p_against=p_against,
            exact_for=max(e.exact_for for e in parts),
            exact_against=exact_against,
            alpha=alpha,
            testable=testable,
            p_small=p_small,
            towards=min((e.towards for e in open_), default=1.0),
        )
    adjusted_for = fair(parts, "any")
    p_for, exact_for = min(((e.p_for, e.exact_for) for e in adjusted_for), key=max)
    holding = [e for e in adjusted_for if e.p <= alpha]
    return Evidence(
        p_for=p_for,
        p_against=max(e.p_against for e in parts),
        exact_for=exact_for,
        exact_against=max(e.exact_against for e in parts),
        alpha=alpha,
        testable=testable,
        p_small=max(e.p_small for e in holding) if holding else _none_is_as_stated(adjusted_for),
        towards=max(e.towards for e in parts),
    )


def _none_is_as_stated(parts: Sequence[Evidence]) -> float:
    """p that every part goes against the claim, some by being too small; 1 where none is shown to be."""
    return max(e.p_refuted for e in parts) if any(e.p_small <= e.alpha for e in parts) else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) step-down correction of a family of p values, in their order: the i-th smallest times m + 1 - i.

    Limits: one p is unchanged; m equal p become min(1, m p). (statsmodels' multipletests gives the same but collects
    garbage on every call, a quarter of a second in a notebook.)
    """
    p, m = np.asarray(p_values, dtype=float), len(p_values)
    order = np.argsort(p)
    stepped = np.minimum(np.maximum.accumulate(p[order] * (m - np.arange(m))), 1.0)
    return stepped[np.argsort(order)].tolist()
