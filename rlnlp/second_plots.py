"""Figures that only the second paper's reports need, in the style of `plots`: results and series in, one picture out.

    values(results, second_paper.sweeps(results), "score")        # a panel per sampler along its own number
    at_mass(results, ("score", "repetition"))                    # the samplers on one axis: the mass they keep
    finals(results)                                               # scores on numbers and the height to reach
    frontier(results)                                             # the KL report's, with its baselines
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlnlp import ablations, figures, report, second_paper
from rlnlp.ablations import ALGORITHM, Series
from rlnlp.drawing import (
    COLORS, JOINS, MARKERS, OF_TRAINING, counted, draw_path, draw_spread, handle, label, legend_columns, lost_note,
    nothing, panels, seeds_note, short, start_of, tick,
)
from rlnlp.figures import GREY, INK, STYLE, alt_text, caption
from rlnlp.results import Results
from rlnlp.second_paper import GOAL, NONE
from rlnlp.tables import join, number

SHOWN = {"plain": "decoded plainly", "own": "decoded as trained"}
FULL = 1e-4  # share cut away below which a mask counts as keeping everything, on the axis of `at_mass`
BASELINE = ("#5E3C99", "#8C564B")  # of the palettes of `figures`, those that are used last there


def values(results: Results, series: Sequence[Series], metric: str, note: str = "") -> Figure:
    """A panel per sampler: a metric along the sampler's own number, cutting less to the right, last no truncation.

    series: `second_paper.sweeps`. The number's values stand at equal distances; grey dashes: the untrained model.
    """
    conditions = [c for s in series for c in s.conditions]
    world, decodings = ablations.one_world(results, conditions), {"": ""} if metric in OF_TRAINING else SHOWN
    what = f"{short(metric, world)} along the samplers' values"
    found = {
        (s.label, d): [(i, v) for i, c in enumerate(s.conditions) if (v := ablations.measure(results, c, metric, d or "plain")) is not None]
        for s in series
        for d in decodings
    }
    if not any(found.values()):
        return nothing(results, what)
    zero, n, said = start_of(results, conditions), len(results.seeds), []
    with mpl.rc_context(STYLE):
        columns = min(4, len(series))
        figure, axes = panels(len(series), columns, 2.6 if columns > 2 else 4.4, 2.5, sharey=True)
        for number_, (axis, item) in enumerate(zip(axes, series)):
            for look, (decoding, name) in enumerate(decodings.items()):
                points = found[item.label, decoding]
                if not points:
                    continue
                at = [i + 0.1 * (look - (len(decodings) - 1) / 2) for i, _ in points]
                means = draw_spread(axis, at, [v for _, v in points], metric, look, "y")
                axis.plot(at, means, color=COLORS[look], marker=MARKERS[look], markersize=6, linestyle=JOINS[look], linewidth=1.2, zorder=3)
                told = ", ".join(f"{number(m)} at {_value(item.x[i])}" for m, (i, _) in zip(means, points))
                said.append(f"{item.label}{' ' * bool(name)}{name}: {told}")
            start = results.values(zero, metric) if zero and metric in ablations.QUALITY else None
            if start is not None:
                axis.axhline(start.mean(), color=GREY, linestyle="--", linewidth=1)
            axis.set_xticks(range(len(item.x)), [_value(x) for x in item.x], rotation=45)
            axis.set_xlim(-0.5, len(item.x) - 0.5)
            axis.set_title(item.label, fontsize=10, loc="left")
            if number_ % columns == 0:
                axis.set_ylabel(label(metric, world))
        handles = [handle(i, name) for i, name in enumerate(decodings.values()) if name]
        if zero and metric in ablations.QUALITY:
            handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="zero-shot, decoded plainly"))
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        caption(
            figure,
            f"{seeds_note(results, (metric,))} Values at equal distances, not to scale; to the right less is cut, none: PPO "
            f"without a mask. {note}{lost_note(results)}",
        )
    return alt_text(figure, f"{what}, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


def at_mass(results: Results, metrics: Sequence[str], world: str = "", decoding: str = "plain", note: str = "") -> Figure:
    """A panel per metric: a line per sampler along the mass that its mask keeps, so that samplers compare where they cut alike.

    The axis is logarithmic in what is cut away; a mask that cuts less than `FULL`, and none, stand at 1.
    """
    series = second_paper.at_mass(results, world, decoding)
    metrics = [m for m in metrics if any(results.values(c, m, decoding) is not None for s in series for c in s.conditions)]
    if not series or not metrics:
        return nothing(results, "samplers along the mass they keep")
    n, said, seen = len(results.seeds), [], []
    with mpl.rc_context(STYLE):
        figure, axes = panels(len(metrics), min(3, len(metrics)), 3.2 if len(metrics) > 2 else 4.8, 3.1)
        for axis, metric in zip(axes, metrics):
            for look, item in enumerate(series):
                points = [(second_paper.kept_mass(results, c), results.values(c, metric, decoding)) for c in item.conditions]
                points = [(_place(mass), v) for mass, v in points if v is not None]
                draw_path(axis, points, look)
                seen += [mass for mass, _ in points]
                told = ", ".join(f"{number(v.mean())} at mass {x:.3g}" for x, (_, v) in zip(item.x, points))
                said.append(f"{item.label} {short(metric, world)} {told}")
            axis.set_ylabel(label(metric, world))
            axis.set_xlabel("mass kept by the mask, as trained")
        lowest = min(float(m.min()) for m in seen)
        ticks = {p: label for label, p in ((f"{m:g}", float(_place(np.array(m)))) for m in (0, 0.5, 0.9, 0.99, 0.999, 1)) if p >= lowest - 0.1}
        for axis in axes:
            axis.set_xticks(list(ticks), list(ticks.values()))
        handles = [handle(i, s.label) for i, s in enumerate(series)]
        figure.legend(handles=handles, loc="outside upper center", ncols=legend_columns(figure, [s.label for s in series]))
        caption(
            figure,
            f"{SHOWN[decoding][0].upper() + SHOWN[decoding][1:]}. Small points: n = {counted(n)}; large: their mean; a line joins a sampler's "
            f"values. Axis logarithmic in what is cut; 1: less than {FULL:g}, or no mask. {note}{lost_note(results)}",
        )
    return alt_text(figure, f"{join([short(m, world) for m in metrics])} along the mass kept, {SHOWN[decoding]}, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


def finals(results: Results, world: str = "numbers", decoding: str = "own", note: str = "") -> Figure:
    """A row per trained run of a world: every seed's score, and their median; dotted: the score to reach; dashed: untrained."""
    table = second_paper.finals(results, world, decoding)
    what = f"Scores on {second_paper.WORLD[world]}"
    if not len(table):
        return nothing(results, what.lower())
    n, zero = len(results.seeds), start_of(results, list(table.index))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 1.9 + 0.34 * len(table)), layout="constrained")
        axis = figure.subplots()
        kinds = list(dict.fromkeys(table.paid))
        for look, kind in enumerate(kinds):
            rows = [i for i, p in enumerate(table.paid) if p == kind]
            seeds = [results.values(table.index[i], "score", decoding) for i in rows]
            axis.scatter(np.concatenate(seeds), np.repeat(rows, n) + 0.16, s=11, color=COLORS[look], marker=MARKERS[look], alpha=0.45, linewidths=0)
            axis.scatter(table["median"].iloc[rows], rows, s=44, color=COLORS[look], marker=MARKERS[look], zorder=3)
        dotted = f" Dotted: {GOAL:g}." if world == "numbers" else ""
        if dotted:
            axis.axvline(GOAL, color=INK, linestyle=":", linewidth=1.4)
        if zero and (start := results.values(zero, "score")) is not None:
            axis.axvline(start.mean(), color=GREY, linestyle="--", linewidth=1)
        axis.set_yticks(range(len(table)), [f"{r.learner} ({c})" for c, r in table.iterrows()])
        axis.set_ylim(len(table) - 0.4, -0.6)
        axis.set_xlabel("score of the numbers, own sampler" if world == "numbers" else "score, own sampler")
        handles = [Line2D([], [], color=COLORS[i], marker=MARKERS[i], linestyle="", label=kind) for i, kind in enumerate(kinds)]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(2, len(handles)), title=f"{what} (n = {counted(n)})", title_fontsize=11)
        caption(
            figure,
            f"Small points: n = {counted(n)}; large: their median.{dotted} Dashed: zero-shot. {note}{lost_note(results)}",
        )
    told = "; ".join(f"{c}: median {number(r['median'])}, {r.reached} of {r.n} seeds at {GOAL:g} or above" for c, r in table.iterrows())
    return alt_text(figure, f"{what}, {counted(n)}. {told}.{lost_note(results)}")


