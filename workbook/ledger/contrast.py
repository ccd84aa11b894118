"""One test of a claim on the runs of a profile: its numbers in yardsticks, and its evidence before any adjustment.

made = measure(test, claim, results, "test")     # made.evidence None: not made, and made.component says why
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import digamma

from workbook.ledger.claim import FEWEST_REPETITIONS, PARTIAL, YARDSTICK, Claim, ClaimError, Test, repetitions
from workbook.ledger.made import Component, Made, fraction, peak, seed_by_seed
from workbook.ledger.published import published, stated, weights
from workbook.results.measures import MEASURES, yardstick_of
from workbook.results.results import ReportError
from workbook.results.tables import join
from workbook.statistics import ordered, paired, power
from workbook.statistics.rule import Evidence

NOT_RUN, NOT_MEASURED = "not run here", "not measured"  # words of a test that was not made
AXIS = {"kl_deployed": "KL", "kept_mass": "kept mass"}  # along which curves are compared


def nothing(alpha: float = paired.ALPHA) -> Evidence:
    """Of numbers from which nothing follows."""
    return Evidence(1.0, 1.0, 1.0, 1.0, alpha)


def yardstick(results, metric: str, split: str = "test", ends: tuple[str, str] = YARDSTICK) -> paired.Interval | None:
    """Mean over seeds of the first - second of `ends` (the untrained model, PPO without the KL penalty) of the metric,
    or of the one that measures it, in plain decoding, with its 1 - alpha interval; the unit is its absolute value. None
    where one of them was not measured. Of a metric whose yardstick has a set size: that, exactly.

    Raises: ReportError where some seeds have it and others have not.
    """
    if (fixed := MEASURES[yardstick_of(metric)].yardstick) is not None:
        return paired.Interval(fixed, fixed, fixed, len(results.seeds))
    arms = [results.values(condition, yardstick_of(metric), "plain", split) for condition in ends]
    return None if any(a is None for a in arms) else paired.mean_interval(arms[0] - arms[1])


def present(test: Test, runs: Mapping[str, Any]) -> tuple[list[list[dict[str, float]]], str]:
    """The terms of each arm whose conditions are all listed, and what lacks for the test ("" if nothing does)."""
    arms = [[t for t in arm if all(test.split(term)[0] in runs for term in t)] for arm in test.arms]
    said = []
    for here, arm in zip(arms, test.arms):
        gone = sorted({c for terms in arm for c in (test.split(term)[0] for term in terms) if c not in runs})
        short = (test.at_least or len(arm)) - len(here)
        if short > 0 and test.kind in PARTIAL and len(gone) > short:
            said.append(f"{short} of the runs {join(gone, ' or ')}")
        elif short > 0:
            said.append(f"the run{'s' * (len(gone) > 1)} {join(gone)}")
    return arms, join(said)


def measure(test: Test, claim: Claim, results, split: str, alpha: float = paired.ALPHA) -> Made:
    """A test's numbers, and its evidence before any adjustment (None where it was not made, and the note says why).

    Raises: ClaimError where the listed runs of a deciding test have not measured what it compares.
    """
    arms, said = present(test, results.params.all_runs)
    component = _stated(test, claim, arms)
    if said:  # of a test beside: `judge` has seen to those that decide
        return Made(replace(component, note=f"needs {said}"), None)
    component = replace(component, word=NOT_MEASURED)
    if not all(map(results.independent, test.metrics)):
        return Made(replace(component, note="the model that was brought is its own evaluator"), None)
    try:
        values, span = _values(test, arms, results, split)
    except ReportError as error:  # a seed that diverged has nothing to measure; the other claims still have their words
        return Made(replace(component, note=str(error)), None)
    if gone := _gone(test, values, span):
        ended = _ended(test, arms, results) if split == "test" else ""
        if split == "test" and test.role == "decides" and not ended:
            raise ClaimError(
                f"{claim.id}: {test.name}: the runs of {results.params.profile} have no {gone} ({split} prompts)"
            )
        return Made(replace(component, note=f"no {gone}{ended}"), None)
    if test.unit == "yardsticks" and (why := _no_yardstick(test, span)):
        return Made(replace(component, n=len(results.seeds), note=why), None)
    component = replace(component, word=NOT_RUN)
    if test.kind == "rank":
        orders = [np.array([values[m][t] for t in terms]) for m, terms in zip(test.metrics, _sides(arms[0]))]
        return seed_by_seed(test, component, ordered.kendall(*orders), 1.0, alpha)
    if why := _unusable(test, values):
        return Made(replace(component, n=len(results.seeds), note=why), nothing(alpha))
    return _made(test, component, arms, values, abs(span.estimate), results.seeds, alpha)


def _stated(test: Test, claim: Claim, arms) -> Component:
    """What is known of a test before any number."""
    there = published(test, claim)
    return Component(
        name=test.name,
        role=test.role,
        kind=test.kind,
        metric=test.metric,
        decoding=test.decoding,
        direction=test.direction,
        unit=test.unit,
        conditions=" ".join(_terms(arms)),
        word=NOT_RUN,
        stated=stated(test, claim),
        published=there and there.effect,
        published_low=there and there.low,
        published_high=there and there.high,
    )


def _gone(test: Test, values, span: paired.Interval | None) -> str:
    """What was not measured in any seed; "" if nothing."""
    gone = [f"{metric} of {term}" for metric, found in values.items() for term, v in found.items() if v is None]
    if span is None and not gone:
        gone = [f"{yardstick_of(test.metric)} of {' or '.join(test.yardstick)}"]
    return join(gone)


def _made(test: Test, component: Component, arms, values, unit: float, seeds: Sequence[int], alpha: float) -> Made:
    """The test itself, of numbers that are all there. unit: raw size of one."""
    if test.logged and test.kind != "spread":
        values[test.metric] = {term: np.log(v) for term, v in values[test.metric].items()}
    made = {metric: [np.array([_sum(t, found) for t in arm]) for arm in arms] for metric, found in values.items()}
    if test.kind == "fraction":
        return fraction(test, component, *made[test.metric], alpha)
    if test.kind == "peak":
        return peak(component, made[test.metric][0], _levels(test, arms), unit, alpha)
    if test.kind == "trend":
        d = ordered.contrast(made[test.metric][0], weights("trend", _levels(test, arms)))
        return seed_by_seed(test, component, d, unit, alpha)
    if test.kind in ("contrast", "spread"):
        return seed_by_seed(test, component, made[test.metric][0][0], unit, alpha)
    sweeps = [v for arm in zip(made[test.along], made[test.metric]) for v in arm]
    found = (
        ordered.frontier_difference(*sweeps)
        if test.kind == "frontier"
        else ordered.matched_kl(*sweeps, least=test.fewest)
    )
    if found.without_overlap:
        where = join([str(seeds[i]) for i in found.without_overlap])
        return Made(
            replace(component, n=len(seeds), note=f"no {AXIS[test.along]} in common in seed {where}"), nothing(alpha)
        )
    return seed_by_seed(test, component, found.differences, unit, alpha)


def _values(
    test: Test, arms, results, split: str
) -> tuple[dict[str, dict[str, np.ndarray | None]], paired.Interval | None]:
    """Metric -> term -> one number per seed, and the yardstick (1 where the test needs none); None: not measured."""
    wanted = {test.metric: _terms(arms)}
    if test.kind in ("matched", "frontier"):
        wanted[test.along] = _terms(arms)
    if test.kind == "rank":  # each side needs only what orders it
        wanted = {metric: [] for metric in test.metrics}
        for metric, terms in zip(test.metrics, _sides(arms[0])):
            wanted[metric] += terms

    cells = [test.split(term) for term in _terms(arms)]

    def of(term: str, metric: str) -> np.ndarray | None:
        condition, decoding = test.split(term)
        used = {d for c, d in cells if c == condition}  # all of its terms are means of the same repetitions
        found = [
            results.values(c, metric, decoding, split)
            for c in repetitions(results.params.all_runs, condition)
            if c == condition or all(_measured(results, c, m, d, split) for m in wanted for d in used)
        ]
        found = [v for v in found if v is not None]
        if test.kind == "spread":
            return _log_spread(found)
        if test.logged and metric == test.metric and all((v > 0).all() for v in found):
            return np.exp(np.mean(np.log(found), axis=0)) if found else None  # what is compared is the logarithm
        return np.mean(found, axis=0) if found else None

    values = {metric: {term: of(term, metric) for term in terms} for metric, terms in wanted.items()}
    if test.unit != "yardsticks":
        return values, paired.Interval(1.0, None, None, 1)
    return values, yardstick(results, test.metric, split, test.yardstick)


def _measured(results, condition: str, metric: str, decoding: str, split: str) -> bool:
    """Whether a repetition has such numbers; where only a part of the runs was read, it need not be there."""
    there = condition in set(results.conditions)
    return there and results.values(condition, metric, decoding, split) is not None


def _log_spread(repeated: Sequence[np.ndarray]) -> np.ndarray | None:
    """Log of the standard deviation over k repetitions, each [n seeds] -> [n seeds]; None below two, or where they are
    all equal. Free of the bias that few have: of normal numbers, the mean of log s is log sigma + (psi((k - 1) / 2) -
    log((k - 1) / 2)) / 2, so that arms of different k could not be compared."""
    k = len(repeated)
    if k < FEWEST_REPETITIONS or not (sd := np.std(repeated, axis=0, ddof=1)).all():
        return None
    return np.log(sd) - (digamma((k - 1) / 2) - math.log((k - 1) / 2)) / 2


def _sides(pairs) -> list[list[str]]:
    """The first terms of a rank's pairs, and the second ones; a pair may be the same term twice."""
    return [[list(terms)[side] for terms in pairs] for side in (0, -1)]


