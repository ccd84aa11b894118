"""Figures of the ablations: results and series in, one picture out, in the style of `figures`.

    sweep(results, ablations.gamma_lines(results), ("score", "judge"), "γ")     # lines along what is varied
    arms(results, results.conditions, ("score", "judge"))                      # a dot and an interval per condition
    frontiers(results, ablations.gamma_frontiers(results), ("score",))         # metric against measured KL
    heat(results, ablations.sampling_grid(results, "gain:score"), ...)         # training sampler x decoding

Seeds are small points, means large ones with a 95 % interval (from three seeds on). Series differ in colour, marker and
line; a figure's label is its alt text and its caption gives n, and names listed runs that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rlnlp import ablations, figures, second_paper, stats
from rlnlp.ablations import LOGARITHMIC, Series
from rlnlp.drawing import (
    COLORS, JOINS, LABELS, OF_TRAINING, ONCE, counted, draw_along, draw_band, draw_path, draw_rows, gaps_of, handle, legend,
    legend_columns, lost_note, nothing, numbers_of, panels, places_of, seeds_note, short, spots, start_of, tick, value_of,
)
from rlnlp.figures import GREY, INK, STYLE, alt_text, caption
from rlnlp.results import Results
from rlnlp.tables import join, number


def sweep(
    results: Results,
    series: Sequence[Series],
    metrics: Sequence[str],
    x: str,
    note: str = "",
    levels: Mapping[str, float] | None = None,
    title: str = "",
    log: bool = False,
) -> Figure:
    """A panel per metric, a line per series along what is varied; the values of x stand at equal distances, or (log) on a
    logarithmic axis, 0 set apart a decade to the left.

    metrics: as in `ablations.measure`, "gain:<metric>" with each series' own base; x: name of what is varied;
    levels: metric -> a height marked by a dotted line (an invariant's limit, say). Grey dashes: the untrained model.
    """
    series = [s for s in series if s.conditions]
    values = places_of(sorted({v for s in series for v in s.x}), log)
    metrics = [
        m for m in metrics if any(numbers_of(results, s, i, m) is not None for s in series for i in range(len(s.x)))
    ]
    zero, n = start_of(results, [c for s in series for c in s.conditions]), len(results.seeds)
    if not metrics:
        return nothing(results, f"along {x}")
    with mpl.rc_context(STYLE):
        columns = min(3, len(metrics)) if len(metrics) != 4 else 2
        figure, axes = panels(len(metrics), columns, 3.1 if columns == 3 else 4.4, 2.75)
        said, own_start = [], zero is not None and any(zero in s.conditions for s in series)
        for number_, (axis, metric) in enumerate(zip(axes, metrics)):
            drawn_once = set()
            for place, item in enumerate(series):
                if metric in OF_TRAINING and item.conditions in drawn_once:
                    continue
                drawn_once.add(item.conditions)
                drawn = draw_along(axis, results, item, metric, values, place, len(series))
                said += [f"{item.label} {short(metric)} {drawn}"] if drawn else []
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
            axis.set_xticks(list(values.values()), [tick(v) for v in values], rotation=45 if log or len(values) > 8 else 0)
            axis.set_xlim(-0.5, max(values.values()) + 0.5)
            axis.set_ylabel(LABELS.get(metric, metric))
            if number_ + columns >= len(metrics):
                axis.set_xlabel(x)
        dashed = any(m.startswith("gain:") or zero and not own_start and m in ablations.QUALITY for m in metrics)
        legend(figure, series, dashed, f"{title} (n = {counted(n)})" if title else "")
        caption(
            figure,
            f"{seeds_note(results, metrics)} Values of {x.split(' (')[0]} "
            f"{'on a logarithmic axis, 0 set apart' if log else 'at equal distances, not to scale'}. "
            f"{note}{lost_note(results)}",
        )
    return alt_text(
        figure,
        f"{title + ': ' if title else ''}{join([short(m) for m in metrics])} along {x}, {counted(n)}. "
        f"{'; '.join(said)}.{lost_note(results)}",
    )


def arms(
    results: Results,
    conditions: Sequence[str],
    metrics: Sequence[str],
    title: str,
    note: str = "",
    decodings: Mapping[str, str] | None = None,
    trap: str = "",
) -> Figure:
    """A panel per metric, a row per condition: seeds, mean, interval; dashed: the untrained model, decoded plainly.

    decodings: decoding -> its name in the legend; each has a row of its own marker beneath the other; trap: a decoding
    of the untrained model that a dotted line marks: what decoding alone does.
    """
    decodings = decodings or {"plain": ""}
    conditions = [c for c in conditions if c in results.conditions]
    metrics = [m for m in metrics if any(value_of(results, c, m, d) is not None for c in conditions for d in decodings)]
    conditions = [c for c in conditions if any(value_of(results, c, m, d) is not None for m in metrics for d in decodings)]
    if not metrics:
        return nothing(results, title)
    zero, n, step = start_of(results, conditions), len(results.seeds), 0.56 / len(decodings)
    marked = trapped = False
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 1.9 + (0.2 + 0.2 * len(decodings)) * len(conditions)), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        said = []
        for axis, metric in zip(axes, metrics):
            for place, (decoding, shown) in enumerate(decodings.items()):
                seeds = {c: v for c in conditions if (v := value_of(results, c, metric, decoding)) is not None}
                if not seeds:
                    continue
                rows = [conditions.index(c) + (place - (len(decodings) - 1) / 2) * step for c in seeds]
                means = draw_rows(
                    axis,
                    rows,
                    list(seeds.values()),
                    metric,
                    place,
                    [GREY if c == zero else COLORS[place] for c in seeds],
                )
                said += [
                    f"{c}{' ' * bool(shown)}{shown} {short(metric)} {number(mean)}" for c, mean in zip(seeds, means)
                ]
            if zero and (start := value_of(results, zero, metric, "plain")) is not None:
                axis.axvline(start.mean(), color=GREY, linestyle="--", linewidth=1)
                marked = True
            fell = value_of(results, zero, metric, trap) if zero and trap and metric not in ONCE else None
            if fell is not None:
                axis.axvline(fell.mean(), color=INK, linestyle=":", linewidth=1.4)
                said, trapped = [*said, f"{zero} {trap} {short(metric)} {number(fell.mean())}"], True
            axis.set_xlabel(LABELS.get(metric, metric))
            axis.xaxis.set_major_locator(MaxNLocator(5))
        axes[0].set_yticks(range(len(conditions)), conditions)
        axes[0].set_ylim(len(conditions) - 0.4, -0.6)
        figure.suptitle(f"{title} (n = {counted(n)})", fontsize=11)
        if len(decodings) > 1:
            handles = [handle(i, said_, joined=False, filled=i == 0) for i, said_ in enumerate(decodings.values())]
            figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        dashed = " Dashed: zero-shot, decoded plainly." if marked else ""
        dotted = f" Dotted: zero-shot, by {trap} decoding." if trapped else ""
        caption(figure, f"{seeds_note(results, metrics)}{dashed}{dotted} {note}{lost_note(results)}")
    return alt_text(figure, f"{title}, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


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
        if (c := gaps_of(results, first, second, metric, one, other)) is not None
    }
    names = [p[0] for p in pairs if any((p[0], m) in found for m in metrics)]
    metrics = [m for m in metrics if any((name, m) in found for name in names)]
    if not found:
        return nothing(results, title)
    n, said = len(results.seeds), []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 1.9 + 0.36 * len(names)), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axis, metric in zip(axes, metrics):
            axis.axvline(0, color=INK, linewidth=1)
            here = [(row, name) for row, name in enumerate(names) if (name, metric) in found]
            means = draw_rows(
                axis,
                [r for r, _ in here],
                [found[name, metric] for _, name in here],
                "difference",
                0,
                COLORS[:1] * len(here),
            )
            said += [f"{name}, {short(metric)}: {mean:+.3f}" for (_, name), mean in zip(here, means)]
            axis.set_xlabel(f"difference in\n{LABELS.get(metric, metric)}")
            axis.xaxis.set_major_locator(MaxNLocator(4))
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        figure.suptitle(f"{title} (n = {counted(n)})", fontsize=11)
        caption(
            figure,
            f"{seeds_note(results)} Differences are paired by seed; an interval that crosses 0 shows no direction. "
            f"{note}{lost_note(results)}",
        )
    return alt_text(figure, f"{title}, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


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
        return nothing(results, "frontiers over KL")
    labels = list(dict.fromkeys(s.label for g in groups.values() for s in g))
    n, said, seen = len(results.seeds), [], []
    zero = start_of(results, [c for g in groups.values() for s in g for c in s.conditions])
    with mpl.rc_context(STYLE):
        figure, axes = panels(
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
                    draw_path(axis, points, place)
                    at = ", ".join(f"{number(v.mean())} at KL {number(k.mean())}" for k, v in points)
                    said.append(f"{group} {item.label} {short(metric)} {at}")
                if zero and (start := results.values(zero, metric)) is not None:
                    axis.scatter([0], [start.mean()], s=80, color=GREY, marker="X", edgecolor="white", zorder=3)
                axis.set_ylabel(LABELS.get(metric, metric))
                axis.set_title(group, fontsize=10, loc="left")
                if row == len(groups) - 1:
                    axis.set_xlabel("exact KL as decoded (nats/token)")
        for axis in axes:
            figures.symlog(axis, "x", np.concatenate(seen))
        swept = {s.label for g in groups.values() for s in g if len(s.conditions) > 1}
        handles = [handle(i, label, joined=label in swept) for i, label in enumerate(labels)]
        if zero:
            handles.append(Line2D([], [], color=GREY, marker="X", linestyle="", markersize=8, label="zero-shot"))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=legend_columns(figure, [h.get_label() for h in handles])
        )
        caption(
            figure,
            f"Small points: n = {counted(n)}; large: their mean{'; a line joins the β of one sweep, from the largest (left)' * bool(swept)}. "
            f"KL axis linear up to 0.1, then logarithmic. {note}{lost_note(results)}",
        )
    return alt_text(
        figure, f"{join([short(m) for m in metrics])} against KL, {counted(n)}. {'; '.join(said)}.{lost_note(results)}"
    )


def heat(results: Results, grids: Mapping[str, Mapping[tuple[str, str], np.ndarray]], note: str = "") -> Figure:
    """A panel per metric: rows are samplers in training, columns decodings; each cell has its mean and interval.

    grids: metric -> cells of `ablations.sampling_grid`. Framed cells: decoded as trained. Brighter is higher, from the
    lowest to the highest cell of its panel; the numbers say by how much.
    """
    grids = {m: g for m, g in grids.items() if g}
    if not grids:
        return nothing(results, "training sampler by decoding")
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
                    said.append(f"{row} in training, {column} in evaluation: {short(metric)} {found.estimate:.3f}")
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
            f"Mean over n = {counted(n)}{' and its 95 % interval' if n >= 3 else ''}. Framed: decoded as trained. "
            f"Brighter: higher. {note}{lost_note(results)}",
        )
    return alt_text(figure, f"Samplers in training by decodings, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


def training(
    results: Results,
    groups: Mapping[str, Mapping[str, str]],
    metric: str,
    level: float | None = None,
    note: str = "",
    x: str = "update",
) -> Figure:
    """A panel per group: a training metric against updates, a line per condition; triangles: the mask was just refreshed.

    groups: title -> {what a line is called: condition}; a name looks the same in every panel. level: a height marked by
    a dotted line. x: update, or what was used up to it (`second_paper.used`): tokens or gradient_steps. Band: 95 % interval over seeds, from three on; a logarithmic axis has the geometric mean and no band.
    """
    table = results.curves
    there = set(table.condition) if metric in table else set()
    groups = {t: {name: c for name, c in arms.items() if c in there} for t, arms in groups.items()}
    groups = {t: arms for t, arms in groups.items() if arms}
    if not groups:
        return nothing(results, LABELS.get(metric, metric))
    names = list(dict.fromkeys(name for arms in groups.values() for name in arms))
    n, said = len(results.seeds), []
    logarithmic = metric.split("/")[-1] in LOGARITHMIC and bool((table[metric].dropna() > 0).all())
    with mpl.rc_context(STYLE):
        columns = min(3 if len(groups) > 4 else 2, len(groups))
        figure, axes = panels(len(groups), columns, {1: 8.4, 2: 4.8, 3: 3.2}[columns], 2.4, sharey=True)
        for number_, (axis, (title, arms)) in enumerate(zip(axes, groups.items())):
            for name, condition in arms.items():
                look = names.index(name) % 8
                grid = table[table.condition == condition].pivot(index="update", columns="seed", values=metric)
                if x != "update":
                    grid.index = second_paper.used(results, condition, x).reindex(grid.index)
                mean = np.exp(np.log(grid).mean(axis=1)) if logarithmic else grid.mean(axis=1)
                axis.plot(grid.index, mean, color=COLORS[look], linestyle=JOINS[look], linewidth=1.6)
                if n >= 3 and not logarithmic:
                    draw_band(axis, grid, COLORS[look])
                marks = [u for u in ablations.syncs(results, condition) if x == "update" and u in mean.index]
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
            axis.xaxis.set_major_locator(MaxNLocator(5 if x == "tokens" else "auto", integer=True))
            if number_ + columns >= len(groups):
                axis.set_xlabel(LABELS.get(x, x))
            if number_ % columns == 0:
                axis.set_ylabel(LABELS.get(metric, metric))
        if len(names) > 1:
            handles = [
                Line2D([], [], color=COLORS[i % 8], linestyle=JOINS[i % 8], label=name) for i, name in enumerate(names)
            ]
            figure.legend(handles=handles, loc="outside upper center", ncols=legend_columns(figure, names))
        spread = " Geometric mean." if logarithmic else " Band: 95 % interval." if n >= 3 else ""
        caption(figure, f"Line: mean of n = {counted(n)}.{spread} {note}{lost_note(results)}")
    return alt_text(figure, f"{short(metric)} in training, {counted(n)}. {'; '.join(said)}.{lost_note(results)}")


def accuracy(results: Results, note: str = "") -> Figure:
    """Validation accuracy of the reward models against the share of the labels they were trained on."""
    table = ablations.reward_accuracy(results)
    if not len(table):
        return nothing(results, "reward-model accuracy")
    shares, said = sorted(table.share.unique()), []
    with mpl.rc_context(STYLE):
        figure, (axis,) = panels(1, 1, 6.4, 2.9)
        means = []
        for place, share in enumerate(shares):
            own = table[table.share == share].accuracy.to_numpy()
            axis.scatter(place + spots(len(own), 0.08), own, s=14, color=COLORS[0], alpha=0.5, linewidths=0)
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
            f"Small points: n = {counted(n)}, a reward model each; large: mean{', with 95 % interval' if n >= 3 else ''}. "
            f"Dashed: guessing. {note}",
        )
    return alt_text(figure, f"Reward-model accuracy by share of labels, {counted(n)}. {'; '.join(said)}.")
