"""The specification curve (Simonsohn, Simmons & Nelson 2020): effects by size, below them which choices each is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from workbook.figures.parts import alt_text, caption
from workbook.figures.style import COLORS, GREY, INK, NOTE, styled
from workbook.results.measures import label
from workbook.results.tables import join, minus
from workbook.synthesis.specification import LEVELS, TOGETHER, Specification

LOOKS = {"free": (COLORS[0], "o"), "fixed": (COLORS[1], "s")}  # by the length of texts
SHOWN: tuple[Callable[[Specification], str], ...] = (  # the choices, as they read
    lambda s: f"profile {s.profile}" + f" ({s.task})" * (s.task != s.profile),
    lambda s: f"text length {s.length}",
    lambda s: f"learner {s.algorithm}",
    lambda s: f"β {s.beta}",
    lambda s: s.change,
    lambda s: s.also,
    lambda s: called(s.metric) + f", {s.decoding} decoding" * bool(s.decoding),
)
ROW = 0.19  # inches


def drawn(claim: str, question: str, metrics: Sequence[str], rows: Sequence[Specification]) -> Figure:
    """metrics: the first is drawn filled; rows: of `specification.curve`. Raises: ValueError if none has an effect."""
    shown = [s for s in rows if s.effect is not None]
    if not shown:
        raise ValueError(f"{claim}: no specification has an effect in yardsticks")
    choices = [say for say in SHOWN if len({say(s) for s in shown}) > 1]
    grid = _grid(rows)
    heights = [3.2, ROW * sum(len(_values(say, shown)) for say in choices) + 0.2, ROW * len(grid[0]) + 0.2]
    with styled():
        figure = Figure(figsize=(10.0, sum(heights) + 3.0), layout="constrained")
        above, below, cells = figure.subplots(3, 1, height_ratios=heights)
        _effects(above, shown, metrics[0])
        _choices(below, shown, choices)
        _cells(cells, *grid)
        handles = [
            Line2D([], [], color=c, marker=m, linestyle="-", label=f"{name} text length")
            for name, (c, m) in LOOKS.items()
            if any(s.length == name for s in shown)
        ]
        if any(s.metric != metrics[0] for s in shown):
            handles.append(Line2D([], [], color=INK, marker="o", linestyle="", label=called(metrics[0])))
            handles.append(Line2D([], [], color=INK, marker="o", mfc="white", linestyle="", label="another metric"))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), title=f"{claim}. {question}")
        caption(figure, _read(shown, rows))
    return alt_text(figure, f"{claim}. {question} {summary(rows)}")


def called(metric: str) -> str:
    """A metric's name without its unit: effects are in yardsticks."""
    return re.sub(r" \(nats[^)]*\)", "", " ".join(label(metric, panel=True).split()))


def summary(rows: Sequence[Specification]) -> str:
    """The curve in words: for each metric and text length how many there are, and on which side of 0."""
    shown = [s for s in rows if s.effect is not None]
    groups = [(m, n, [s for s in shown if (s.metric, s.length) == (m, n)]) for m in _metrics(rows) for n in LOOKS]
    return " ".join(_counts(f"{called(m).capitalize()}, {n} length", here) for m, n, here in groups if here)


def rarer(rows: Sequence[Specification]) -> str:
    """Of how few specifications the rarer text length is, and with which learners and β; "" where only one occurs."""
    shown = [s for s in rows if s.effect is not None]
    by = {name: own for name in LOOKS if (own := [s for s in shown if s.length == name])}
    if len(by) < 2:
        return ""
    name = min(by, key=lambda each: len(by[each]))
    what = [join(sorted({say(s) for s in by[name]})) for say in (lambda s: s.algorithm, lambda s: s.beta)]
    return (
        f"Text length is hardly an axis here: {len(by[name])} of {len(shown)} specifications have {name} length, "
        f"all of them with learner {what[0]} and β {what[1]}."
    )


def alike(rows: Sequence[Specification]) -> str:
    """That all specifications have one text length; "" where both occur."""
    shown = [s for s in rows if s.effect is not None]
    lengths = {s.length for s in shown}
    return f"All {len(shown)} specifications have {lengths.pop()} length." if len(lengths) == 1 else ""


def _metrics(rows: Sequence[Specification]) -> list[str]:
    return sorted({s.metric for s in rows if s.metric})


def _counts(name: str, shown: Sequence[Specification]) -> str:
    up, down = (sum(sign * (b or 0) > 0 for b in ends) for sign, ends in _near(shown))
    effects = [s.effect for s in shown]
    return minus(
        f"{name}: {len(shown)} specification{'s' * (len(shown) > 1)}, {sum(e > 0 for e in effects)} above 0 "
        f"({up} with an interval wholly above, {down} wholly below), median {np.median(effects):+.2f} yardsticks, "
        f"from {min(effects):+.2f} to {max(effects):+.2f}."
    )


def _near(shown: Sequence[Specification]):
    """(sign, the ends of the intervals that are nearest to 0 on that side)."""
    return ((1, [s.low for s in shown]), (-1, [s.high for s in shown]))


