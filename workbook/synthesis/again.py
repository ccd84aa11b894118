"""A registered design's draws that another profile has run too: are their numbers the same? If not, as where another
processor adds in another order, how far are they apart, beside what differs between draws?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbook.ledger import beside
from workbook.ledger.claim import Claim
from workbook.ledger.contrast import measure, present
from workbook.results.files import DRAWS
from workbook.results.measures import MEASURES
from workbook.results.tables import counted, join, markdown, number, signed
from workbook.statistics.paired import mean_interval
from workbook.synthesis.sources import Source, source

ROW = ["condition", "seed", "split", "decoding"]
SHOWN = ("score", "judge", "human_log_perplexity", "generation_log_perplexity", "distinct_2")
DIGITS = 1e-6  # relative: the committed draws have seven digits
ANEW = "mini"  # the profile that is run anew on each machine
FEW = 0.1  # share of numbers that differ, up to which their conditions are named
APART = (
    "Where the code is the same, another processor is enough for that: it rounds sums otherwise, and training goes "
    "another way. The first two columns are standard deviations, medians over conditions: of one run about its draw "
    "(the root of half the mean square difference between the two runs), and of runs over draws. The share is how much "
    "of the variance over draws is there between two runs of one draw already. The shift is the mean over conditions, "
    "with its 95 % interval over draws."
)


TESTS = (
    "Each claim's deciding tests on the same {n} draws, of {design} and of {other} ([table](by_test.csv.xz)): of "
    "{count} tests of {claims} claims, {signs} have an effect of another sign{which}. Where effects are in yardsticks, "
    "the two differ by {median} (median) and at most {most} ({where}). {n} draws have no words; the design has more."
)


def told(path: Path) -> str:
    """What the end of a profile's pipeline says of its rows beside committed ones of the same draws; "" where no
    registered design has them. path: the profile's params.yaml."""
    from workbook.runs.checks import load  # brings torch

    own = source(params := load(path))  # made by this command, with the settings of today
    reports = params.reports_folder.parent
    designs = [file for file in sorted(reports.parent.glob("profiles/*/params.yaml")) if file != path]
    drawn = [source(load(file)) for file in designs if (reports / file.parent.name / DRAWS).is_file()]
    return "\n".join(filter(None, (sentence(design, own) for design in drawn)))


def said(design: Source, others: Sequence[Source]) -> str:
    """A sentence for each profile that has rows of the design's draws; conditions of equal name and settings count."""
    found = [sentence(design, other) for other in others if other is not design]
    return "\n\n".join(text for text in found if text)


def sentence(design: Source, other: Source) -> str:
    """How many numbers both tables have, and how many of them differ; "" where they share none."""
    alike = [c for c, own in design.settings.items() if other.settings.get(c) == own]
    if design.draw() != other.draw():
        return ""
    both = design.results.per_seed.merge(other.results.per_seed, on=ROW, suffixes=("", "_again"))
    both = both[both.condition.isin(alike)]
    names = [n for n in MEASURES if f"{n}_again" in both]
    left, right = (both[[f"{n}{end}" for n in names]].to_numpy(float) for end in ("", "_again"))
    there = np.isfinite(left) & np.isfinite(right)
    if not there.any():
        return ""
    off = there & ~np.isclose(left, right, rtol=DIGITS, atol=0)
    differ = join([f"`{c}`" for c in pd.unique(both.condition[off.any(axis=1)])])
    said = (
        f"The profile {other.profile} has run {len(set(both.seed))} draws of {design.profile} again: of "
        f"{there.sum():,} numbers that both tables have, {off.sum():,} differ in seven digits"
        f"{f' ({differ})' if differ and off.sum() < FEW * there.sum() else ''}."
    )
    return said if not off.any() else f"{said} {APART}\n\n{markdown(apart(both[both.condition.isin(alike)]))}"


def apart(both: pd.DataFrame) -> pd.DataFrame:
    """How far two runs of one condition on one draw are apart, a line a metric, of plainly decoded test texts, beside
    how far draws are. both: rows of both tables, the second's columns ending in _again. Conditions whose two runs are
    the same throughout (nothing was trained) are left out."""
    plain = both[(both.split == "test") & (both.decoding == "plain")]
    lines = []
    for name in (name for name in SHOWN if f"{name}_again" in plain):
        pair = plain[["condition", "seed", name, f"{name}_again"]].dropna()
        first, second = (pair.pivot(index="seed", columns="condition", values=c) for c in (name, f"{name}_again"))
        change = second - first
        change = change.loc[:, (change != 0).any()]
        if len(change) < 2 or change.empty:
            continue
        runs = np.sqrt((change**2).mean() / 2)
        draws = np.sqrt((first[change.columns].var() + second[change.columns].var()) / 2)
        shift = mean_interval(change.mean(axis=1).to_numpy())
        lines.append(
            {
                "metric": " ".join((MEASURES[name].label or name).split()),
                "conditions": len(runs),
                "a second run": number(float(runs.median())),
                "over draws": number(float(draws.median())),
                "share": f"{(runs**2 / draws**2).median():.0%}",
                "largest run to run": f"{number(float(runs.max()))} (`{runs.idxmax()}`)",
                "shift": signed(shift.estimate, shift.low, shift.high),
            }
        )
    return pd.DataFrame(lines)


# test by test ------------------------------------------------------------------------------------------------------


def by_test(claims: Mapping[str, Claim], design: Source, other: Source) -> list[dict[str, Any]]:
    """A row for each deciding test that both profiles can make, on the draws of the other, which are some of the
    design's: the difference in each, and the effect in each one's own yardsticks."""
    seeds = list(other.results.seeds)
    table = design.results.per_seed
    mine = replace(
        design.results,
        per_seed=table[table.seed.isin(seeds)],
        params=design.results.params.model_copy(update={"seeds": seeds}),
    )
    rows = []
    for name, claim in claims.items():
        for test in claim.deciding:
            if any(present(test, found.params.all_runs)[1] for found in (mine, other.results)):
                continue
            aside = test.model_copy(update={"role": "beside"})  # what was not measured is left out, and no error
            first, second = (measure(aside, claim, found, "test").component for found in (mine, other.results))
            if first.effect is not None and second.effect is not None and first.conditions == second.conditions:
                own = {"difference": first.difference, "again": second.difference}
                both = {"effect": first.effect, "effect again": second.effect}
                rows.append({"claim": name, "test": test.name, "metric": test.metric, "unit": test.unit, **own, **both})
    return rows


def of_tests(rows: Sequence[Mapping[str, Any]], design: Source, other: Source) -> str:
    """What the rows come to."""
    named = {f"{row['claim']} {row['test']}": row for row in rows}
    turned = [name for name, row in named.items() if row["difference"] * row["again"] < 0]
    apart = {n: abs(r["effect"] - r["effect again"]) for n, r in named.items() if r["unit"] == "yardsticks"}
    most = max(apart, key=apart.get)
    words = beside.words_of(design.profile, design.params.reports_folder.parent)
    said = Counter(words[named[n]["claim"]]["tests"][named[n]["test"]] for n in turned)
    which = f" ({'; '.join(turned)}); the design's words of these are {counted(said)}" if turned else ""
    return TESTS.format(
        n=len(other.results.seeds),
        design=design.profile,
        other=other.profile,
        count=len(rows),
        claims=len({row["claim"] for row in rows}),
        signs=len(turned),
        which=which,
        median=number(float(np.median(list(apart.values())))),
        most=number(apart[most]),
        where=most,
    )
