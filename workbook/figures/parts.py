"""What every figure of a report is made of: panels, points with intervals, legends, captions, and the file it is kept
in."""

from __future__ import annotations

import html
import io
import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from workbook.figures.style import COLORS, GREY, JOINS, MARKERS, NOTE, styled
from workbook.results import design
from workbook.results.measures import label as label_of
from workbook.results.results import Results
from workbook.results.tables import join, number
from workbook.store.files import atomic_json, atomic_write

READ_OUT = 1000  # characters of an alt text's list of numbers, a minute's reading aloud
LINK = "file"  # in the metadata of a picture: the file beside the executed notebook that it lies in
KEPT = {"kept": "kept_mass"}  # the same, of runs without a mask too
INTERVALS = {"diverged": "exact binomial for a share"} | dict.fromkeys(
    ("spread:score", "spread:rollout_score"), "chi-square for a spread"
)


class Shown(NamedTuple):
    """A figure of a report: the file's name, its heading, the picture, and how to read it."""

    name: str
    title: str
    figure: Figure
    read: str


def panels(count: int, columns: int, width: float, height: float, **shared: object) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of that size in inches, filled row by row."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(width * columns, 6.4), height * rows + 1.2), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axis in grid[count:]:
        axis.set_axis_off()
    return figure, grid[:count]


def interval(metric: str):
    """For seaborn's `errorbar`: seeds -> (low, high) of `design.estimate`; nothing below three seeds."""

    def bounds(values: Sequence[float]) -> tuple[float, float]:
        found = design.estimate(np.asarray(values, dtype=float), metric)
        return (found.low, found.high) if found.low is not None and found.n >= 3 else (found.estimate, found.estimate)

    return bounds


def middle(metric: str):
    """For seaborn's `estimator`: seeds -> the mean, or what `design.estimate` puts in its place."""
    return lambda values: design.estimate(np.asarray(values, dtype=float), metric).estimate


def has_seeds(metric: str) -> bool:
    """Whether single seeds can be drawn: a share or a spread is of all seeds together."""
    return metric != "diverged" and not metric.startswith("spread:")


def start_of(results: Results, conditions: Sequence[str]) -> str | None:
    """The untrained model of the world that all the conditions are of."""
    return design.untrained(results, world=design.one_world(results, conditions))


def label(metric: str, world: str = "") -> str:
    """What a metric is called on an axis, in lines that fit; a world's score is no reward model's."""
    return textwrap.fill(
        f"score of the {world}"
        if world and metric == "score"
        else label_of(KEPT.get(metric, metric), panel=True).replace("\n", " "),
        34,
    )


def short(metric: str, world: str = "") -> str:
    """`label` in a line."""
    return label(metric, world).replace("\n", " ")


def handle(place: int, text: str, joined: bool = True, filled: bool = True) -> Line2D:
    """A legend's entry for the series of that place."""
    look = {"color": COLORS[place % 8], "marker": MARKERS[place % 8], "linestyle": JOINS[place % 8] if joined else ""}
    return Line2D([], [], label=text, markerfacecolor=COLORS[place % 8] if filled else "white", **look)


def zero_handle(marker: str = "") -> Line2D:
    return Line2D([], [], color=GREY, marker=marker, linestyle="" if marker else "--", label="untrained model")


def legend(figure: Figure, handles: Sequence[Line2D], title: str = "") -> None:
    """Above the panels, as many columns as fit the figure's width."""
    if not handles:
        return
    widest = max(len(h.get_label()) for h in handles) * 0.085 + 0.65
    columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, title=title or None, title_fontsize=11)


