"""What a metric costs: against measured KL, the strangeness of the texts or the mass that a mask keeps, joined along a
setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workbook.figures.names import names
from workbook.figures.parts import (
    alt_text,
    caption,
    counted,
    handle,
    label,
    legend,
    listed,
    lost_note,
    nothing,
    panels,
    short,
    start_of,
    styled,
    symlog,
    tick,
    zero_handle,
)
from workbook.figures.style import COLORS, GREY, INK, JOINS, MARKERS
from workbook.results.design import Series, collapsed, measure
from workbook.results.results import Results
from workbook.results.tables import join, number

FALLEN = (
    "Ringed: collapsed, fewer than half as many different word pairs as the untrained model's texts have; "
    "however far up and left it lies, it is one text over and over."
)
RING = {"marker": "o", "linestyle": "", "markersize": 12, "markerfacecolor": "none", "color": INK}
SEED, MEAN = ({"marker": "o", "linestyle": "", "color": GREY, "markersize": size} for size in (3, 6.5))
CORNERS = (((-5, 4), "right"), ((5, -10), "left"), ((5, 4), "left"), ((-5, -10), "right"))  # of numbers, by series
KL, KEPT = "kl_deployed", "kept"
MANY = 4  # series of which all means can have their numbers
LETTER, TALL, APART = 5.2, 8.0, 14.0  # points: a digit of those numbers across, and up; between two where many are
FULL = 1e-4  # share cut away below which a mask counts as keeping everything


class Number(NamedTuple):
    """What may stand beside a mean: where, the text, whether it is an end of its line, the place of its series."""

    x: float
    y: float
    text: str
    end: bool
    place: int


def frontier(
    results: Results,
    groups: Mapping[str, Sequence[Series]],
    axes: Sequence[tuple[str, str]],
    note: str = "",
    named: str = "",
) -> Figure:
    """A row per group, a column per (across, up) of metrics: a line per series through its means, seeds beside them.

    At one place across, two lines compare policies that have moved equally far. named: what the numbers beside means
    are (β); of more than `MANY` series, only the ends of lines have theirs. Ringed: a run that writes the same text
    over and over (`design.collapsed`): however far up and left it lies, it is no better.
    """
    labels = list(dict.fromkeys(s.label for g in groups.values() for s in g))
    points = {
        (row, column, s.label): _points(results, s, *pair)
        for row, series in groups.items()
        for column, pair in enumerate(axes)
        for s in series
    }
    if not any(points.values()):
        return nothing(results, "what a score costs")
    conditions = [c for g in groups.values() for s in g for c in s.conditions]
    zero, said, ringed, ends = start_of(results, conditions), [], {}, len(labels) > MANY
    with styled():
        figure, grid = panels(len(groups) * len(axes), len(axes), 9.8 / len(axes), 3.2 if len(groups) > 1 else 4.0)
        for row, (group, series) in enumerate(groups.items()):
            for column, (across, up) in enumerate(axes):
                axis, seen, numbers = grid[row * len(axes) + column], [], []
                for item in series:
                    own = points[group, column, item.label]
                    numbers += _path(axis, own, labels.index(item.label), item)
                    fallen = [p for p in own if collapsed(results, p[0], item.decoding)]
                    _rings(axis, fallen)
                    ringed |= dict.fromkeys(c for c, *_ in fallen)
                    seen += [x for _, x, _ in own]
                    means = [f"{number(y.mean())} at {short(across)} {_read_off(across, x)}" for _, x, y in own]
                    said.append(f"{group} {item.label} {short(up)} {', '.join(means)}")
                seen += _origin(axis, results, zero, across, up)
                _scale(axis, across, np.concatenate(seen) if seen else np.zeros(1))
                if named:
                    _write(axis, [n for n in numbers if n.end or not ends], APART if ends else 0.0)
                axis.set(ylabel=label(up), xlabel=label(across) if row == len(groups) - 1 else "")
                axis.set_title(group if column == 0 else "")
        joined = {s.label for g in groups.values() for s in g if s.joined and len(s.conditions) > 1}
        handles = [handle(i, text, joined=text in joined) for i, text in enumerate(labels)]
        marks = [zero_handle("X")] * bool(zero) + [Line2D([], [], label="collapsed", **RING)] * bool(ringed)
        marks = [Line2D([], [], label="one seed", **SEED), Line2D([], [], label="mean of seeds", **MEAN), *marks]
        title = f"beside a mean{' (ends of lines only)' if ends else ''}: {named}"
        legend(figure, [*handles, *marks], title if named and joined else "")
        caption(figure, f"{_read(results, axes, bool(ringed))} {note}{lost_note(results)}")
    what = join([f"{short(up)} against {short(across)}" for across, up in axes])
    fallen = f" Collapsed: {'; '.join(names(results)[c] for c in ringed)}." if ringed else ""
    return alt_text(figure, f"{what}, {counted(len(results.seeds))}. {listed(said)}.{fallen}{lost_note(results)}")


def _read(results: Results, axes: Sequence[tuple[str, str]], ringed: bool) -> str:
    """How to read it."""
    masks = any(across == KEPT for across, _ in axes)
    scale = "Axis logarithmic in what is cut." if masks else "KL axis linear to 0.1, then logarithmic."
    return f"{counted(len(results.seeds)).capitalize()}.{f' {FALLEN}' if ringed else ''} {scale}"


def _rings(axis: Axes, points: list) -> None:
    """A ring around each mean."""
    for _, x, y in points:
        axis.plot([x.mean()], [y.mean()], zorder=4, **RING)


def _origin(axis: Axes, results: Results, zero: str | None, across: str, up: str) -> list[np.ndarray]:
    """Mark the untrained model, where it has both numbers; what it has across."""
    start = [_value(results, zero, m, "plain") if zero else None for m in (across, up)]
    if across == KEPT or any(v is None for v in start):
        return []
    axis.scatter(start[0].mean(), start[1].mean(), s=80, color=GREY, marker="X", edgecolor="white", zorder=3)
    return [start[0]]


def _points(results: Results, item: Series, across: str, up: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(condition, seeds across, seeds up) of a series."""
    found = [
        (c, _value(results, c, across, item.decoding), _value(results, c, up, item.decoding)) for c in item.conditions
    ]
    return [(c, x, y) for c, x, y in found if x is not None and y is not None]


