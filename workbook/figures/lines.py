"""Lines: metrics along a setting that is varied, and training, update by update."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workbook.figures.names import digits
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
    panels,
    seeds_note,
    short,
    start_of,
    styled,
    tick,
    zero_handle,
)
from workbook.figures.style import COLORS, DASHES, INK, JOINS, MARKERS
from workbook.results.design import LOGARITHMIC, OF_TRAINING, QUALITY, Series, measure, one_world
from workbook.results.results import Results
from workbook.results.tables import join, number
from workbook.results.training import curve, syncs


def sweep(
    results: Results,
    series: Sequence[Series],
    metrics: Sequence[str],
    x: str,
    note: str = "",
    levels: Mapping[str, float] | None = None,
    log: bool = False,
) -> Figure:
    """A panel per metric, a line per series along what is varied; the values of x stand at equal distances, or (log)
    on a logarithmic axis, 0 set apart a decade to the left.

    metrics: as in `design.measure`, "gain:<metric>" with each series' own base; x: name of what is varied;
    levels: metric -> a height marked by a dotted line (an invariant's limit, say). Grey dashes: the untrained model.
    """
    series = [s for s in series if s.conditions]
    places = _places(sorted({v for s in series for v in s.x}), log)
    tables = {m: t for m in metrics if len(t := _along(results, series, m, places))}
    if not tables:
        return nothing(results, f"anything along {x}")
    zero, dashed, said = start_of(results, [c for s in series for c in s.conditions]), False, []
    with styled():
        columns = min(3, len(tables)) if len(tables) != 4 else 2
        figure, axes = panels(len(tables), columns, 3.2 if columns == 3 else 4.6, 2.75)
        for at, (axis, (metric, table)) in enumerate(zip(axes, tables.items())):
            _draw(axis, table, series, metric)
            dashed |= _start(axis, results, zero, metric)
            if levels and metric in levels:
                mark(axis, levels[metric], color=INK, style=":")
            axis.set_xticks(list(places.values()), map(tick, places), rotation=45 if log or len(places) > 8 else 0)
            axis.set_xlim(-0.5, max(places.values()) + 0.5)
            axis.set(ylabel=label(metric), xlabel=x if at + columns >= len(tables) else "")
            said += _means(table, series, metric)
        handles = [handle(i, s.label, s.joined) for i, s in enumerate(series)]
        legend(figure, handles + [zero_handle()] * dashed)
        scale = "on a logarithmic axis, 0 set apart" if log else "at equal distances, not to scale"
        caption(
            figure, f"{seeds_note(results, metrics)} Values of {x.split(' (')[0]} {scale}. {note}{lost_note(results)}"
        )
    what = f"{join([short(m) for m in tables])} along {x}"
    return alt_text(figure, f"{what}, {counted(len(results.seeds))}. {listed(said)}.{lost_note(results)}")


def each(
    results: Results, series: Sequence[Series], metric: str, decodings: Mapping[str, str], note: str = ""
) -> Figure:
    """A panel per series, along its own numbers at equal distances; a line per decoding (-> its name in the legend)."""
    series = [s for s in series if len(s.conditions) > 1]
    world = one_world(results, [c for s in series for c in s.conditions])
    found = []
    for item in series:
        looks = [Series(n, item.conditions, tuple(range(len(item.x))), d) for d, n in decodings.items()]
        found.append((item, looks, _along(results, looks, metric, {i: float(i) for i in range(len(item.x))})))
    if not any(len(table) for _, _, table in found):
        return nothing(results, f"{short(metric, world)} along several values of one rule")
    zero, dashed, said = start_of(results, [c for s in series for c in s.conditions]), False, []
    with styled():
        columns = min(4, len(found))
        figure, axes = panels(len(found), columns, 2.6 if columns > 2 else 4.4, 2.5, sharey=True)
        for at, (axis, (item, looks, table)) in enumerate(zip(axes, found)):
            _draw(axis, table, looks, metric)
            dashed |= _start(axis, results, zero, metric)
            names, spoken = (["none" if math.isinf(x) else say(x) for x in item.x] for say in (tick, digits))
            axis.set_xticks(range(len(names)), names, rotation=45)
            axis.set(title=item.label, xlim=(-0.5, len(names) - 0.5), xlabel="")
            axis.set_ylabel(label(metric, world) if at % columns == 0 else "")
            said += [f"{item.label}, {text}" for text in _means(table, looks, metric, spoken.__getitem__)]
        legend(figure, [handle(i, name) for i, name in enumerate(decodings.values())] + [zero_handle()] * dashed)
        caption(figure, f"{seeds_note(results, (metric,))} Values at equal distances. {note}{lost_note(results)}")
    what = f"{short(metric, world)} along each rule's own number"
    return alt_text(figure, f"{what}, {counted(len(results.seeds))}. {listed(said)}.{lost_note(results)}")


def training(
    results: Results,
    groups: Mapping[str, Mapping[str, str]],
    metrics: Sequence[str],
    levels: Sequence[float] = (),
    note: str = "",
    along: Mapping[str, pd.Series] | None = None,
    x: str = "update",
) -> Figure:
    """A column per group, a row per metric: training, a line per run; triangles: the mask was just refreshed.

    groups: title -> {what a line is called: condition}; a name looks the same in every panel. levels: heights marked
    by a dotted line. along: condition -> what it had used by the end of each update, drawn in place of updates (x: its
    name).
    """
    every = {c for runs in groups.values() for c in runs.values()}
    grids = {(c, m): g for c in every for m in metrics if (g := curve(results, c, m)) is not None}
    groups = {t: {n: c for n, c in runs.items() if any((c, m) in grids for m in metrics)} for t, runs in groups.items()}
    groups = {title: runs for title, runs in groups.items() if runs}
    if not groups:
        return nothing(results, f"curves of {join([short(m) for m in metrics])}")
    names, n = list(dict.fromkeys(name for runs in groups.values() for name in runs)), len(results.seeds)
    palette, dashes = ({name: looks[i % 8] for i, name in enumerate(names)} for looks in (COLORS, DASHES))
    said = []
    with styled():
        columns = min(len(groups), 3) if len(metrics) == 1 else len(groups)
        width = {1: 8.4, 2: 4.8}.get(columns, 3.3)
        figure, axes = panels(
            len(groups) * len(metrics), columns, width, 2.6, sharey="row" if len(metrics) > 1 else True
        )
        for at, (metric, (title, runs)) in enumerate((m, g) for m in metrics for g in groups.items()):
            here = {name: grids[c, metric] for name, c in runs.items() if (c, metric) in grids}
            used = {name: along.get(runs[name]) for name in here} if along else {}
            _training(axes[at], here, metric, palette, dashes, used, n)
            for name, grid in here.items():
                mean = grid.mean(axis=1)
                ends = f"{number(mean.iloc[0])} first, {number(mean.iloc[-1])} last"
                said.append(f"{title} {name}: {short(metric)} {ends}")
                if (
                    not along
                    and len(places := [u for u in syncs(results, runs[name]) if u in mean.index]) < len(mean) - 1
                ):
                    axes[at].plot(places, mean[places], linestyle="", marker="^", color=palette[name], markersize=6)
            for height in levels:
                mark(axes[at], height, color=INK, style=":")
            axes[at].set(title=title if at < len(groups) else "", xlabel=x)
            axes[at].set_ylabel(label(metric) if at % columns == 0 else "")
        legend(figure, [_line(i, name) for i, name in enumerate(names)] if len(names) > 1 else [])
        spread = " Band: 95 % interval." if n >= 3 and not any(m.split("/")[-1] in LOGARITHMIC for m in metrics) else ""
        caption(figure, f"Line: mean of {counted(n)}.{spread} {note}{lost_note(results)}")
    what = join([short(m) for m in metrics])
    return alt_text(figure, f"{what} in training, {counted(n)}. {listed(said)}.{lost_note(results)}")


def _training(
    axis: Axes,
    grids: Mapping[str, pd.DataFrame],
    metric: str,
    palette: Mapping[str, str],
    dashes: Mapping[str, object],
    used: Mapping[str, pd.Series],
    seeds: int,
) -> None:
    """A panel of `training`; grids: name -> update x seed. A logarithmic one has geometric means and no band."""
    log = metric.split("/")[-1] in LOGARITHMIC
    rows = pd.concat([_long(grid, name, used.get(name)) for name, grid in grids.items()])
    look = {"hue": "run", "style": "run", "palette": palette, "dashes": dashes, "legend": False, "ax": axis}
    spread = {"estimator": _geometric if log else "mean", "errorbar": None if seeds < 3 or log else interval(metric)}
    sns.lineplot(rows, x="x", y="value", linewidth=1.5, **spread, **look)
    if log:
        axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _places(values: Sequence[float], log: bool) -> dict[float, float]:
    """Where each of the sorted values stands on the axis."""
    above = [v for v in values if v > 0]
    if not log or not above:
        return {v: float(i) for i, v in enumerate(values)}
    return {v: math.log10(v / above[0]) + (len(above) < len(values)) if v > 0 else 0.0 for v in values}


def _along(results: Results, series: Sequence[Series], metric: str, places: Mapping[float, float]) -> pd.DataFrame:
    """A row per series, value of x and seed: series (its place), x, at (where it stands), value."""
    rows, drawn = [], set()
    for place, item in enumerate(series):
        if metric in OF_TRAINING and item.conditions in drawn:  # the same whatever the decoding
            continue
        drawn.add(item.conditions)
        shift = (place - (len(series) - 1) / 2) * min(0.14, 0.6 / len(series))
        for i, (condition, x) in enumerate(zip(item.conditions, item.x)):
            base = item.base[i] if item.base else ""
            values = measure(results, condition, metric, item.decoding, base)
            if metric.startswith("gain:") and not base or values is None:
                continue
            rows += [{"series": place, "x": x, "at": places[x] + shift, "value": float(v)} for v in values]
    return pd.DataFrame(rows)


def _draw(axis: Axes, table: pd.DataFrame, series: Sequence[Series], metric: str) -> None:
    """Seeds, means with intervals, and the lines between them."""
    if not len(table):
        return
    looks = sorted(table.series.unique())
    palette = {i: COLORS[i % 8] for i in looks}
    marks, dashes = {i: MARKERS[i % 8] for i in looks}, {i: DASHES[i % 8] for i in looks}
    shared = {"hue": "series", "style": "series", "palette": palette, "markers": marks, "legend": False, "ax": axis}
    if has_seeds(metric):
        sns.scatterplot(table, x="at", y="value", s=16, alpha=0.4, linewidth=0, **shared)
    bars = {
        "estimator": middle(metric),
        "errorbar": interval(metric),
        "err_style": "bars",
        "err_kws": {"elinewidth": 1.7},
    }
    for joined in (True, False):
        own = table[table.series.map(lambda i, joined=joined: series[i].joined == joined)]
        if len(own):
            width = 1.2 if joined else 0
            sns.lineplot(
                own, x="at", y="value", dashes=dashes, markersize=7, linewidth=width, zorder=3, **bars, **shared
            )
    if metric in LOGARITHMIC and (table.value > 0).all():
        axis.set_yscale("log")


def _start(axis: Axes, results: Results, zero: str | None, metric: str) -> bool:
    """Mark the untrained model's mean, or no gain; whether there was one to mark."""
    if metric.startswith("gain:"):
        mark(axis, 0)
        return True
    start = results.values(zero, metric) if zero and metric in QUALITY else None
    if start is not None:
        mark(axis, start.mean())
    return start is not None


def _means(table: pd.DataFrame, series: Sequence[Series], metric: str, called: Callable[..., str] = tick) -> list[str]:
    """For the alt text: a text per series. called: how a value of x is said."""
    if not len(table):
        return []
    means = table.groupby(["series", "x"]).value.agg(middle(metric))
    return [
        f"{series[i].label} {short(metric)} {', '.join(f'{number(v)} at {called(x)}' for x, v in means[i].items())}"
        for i in sorted(table.series.unique())
    ]


def _long(grid: pd.DataFrame, name: str, used: pd.Series | None) -> pd.DataFrame:
    """update x seed -> a row each: x, seed, value, run."""
    at = grid.index if used is None else used.reindex(grid.index)
    return grid.set_axis(at, axis=0).rename_axis("x").reset_index().melt("x", var_name="seed").assign(run=name)


def _geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values).mean()))


def _line(place: int, text: str):
    from matplotlib.lines import Line2D

    return Line2D([], [], color=COLORS[place % 8], linestyle=JOINS[place % 8], label=text)