def frontier(results: Results, decoding: str = "plain") -> Figure:
    """`figures.frontier` of PPO and NLPO, and the baselines (`report.baselines`) as triangles of colours of their own."""
    others, rows = report.baselines(results), results.per_seed
    figure = figures.frontier(report.judged_rows(results, rows), decoding)
    shown = [c for c in others if results.values(c, "score", decoding) is not None]
    if not shown:
        return figure
    told, marks = [], []
    with mpl.rc_context(STYLE):
        for look, condition in enumerate(shown):
            color, score = BASELINE[look % len(BASELINE)], results.values(condition, "score", decoding)
            marker = "^v<>"[look % 4]
            for axis, metric in zip(figure.axes, ("generation_log_perplexity", "kl_deployed")):
                at = results.values(condition, metric, decoding)
                axis.scatter(at, score, s=13, color=color, marker=marker, alpha=0.4, linewidths=0)
                axis.scatter([at.mean()], [score.mean()], s=64, color=color, marker=marker, edgecolor="white", linewidths=0.8, zorder=4)
            name = f"{ALGORITHM[others[condition]]} (baseline)"
            marks.append(Line2D([], [], color=color, marker=marker, linestyle="", markersize=8, label=name))
            told.append(f"{name}: score {score.mean():.2f} at KL {results.values(condition, 'kl_deployed', decoding).mean():.2f}")
        (old,) = figure.legends
        handles = [*old.legend_handles, *marks]
        old.remove()
        figure.legend(handles=handles, labels=[h.get_label() for h in handles], loc="outside upper center", ncols=min(5, len(handles)))
    return alt_text(figure, f"{figure.get_label()} {'; '.join(told)}.")


def _place(mass: np.ndarray) -> np.ndarray:
    """Where a kept mass stands: 0, 1, 2, ... for 0, 0.9, 0.99, ..."""
    return -np.log10(np.maximum(1 - mass, FULL))


def _value(x: float) -> str:
    return "none" if x == NONE else tick(x)
