"""Dots on rows: levels of conditions, differences of pairs, scores of a synthetic task, accuracies of rewards."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workbook.figures.names import names
from workbook.figures.parts import (
    alt_text,
    caption,
    counted,
    handle,
    has_seeds,
    interval,
    label,
    legend,
    listed,
    lost_note,
    mark,
    middle,
    nothing,
    plain_log,
    seeds_note,
    start_of,
    styled,
    told,
    zero_handle,
)
from workbook.figures.style import COLORS, INK, MARKERS
from workbook.results.design import OF_TRAINING, Pair, gap, measure, one_world
from workbook.results.results import Results

DECODED = {"plain": "decoded plainly", "own": "decoded as trained"}
ONE = {"plain": ""}
ONCE = (*OF_TRAINING, "human_log_perplexity")  # the same however a run is decoded
WIDEST_NAME = 32  # letters of a row's name in a line
WIDE = 10.0  # nats per token; where a run writes noise, the others would lie on one spot of a linear axis


def arms(
    results: Results,
    conditions: Sequence[str],
    metrics: Sequence[str],
    title: str,
    note: str = "",
    decodings: Mapping[str, str] = ONE,
    trap: str = "",
) -> Figure:
    """A panel per metric, a row per condition: seeds, mean, interval; dashed: the untrained model, decoded plainly.

    decodings: decoding -> its name in the legend, a colour and a marker each; trap: a decoding of the untrained model
    that a dotted line marks: what decoding alone does.
    """
    conditions = [c for c in dict.fromkeys(conditions) if c in results.conditions]
    table = pd.DataFrame(
        {"row": c, "look": d, "metric": m, "value": float(v)}
        for m in metrics
        for c in conditions
        for d in (decodings if m not in ONCE else ONE)
        for v in _seeds(measure(results, c, m, d))
    )
    if not len(table):
        return nothing(results, title)
    zero, trapped = start_of(results, conditions), False
    called = names(results)
    rows = [called[c] for c in conditions if c in set(table.row)]
    table["row"] = table.row.map(called)
    with styled():
        figure, axes, said = _rows(table, rows, list(decodings), title, 0.24 + 0.22 * len(decodings), decodings)
        for axis, metric in zip(axes, dict.fromkeys(table.metric)):
            start = measure(results, zero, metric) if zero else None
            if start is not None and has_seeds(metric):
                mark(axis, start.mean(), "x")
            fell = measure(results, zero, metric, trap) if zero and trap and metric not in ONCE else None
            if fell is not None:
                mark(axis, fell.mean(), "x", INK, ":")
                said, trapped = [*said, told(f"{called[zero]} by {trap} decoding", metric, fell.mean())], True
            axis.set_xlabel(label(metric, one_world(results, conditions)))
        _nats(axes, table)
        handles = [handle(i, name, joined=False) for i, name in enumerate(decodings.values()) if name]
        legend(figure, handles + [zero_handle()] * bool(zero), _counted(title, results))
        dotted = f" Dotted: the untrained model by {trap} decoding." if trapped else ""
        caption(
            figure,
            f"{seeds_note(results, metrics)} Dashed: untrained, decoded plainly.{dotted} {note}{lost_note(results)}",
        )
    return alt_text(figure, f"{title}, {counted(len(results.seeds))}. {listed(said)}.{lost_note(results)}")


def differences(results: Results, pairs: Sequence[Pair], metrics: Sequence[str], title: str, note: str = "") -> Figure:
    """A row per pair, a panel per metric: the paired difference first - second with its interval; a line at 0."""
    table = pd.DataFrame(
        {"row": p.label, "look": "plain", "metric": m, "value": float(v)}
        for m in metrics
        for p in pairs
        for v in _seeds(gap(results, p, m))
    )
    if not len(table):
        return nothing(results, title)
    rows = [name for name in dict.fromkeys(p.label for p in pairs) if name in set(table.row)]
    with styled():
        figure, axes, said = _rows(table, rows, ["plain"], title, 0.36, ONE)
        for axis, metric in zip(axes, dict.fromkeys(table.metric)):
            mark(axis, 0, "x", INK, "-")
            axis.set_xlabel(f"difference in\n{label(metric)}")
            axis.xaxis.set_major_locator(MaxNLocator(4))
        figure.suptitle(_counted(title, results), fontsize=11)
        note = f"Differences are paired by seed; an interval that crosses 0 shows no direction. {note}"
        caption(figure, f"{seeds_note(results)} {note}{lost_note(results)}")
    return alt_text(figure, f"{title}, {counted(len(results.seeds))}. {listed(said)}.{lost_note(results)}")


def finals(results: Results, rows: Mapping[str, str], goal: float, title: str, note: str = "") -> Figure:
    """A row per run of a synthetic task (rows: what it is called -> condition): every seed's score and the *median*.

    Decoded as trained; dotted: the score that counts as learnt; dashed: the untrained model.
    """
    seeds = {name: v for name, c in rows.items() if (v := measure(results, c, "score", "own")) is not None}
    if not seeds:
        return nothing(results, title)
    table = pd.DataFrame({"row": name, "value": float(v)} for name, values in seeds.items() for v in values)
    zero = start_of(results, list(rows.values()))
    with styled():
        figure = Figure(figsize=(8.4, 1.7 + 0.34 * len(seeds)), layout="constrained")
        axis = figure.subplots()
        shared = {"x": "value", "y": "row", "order": list(seeds), "ax": axis, "color": COLORS[0]}
        sns.stripplot(table, size=4, alpha=0.4, jitter=False, **shared)
        sns.pointplot(table, estimator="median", errorbar=None, linestyle="none", markersize=8, **shared)
        mark(axis, goal, "x", INK, ":")
        if zero and (start := measure(results, zero, "score")) is not None:
            mark(axis, start.mean(), "x")
        axis.set(xlabel=f"{label('score', one_world(results, list(rows.values())))}, decoded as trained", ylabel="")
        figure.suptitle(_counted(title, results), fontsize=11)
        read = f"Small points: {counted(len(results.seeds))}; large: their median. Dotted: {goal:g}, counted as learnt."
        caption(figure, f"{read} Dashed: untrained. {note}{lost_note(results)}")
    medians = table.groupby("row", sort=False).value.median()
    return alt_text(
        figure, f"{title}. {'; '.join(told(r, 'score', v) for r, v in medians.items())}.{lost_note(results)}"
    )


def accuracy(results: Results, table: pd.DataFrame, note: str = "") -> Figure:
    """Validation accuracy of the reward models (columns share, seed, accuracy) against their share of the labels."""
    if not len(table):
        return nothing(results, "accuracies of the reward models")
    with styled():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axis = figure.subplots()
        table = table.assign(share=[f"{s:.0%}" for s in table.share])
        shared = {"x": "share", "y": "accuracy", "ax": axis, "color": COLORS[0]}
        sns.stripplot(table, size=4, alpha=0.5, **shared, jitter=False)
        sns.pointplot(table, errorbar=interval("accuracy"), linewidth=1.2, **shared)
        mark(axis, 0.5)
        axis.set(xlabel="share of the labels", ylabel="accuracy on reviews it has not seen")
        caption(figure, f"{seeds_note(results)} A reward model each. Dashed: guessing. {note}")
    means = table.groupby("share", sort=False).accuracy.mean()
    return alt_text(figure, f"Accuracy of the reward models. {'; '.join(f'{s}: {v:.3f}' for s, v in means.items())}.")


def _rows(
    table: pd.DataFrame, rows: Sequence[str], looks: Sequence[str], title: str, tall: float, names: Mapping[str, str]
) -> tuple[Figure, list[Axes], list[str]]:
    """Seeds, means and intervals on rows, a panel per metric; figure, panels, and the means in words."""
    metrics, said = list(dict.fromkeys(table.metric)), []
    palette = {d: COLORS[i % 8] for i, d in enumerate(looks)}
    figure = Figure(figsize=(9.6, 2.0 + tall * len(rows)), layout="constrained")
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axis, metric in zip(axes, metrics):
        own = table[table.metric == metric]
        here = [d for d in looks if d in set(own.look)]
        shared = {
            "x": "value",
            "y": "row",
            "hue": "look",
            "order": rows,
            "hue_order": here,
            "legend": False,
            "ax": axis,
        }
        apart = 0.4 if len(here) > 1 else False
        if has_seeds(metric):
            sns.stripplot(own, size=3.5, alpha=0.4, jitter=False, dodge=len(here) > 1, palette=palette, **shared)
        marks = [MARKERS[looks.index(d) % 8] for d in here]
        bars = {"estimator": middle(metric), "errorbar": interval(metric), "err_kws": {"linewidth": 1.7}}
        sns.pointplot(
            own, linestyle="none", markers=marks, markersize=6, dodge=apart, palette=palette, **bars, **shared
        )
        axis.set_ylabel("")
        axis.xaxis.set_major_locator(MaxNLocator(4 if len(metrics) > 2 else 5))
        means = own.groupby(["row", "look"], sort=False).value.agg(middle(metric))
        said += [told(f"{row} {names.get(look, '')}".strip(), metric, v) for (row, look), v in means.items()]
    axes[0].set_yticks(range(len(rows)), [textwrap.fill(row, WIDEST_NAME) for row in rows])
    return figure, list(axes), said


def _nats(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Panels in nats per token get one scale and one span, so that they can be compared: logarithmic where a run
    writes noise (`WIDE`)."""
    found = [(axis, m) for axis, m in zip(axes, dict.fromkeys(table.metric)) if "log_perplexity" in m]
    if not any(table.value[table.metric == m].max() > WIDE for _, m in found):
        return
    ends = [axis.get_xlim() for axis, _ in found]
    least = float(table.value[table.metric.isin([m for _, m in found])].min())
    for axis, _ in found:
        axis.set_xlim(max(min(low for low, _ in ends), 0.8 * least), max(high for _, high in ends))
        plain_log(axis)


def _seeds(values: np.ndarray | None) -> np.ndarray:
    """None as no seeds."""
    return np.zeros(0) if values is None else values


def _counted(title: str, results: Results) -> str:
    return f"{title} ({counted(len(results.seeds))})"