def _value(results: Results, condition: str, metric: str, decoding: str) -> np.ndarray | None:
    values = measure(results, condition, metric, decoding)
    return -np.log10(np.maximum(1 - values, FULL)) if metric == KEPT and values is not None else values


def _read_off(across: str, values: np.ndarray) -> str:
    """The mean as the axis has it, in the metric's own unit."""
    return number(1 - 10.0 ** -values.mean() if across == KEPT else values.mean())


def _path(axis: Axes, points: list, place: int, item: Series) -> list[Number]:
    """Seeds, and their means joined in the order of what is varied; the numbers that may stand beside them."""
    if not points:
        return []
    color, marker = COLORS[place % 8], MARKERS[place % 8]
    seeds = [np.concatenate(v) for v in zip(*((x, y) for _, x, y in points))]
    axis.scatter(*seeds, s=11, color=color, marker=marker, alpha=0.4, linewidths=0)
    means = [(x.mean(), y.mean(), item.x[item.conditions.index(c)]) for c, x, y in points]
    style = JOINS[place % 8] if item.joined else ""
    across, up, values = zip(*means)
    axis.plot(across, up, color=color, marker=marker, markersize=6.5, linestyle=style, linewidth=1.2, zorder=3)
    numbered = item.joined or len(item.conditions) == 1  # else the points of a cloud, which their places tell apart
    return [Number(x, y, tick(v), v in (min(values), max(values)), place) for x, y, v in means if numbered]


def _write(axis: Axes, numbers: list[Number], apart: float) -> None:
    """The numbers beside means, those at the ends of lines first; none upon one before it, or less than apart away."""
    axis.autoscale_view()
    taken: list[tuple[float, float, float, float]] = []
    for n in sorted(numbers, key=lambda n: not n.end):
        away, side = CORNERS[n.place % 4]  # each series has its own, so that the numbers of neighbours lie apart
        at = axis.transData.transform((n.x, n.y)) * 72 / axis.figure.dpi + away
        wide = LETTER * len(n.text)
        left = at[0] - wide * (side == "right")
        box = (left, left + wide + apart, at[1], at[1] + TALL + apart / 2)
        if not any(box[0] < b[1] and b[0] < box[1] and box[2] < b[3] and b[2] < box[3] for b in taken):
            taken.append(box)
            look = {"color": COLORS[n.place % 8], "ha": side, "fontsize": 8}
            axis.annotate(n.text, (n.x, n.y), away, textcoords="offset points", **look)


def _scale(axis: Axes, across: str, values: np.ndarray) -> None:
    if across == KL:
        symlog(axis, "x", values)
    if across == KEPT:
        ticks = {m: float(-np.log10(max(1 - m, FULL))) for m in (0, 0.5, 0.9, 0.99, 0.999, 1)}
        shown = {m: at for m, at in ticks.items() if at >= values.min() - 0.1}
        axis.set_xticks(list(shown.values()), [f"{m:g}" for m in shown])