def symlog(axis: Axes, which: str, values: np.ndarray | pd.Series) -> None:
    """Linear to 0.1, logarithmic above, plain numbers on the ticks."""
    highest = float(np.nanmax(values))
    getattr(axis, f"set_{which}scale")("symlog", linthresh=0.1, linscale=0.5)
    ticks = [t for t in (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if t <= max(highest, 0.1) * 1.1]
    getattr(axis, f"set_{which}ticks")(ticks, [f"{t:g}" for t in ticks])
    getattr(axis, f"{which}axis").set_minor_locator(NullLocator())


def plain_log(axis: Axes) -> None:
    """A logarithmic axis across, plain numbers on the ticks."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = (1, 2, 5, 10, 20, 50, 100) if high <= 100 else (2, 10, 100, 1000, 10_000)  # that their numbers lie apart
    ticks = [t for t in ticks if low <= t <= high]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.xaxis.set_minor_locator(NullLocator())


def tick(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def counted(n: int) -> str:
    return f"{n} seed{'s' if n != 1 else ''}"


def seeds_note(results: Results, metrics: Sequence[str] = ()) -> str:
    """How to read the points."""
    n, kinds = len(results.seeds), sorted({INTERVALS[m] for m in metrics if m in INTERVALS})
    bars = f", bar: 95 % interval{f' ({join(kinds)})' if kinds else ''}" if n >= 3 else " (too few for an interval)"
    return f"Small points: {counted(n)}; large: their mean{bars}."


def lost_note(results: Results) -> str:
    return f" MISSING: {', '.join(results.missing)}." if results.missing else ""


def nothing(results: Results, what: str) -> Figure:
    """A figure that says that there is nothing to show, and why, rather than none."""
    why = f"Not run in this profile: {what}."
    if what.startswith("curves of") and "curves.csv" in results.lacking:
        why = f"No {what}: this profile's folder has no curves.csv; they come with its next runs."
    with styled():
        figure = Figure(figsize=(6.4, 1.2), layout="constrained")
        figure.text(0.5, 0.6, why, ha="center", fontsize=10)
        caption(figure, f"{counted(len(results.seeds)).capitalize()}.{lost_note(results)}")
    return alt_text(figure, f"No picture: {why}{lost_note(results)}")


def alt_text(figure: Figure, text: str) -> Figure:
    """Keep what a reader who does not see the figure should know as its label."""
    figure.set_label(" ".join(text.split()))
    return figure


def listed(said: Sequence[str]) -> str:
    """What a figure or chart shows, for those who listen: what is read aloud has an end, and a page has it all in its
    tables."""
    lengths = accumulate(len(each) + 2 for each in said)
    kept = max(1, sum(length <= READ_OUT for length in lengths))
    return "; ".join([*said[:kept], *([f"and {len(said) - kept} more"] if len(said) > kept else [])])


def told(name: str, metric: str, values: float, where: str = "") -> str:
    """A number for the alt text."""
    return f"{name} {short(metric)} {number(values)}{f' at {where}' if where else ''}"


def caption(figure: Figure, text: str) -> None:
    """How to read it, below."""
    width = int(figure.get_figwidth() * 14)
    figure.supxlabel(textwrap.fill(" ".join(text.split()), width), x=0.01, ha="left", fontsize=9, color=NOTE)


def band(axis: Axes, grid: pd.DataFrame, color: str) -> None:
    """95 % t interval of each row of grid [update x seed], not stretching the axis."""
    n = grid.notna().sum(axis=1)
    half = scipy.stats.t.ppf(0.975, np.maximum(n - 1, 1)) * grid.std(axis=1, ddof=1) / np.sqrt(n)
    half, mean, limits = half.fillna(0.0), grid.mean(axis=1), axis.dataLim.frozen()
    axis.fill_between(grid.index, mean - half, mean + half, color=color, alpha=0.14, linewidth=0)
    axis.dataLim.set(limits)


def mark(axis: Axes, height: float, which: str = "y", color: str = GREY, style: str = "--") -> None:
    """A line across the panel at a height (or, x, a place)."""
    (axis.axhline if which == "y" else axis.axvline)(height, color=color, linestyle=style, linewidth=1.1)


def ink(color: object) -> str:
    """Black or white, whichever stands out more from a colour."""
    return max("#000000", "#ffffff", key=lambda letters: contrast(letters, color))


def contrast(first: object, second: object) -> float:
    """How far two colours stand apart, by WCAG 2: 1 to 21; text takes 4.5."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: object) -> float:
    """Of a colour, 0 to 1; what files hold are shares of a screen's signal, which light grows with faster."""
    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), light))


def svg(figure: Figure, name: str, alt: str = "") -> str:
    """The figure as SVG with its alt text; no clock, version or random id gets into it. Raises: ValueError without
    one."""
    if not (alt := alt or str(figure.get_label())):
        raise ValueError(f"{name}: a figure needs alt text")
    with styled():
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # a second pass would move things a little: saved again, it is the same
    words = f'<title id="title">{html.escape(name)}</title>\n <desc id="desc">{html.escape(alt)}</desc>\n'
    text = re.sub(
        r"(<svg\b)([^>]*>)",
        lambda m: f'{m[1]} role="img" aria-labelledby="title desc"{m[2]}\n {words}',
        out.getvalue(),
        count=1,
    )
    return compact("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def compact(text: str) -> str:
    """An SVG of a fifth of the size that looks the same: places to a tenth of a point, a look or a mark that comes
    often named once, nothing that is empty, no group that says nothing, short names and none that nothing uses."""

    text = re.sub(r"<[?]xml .*?[?]>\n|<!DOCTYPE [^>]*>\n", "", text)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- .*? -->\n| transform=\"rotate\(-?0 [^)]*\)\"", "", text)
    text = _tenths(_once(CIRCLE.sub(_circle, _hundredths(text))))
    often = Counter(re.findall(r' style="([^"]*)"', text))
    names = {look: f"s{i}" for i, (look, n) in enumerate(often.items()) if n > 2}
    text = re.sub(r' style="([^"]*)"', lambda m: f' class="{names[m[1]]}"' if m[1] in names else m[0], text)
    rules = "".join(f".{name}{{{look}}}" for look, name in names.items())
    text = text.replace('<style type="text/css">', f'<style type="text/css">{rules}', 1)
    text = re.sub(r"\n\s+", "\n", text)
    used = {"title", "desc", *re.findall(r"#([\w-]+)", text)}
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
    while (less := EMPTY.sub("", text)) != text:
        text = less
    return _short(_ungrouped(text))


