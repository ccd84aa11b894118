"""The leaderboard's figures: numbers of tasks x arms, ranks with intervals, reward against judge."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workbook.figures.parts import Shown, alt_text, caption, listed, panels
from workbook.figures.style import COLORS, GREY, INK, MARKERS, styled
from workbook.grue import board
from workbook.grue.arms import ARMS
from workbook.grue.baselines import HUMAN, TRIVIAL
from workbook.grue.board import JUDGE, MODEL, REWARD, START, SUBMITTED, Board
from workbook.results.tables import number

SAID = {REWARD: "reward", JUDGE: "judge"}
COLOURS = "cividis"


def label(name: str) -> str:
    """What a condition is called in figures and tables."""
    return ARMS[name].label if name in ARMS else name


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Policy -> (colour, marker); no pair twice up to 64."""
    return {name: (COLORS[i % 8], MARKERS[(i + i // 8) % 8]) for i, name in enumerate(names)}


def readable(value: float) -> str:
    """Black or white, whichever has the higher contrast (WCAG) to the colour of a value between 0 and 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colormaps[COLOURS](value)[:3]]
    luminance = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear))
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"


def heat(found: Board) -> Figure:
    """A panel of rewards, one of verdicts where there are any: tasks down, policies across, each cell its mean and
    interval."""
    columns = [column for column in SAID if any(column in found.columns(task) for task in found.rows)]
    names = list(dict.fromkeys(name for task in found.rows for name in found.named(task, MODEL, SUBMITTED)))
    names = sorted(names, key=lambda name: [*ARMS].index(name) if name in ARMS else len(ARMS))
    said = []
    with styled(**{"axes.grid": False}):
        high = len(columns) * (1.5 + 0.55 * len(found.rows))
        figure = Figure(figsize=(1.9 + 1.15 * len(names), high), layout="constrained")
        for axis, column in zip(figure.subplots(len(columns), 1, squeeze=False)[:, 0], columns):
            means, texts = (pd.DataFrame(index=[*found.rows], columns=names, dtype=t) for t in (float, object))
            for task in found.rows:
                for name in names:
                    if (values := found.values(task, name, column)) is not None:
                        cell = board.interval(values)
                        bars = "" if cell.low is None else f"\n[{cell.low:z.2f}, {cell.high:z.2f}]"
                        means.loc[task, name], texts.loc[task, name] = cell.estimate, f"{cell.estimate:z.3f}{bars}"
                        said.append(f"{task}, {label(name)}: {SAID[column]} {number(cell.estimate)}")
            means.columns = [label(name).replace(", ", ",\n").replace(" + ", "\n+ ") for name in names]
            look = {"cmap": COLOURS, "vmin": 0, "vmax": 1, "cbar": False, "annot_kws": {"fontsize": 8}}
            # of the row's highest number, from 0 on: small differences stay small, whatever the score's range
            shares = means.div(means.max(axis=1).where(lambda highest: highest > 0, 1.0), axis=0).clip(lower=0)
            sns.heatmap(shares, annot=texts.fillna("").to_numpy(), fmt="", ax=axis, **look)
            for text in axis.texts:  # seaborn's own choice is below 3:1 in the middle of the scale
                x, y = (int(at) for at in text.get_position())
                text.set_color(readable(shares.iloc[y, x]))
            axis.set(title=SAID[column])
            axis.tick_params(length=0, rotation=0, labelsize=8)
        caption(
            figure,
            f"Mean of {found.counted} and its 95 % interval. The brighter, the nearer to the highest of its row. "
            "Empty: not run there.",
        )
    named = " and ".join(SAID[column] for column in columns).capitalize()
    return alt_text(figure, f"{named} of tasks by policies, {found.counted}. {listed(said)}.")


def rank_intervals(found: Board) -> Figure | None:
    """A row for each policy that every task has: its mean rank on the reward and on the judge. None without ranks."""
    both = {column: board.ranks(found, column) for column in SAID}
    names = [name for name in both[REWARD] if name in both[JUDGE]]
    if not names:
        return None
    names = sorted(names, key=lambda name: both[REWARD][name].mean())
    said = []
    with styled():
        figure = Figure(figsize=(7.2, 1.9 + 0.42 * len(names)), layout="constrained")
        axis = figure.subplots()
        for place, column in enumerate(SAID):
            for row, name in enumerate(names):
                cell = board.interval(both[column][name])
                height = row + (place - 0.5) * 0.26
                if cell.low is not None:
                    axis.plot([cell.low, cell.high], [height] * 2, color=COLORS[place], linewidth=1.7)
                axis.plot(cell.estimate, height, MARKERS[place], color=COLORS[place], markersize=7)
                said.append(f"{label(name)}: {cell.estimate:.1f} on the {SAID[column]}")
        axis.set_yticks(range(len(names)), [label(name) for name in names])
        axis.invert_yaxis()
        axis.set_xlabel(f"mean rank over {len(found.rows)} tasks (1: best)")
        looks = zip(SAID.values(), COLORS, MARKERS)
        handles = [Line2D([], [], color=color, marker=mark, label=f"on the {name}") for name, color, mark in looks]
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
        caption(
            figure,
            f"Bars: 95 % interval over {found.counted}. A policy further left on the reward than on the "
            "judge stands higher among these by what is paid than by what was meant.",
        )
    return alt_text(figure, f"Mean ranks over tasks. {listed(said)}.")


def hacking(found: Board) -> Figure | None:
    """A panel a task: reward across, judge up, an arrow from the raw model to each policy. None without a judge."""
    tasks = [task for task in found.rows if found.values(task, START, JUDGE) is not None]
    if not tasks:
        return None
    names = list(dict.fromkeys(name for task in tasks for name in found.named(task, MODEL, SUBMITTED)))
    look = looks(names)
    said = []
    with styled():
        figure, axes = panels(len(tasks), 3, 3.6, 3.1)
        for axis, task in zip(axes, tasks):
            start = [float(found.values(task, START, column).mean()) for column in SAID]
            for name in found.rows[task]:
                values = [found.values(task, name, column) for column in SAID]
                if any(v is None for v in values):
                    continue
                x, y = (float(v.mean()) for v in values)
                said.append(f"{task}, {label(name)}: reward {x:.2f}, judge {y:.2f}")
                kind = found.kind(task, name)
                if kind in (TRIVIAL, HUMAN):
                    axis.plot(
                        x, y, "x" if kind == TRIVIAL else "*", color=GREY if kind == TRIVIAL else INK, markersize=8
                    )
                    continue
                color, marker = look[name]
                if name != START:
                    axis.annotate("", (x, y), start, arrowprops={"arrowstyle": "->", "color": color, "alpha": 0.6})
                axis.plot(x, y, marker, color=color, markersize=6)
            axis.set(title=task, xlabel="reward", ylabel="judge", ylim=(-0.05, 1.05))
        handles = [Line2D([], [], color=c, marker=m, linestyle="", label=label(name)) for name, (c, m) in look.items()]
        handles += [Line2D([], [], color=GREY, marker="x", linestyle="", label="trivial answers")]
        handles += [Line2D([], [], color=INK, marker="*", linestyle="", label="another human's reference")]
        figure.legend(handles=handles, loc="outside upper center", ncols=4)
        caption(
            figure,
            f"Means of {found.counted}. Arrows begin at the raw model: one that goes right and not up is "
            "a gain in reward that the judge does not see.",
        )
    return alt_text(figure, f"Reward against judge, task by task. {listed(said)}.")


def shown(found: Board) -> list[Shown]:
    """The figures that can be made of these rows, each with how to read it."""
    made = [
        (
            "heat",
            "Tasks x policies",
            heat(found),
            "Numbers run from 0 to 1; a row is a task of its own scale, "
            "whose highest number is the brightest and 0 the darkest.",
        ),
        (
            "ranks",
            "The same ranks as a picture",
            rank_intervals(found),
            "Only policies that all tasks have.",
        ),
        ("hacking", "Reward against judge", hacking(found), "Up and right: better; right only: hacked."),
    ]
    return [Shown(name, title, figure, read) for name, title, figure, read in made if figure is not None]
