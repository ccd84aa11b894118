"""Finished runs beside each other, as HTML: their learning curves, what score cost them in KL, their samples."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workbook.figures import parts as figure_parts
from workbook.figures.style import COLORS, JOINS, MARKERS
from workbook.lab import static
from workbook.lab.finished import Found, rows_of
from workbook.results import measures, tables

MOST = 8  # runs in one figure: as many as there are colours
ROWS = 4  # prompts in the table of samples
COSTS = ("kl_deployed", "generation_log_perplexity", "kl", "length")
GAINS = ("score", "judge", "judge_2", "score_response")


def curve_figure(grids: dict[str, dict[str, pd.DataFrame]], metrics: list[str]) -> Figure:
    """Metrics against updates, a panel each; grids: metric -> condition -> table [update x seed], empty where a seed
    had ended."""
    figure, axes = static.panels(len(metrics), 4.6 * len(metrics), 3.4)
    n = _number({name: grid.shape[1] for arms in grids.values() for name, grid in arms.items()})
    said, names = [], list(dict.fromkeys(name for arms in grids.values() for name in arms))
    for axis, metric in zip(axes, metrics):
        for name, grid in grids[metric].items():
            look, mean = names.index(name) % MOST, grid.mean(axis=1)
            axis.plot(grid.index, mean, color=COLORS[look], linestyle=JOINS[look], linewidth=1.6, label=name)
            if grid.shape[1] >= 3:
                figure_parts.band(axis, grid, COLORS[look])
            said.append(f"{name} {metric} {mean.iloc[0]:.3g} at first, {mean.iloc[-1]:.3g} at last")
        axis.set(xlabel="update", ylabel=measures.label(metric, panel=True))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncols=min(4, len(lines)), frameon=False, fontsize=9
    )
    banded = any(grid.shape[1] >= 3 for arms in grids.values() for grid in arms.values())
    figure_parts.caption(figure, f"Line: mean of {n}.{' Band: 95 % interval.' if banded else ''}")
    return figure_parts.alt_text(figure, f"Learning curves, {n}: {'; '.join(said)}.")


def frontier_figure(table: pd.DataFrame, names: list[str], gain: str, cost: str, decoding: str) -> Figure:
    """Gain against cost on the test prompts: small points are seeds, large ones their mean. table: per_seed rows."""
    figure, (axis,) = static.panels(1, 8.4, 4.2)
    said, n = [], _number({name: table[table.condition == name].seed.nunique() for name in names})
    for look, name in enumerate(names):
        rows = table[table.condition == name]
        marks = {"color": COLORS[look], "marker": MARKERS[look], "linewidths": 0}
        axis.scatter(rows[cost], rows[gain], s=16, alpha=0.45, **marks)
        axis.scatter([rows[cost].mean()], [rows[gain].mean()], s=70, label=name, zorder=3, **marks)
        said.append(f"{name} {gain} {rows[gain].mean():.3f} at {cost} {rows[cost].mean():.3f}")
    axis.set(
        xlabel=measures.label(cost, panel=True).replace("\n", " "),
        ylabel=measures.label(gain, panel=True).replace("\n", " "),
    )
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure_parts.caption(
        figure, f"Decoding: {decoding}. Small points: {n}; large: their mean. Up: more gain; right: more cost."
    )
    return figure_parts.alt_text(figure, f"{gain} against {cost}, {n}, decoding {decoding}: {'; '.join(said)}.")


def _number(seeds: dict[str, int]) -> str:
    """How many seeds, of each condition where they differ."""
    counts = set(seeds.values())
    if len(counts) == 1:
        return f"n = {counts.pop()} seeds"
    return f"n = {', '.join(str(n) for n in seeds.values())} seeds ({', '.join(seeds)})"


def curves(found: Found, names: list[str], metric: str | None) -> str:
    """The learning curves of runs, of the score and of one more metric, as HTML; those that have none are named."""
    here = {name: pd.DataFrame(rows) for name in names if (rows := rows_of(found, name, "curves.csv"))}
    lacking = [name for name in names if name not in here]
    metrics = list(
        dict.fromkeys(m for m in ("objective/score", metric) if m and any(m in rows for rows in here.values()))
    )
    note = _lacking(lacking, found, "curves")
    if not metrics:
        return note
    grids = {
        m: {name: rows.pivot(index="update", columns="seed", values=m) for name, rows in here.items() if m in rows}
        for m in metrics
    }
    for name, grid in grids[metrics[0]].items():  # the mean of the seeds that are left is another thing
        if early := [f"{s} after update {grid[s].last_valid_index()}" for s in grid if pd.isna(grid[s].iloc[-1])]:
            note += static.say(
                f"{name} ended early in seed {', '.join(early)}: from there its line is the mean of the other seeds"
            )
    return static.picture(curve_figure(grids, metrics)) + note


def frontier(table: pd.DataFrame, names: list[str], gain: str | None, cost: str | None, decoding: str) -> str:
    """What runs gained against what it cost, as HTML. table: per_seed rows; gain, cost: columns, None where there is
    none; those that were not measured with the decoding are named."""
    if not gain or not cost:
        return static.say(f"the tables hold none of {', '.join(COSTS)}")
    rows = table[(table.split == "test") & (table.decoding == decoding) & table.condition.isin(names)].dropna(
        subset=[gain, cost]
    )
    there = [name for name in names if name in set(rows.condition)]
    lost = [name for name in names if name not in there]
    note = static.say(f"not measured with the decoding {decoding}: {', '.join(lost)}") if lost else ""
    return (static.picture(frontier_figure(rows, there, gain, cost, decoding)) if there else "") + note


def samples(found: Found, names: list[str], seed: int, first: int) -> str:
    """The responses of runs side by side, as HTML: ROWS prompts of one seed from the ``first`` on, counted from 1."""
    rows: dict[str, dict[str, str]] = {}
    lacking = []
    for name in names:
        lines = [s for s in rows_of(found, name, "samples.jsonl") if s["seed"] == seed]
        lacking += [] if lines else [name]
        for line in lines:
            row = rows.setdefault(str(line["example_id"]), {"prompt": tables.short(line["prompt"])})
            row[name] = f"{' '.join(line['response'].split())} ({line['score']:.2f})"
    first = min(first, max(1, len(rows) - ROWS + 1))  # other runs may have more prompts than these
    shown = list(rows.values())[first - 1 : first - 1 + ROWS]
    if not shown:
        return _lacking(lacking, found, "samples")
    prompts = f"prompts {first} to {first + len(shown) - 1} of {len(rows)}"
    about = f"seed {seed}, {prompts}, plain decoding; in brackets: the score"
    there = [name for name in names if name not in lacking]
    cells = [[row.get(title, "not run") for title in ("prompt", *there)] for row in shown]
    return static.say(about) + static.table(["prompt", *there], cells) + _lacking(lacking, found, "samples")


def _lacking(names: list[str], found: Found, what: str) -> str:
    """Says why runs have no curves or samples."""
    untrained = [n for n in names if n in found.folders]
    away = [n for n in names if n not in found.folders]
    said = ""
    if untrained:
        said += static.say(f"no {what} in {', '.join(untrained)}" + (" (not trained)" if what == "curves" else ""))
    if away:
        said += static.say(f"only the numbers of {', '.join(away)} are here, no {what}: make reproduce brings the rest")
    return said