def _effects(axis: Axes, shown: Sequence[Specification], first: str) -> None:
    axis.axhline(0, color=INK, linewidth=1.1, zorder=1)
    for name, (color, marker) in LOOKS.items():
        here = [(x, s) for x, s in enumerate(shown) if s.length == name]
        if not here:
            continue
        bars = [(x, s) for x, s in here if s.low is not None]
        xs = [v for x, _ in bars for v in (x, x, np.nan)]
        ys = [v for _, s in bars for v in (s.low, s.high, np.nan)]
        axis.plot(xs, ys, color=color, linewidth=1.1, alpha=0.55, zorder=2, gid="intervals")
        for filled in (False, True):
            own = [(x, s.effect) for x, s in here if (s.metric == first) == filled]
            face = color if filled else "white"
            if own:
                axis.plot(*zip(*own), marker, color=color, markerfacecolor=face, markersize=3.4, zorder=3, gid=name)
    axis.set_yscale("symlog", linthresh=0.5, linscale=1.0)
    ticks = [-10, -5, -2, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 2, 5, 10]
    low, high = axis.get_ylim()
    axis.set_yticks(
        [t for t in ticks if low <= t <= high], [f"{t:g}".replace("-", "−") for t in ticks if low <= t <= high]
    )
    axis.minorticks_off()
    axis.set_ylabel("effect (yardsticks)")
    axis.set_xlim(-1, len(shown))
    axis.tick_params(axis="x", bottom=False, labelbottom=False)
    axis.grid(visible=False, axis="x")


def _choices(axis: Axes, shown: Sequence[Specification], choices) -> None:
    """A row per value of each choice, a tick where a specification has it."""
    names, y, bands = [], 0, []
    for say in choices:
        values = _values(say, shown)
        bands.append((y, len(values)))
        for value in values:
            for name, (color, _) in LOOKS.items():
                xs = [v for x, s in enumerate(shown) if say(s) == value and s.length == name for v in (x, x, np.nan)]
                if xs:
                    ys = [y + 0.32, y - 0.32, np.nan] * (len(xs) // 3)
                    axis.plot(xs, ys, color=color, linewidth=2.0, solid_capstyle="butt", gid="choice")
            names.append(value)
            y += 1
    for i, (start, count) in enumerate(bands):
        if i % 2 == 0:
            axis.axhspan(start - 0.5, start + count - 0.5, color="#F3F3F3", linewidth=0, zorder=0)
    axis.set_yticks(range(y), names)
    axis.set_ylim(y - 0.5, -0.5)
    axis.set_xlim(-1, len(shown))
    axis.grid(visible=False)
    axis.tick_params(axis="both", length=0, labelbottom=False)
    axis.set_xlabel("specifications, by effect", labelpad=2)


def _grid(rows: Sequence[Specification]) -> tuple[list[str], list[tuple[str, str]], np.ndarray]:
    """What was run: names of rows (task, length), columns (β, change), and how many specifications each has."""
    tasks = [(t, n) for t in dict.fromkeys(s.task for s in rows) for n in dict.fromkeys(s.length for s in rows)]
    order = {name: i for i, name in enumerate(LEVELS)}
    betas = sorted({s.beta for s in rows}, key=lambda b: order.get(b, -1))
    columns = [(b, c) for b in betas for c in sorted({s.change for s in rows})]
    counts = np.array(
        [
            [sum((s.task, s.length, s.beta, s.change) == (*t, *c) and s.n > 0 for s in rows) for c in columns]
            for t in tasks
        ]
    )
    return [f"{task}, {length}" for task, length in tasks], columns, counts


def _cells(axis: Axes, names: Sequence[str], columns: Sequence[tuple[str, str]], counts: np.ndarray) -> None:
    """How many specifications each cell of data, length, β and change has; an empty box: none was run."""
    for filled, face in ((True, "#DCE9F2"), (False, "none")):
        boxes = [
            Path.unit_rectangle().transformed(Affine2D().scale(0.92, 0.84).translate(x - 0.46, y - 0.42))
            for y, x in np.argwhere((counts > 0) == filled)
        ]
        if boxes:
            axis.add_patch(PathPatch(Path.make_compound_path(*boxes), facecolor=face, edgecolor=GREY, linewidth=0.6))
    for y, x in np.argwhere(counts > 0):
        axis.text(x, y, str(counts[y, x]), ha="center", va="center_baseline", fontsize=8)
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), names)
    said = [f"β {b}, {c}" if b in LEVELS else c for b, c in columns]
    axis.set_xticks(range(len(columns)), said, rotation=90 * (len(columns) > 3), fontsize=8)
    axis.grid(visible=False)
    axis.tick_params(axis="both", length=0)
    axis.set_title(
        "how many specifications each cell holds, those without a yardstick too (empty box: never run)",
        fontsize=9,
        color=NOTE,
    )
    for side in axis.spines.values():
        side.set_visible(False)


def _values(say: Callable[[Specification], str], shown: Sequence[Specification]) -> list[str]:
    """The values of a choice: β in its own order, others by name."""
    order = {f"β {name}": i for i, name in enumerate(LEVELS)}
    return sorted({say(s) for s in shown}, key=lambda v: (order.get(v, 0), v))


def _read(shown: Sequence[Specification], rows: Sequence[Specification]) -> str:
    lost = sum(s.n > 0 for s in rows) - len(shown)
    none = sum(s.n == 0 for s in rows)
    seeds = join([str(n) for n in sorted({s.n for s in shown})], " or ")
    again = sum(TOGETHER in s.profile for s in shown)
    return (
        "Above: one mark a specification, sorted by its effect (end of the change minus its start), bar: 95 % t "
        f"interval over {seeds} seeds; in yardsticks, how far PPO without the KL penalty moves that metric in that "
        "profile; the scale is linear to ±0.5 and logarithmic beyond. Middle: the tick below a mark says of which "
        "choice it is. "
        f"Below: boxes without a number were never run ({none} cells, counted by learner). "
        + (f"{lost} more have no effect here, as their metric has no yardstick in that profile. " if lost else "")
        + (f"Of {again}, two profiles or more hold the same numbers, which count once. " if again else "")
        + "Specifications share runs and draws, so they are not independent, and how many lie on one side is no test: "
        "no word is taken from this figure."
    )
