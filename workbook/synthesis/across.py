"""One test in several profiles: each profile's effect, and what they come to together.

rows = across(claims, sources(root))       # an Across for each deciding test that more than one profile makes

Profiles of the same settings whose draws are of one kind (the same task and models) ask the same question of the same
population: they are one study, and where they share draws, a draw's effects are averaged first, so that no draw counts
twice. Studies are pooled by `random_effects`; a yardstick is taken as exact, as in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from workbook.ledger.claim import Claim, ClaimError, Test
from workbook.ledger.contrast import measure
from workbook.ledger.registered import PLANTED
from workbook.results.tables import join
from workbook.statistics import paired
from workbook.statistics.random_effects import Pooled, random_effects
from workbook.synthesis.sources import Source
from workbook.synthesis.specification import length

NO_POOL = "no number per seed"
SHARED = "profiles of other settings on the same draws: not independent, so not pooled"


@dataclass(frozen=True)
class Effect:
    """In yardsticks, with its 95 % t interval over n seeds (draws). per_draw: seed -> effect; empty where the test has
    no number per seed. length: of texts."""

    name: str
    study: int
    n: int
    value: float
    low: float | None
    high: float | None
    length: str
    per_draw: dict[int, float]
    draws: frozenset[tuple[str, int]] = frozenset()  # what they are made of, seed


@dataclass(frozen=True)
class Across:
    """A test of a claim in the profiles that make it; studies: the same, profiles of one study together; pooled: of the
    studies, None below two or where `note` says why not."""

    claim: str
    test: str
    metric: str
    direction: str
    profiles: tuple[Effect, ...]
    studies: tuple[Effect, ...]
    pooled: Pooled | None
    note: str = ""


def across(claims: Mapping[str, Claim], sources: Sequence[Source]) -> list[Across]:
    """The deciding tests in yardsticks of which two profiles or more have an effect, in the order of the claims.

    Planted claims are left out: what holds or fails by its definition (PPO without the penalty against the untrained
    model is one yardstick) is no evidence to pool."""
    found = []
    for claim in (claim for name, claim in claims.items() if name not in PLANTED):
        for test in claim.deciding:
            if test.unit == "yardsticks":
                effects = _alike(claim, _effects(claim, test, sources), sources)
                if len(effects) > 1:
                    found.append(together(claim.id, test, effects))
    return found


def together(claim: str, test: Test, effects: Sequence[Effect]) -> Across:
    """Effects of profiles as studies, and these pooled."""
    studies = [merged([e for e in effects if e.study == s]) for s in dict.fromkeys(e.study for e in effects)]
    usable = [e for e in studies if e is not None]
    pooled, note = None, ""
    if len(usable) < len(studies):
        note = NO_POOL
    elif any(set(a.draws) & set(b.draws) for a, b in combinations(studies, 2)):
        note = SHARED
    elif len(studies) > 1:
        errors = [_error(e) for e in studies]
        if all(errors):
            pooled = random_effects([e.value for e in studies], [v**2 for v in errors])
        else:
            note = "a study without spread"
    return Across(
        claim,
        test.name,
        test.metric,
        test.direction,
        tuple(sorted(effects, key=lambda e: e.study)),
        tuple(usable),
        pooled,
        note,
    )


def merged(effects: Sequence[Effect]) -> Effect | None:
    """Profiles of one study as one: the mean over draws of each draw's mean over the profiles that have it. None where
    a profile has no number per draw."""
    if len(effects) == 1:
        return effects[0]
    if not all(e.per_draw for e in effects):
        return None
    draws = {
        s: float(np.mean([e.per_draw[s] for e in effects if s in e.per_draw])) for e in effects for s in e.per_draw
    }
    span = paired.mean_interval(list(draws.values()))
    first = effects[0]
    return Effect(
        " + ".join(e.name for e in effects),
        first.study,
        span.n,
        span.estimate,
        span.low,
        span.high,
        first.length,
        draws,
        frozenset().union(*(e.draws for e in effects)),
    )


def table(rows: Iterable[Across]) -> list[dict[str, Any]]:
    """A row per profile, and one per test of the studies together ("all"), with k of them."""
    found = []
    for row in rows:
        about = {"claim": row.claim, "test": row.test}
        for e in row.profiles:
            found.append(
                {**about, "of": e.name, "study": e.study, "n": e.n, "effect": e.value}
                | {"low": e.low, "high": e.high}
                | dict.fromkeys(POOLED)
            )
        p, k = row.pooled, len(row.studies)
        mean = (p.mean, p.low, p.high) if p else (None, None, None)
        if p is None and k == 1:
            mean = (row.studies[0].value, row.studies[0].low, row.studies[0].high)
        found.append(
            {**about, "of": "all", "study": None, "n": k}
            | dict(zip(("effect", "low", "high"), mean))
            | {name: getattr(p, name, None) for name in POOLED}
        )
    return found


POOLED = ("q", "p_q", "i2", "tau2", "tau2_low", "tau2_high", "new_low", "new_high")


def _effects(claim: Claim, test: Test, sources: Sequence[Source]) -> list[Effect]:
    """Of each profile whose rows can make the test; profiles of the same settings have the same study."""
    found, keys = [], {}
    for source in sources:
        results = source.of({*test.conditions, *test.yardstick})
        try:
            made = measure(test, claim, results, "test")
        except ClaimError:  # its conditions are run without what the test compares
            continue
        c = made.component
        conditions = sorted({test.split(term)[0] for term in c.conditions.split()} | {*test.yardstick})
        if c.effect is None or not c.yardstick or not {*conditions} <= set(source.settings):
            continue
        own = {name: source.settings[name] for name in conditions}
        values = made.sample.values if made.sample is not None else np.zeros((0, 0))
        span = paired.mean_interval(values[0] / c.yardstick) if len(values) == 1 else None
        draws = dict(zip(results.seeds, (values[0] / c.yardstick).tolist())) if len(values) == 1 else {}
        ends = (span.low, span.high) if span else (c.effect_low, c.effect_high)
        key = json.dumps([source.draw(), own], sort_keys=True, default=str)
        long = join(list(dict.fromkeys(length(own[name]) for name in conditions if own[name].get("updates"))))
        here = frozenset((json.dumps(source.draw(), sort_keys=True), seed) for seed in results.seeds)
        study = keys.setdefault(key, len(keys) + 1)
        found.append(Effect(source.profile, study, c.n, c.effect, *ends, long, draws, here))
    return found


def _alike(claim: Claim, effects: Sequence[Effect], sources: Sequence[Source]) -> Sequence[Effect]:
    """The effects; of a claim about text length, which compares runs of fixed with runs of free length, those of the
    length that the test has in the profiles that list the claim."""
    home = [source for source in sources if claim.id in source.params.claims]
    named = {name for test in claim.deciding for name in test.conditions}
    runs = [source.settings[name] for source in home for name in named & {*source.settings}]
    if len({length(run) for run in runs if run.get("updates")}) < 2:
        return effects
    meant = {e.length for e in effects if e.name in {source.profile for source in home}}
    return [e for e in effects if e.length in meant]


def _error(effect: Effect) -> float:
    """Standard error of an effect, from its t interval over n draws; 0 without one."""
    if effect.low is None or effect.n < 2:
        return 0.0
    return float((effect.high - effect.low) / 2 / stats.t.ppf(1 - paired.ALPHA / 2, effect.n - 1))