def _terms(arms) -> list[str]:
    return list(dict.fromkeys(term for arm in arms for terms in arm for term in terms))


def _ended(test: Test, arms, results) -> str:
    """ "; x diverged in every seed" for the conditions in which that leaves nothing to measure; "" if there is none."""
    names = dict.fromkeys([*(test.split(term)[0] for term in _terms(arms)), *test.yardstick])
    flags = {name: results.values(name, "diverged") for name in names}
    lost = [name for name, flag in flags.items() if flag is not None and flag.all()]
    return f"; {join(lost)} diverged in every seed" if lost else ""


def _sum(terms: Mapping[str, float], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """[n seeds]"""
    return sum(weight * values[term] for term, weight in terms.items())


def _levels(test: Test, arms) -> list[float]:
    """x of the points that the profile runs."""
    return [x for x, terms in zip(test.points, test.arms[0]) if terms in arms[0]]


def _no_yardstick(test: Test, span: paired.Interval) -> str:
    """Why the metric has no yardstick: its own interval over seeds includes 0; "" if it has one.

    Below the fewest seeds of a sign-flip test only equalities are tested, so the others are refused for that instead.
    """
    few = span.n < power.fewest_seeds() and test.direction != "equal"
    if span.estimate and (few or span.low is None or span.excludes(0)):
        return ""
    within = "" if span.low is None else f" [{span.low:+.2g}, {span.high:+.2g}]"
    to, start = test.yardstick
    moved = f"how far {to} moves {yardstick_of(test.metric)} from {start}, {span.estimate:+.2g}{within}"
    return f"no yardstick: {moved}, cannot be told from 0"


def _unusable(test: Test, values: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Why these numbers cannot be compared as the test says; "" if they can."""
    logged = test.logged and test.kind != "spread"  # whose numbers are logarithms
    low = [term for term, v in values[test.metric].items() if logged and (v <= 0).any()]
    if low:
        return f"no logarithm: {test.metric} of {join(low)} is not above 0"
    every = np.array(list(values[test.metric].values()))
    if test.kind not in ("spread", "fraction") and not np.ptp(every):  # a floor or a ceiling
        return f"nothing to compare: {test.metric} is {every.flat[0]:.3g} in every run"
    return ""


def seeds_needed(component: Component) -> int | None:
    """Seeds with which, at the spread seen, the stated effect would show four times in five, and no effect at all would
    be shown to be too small as often; None where that is not known (a peak takes several comparisons, a fraction has no
    spread) or no number is enough. Always more than were run: one more is the least that can be said of an open test.
    """
    c = component
    if c.kind in ("fraction", "peak") or c.yardstick is None or c.n < 2:
        return None
    bound = c.stated * c.yardstick
    needed = power.n_needed_equivalence(bound, c.sd)
    if c.direction != "equal":
        absent = 0 if c.p_smaller is None else needed  # of a threshold no size is stated, so none can be excluded
        needed = max(absent, power.n_needed(bound, c.sd))
    return max(int(needed), power.fewest_seeds(), c.n + 1) if math.isfinite(needed) else None


def in_words(needed: int, n: int) -> str:
    """`seeds_needed` as people read it: "12", or "more than 5" where the 5 that were run should have been enough."""
    return f"more than {n}" if needed == n + 1 else f"{needed:,}"
