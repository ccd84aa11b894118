"""The parts that figures of reports are drawn from: looks, names of metrics, panels, points with intervals, captions."""

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

from rlnlp import ablations, figures
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
    "rollout_score": "training score, last 3 updates",
    "spread:rollout_score": "spread over seeds of the\nlast training score",
    "kept_mass": "mass kept by the mask",
    "kept_tokens": "tokens kept by the mask",
    "tokens": "tokens sampled in training",
    "gradient_steps": "gradient steps",
    "policy/first_ratio_error": "first minibatch: largest |ratio − 1|",
}
INTERVAL = {"diverged": "exact binomial for a share"} | dict.fromkeys(
    ("spread:score", "spread:rollout_score"), "chi-square for a spread"
)
OF_TRAINING = (*ablations.OF_TRAINING, "last_cycle", "dip", "diverged")  # the same whatever the decoding
ONCE = (*OF_TRAINING, "human_log_perplexity")  # measured on no text of the run's own


def start_of(results: Results, conditions: Sequence[str]) -> str | None:
    """The untrained model of the world that all the conditions are of."""
    return ablations.untrained(results, world=ablations.one_world(results, conditions))


def places_of(values: Sequence[float], log: bool) -> dict[float, float]:
    """Where each of the sorted values stands on the axis."""
    above = [v for v in values if v > 0]
    if not log or not above:
        return {v: float(i) for i, v in enumerate(values)}
    return {v: math.log10(v / above[0]) + (len(above) < len(values)) if v > 0 else 0.0 for v in values}


def numbers_of(results: Results, item: Series, i: int, metric: str) -> np.ndarray | None:
    """The seeds of one point of a series."""
    condition, base = item.conditions[i], item.base[i] if item.base else ""
    if metric.startswith("gain:") and not base:
        return None
    return ablations.measure(results, condition, metric.removeprefix("spread:"), item.decoding, base)


def value_of(results: Results, condition: str, metric: str, decoding: str) -> np.ndarray | None:
    return ablations.measure(results, condition, metric.removeprefix("spread:"), decoding)


def gaps_of(results: Results, first: str, second: str, metric: str, one: str, other: str) -> np.ndarray | None:
    a, b = ablations.measure(results, first, metric, one), ablations.measure(results, second, metric, other)
    return None if a is None or b is None else a - b


def draw_along(
    axis: Axes, results: Results, item: Series, metric: str, values: Mapping[float, float], place: int, among: int
) -> str:
    """Draw one series of a sweep, values: x -> where it stands; the means in words."""
    shift = (place - (among - 1) / 2) * min(0.14, 0.6 / among)
    points = [(x, found) for i, x in enumerate(item.x) if (found := numbers_of(results, item, i, metric)) is not None]
    if not points:
        return ""
    if metric in LOGARITHMIC and all((found > 0).all() for _, found in points):
        axis.set_yscale("log")
    at = [values[x] + shift for x, _ in points]
    means = draw_spread(axis, at, [found for _, found in points], metric, place, "y")
    line = JOINS[place % 8] if item.joined else ""
    axis.plot(
        at,
        means,
        color=COLORS[place % 8],
        marker=MARKERS[place % 8],
        markersize=6.5,
        linestyle=line,
        linewidth=1.2,
        zorder=3,
    )
    return ", ".join(f"{number(mean)} at {tick(x)}" for mean, (x, _) in zip(means, points))


def draw_spread(
    axis: Axes, places: Sequence[float], seeds: Sequence[np.ndarray], metric: str, look: int, way: str, color: str = ""
) -> list[float]:
    """Seeds and intervals of several points at once (an artist each would be slow); the means. way: y up, x to the right."""
    color, found = color or COLORS[look % 8], [ablations.estimate(v, metric) for v in seeds]
    if metric != "diverged" and not metric.startswith("spread:"):
        beside = [p + spots(len(v), 0.03) if way == "y" else np.full(len(v), p + 0.13) for p, v in zip(places, seeds)]
        xy = (np.concatenate(beside), np.concatenate(seeds))
        axis.scatter(
            *(xy if way == "y" else xy[::-1]), s=11, color=color, alpha=0.45, marker=MARKERS[look % 8], linewidths=0
        )
    bars = [(p, f.low, f.high) for p, f in zip(places, found) if f.low is not None and f.n >= 3]
    if bars:
        (axis.vlines if way == "y" else axis.hlines)(*zip(*bars), color=color, linewidth=1.7)
    return [f.estimate for f in found]


