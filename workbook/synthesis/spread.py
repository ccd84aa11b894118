"""What one run's number scatters by, in the registered design's repetitions: from draw to draw, from one RL run to the
next on a draw, by what was sampled in an evaluation; and from RL seed to RL seed on the one base model of real reviews.

rows = table(root / "reports/settle", 1024)    # a row per metric and repeated condition: standard deviations
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbook.results.files import DRAWS, SAMPLES, per_seed, read_rows, standing
from workbook.results.results import read_per_seed
from workbook.results.tables import between, join, number
from workbook.statistics.components import components
from workbook.statistics.paired import ALPHA, mean_interval
from workbook.synthesis import closer

REVIEWS = "reviews"  # the profile whose RL seeds share one base model
KEPT = ["condition", "seed", "prompt", "score"]  # of an answer
OF_EACH = "score"  # the metric that a kept answer has of its own
Ends = tuple[float, float, float]  # estimate, low, high
ENDS, NO_ENDS = ("", "_low", "_high"), (None, None, None)
COLUMNS = {  # of the page: a part
    "between draws": "draw",
    "between runs on a draw": "run",
    "of that, evaluation": "evaluation",
    "between RL seeds, real reviews": "seed",
}


@dataclass(frozen=True)
class Spread:
    """Standard deviations of one run's number, each with its 95 % interval. draw: between draws; run: between runs on
    one draw, their evaluations included; share: of the variance that is there on one draw, run² / (draw² + run²)."""

    draw: Ends
    run: Ends
    share: Ends


def one_way(d: np.ndarray, alpha: float = ALPHA) -> Spread:
    """One-way random-effects analysis of variance (`components`) with intervals for normal numbers: run by chi-square
    and share by F, both exact; draw by Williams (1962), which covers at least 1 - 2 alpha and about 1 - alpha.

    d [r >= 2 runs, n >= 2 draws]. Limits: a variance below 0 is 0, and so is its end; a spread of 0 within draws gives
    a share of 0. Raises: ValueError as `components`.
    """
    found = components(d)
    runs, draws = np.shape(d)
    free = draws - 1, draws * (runs - 1)
    square = runs * found.draw + found.run  # mean square between draws
    levels = np.array([1 - alpha / 2, alpha / 2])
    run = found.run * free[1] / stats.chi2.ppf(levels, free[1])
    limits = stats.f.ppf(levels, *free)
    ratio = np.maximum((square / found.run / limits - 1) / runs, 0) if found.run > 0 else np.full(2, np.inf)
    draw = np.maximum(free[0] * (square - limits * found.run) / (runs * stats.chi2.ppf(levels, free[0])), 0)
    low, high = 1 / (1 + ratio[::-1])
    share = 1 - found.share if found.run > 0 else 0.0
    return Spread(_roots(found.draw, *draw), _roots(found.run, *run), (share, float(low), float(high)))


def between_seeds(values: np.ndarray, alpha: float = ALPHA) -> Ends:
    """Standard deviation of one number per seed, with its chi-square interval. values [n >= 2]"""
    variance, free = float(np.var(values, ddof=1)), len(values) - 1
    return _roots(variance, *(variance * free / stats.chi2.ppf([1 - alpha / 2, alpha / 2], free)))


def evaluation(scores: np.ndarray, prompts: int) -> Ends:
    """Standard deviation that sampling gives the mean over so many prompts, at most, with its t interval over draws.

    scores [n >= 2 draws, r >= 2 runs, k >= 2 prompts]: of single answers to the same prompts; counted is what is left
    of an answer beside its prompt's and its run's mean: what a policy does with one prompt and not with another is in
    it too, as each answered a prompt once. Which prompts were asked is the same for all runs of a draw.
    """
    rest = scores - scores.mean(1, keepdims=True) - scores.mean(2, keepdims=True) + scores.mean((1, 2), keepdims=True)
    _, runs, answers = scores.shape
    squares = (rest**2).sum((1, 2)) / ((runs - 1) * (answers - 1)) / prompts
    span = mean_interval(squares)
    return _roots(span.estimate, span.low, span.high)


def table(folder: Path, prompts: int, others: Path | None = None) -> list[dict[str, Any]]:
    """A row per metric and repeated condition of the design, and per metric one of their difference.

    folder: reports of the design; prompts: of an evaluation of its runs; others: reports of the profile whose seeds
    share one base model (seeds, seed: how many, and the standard deviation between them; None without its table).
    """
    rows = read_per_seed(folder / DRAWS).query("split == 'test'")
    answers = _answers(folder)
    found = []
    for metric in closer.SPREAD:
        seeds = _seeds(others, metric) if others and per_seed(others).is_file() else {}
        for name, d in closer.repeated(rows, metric).items():
            parts = vars(one_way(d)) | {"evaluation": None, "seed": None}
            if metric == OF_EACH and name in answers:
                parts["evaluation"] = evaluation(answers[name], prompts)
            if (own := seeds.get(name)) is not None:
                parts["seed"] = between_seeds(own)
            line = {"metric": metric, "condition": name, "draws": d.shape[1], "runs": len(d)}
            line |= {"seeds": None if own is None else len(own)}
            found.append(line | {f"{part}{end}": v for part, e in parts.items() for end, v in zip(ENDS, e or NO_ENDS)})
    return found


def shown(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The page's table."""
    return pd.DataFrame([
        {
            "metric": closer.named(row["metric"]),
            "condition": f"{row['condition']} ({row['draws']} × {row['runs']})",
            **{said: _said(row, part) for said, part in COLUMNS.items()},
        }
        for row in rows
    ])  # fmt: skip


def _said(row: Mapping[str, Any], part: str) -> str:
    value, low, high = (row[f"{part}{end}"] for end in ENDS)
    return "–" if value is None else f"{number(value)} {between(low, high)}"


def _roots(*variances: float) -> Ends:
    return tuple(float(max(v, 0.0)) ** 0.5 for v in variances)


def _seeds(folder: Path, metric: str) -> dict[str, np.ndarray]:
    """Condition -> one number per RL seed, of those that the design repeats."""
    rows = read_per_seed(per_seed(folder)).query("split == 'test' and decoding == 'plain'")
    wide = rows.pivot(index="seed", columns="condition", values=metric)
    alone = closer.stacked(wide.to_dict("series"), {c: [c] for c in closer.REPEATED})
    return {name: runs[0] for name, runs in alone.items()}


def _answers(folder: Path) -> dict[str, np.ndarray]:
    """Condition -> scores of the answers that are kept, [draws, runs, prompts], of the draws of which every repetition
    has its own, to the same prompts; none with fewer than two."""
    if not (file := standing(folder, SAMPLES)).is_file():
        return {}
    names = {name for repeated in closer.REPEATED.values() for name in repeated}
    kept = pd.DataFrame([row for row in read_rows(file) if row["condition"] in names], columns=KEPT)
    kept["place"] = kept.groupby(["condition", "seed"]).cumcount()
    by = {name: rows.pivot(index="seed", columns="place") for name, rows in kept.groupby("condition")}
    there = sorted(set.intersection(*({*by[name].index} if name in by else set() for name in names)))
    if len(there) < 2:
        return {}
    by = {name: rows.loc[there] for name, rows in by.items()}
    first = by[next(iter(by))].prompt
    if not all(rows.prompt.equals(first) for rows in by.values()):
        raise ValueError(f"{file}: expected the same prompts of each draw in {join(sorted(names))}")
    scores = closer.stacked({name: rows.score.to_numpy(float) for name, rows in by.items()}, closer.REPEATED)
    return {name: np.moveaxis(d, 0, 1) for name, d in scores.items()}
