"""How far the rule errs by taking each yardstick as exact: a table beside the calibration, and a part of its page.

    rows_of(claims, {"C03": results}, {"C03": 0.0161})     # a row per deciding test in yardsticks
    text(rows)                                             # of those that err in more than alpha of the worlds

A world has the stated effect exactly, so that each "smaller than this" is false. The yardstick's own numbers are drawn
with the test's, by the covariance that both have over the seeds, and the world is judged twice: by the true yardstick,
and by that of its own seeds, as the rule judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from workbook.ledger.claim import Claim, Test
from workbook.ledger.contrast import measure
from workbook.ledger.sensitivity import SEED
from workbook.results.measures import MEASURES, yardstick_of
from workbook.results.tables import markdown
from workbook.statistics.paired import ALPHA, direction

WORLDS = 20_000
READ = (
    "Above, and in the rule, a yardstick counts as exact, though it too is a mean over the seeds. Below, its numbers "
    "are drawn with the test's, in {worlds:,} worlds in which the effect is exactly as stated: how often that test "
    "alone, at its claim's look, shows it to be smaller, which is false, by the true yardstick and by that of the "
    "world's own seeds. Listed are those with more than {alpha:g}; `yardsticks.csv` has every test of one number a "
    "seed. Where several parts decide, Holm's correction makes such a word rarer than that of one test."
)


def rows_of(
    claims: Mapping[str, Claim], results: Mapping[str, Any], levels: Mapping[str, float], worlds: int = WORLDS
) -> list[dict[str, Any]]:
    """A row per deciding test whose yardstick is a mean over seeds and whose numbers are one a seed: id, test, metric,
    n, level, yardstick_se (standard error over mean), exact and drawn (shares of the worlds with a false word).

    results: claim -> those of its conditions; levels: claim -> the level at which its tests are made.
    """
    rows = []
    for name, found in results.items():
        for test in claims[name].deciding:
            made = measure(test, claims[name], found, "test")
            if made.sample is None or len(made.sample.values) != 1 or (span := numbers(test, found)) is None:
                continue
            sign = 1 if test.direction == "equal" else direction(test.direction)
            exact, drawn = smaller(made.sample.values[0], span, sign * made.component.stated, levels[name], worlds)
            se = span.std(ddof=1) / np.sqrt(len(span)) / abs(span.mean())
            about = {"id": name, "test": test.name, "metric": test.metric, "n": len(span), "level": levels[name]}
            rows.append({**about, "yardstick_se": se, "exact": exact, "drawn": drawn})
    return rows


def numbers(test: Test, results) -> np.ndarray | None:
    """The yardstick of a test that states a size, seed by seed; None where it has a set size, or is none."""
    metric = yardstick_of(test.metric)
    if test.unit != "yardsticks" or test.threshold or MEASURES[metric].yardstick is not None:
        return None
    ends = [results.values(condition, metric, "plain", "test") for condition in test.yardstick]
    return None if any(end is None for end in ends) else ends[0] - ends[1]


def smaller(d: np.ndarray, span: np.ndarray, stated: float, level: float, worlds: int = WORLDS) -> tuple[float, float]:
    """How often two one-sided t tests of this level put an effect of exactly `stated` yardsticks within it: by the true
    yardstick, and by that of the world's own seeds, where its own 1 - alpha interval excludes 0.

    d, span [n >= 2 seeds]: the numbers of the test and of its yardstick, whose covariance the worlds have; each world
    has n seeds. Standard error of a share p: sqrt(p (1 - p) / worlds). Limits: a yardstick without spread gives two
    equal shares, the first at most `level`.
    """
    n, true = len(d), abs(span.mean())
    means, spreads = [stated * true, span.mean()], np.cov(np.vstack([d, span]))
    drawn = np.random.default_rng(SEED).multivariate_normal(means, spreads, (worlds, n), method="eigh")
    mean, error = np.abs(drawn.mean(1)), drawn.std(1, ddof=1) / np.sqrt(n)  # [worlds, 2]
    furthest = mean[:, 0] + special.stdtrit(n - 1, 1 - level) * error[:, 0]
    there = mean[:, 1] > special.stdtrit(n - 1, 1 - ALPHA / 2) * error[:, 1]
    exact, own = furthest <= abs(stated) * true, (furthest <= abs(stated) * mean[:, 1]) & there
    return float(exact.mean()), float(own.mean())


def text(rows: Sequence[Mapping[str, Any]], worlds: int = WORLDS) -> str:
    """Markdown: what the yardstick's own spread adds, and the tests that err in more than alpha of the worlds."""
    shown = [
        {
            "claim": row["id"],
            "test": row["test"],
            "draws": f"{row['n']}",
            "level": f"{row['level']:.4f}",
            "yardstick: standard error / mean": f"{row['yardstick_se']:.2f}",
            "false, yardstick exact": f"{row['exact']:.3f}",
            "false, yardstick drawn": f"{row['drawn']:.3f}",
        }
        for row in rows
        if row["drawn"] > ALPHA
    ]
    said = READ.format(worlds=worlds, alpha=ALPHA)
    return "\n\n".join(
        ["## The yardstick is an estimate too", said, markdown(pd.DataFrame(shown)) if shown else "None."]
    )
