"""Figures of the ablations: results and series in, one picture out, in the style of `figures`.

    sweep(results, ablations.gamma_lines(results), ("score", "judge"), "γ")     # lines along what is varied
    arms(results, results.conditions, ("score", "judge"))                      # a dot and an interval per condition
    frontiers(results, ablations.gamma_frontiers(results), ("score",))         # metric against measured KL
    heat(results, ablations.sampling_grid(results, "gain:score"), ...)         # training sampler x decoding

Seeds are small points, means large ones with a 95 % interval (from three seeds on). Series differ in colour, marker and
line; a figure's label is its alt text and its caption gives n, and names listed runs that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rlnlp import ablations, figures, stats
from rlnlp.ablations import LOGARITHMIC, Series
from rlnlp.figures import GREY, INK, STYLE, alt_text, caption
from rlnlp.results import Results
from rlnlp.tables import join, number

COLORS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#5E3C99")  # Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
JOINS = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 3)))
LABELS = {  # short enough for a small panel
    **figures.LABELS,
    "generation_log_perplexity": "log-perplexity of the texts\n(nats/token)",
    "human_log_perplexity": "log-perplexity on human\nreviews (nats/token)",
    "kl_deployed": "exact KL as decoded\n(nats/token)",
    "judge_2": "second judge",
    "training_score": "score by the reward of its training",
    "gain:score": "gain in score over zero-shot",
    "gain:judge": "gain in the judge's opinion\nover zero-shot",
    "gain:judge_2": "gain in the second judge's\nopinion over zero-shot",
    "spread:score": "spread of the score\n(standard deviation over seeds)",
    "first_ratio_error": "first minibatch:\nlargest |ratio − 1|",
    "clip_fraction": "share of clipped tokens",
    "approx_kl": "approximate KL\nper update (nats)",
    "diverged": "share of diverged runs",
    "gradient_norm": "gradient norm,\nmean over training",
    "wobble": "wobble of the training score",
    "drop": "fall of the training score\nfrom its peak",
    "last_cycle": "training score, mean over\nthe last mask cycle",
    "dip": "change of the training score\nright after a refresh",
    "policy/first_ratio_error": "first minibatch: largest |ratio − 1|",
}
INTERVAL = {"diverged": "exact binomial for a share", "spread:score": "chi-square for a spread"}
OF_TRAINING = (*ablations.OF_TRAINING, "last_cycle", "dip", "diverged")  # the same whatever the decoding


def sweep(
    results: Results,
    series: Sequence[Series],
    metrics: Sequence[str],
    x: str,
    note: str = "",
    levels: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """A panel per metric, a line per series along what is varied; the values of x stand at equal distances.

    metrics: as in `ablations.measure`, "gain:<metric>" with each series' own base; x: name of what is varied;
    levels: metric -> a height marked by a dotted line (an invariant's limit, say). Grey dashes: the untrained model.
    """
    series = [s for s in series if s.conditions]
    values = sorted({v for s in series for v in s.x})
    metrics = [
        m for m in metrics if any(_numbers(results, s, i, m) is not None for s in series for i in range(len(s.x)))
    ]
    zero, n = ablations.untrained(results), len(results.seeds)
    if not metrics:
        return _nothing(results, f"along {x}")
    with mpl.rc_context(STYLE):
        columns = min(3, len(metrics)) if len(metrics) != 4 else 2
        figure, axes = _panels(len(metrics), columns, 3.1 if columns == 3 else 4.4, 2.75)
        said, own_start = [], zero is not None and any(zero in s.conditions for s in series)
        for number_, (axis, metric) in enumerate(zip(axes, metrics)):
            drawn_once = set()
            for place, item in enumerate(series):
                if metric in OF_TRAINING and item.conditions in drawn_once:
                    continue
                drawn_once.add(item.conditions)
                drawn = _along(axis, results, item, metric, values, place, len(series))
                said += [f"{item.label} {_short(metric)} {drawn}"] if drawn else []
            if (
                zero
                and not own_start
                and metric in ablations.QUALITY
                and (start := results.values(zero, metric)) is not None
            ):
                axis.axhline(start.mean(), color=GREY, linestyle="--", linewidth=1)
            if metric.startswith("gain:"):
                axis.axhline(0, color=GREY, linestyle="--", linewidth=1)
            if levels and metric in levels:
                axis.axhline(levels[metric], color=INK, linestyle=":", linewidth=1.4)
            axis.set_xticks(range(len(values)), [_tick(v) for v in values], rotation=45 if len(values) > 8 else 0)
            axis.set_xlim(-0.5, len(values) - 0.5)
            axis.set_ylabel(LABELS.get(metric, metric))
            if number_ + columns >= len(metrics):
                axis.set_xlabel(x)
        dashed = any(m.startswith("gain:") or zero and not own_start and m in ablations.QUALITY for m in metrics)
        _legend(figure, series, dashed, f"{title} (n = {_n(n)})" if title else "")
        caption(
            figure,
            f"{_seeds(results, metrics)} Values of {x.split(' (')[0]} at equal distances, not to scale. "
            f"{note}{_lost(results)}",
        )
    return alt_text(
        figure,
        f"{title + ': ' if title else ''}{join([_short(m) for m in metrics])} along {x}, {_n(n)}. "
        f"{'; '.join(said)}.{_lost(results)}",
    )


def arms(
    results: Results,
    conditions: Sequence[str],
    metrics: Sequence[str],
    title: str,
    note: str = "",
    decodings: Mapping[str, str] | None = None,
) -> Figure:
    """A panel per metric, a row per condition: seeds, mean, interval; dashed: the untrained model, decoded plainly.

    decodings: decoding -> its name in the legend; each has a row of its own marker beneath the other.
    """
    decodings = decodings or {"plain": ""}
    conditions = [c for c in conditions if c in results.conditions]
    metrics = [m for m in metrics if any(_value(results, c, m, d) is not None for c in conditions for d in decodings)]
    if not metrics:
        return _nothing(results, title)
    zero, n, step = ablations.untrained(results), len(results.seeds), 0.56 / len(decodings)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 1.9 + (0.2 + 0.2 * len(decodings)) * len(conditions)), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        said = []
        for axis, metric in zip(axes, metrics):
            for place, (decoding, shown) in enumerate(decodings.items()):
                seeds = {c: v for c in conditions if (v := _value(results, c, metric, decoding)) is not None}
                if not seeds:
                    continue
                rows = [conditions.index(c) + (place - (len(decodings) - 1) / 2) * step for c in seeds]
                means = _rows(
                    axis,
                    rows,
                    list(seeds.values()),
                    metric,
                    place,
                    [GREY if c == zero else COLORS[place] for c in seeds],
                )
                said += [
                    f"{c}{' ' * bool(shown)}{shown} {_short(metric)} {number(mean)}" for c, mean in zip(seeds, means)
                ]
            if zero and (start := _value(results, zero, metric, "plain")) is not None:
                axis.axvline(start.mean(), color=GREY, linestyle="--", linewidth=1)
            axis.set_xlabel(LABELS.get(metric, metric))
            axis.xaxis.set_major_locator(MaxNLocator(5))
        axes[0].set_yticks(range(len(conditions)), conditions)
        axes[0].set_ylim(len(conditions) - 0.4, -0.6)
        figure.suptitle(f"{title} (n = {_n(n)})", fontsize=11)
        if len(decodings) > 1:
            handles = [_handle(i, said_, joined=False, filled=i == 0) for i, said_ in enumerate(decodings.values())]
            figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        dashed = " Dashed: zero-shot, decoded plainly." if zero else ""
        caption(figure, f"{_seeds(results)}{dashed} {note}{_lost(results)}")
    return alt_text(figure, f"{title}, {_n(n)}. {'; '.join(said)}.{_lost(results)}")


def differences(
    results: Results,
    pairs: Sequence[tuple[str, str, str, str, str]],
    metrics: Sequence[str],
    title: str,
    note: str = "",
) -> Figure:
    """A row per pair, a panel per metric: the paired difference first - second with its interval; a line at 0.

    pairs: (what is compared, first, second, first's decoding, second's), as `ablations.contrasts`.
    """
    found = {
        (said, metric): c
        for said, first, second, one, other in pairs
        for metric in metrics
        if (c := _gaps(results, first, second, metric, one, other)) is not None
    }
    names = [p[0] for p in pairs if any((p[0], m) in found for m in metrics)]
    metrics = [m for m in metrics if any((name, m) in found for name in names)]
    if not found:
        return _nothing(results, title)
    n, said = len(results.seeds), []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 1.9 + 0.36 * len(names)), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axis, metric in zip(axes, metrics):
            axis.axvline(0, color=INK, linewidth=1)
            here = [(row, name) for row, name in enumerate(names) if (name, metric) in found]
            means = _rows(
                axis,
                [r for r, _ in here],
                [found[name, metric] for _, name in here],
                "difference",
                0,
                COLORS[:1] * len(here),
            )
            said += [f"{name}, {_short(metric)}: {mean:+.3f}" for (_, name), mean in zip(here, means)]
            axis.set_xlabel(f"difference in\n{LABELS.get(metric, metric)}")
            axis.xaxis.set_major_locator(MaxNLocator(4))
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        figure.suptitle(f"{title} (n = {_n(n)})", fontsize=11)
        caption(
            figure,
            f"{_seeds(results)} Differences are paired by seed; an interval that crosses 0 shows no direction. "
            f"{note}{_lost(results)}",
        )
    return alt_text(figure, f"{title}, {_n(n)}. {'; '.join(said)}.{_lost(results)}")


def frontiers(
    results: Results, groups: Mapping[str, Sequence[Series]], metrics: Sequence[str], note: str = ""
) -> Figure:
    """Metric against the measured KL of the deployed policy: a row per group, a column per metric, a line per beta sweep.

    At one height of x two lines compare policies that have moved equally far from the base model (matched KL).
    """
    metrics = [
        m
        for m in metrics
        if any(results.values(c, m) is not None for g in groups.values() for s in g for c in s.conditions)
    ]
    if not groups or not metrics:
        return _nothing(results, "frontiers over KL")
    labels = list(dict.fromkeys(s.label for g in groups.values() for s in g))
    n, said, seen = len(results.seeds), [], []
    with mpl.rc_context(STYLE):
        figure, axes = _panels(
            len(groups) * len(metrics), len(metrics), 9.6 / len(metrics), 3.0, sharex=True, sharey=False
        )
        for row, (group, series) in enumerate(groups.items()):
            for column, metric in enumerate(metrics):
                axis = axes[row * len(metrics) + column]
                for item in series:
                    place = labels.index(item.label)
                    points = [
                        (results.values(c, "kl_deployed", item.decoding), results.values(c, metric, item.decoding))
                        for c in item.conditions
                    ]
                    points = [(k, v) for k, v in points if k is not None and v is not None]
                    if not points:
                        continue
                    seen += [k for k, _ in points]
                    _path(axis, points, place)
                    at = ", ".join(f"{number(v.mean())} at KL {number(k.mean())}" for k, v in points)
                    said.append(f"{group} {item.label} {_short(metric)} {at}")
                zero = ablations.untrained(results)
                if zero and (start := results.values(zero, metric)) is not None:
                    axis.scatter([0], [start.mean()], s=80, color=GREY, marker="X", edgecolor="white", zorder=3)
                axis.set_ylabel(LABELS.get(metric, metric))
                axis.set_title(group, fontsize=10, loc="left")
                if row == len(groups) - 1:
                    axis.set_xlabel("exact KL as decoded (nats/token)")
        for axis in axes:
            figures.symlog(axis, "x", np.concatenate(seen))
        handles = [_handle(i, label) for i, label in enumerate(labels)]
        if ablations.untrained(results):
            handles.append(Line2D([], [], color=GREY, marker="X", linestyle="", markersize=8, label="zero-shot"))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=_columns(figure, [h.get_label() for h in handles])
        )
        caption(
            figure,
            f"Small points: n = {_n(n)}; large: their mean; a line joins the β of one sweep, from the largest (left). "
            f"KL axis linear up to 0.1, then logarithmic. {note}{_lost(results)}",
        )
    return alt_text(
        figure, f"{join([_short(m) for m in metrics])} against KL, {_n(n)}. {'; '.join(said)}.{_lost(results)}"
    )


def heat(results: Results, grids: Mapping[str, Mapping[tuple[str, str], np.ndarray]], note: str = "") -> Figure:
    """A panel per metric: rows are samplers in training, columns decodings; each cell has its mean and interval.

    grids: metric -> cells of `ablations.sampling_grid`. Framed cells: decoded as trained. Brighter is higher, from the
    lowest to the highest cell of its panel; the numbers say by how much.
    """
    grids = {m: g for m, g in grids.items() if g}
    if not grids:
        return _nothing(results, "training sampler by decoding")
    n, said = len(results.seeds), []
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        deepest = max(len({r for r, _ in g}) for g in grids.values())
        figure = Figure(figsize=(9.6, (1.2 + 0.62 * deepest) * len(grids) + 0.9), layout="constrained")
        for axis, (metric, cells) in zip(figure.subplots(len(grids), 1, squeeze=False)[:, 0], grids.items()):
            rows, columns = (list(dict.fromkeys(k[i] for k in cells)) for i in (0, 1))
            columns = [c for c in ablations.SAMPLERS.values() if c in columns]
            means = np.array([[cells[r, c].mean() if (r, c) in cells else np.nan for c in columns] for r in rows])
            gain = metric.startswith("gain:")
            image = axis.imshow(means, cmap="cividis", aspect="auto")
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    if (row, column) not in cells:
                        axis.text(j, i, "not run", ha="center", va="center", fontsize=9, color=GREY)
                        continue
                    found = stats.mean_interval(cells[row, column])
                    text = f"{found.estimate:+.3f}" if gain else f"{found.estimate:.3f}"
                    if n >= 3:
                        text += f"\n[{found.low:.3f}, {found.high:.3f}]"
                    axis.text(
                        j,
                        i,
                        text,
                        ha="center",
                        va="center",
                        fontsize=9,
                        color=figures.ink(image.cmap(image.norm(means[i, j]))),
                    )
                    said.append(f"{row} in training, {column} in evaluation: {_short(metric)} {found.estimate:.3f}")
                    if row == column:
                        axis.add_patch(
                            mpl.patches.Rectangle(
                                (j - 0.48, i - 0.47), 0.96, 0.94, fill=False, edgecolor="#D55E00", linewidth=2.6
                            )
                        )
            axis.set_xticks(range(len(columns)), columns)
            axis.set_yticks(range(len(rows)), rows)
            axis.set_ylabel("trained with")
            axis.set_xlabel("decoded with")
            axis.set_title(LABELS.get(metric, metric).replace("\n", " "), fontsize=10)
            axis.spines[:].set_visible(False)
        caption(
            figure,
            f"Mean over n = {_n(n)}{' and its 95 % interval' if n >= 3 else ''}. Framed: decoded as trained. "
            f"Brighter: higher. {note}{_lost(results)}",
        )
    return alt_text(figure, f"Samplers in training by decodings, {_n(n)}. {'; '.join(said)}.{_lost(results)}")


def training(
    results: Results,
    groups: Mapping[str, Mapping[str, str]],
    metric: str,
    level: float | None = None,
    note: str = "",
) -> Figure:
    """A panel per group: a training metric against updates, a line per condition; triangles: the mask was just refreshed.

    groups: title -> {what a line is called: condition}; a name looks the same in every panel. level: a height marked by
    a dotted line. Band: 95 % interval over seeds, from three on; a logarithmic axis has the geometric mean and no band.
    """
    table = results.curves
    there = set(table.condition) if metric in table else set()
    groups = {t: {name: c for name, c in arms.items() if c in there} for t, arms in groups.items()}
    groups = {t: arms for t, arms in groups.items() if arms}
    if not groups:
        return _nothing(results, LABELS.get(metric, metric))
    names = list(dict.fromkeys(name for arms in groups.values() for name in arms))
    n, said = len(results.seeds), []
    logarithmic = metric.split("/")[-1] in LOGARITHMIC and bool((table[metric].dropna() > 0).all())
    with mpl.rc_context(STYLE):
        columns = min(3 if len(groups) > 4 else 2, len(groups))
        figure, axes = _panels(len(groups), columns, {1: 8.4, 2: 4.8, 3: 3.2}[columns], 2.4, sharey=True)
        for number_, (axis, (title, arms)) in enumerate(zip(axes, groups.items())):
            for name, condition in arms.items():
                look = names.index(name) % 8
                grid = table[table.condition == condition].pivot(index="update", columns="seed", values=metric)
                mean = np.exp(np.log(grid).mean(axis=1)) if logarithmic else grid.mean(axis=1)
                axis.plot(grid.index, mean, color=COLORS[look], linestyle=JOINS[look], linewidth=1.6)
                if n >= 3 and not logarithmic:
                    _band(axis, grid, COLORS[look])
                marks = [u for u in ablations.syncs(results, condition) if u in mean.index]
                if metric == "objective/score" and marks and len(marks) < len(mean) - 1:
                    axis.scatter(
                        marks,
                        mean.loc[marks],
                        marker="v",
                        s=42,
                        color=COLORS[look],
                        edgecolor="white",
                        linewidths=0.7,
                        zorder=3,
                    )
                said.append(f"{title} {name}: {number(mean.iloc[0])} at first, {number(mean.iloc[-1])} at last")
            if level is not None:
                axis.axhline(level, color=INK, linestyle=":", linewidth=1.4)
            if logarithmic:
                axis.set_yscale("log")
            axis.set_title(title, fontsize=10, loc="left")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            if number_ + columns >= len(groups):
                axis.set_xlabel("update")
            if number_ % columns == 0:
                axis.set_ylabel(LABELS.get(metric, metric))
        if len(names) > 1:
            handles = [
                Line2D([], [], color=COLORS[i % 8], linestyle=JOINS[i % 8], label=name) for i, name in enumerate(names)
            ]
            figure.legend(handles=handles, loc="outside upper center", ncols=_columns(figure, names))
        spread = " Geometric mean." if logarithmic else " Band: 95 % interval." if n >= 3 else ""
        caption(figure, f"Line: mean of n = {_n(n)}.{spread} {note}{_lost(results)}")
    return alt_text(figure, f"{_short(metric)} in training, {_n(n)}. {'; '.join(said)}.{_lost(results)}")


def accuracy(results: Results, note: str = "") -> Figure:
    """Validation accuracy of the reward models against the share of the labels they were trained on."""
    table = ablations.reward_accuracy(results)
    if not len(table):
        return _nothing(results, "reward-model accuracy")
    shares, said = sorted(table.share.unique()), []
    with mpl.rc_context(STYLE):
        figure, (axis,) = _panels(1, 1, 6.4, 2.9)
        means = []
        for place, share in enumerate(shares):
            own = table[table.share == share].accuracy.to_numpy()
            axis.scatter(place + _spots(len(own), 0.08), own, s=14, color=COLORS[0], alpha=0.5, linewidths=0)
            found = stats.mean_interval(own)
            if found.low is not None and len(own) >= 3:
                axis.plot([place, place], [found.low, found.high], color=COLORS[0], linewidth=2)
            means.append(found.estimate)
            said.append(f"{share:.0%} of the labels: {found.estimate:.3f}")
        axis.plot(range(len(shares)), means, color=COLORS[0], marker="o", linewidth=1.2)
        axis.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
        axis.set_xticks(range(len(shares)), [f"{s:.0%}" for s in shares])
        axis.set_xlabel("share of the labels")
        axis.set_ylabel("accuracy on reviews it has not seen")
        n = table.seed.nunique()
        caption(
            figure,
            f"Small points: n = {_n(n)}, a reward model each; large: mean{', with 95 % interval' if n >= 3 else ''}. "
            f"Dashed: guessing. {note}",
        )
    return alt_text(figure, f"Reward-model accuracy by share of labels, {_n(n)}. {'; '.join(said)}.")


# parts ---------------------------------------------------------------------------------------------------------------


def _numbers(results: Results, item: Series, i: int, metric: str) -> np.ndarray | None:
    """The seeds of one point of a series."""
    condition, base = item.conditions[i], item.base[i] if item.base else ""
    if metric.startswith("gain:") and not base:
        return None
    return ablations.measure(results, condition, metric.removeprefix("spread:"), item.decoding, base)


def _value(results: Results, condition: str, metric: str, decoding: str) -> np.ndarray | None:
    return ablations.measure(results, condition, metric.removeprefix("spread:"), decoding)


def _gaps(results: Results, first: str, second: str, metric: str, one: str, other: str) -> np.ndarray | None:
    a, b = ablations.measure(results, first, metric, one), ablations.measure(results, second, metric, other)
    return None if a is None or b is None else a - b


def _along(
    axis: Axes, results: Results, item: Series, metric: str, values: Sequence[float], place: int, among: int
) -> str:
    """Draw one series of a sweep; the means in words."""
    shift = (place - (among - 1) / 2) * min(0.14, 0.6 / among)
    points = [(x, found) for i, x in enumerate(item.x) if (found := _numbers(results, item, i, metric)) is not None]
    if not points:
        return ""
    if metric in LOGARITHMIC and all((found > 0).all() for _, found in points):
        axis.set_yscale("log")
    spots = [values.index(x) + shift for x, _ in points]
    means = _spread(axis, spots, [found for _, found in points], metric, place, "y")
    line = JOINS[place % 8] if item.joined else ""
    axis.plot(
        spots,
        means,
        color=COLORS[place % 8],
        marker=MARKERS[place % 8],
        markersize=6.5,
        linestyle=line,
        linewidth=1.2,
        zorder=3,
    )
    return ", ".join(f"{number(mean)} at {_tick(x)}" for mean, (x, _) in zip(means, points))


def _spread(
    axis: Axes, places: Sequence[float], seeds: Sequence[np.ndarray], metric: str, look: int, way: str, color: str = ""
) -> list[float]:
    """Seeds and intervals of several points at once (an artist each would be slow); the means. way: y up, x to the right."""
    color, found = color or COLORS[look % 8], [ablations.estimate(v, metric) for v in seeds]
    if metric != "diverged" and not metric.startswith("spread:"):
        beside = [p + _spots(len(v), 0.03) if way == "y" else np.full(len(v), p + 0.13) for p, v in zip(places, seeds)]
        xy = (np.concatenate(beside), np.concatenate(seeds))
        axis.scatter(
            *(xy if way == "y" else xy[::-1]), s=11, color=color, alpha=0.45, marker=MARKERS[look % 8], linewidths=0
        )
    bars = [(p, f.low, f.high) for p, f in zip(places, found) if f.low is not None and f.n >= 3]
    if bars:
        (axis.vlines if way == "y" else axis.hlines)(*zip(*bars), color=color, linewidth=1.7)
    return [f.estimate for f in found]


def _rows(
    axis: Axes, places: Sequence[float], seeds: Sequence[np.ndarray], metric: str, look: int, colors: Sequence[str]
) -> list[float]:
    """Points on rows: seeds, interval, mean (filled for the first look, open for others); the means."""
    means = []
    for color in dict.fromkeys(colors):
        own = [i for i, c in enumerate(colors) if c == color]
        found = _spread(axis, [places[i] for i in own], [seeds[i] for i in own], metric, look, "x", color)
        axis.scatter(found, [places[i] for i in own], s=40, marker=MARKERS[look], facecolor=color if look == 0 else "white",
                     edgecolor=color, linewidths=1.5, zorder=3)  # fmt: skip
        means += zip(own, found)
    return [mean for _, mean in sorted(means)]


def _path(axis: Axes, points: list[tuple[np.ndarray, np.ndarray]], place: int) -> None:
    """The means of a beta sweep joined in the order of their KL, seeds beside them."""
    color, marker = COLORS[place % 8], MARKERS[place % 8]
    axis.scatter(*(np.concatenate(v) for v in zip(*points)), s=11, color=color, marker=marker, alpha=0.45, linewidths=0)
    means = sorted((k.mean(), v.mean()) for k, v in points)
    axis.plot(
        *zip(*means), color=color, marker=marker, markersize=6.5, linestyle=JOINS[place % 8], linewidth=1.2, zorder=3
    )


def _band(axis: Axes, grid: pd.DataFrame, color: str) -> None:
    """95 % t interval of each row of grid [update x seed], not stretching the axis."""
    n = grid.notna().sum(axis=1)
    half = scipy.stats.t.ppf(0.975, np.maximum(n - 1, 1)) * grid.std(axis=1, ddof=1) / np.sqrt(n)
    half, mean, limits = half.fillna(0.0), grid.mean(axis=1), axis.dataLim.frozen()
    axis.fill_between(grid.index, mean - half, mean + half, color=color, alpha=0.14, linewidth=0)
    axis.dataLim.set(limits)


def _panels(
    count: int, columns: int, width: float, height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(width * columns, 6.4), height * rows + 1.2), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for axis in grid[count:]:
        axis.set_axis_off()
    return figure, grid[:count]


def _handle(place: int, label: str, joined: bool = True, filled: bool = True) -> Line2D:
    color = COLORS[place % 8]
    return Line2D([], [], color=color, marker=MARKERS[place % 8], linestyle=JOINS[place % 8] if joined else "", label=label,
                  markerfacecolor=color if filled else "white")  # fmt: skip


def _legend(figure: Figure, series: Sequence[Series], dashed: bool, title: str) -> None:
    handles = [_handle(i, s.label, s.joined) for i, s in enumerate(series)]
    if dashed:
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="zero-shot"))
    figure.legend(
        handles=handles, title=title or None, title_fontsize=11, loc="outside upper center",
        ncols=_columns(figure, [h.get_label() for h in handles]),
    )  # fmt: skip


def _columns(figure: Figure, labels: Sequence[str]) -> int:
    """As many legend columns as fit the figure's width."""
    widest = max(len(text) for text in labels) * 0.085 + 0.65
    return max(1, min(len(labels), int(figure.get_figwidth() / widest)))


def _spots(count: int, reach: float) -> np.ndarray:
    return np.linspace(-reach, reach, count) if count > 1 else np.zeros(1)


def _tick(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def _n(n: int) -> str:
    return f"{n} seed{'s' if n > 1 else ''}"


def _seeds(results: Results, metrics: Sequence[str] = ()) -> str:
    n, kinds = len(results.seeds), sorted({INTERVAL[m] for m in metrics if m in INTERVAL})
    interval = (
        f", with its 95 % interval{f' ({join(kinds)})' if kinds else ''}" if n >= 3 else " (too few for an interval)"
    )
    return f"Small points: n = {_n(n)}; large: their mean{interval}."


def _short(metric: str) -> str:
    return LABELS.get(metric, metric).replace("\n", " ")


def _lost(results: Results) -> str:
    return f" MISSING: {', '.join(results.missing)}." if results.missing else ""


def _nothing(results: Results, what: str) -> Figure:
    """A figure that says that there is nothing to show, rather than none."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.2), layout="constrained")
        figure.text(0.5, 0.6, f"Not run in this profile: {what}.", ha="center", fontsize=10, color=INK)
        caption(figure, f"n = {_n(len(results.seeds))}.{_lost(results)}")
    return alt_text(
        figure, f"No picture: {what} was not run in this profile, {_n(len(results.seeds))}.{_lost(results)}"
    )