def draw_rows(
    axis: Axes, places: Sequence[float], seeds: Sequence[np.ndarray], metric: str, look: int, colors: Sequence[str]
) -> list[float]:
    """Points on rows: seeds, interval, mean (filled for the first look, open for others); the means."""
    means = []
    for color in dict.fromkeys(colors):
        own = [i for i, c in enumerate(colors) if c == color]
        found = draw_spread(axis, [places[i] for i in own], [seeds[i] for i in own], metric, look, "x", color)
        axis.scatter(found, [places[i] for i in own], s=40, marker=MARKERS[look], facecolor=color if look == 0 else "white",
                     edgecolor=color, linewidths=1.5, zorder=3)  # fmt: skip
        means += zip(own, found)
    return [mean for _, mean in sorted(means)]


def draw_path(axis: Axes, points: list[tuple[np.ndarray, np.ndarray]], place: int) -> None:
    """The means of a beta sweep joined in the order of their KL, seeds beside them."""
    color, marker = COLORS[place % 8], MARKERS[place % 8]
    axis.scatter(*(np.concatenate(v) for v in zip(*points)), s=11, color=color, marker=marker, alpha=0.45, linewidths=0)
    means = sorted((k.mean(), v.mean()) for k, v in points)
    axis.plot(
        *zip(*means), color=color, marker=marker, markersize=6.5, linestyle=JOINS[place % 8], linewidth=1.2, zorder=3
    )


def draw_band(axis: Axes, grid: pd.DataFrame, color: str) -> None:
    """95 % t interval of each row of grid [update x seed], not stretching the axis."""
    n = grid.notna().sum(axis=1)
    half = scipy.stats.t.ppf(0.975, np.maximum(n - 1, 1)) * grid.std(axis=1, ddof=1) / np.sqrt(n)
    half, mean, limits = half.fillna(0.0), grid.mean(axis=1), axis.dataLim.frozen()
    axis.fill_between(grid.index, mean - half, mean + half, color=color, alpha=0.14, linewidth=0)
    axis.dataLim.set(limits)


def panels(
    count: int, columns: int, width: float, height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(width * columns, 6.4), height * rows + 1.2), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for axis in grid[count:]:
        axis.set_axis_off()
    return figure, grid[:count]


def handle(place: int, label: str, joined: bool = True, filled: bool = True) -> Line2D:
    color = COLORS[place % 8]
    return Line2D([], [], color=color, marker=MARKERS[place % 8], linestyle=JOINS[place % 8] if joined else "", label=label,
                  markerfacecolor=color if filled else "white")  # fmt: skip


def legend(figure: Figure, series: Sequence[Series], dashed: bool, title: str) -> None:
    handles = [handle(i, s.label, s.joined) for i, s in enumerate(series)]
    if dashed:
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="zero-shot"))
    figure.legend(
        handles=handles, title=title or None, title_fontsize=11, loc="outside upper center",
        ncols=legend_columns(figure, [h.get_label() for h in handles]),
    )  # fmt: skip


def legend_columns(figure: Figure, labels: Sequence[str]) -> int:
    """As many legend columns as fit the figure's width."""
    widest = max(len(text) for text in labels) * 0.085 + 0.65
    return max(1, min(len(labels), int(figure.get_figwidth() / widest)))


def spots(count: int, reach: float) -> np.ndarray:
    return np.linspace(-reach, reach, count) if count > 1 else np.zeros(1)


def tick(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def counted(n: int) -> str:
    return f"{n} seed{'s' if n > 1 else ''}"


def seeds_note(results: Results, metrics: Sequence[str] = ()) -> str:
    n, kinds = len(results.seeds), sorted({INTERVAL[m] for m in metrics if m in INTERVAL})
    interval = (
        f", with its 95 % interval{f' ({join(kinds)})' if kinds else ''}" if n >= 3 else " (too few for an interval)"
    )
    return f"Small points: n = {counted(n)}; large: their mean{interval}."


def label(metric: str, world: str = "") -> str:
    """What a metric is called on an axis; a world's score is no reward model's."""
    return f"score of the {world}" if world and metric == "score" else LABELS.get(metric, metric)


def short(metric: str, world: str = "") -> str:
    """`label` in a line."""
    return label(metric, world).replace("\n", " ")


def lost_note(results: Results) -> str:
    return f" MISSING: {', '.join(results.missing)}." if results.missing else ""


def nothing(results: Results, what: str) -> Figure:
    """A figure that says that there is nothing to show, rather than none."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.2), layout="constrained")
        figure.text(0.5, 0.6, f"Not run in this profile: {what}.", ha="center", fontsize=10, color=INK)
        caption(figure, f"n = {counted(len(results.seeds))}.{lost_note(results)}")
    return alt_text(
        figure, f"No picture: {what} was not run in this profile, {counted(len(results.seeds))}.{lost_note(results)}"
    )