"""What the papers found for the very contrast of a test, in the unit of that test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from workbook.ledger.claim import Claim, Test
from workbook.results.measure import LOG_RATIO
from workbook.results.measures import MEASURES
from workbook.statistics.ordered import polynomial_weights
from workbook.statistics.paired import ALPHA

# arXiv:2210.01241v2, Table 5: PPO inf, Zero-Shot
YARDSTICKS = {
    "score": (0.847, 0.489),
    "human_log_perplexity": (40.650, 32.171),
    "distinct_1": (0.042, 0.035),
    "distinct_2": (0.294, 0.200),
    "msttr": (0.682, 0.566),
    "entropy_1": (8.656, 7.715),
    "entropy_2": (13.716, 11.763),
}


@dataclass(frozen=True)
class Found:
    """What the papers found, in the unit of a test; low, high: 95 % Welch interval, None without spreads."""

    effect: float
    low: float | None
    high: float | None


def published_yardstick(metric: str) -> float:
    """How far the published PPO without the KL penalty moves the metric from the published untrained model."""
    if (fixed := MEASURES[metric].yardstick) is not None:
        return fixed
    end, start = YARDSTICKS[metric]
    return end - start


def stated(test: Test, claim: Claim) -> float:
    """The effect or margin that the test states beforehand, > 0, in its unit."""
    if test.direction == "equal":
        return float(test.margin)
    return abs(published(test, claim).effect) if test.effect == "published" else float(test.effect)


def weights(kind: str, levels: list[float]) -> np.ndarray:
    """Weights of a straight line's change from the lowest to the highest level (trend), or of how far a parabola's
    middle lies above its ends (peak). levels [k], all different -> [k]."""
    reach = max(levels) - min(levels)
    return polynomial_weights(levels, 1) * reach if kind == "trend" else polynomial_weights(levels, 2) * -(reach**2) / 4


def published(test: Test, claim: Claim) -> Found | None:
    """The published effect for this contrast, in the test's unit; None where none was published.

    Perplexity and what is compared as a log ratio are taken on their log (sd: first order). Interval:
    Welch-Satterthwaite over the rows' means, spreads and numbers of seeds; the published yardstick counts as exact.
    """
    if not test.published:
        return None
    column = MEASURES[test.metric].published_as or test.metric
    rows = [claim.published[row] for row in test.published]
    cells = [row[column] if isinstance(row[column], list) else [row[column]] for row in rows]
    if test.kind == "spread":
        return Found(math.log(cells[0][1] / cells[1][1]), None, None)
    numbers = list(test.published.values())
    w = weights(test.kind, numbers) if test.kind in ("trend", "peak") else np.array(numbers)
    if column != test.metric or test.logged:
        cells = [[math.log(c[0]), *(sd / c[0] for sd in c[1:])] for c in cells]
    scale = 1.0 if test.unit == LOG_RATIO else published_yardstick(test.metric)
    effect = float(w @ [c[0] for c in cells]) / scale
    if not all(len(c) == 2 and row.get("n", 0) >= 2 for c, row in zip(cells, rows)):
        return Found(effect, None, None)
    n = np.array([row["n"] for row in rows])
    parts = w**2 * np.array([c[1] for c in cells]) ** 2 / n
    freedom = parts.sum() ** 2 / (parts**2 / (n - 1)).sum()
    half = float(scipy_stats.t.ppf(1 - ALPHA / 2, freedom) * math.sqrt(parts.sum())) / scale
    return Found(effect, effect - half, effect + half)
