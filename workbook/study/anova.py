"""Tests that take every rating for an independent one, as Ramamurthy et al. 2022 did, and the p-values they printed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from rlnlp.settings import nearest
from workbook.study.ratings import PreferenceError

# Table 15 (CommonGen, 100 texts x 3 raters for each of six systems): difference and p of coherence, then of commonsense
PUBLISHED = """
NLPO | PPO | 0.847 0.001 | 0.897 0.001
NLPO | Supervised | 2.397 0.001 | 2.083 0.001
NLPO | NLPO+Supervised | 2.257 0.001 | 2.033 0.001
NLPO | PPO+Supervised | 2.143 0.001 | 1.897 0.001
NLPO | Zero Shot | 0.153 0.515 | 0.157 0.624
PPO | Supervised | 1.550 0.001 | 1.187 0.001
PPO | NLPO+Supervised | 1.410 0.001 | 1.137 0.001
PPO | PPO+Supervised | 1.297 0.001 | 1.000 0.001
PPO | Zero Shot | -0.693 0.001 | -0.740 0.001
Supervised | NLPO+Supervised | -0.140 0.601 | -0.050 0.900
Supervised | PPO+Supervised | -0.253 0.050 | -0.187 0.045
Supervised | Zero Shot | -2.243 0.001 | -1.927 0.001
NLPO+Supervised | PPO+Supervised | -0.113 0.008 | -0.137 0.007
NLPO+Supervised | Zero Shot | -2.103 0.001 | -1.877 0.001
PPO+Supervised | Zero Shot | -1.990 0.001 | -1.740 0.001
"""
PUBLISHED_GROUPS, PUBLISHED_RATINGS = 6, 300  # systems; ratings of each


@dataclass(frozen=True)
class Anova:
    """One-way analysis of variance. F with (between, within) degrees of freedom; spread: mean square within systems."""

    F: float
    p: float
    between: int
    within: int
    spread: float


def anova(table: pd.DataFrame) -> Anova:
    """Do the systems' mean ratings differ? As the paper did: every rating independent. Raises: PreferenceError, as
    ``tukey``."""
    groups = systems_of(table)
    F, p = stats.f_oneway(*groups.values())
    within = len(table) - len(groups)
    spread = sum(((v - v.mean()) ** 2).sum() for v in groups.values()) / within
    return Anova(float(F), float(p), len(groups) - 1, within, float(spread))


def tukey(table: pd.DataFrame) -> pd.DataFrame:
    """Tukey's honest significant differences, every rating independent (statsmodels').

    Returns a row per pair of systems: first, second, difference (second - first), low, high (95 %, all pairs together),
    p.
    Raises: PreferenceError for a missing column, one system only, a system with one rating, ratings without any spread.
    """
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    systems_of(table)
    found = pairwise_tukeyhsd(table["value"].to_numpy(float), table["system"].to_numpy(str))
    pairs = list(itertools.combinations(map(str, found.groupsunique), 2))
    out = pd.DataFrame(pairs, columns=["first", "second"])
    return out.assign(difference=found.meandiffs, low=found.confint[:, 0], high=found.confint[:, 1], p=found.pvalues)


def tukey_p(difference: float, error: float, groups: int, freedom: int) -> float:
    """p of one difference: the chance that the studentised range of ``groups`` means exceeds |difference| / error.

    error: of a mean, sqrt(spread / n), n ratings of each system; freedom: ratings - systems. With equal n it is the
    same for all pairs, so that p falls as |difference| grows. Limits: difference 0 gives 1; error to 0 gives 0.
    """
    return float(stats.studentized_range.sf(abs(difference) / error, groups, freedom))


def implied_error(difference: float, p: float, groups: int, freedom: int) -> float:
    """The error of a mean for which ``tukey_p`` of the difference is p."""
    return abs(difference) / float(stats.studentized_range.isf(p, groups, freedom))


def inversions(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of comparisons of which the smaller difference has the smaller p: impossible in one test with equal n.

    rows: columns first, second, difference, p. Returns a row per such pair: smaller, its difference and p, larger, its
    difference and p. Equal differences and equal p (a table prints both rounded) do not count.
    """
    out, size = [], rows["difference"].abs()
    for (i, a), (j, b) in itertools.permutations(rows.iterrows(), 2):
        if size[i] < size[j] and a["p"] < b["p"]:
            names = (f"{row['first']} / {row['second']}" for row in (a, b))
            out.append((next(names), a["difference"], a["p"], next(names), b["difference"], b["p"]))
    columns = ["smaller", "its difference", "its p", "larger", "larger's difference", "larger's p"]
    return pd.DataFrame(out, columns=columns)


def published(question: str = "coherence") -> pd.DataFrame:
    """Table 15 as printed: first, second, difference, p; question: "coherence" or "commonsense"."""
    place = {"coherence": 2, "commonsense": 3}[question]
    rows = [[cell.strip() for cell in line.split("|")] for line in PUBLISHED.strip().splitlines()]
    numbers = [tuple(map(float, row[place].split())) for row in rows]
    found = [(row[0], row[1], *pair) for row, pair in zip(rows, numbers)]
    return pd.DataFrame(found, columns=["first", "second", "difference", "p"])


def systems_of(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Each system's ratings. Raises: PreferenceError where no comparison is possible."""
    expect_columns(table, "system", "value")
    groups = {str(name): part["value"].to_numpy(float) for name, part in table.groupby("system")}
    if len(groups) < 2:
        raise PreferenceError(f"a comparison needs two systems or more, found {', '.join(groups) or 'none'}")
    for name, values in groups.items():
        if len(values) < 2:
            raise PreferenceError(f"system {name!r} has one rating; a comparison needs two or more of each")
    if all(np.ptp(values) == 0 for values in groups.values()):
        raise PreferenceError("no system's ratings differ among themselves, so that no test has a spread to measure by")
    return groups


def expect_columns(table: pd.DataFrame, *names: str) -> None:
    """Raises: PreferenceError for a table that lacks one of the columns (the nearest named), or has no rows."""
    for name in names:
        if name not in table.columns:
            there = ", ".join(map(str, table.columns))
            raise PreferenceError(f"no column {name!r}{nearest(name, table.columns)} (there: {there})")
    if not len(table):
        raise PreferenceError("no ratings")