PLACES = re.compile(r'(?: d| x| y| points| transform)="(?![^"]*scale)[^"]*"')
EMPTY = re.compile(r"<(?:g|defs)/>\n|<(g|defs)>\n</\1>\n")


CIRCLE = re.compile(r'<path d="M ([\d.]+) ([\d.]+)((?:\s+C [\d. -]+){8})\s+z\s+"')


def _circle(found: re.Match) -> str:
    """A closed path of eight curves around a middle as the circle that it is; another stays."""
    numbers = np.array(re.findall(r"-?[\d.]+", found[3]), dtype=float).reshape(-1, 2)[2::3]  # where its curves end
    (left, top), (right, low) = numbers.min(axis=0), numbers.max(axis=0)
    if abs((right - left) - (low - top)) > 0.03:
        return found[0]
    return f'<circle cx="{(left + right) / 2:.2f}" cy="{(top + low) / 2:.2f}" r="{(right - left) / 2:.2f}"'


def _hundredths(text: str) -> str:
    return PLACES.sub(lambda found: re.sub(r"([.][0-9]{2})[0-9]+", r"\1", found[0]), text)


def _tenths(text: str) -> str:
    """Where things are, to a tenth of a point; the shape of a mark, which is small, stays as it is."""
    either = re.compile(r'<path id="[^"]*" d="[^"]*"|' + PLACES.pattern)
    return either.sub(
        lambda found: found[0] if found[0][0] == "<" else re.sub(r"([.][0-9])[0-9]+", r"\1", found[0]), text
    )


def _ungrouped(text: str) -> str:
    """Without the groups that have neither a name nor a look: what they hold stays where it is."""
    kept, bare = [], []
    for line in text.splitlines(keepends=True):
        if re.match(r"<g\b(?!.*/>)", line):
            bare.append(line == "<g>\n")
        if not (bare.pop() if line == "</g>\n" else line == "<g>\n"):
            kept.append(line)
    return "".join(kept)


def _short(text: str) -> str:
    """Names of two or three letters: a picture is its own file, nobody else has to know them."""
    names = dict.fromkeys(n for n in re.findall(r' id="([^"]*)"', text) if n not in ("title", "desc"))
    short = {name: f"i{i}" for i, name in enumerate(names)}
    text = re.sub(r'(?<= id=")[^"]*', lambda m: short.get(m[0], m[0]), text)
    return re.sub(r'(?<=["(]#)[\w-]+(?=[")])', lambda m: short.get(m[0], m[0]), text)


def _once(text: str) -> str:
    """Every mark defined once: of paths in the SVG that are alike, the first; the others' names lead to it."""
    first: dict[str, str] = {}
    other: dict[str, str] = {}

    def kept(found: re.Match) -> str:
        name = first.setdefault(found[2], found[1])
        if name == found[1]:
            return found[0]
        other[found[1]] = name
        return ""

    text = re.sub(r'<path id="(\w+)"( d="[^"]*"[^>]*)/>\n', kept, text)
    return re.sub(r'"#(\w+)"', lambda m: f'"#{other.get(m[1], m[1])}"', text)


def save(figure: Figure, folder: str | Path, name: str, alt: str = "") -> Path:
    """Write <name>.svg, the alt text in it and in the folder's alt.json (alt: default, the figure's label); the
    path."""
    path = Path(folder) / f"{name}.svg"
    atomic_write(path, svg(figure, name, alt))
    known = path.with_name("alt.json")
    before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    atomic_json(known, {**before, name: alt or str(figure.get_label())})
    return path


def show(figure: Figure, folder: str | Path, name: str, alt: str = "") -> None:
    """`save`, and show the picture in a notebook; the pipeline's copy of the notebook links the file instead
    (`LINK`)."""
    from IPython.display import display

    alt = alt or str(figure.get_label())
    path = save(figure, folder, name, alt)
    data = {"image/svg+xml": path.read_text(encoding="utf-8"), "text/plain": alt}
    display(data, metadata={"image/svg+xml": {LINK: path.name, "alt": alt}}, raw=True)
