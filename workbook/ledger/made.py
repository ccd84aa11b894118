"""From a test's numbers, one a seed, to what it came to, its evidence, and the sample that a simulation repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from workbook.ledger.claim import Test
from workbook.ledger.published import weights
from workbook.statistics import independent, ordered, paired
from workbook.statistics.paired import ALPHA
from workbook.statistics.rule import Evidence


@dataclass(frozen=True)
class Component:
    """What one test came to. Raw numbers are in the metric's unit (its logarithm where log ratios are compared).

    difference, low, high: mean over seeds and its 1 - alpha interval, raw; effect, effect_low, effect_high: the same
    in `unit`; yardstick: raw size of one unit; stated: the effect or margin fixed beforehand, in `unit`; sd: of the
    numbers per seed, raw; p_t: two-sided t (TOST for equality); p_exact: one-sided, in the claimed direction; p_t_holm,
    p_t_table: p_t after Holm over the claim's deciding tests, and over those of the whole ledger; smaller: shown to be
    smaller than stated, whatever its sign, p_smaller: its TOST p; n_needed: where open, see `contrast.seeds_needed`;
    published, ...: the published effect and interval, in `unit`. None: not there.
    """

    name: str
    role: str
    kind: str
    metric: str
    decoding: str
    direction: str
    unit: str
    conditions: str
    word: str
    stated: float
    n: int | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    yardstick: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    sd: float | None = None
    p_t: float | None = None
    p_t_holm: float | None = None
    p_t_table: float | None = None
    p_exact: float | None = None
    smaller: bool = False
    p_smaller: float | None = None
    n_needed: int | None = None
    published: float | None = None
    published_low: float | None = None
    published_high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Sample:
    """What a simulation of a test takes.

    values [m, n seeds]: the numbers; at: an effect towards the claim, 1 = as stated, 0 = nothing there -> the means [m]
    that have it (of an equality: 1 = no difference, 0 = twice its margin; of a threshold: 1 = passed by the effect
    stated, 0 = missed by as much); judge: samples [r, m, n], level of the
    tests -> r pieces of evidence.
    """

    values: np.ndarray
    at: Callable[[float], np.ndarray]
    judge: Callable[..., list[Evidence]]


class Made(NamedTuple):
    """A test: what it came to; its evidence before any adjustment, None where it was not made; its sample, None where
    none can be drawn (counts of runs)."""

    component: Component
    evidence: Evidence | None
    sample: Sample | None = None


def seed_by_seed(test: Test, component: Component, d: np.ndarray, unit: float, alpha: float = ALPHA) -> Made:
    """d [n seeds] against 0, or against the margin; of a threshold the distance from it."""
    bound = component.stated * unit
    near = paired.equivalence(d, bound, alpha)
    if test.direction == "equal":
        span = (near.difference, near.low_wide, near.high_wide)

        def equalities(samples: np.ndarray, alpha: float = ALPHA) -> list[Evidence]:
            return [paired.equivalence(d[0], bound, alpha).evidence for d in samples]

        sample = Sample(d[None], lambda effect: np.array([2 * bound * (1 - effect)]), equalities)
        return Made(_filled(component, d, span, unit, near.p, None), near.evidence, sample)
    found = paired.one_sample(d, test.direction, alpha)
    component = _filled(
        component, d, (found.difference, found.low, found.high), unit, found.p_two_sided, found.p_permutation
    )
    sign, sized = paired.direction(test.direction), None if test.threshold else bound
    sample = Sample(
        d[None],
        lambda effect: np.array([sign * bound * (2 * effect - 1 if test.threshold else effect)]),
        lambda samples, alpha=ALPHA: paired.many(samples[:, 0], test.direction, sized, alpha),
    )
    if test.threshold:  # of a distance from a threshold no size is stated: it is passed or missed
        return Made(component, found.evidence, sample)
    return Made(*_sized(component, near, found.evidence), sample)


def _sized(component: Component, near: paired.Equivalence, evidence: Evidence) -> tuple[Component, Evidence]:
    """The evidence with what is known of the effect's size; no test, no size."""
    if not evidence.testable:
        return component, evidence
    return replace(component, smaller=near.equivalent, p_smaller=near.p), replace(evidence, p_small=near.p)


def peak(component: Component, values: np.ndarray, levels: list[float], unit: float, alpha: float = ALPHA) -> Made:
    """values [k conditions, n seeds]"""
    d = ordered.contrast(values, weights("peak", levels))
    height, evidence = paired.one_sample(d, "greater", alpha), ordered.peak(values, levels, alpha).evidence
    exact = evidence.exact_for if evidence.testable else None
    span = (height.difference, height.low, height.high)
    component = _filled(component, d, span, unit, evidence.p_for, exact)
    bound = component.stated * unit
    shape = weights("peak", levels)
    parabola = -((np.array(levels) - np.mean([min(levels), max(levels)])) ** 2)
    parabola /= shape @ parabola  # the height that the test measures is 1

    def judged(samples: np.ndarray, alpha: float = ALPHA) -> list[Evidence]:
        heights = paired.many(np.einsum("k,rkn->rn", shape, samples), "greater", bound, alpha)
        whole = ordered.peaks(samples, levels, alpha)
        return [replace(evidence, p_small=height.p_small) for evidence, height in zip(whole, heights)]

    sample = Sample(values, lambda effect: bound * effect * parabola, judged)
    return Made(*_sized(component, paired.equivalence(d, bound, alpha), evidence), sample)


def fraction(test: Test, component: Component, first: np.ndarray, second: np.ndarray, alpha: float = ALPHA) -> Made:
    """first, second [k conditions, n seeds] of 0 and 1"""
    counts = [(round(float(arm.sum())), arm.size) for arm in (first, second)]
    found = independent.fisher(*counts[0], *counts[1], test.direction, alpha)
    component = _filled(component, first[0], (found.estimate, None, None), 1.0, None, found.p)
    said = " against ".join(f"{k} of {n} runs" for k, n in counts)
    component, evidence = replace(component, note=said), found.evidence
    if not evidence.testable:
        return Made(component, evidence)
    small = max(independent.share_below(k, n, component.stated) for k, n in counts)  # so is their difference, then
    component = replace(component, p_smaller=small, smaller=small <= alpha)
    return Made(component, replace(evidence, p_small=small))


def _filled(component: Component, d: np.ndarray, span: tuple, unit: float, p_t, p_exact) -> Component:
    """d [n seeds]: what the spread is of; span: difference, low, high, raw."""
    scaled = [None if v is None else v / unit for v in span]
    return replace(
        component,
        n=len(d),
        difference=span[0],
        low=span[1],
        high=span[2],
        yardstick=unit,
        effect=scaled[0],
        effect_low=scaled[1],
        effect_high=scaled[2],
        p_t=p_t,
        p_exact=p_exact,
        sd=float(d.std(ddof=1)) if len(d) > 1 and np.ptp(d) else 0.0,
    )
