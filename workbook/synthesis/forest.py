"""A claim's tests in every profile that makes them, with what the studies come to together, and where a further one
would lie."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workbook.figures.parts import alt_text, caption
from workbook.figures.style import GREY, INK, styled
from workbook.ledger.forest import LOOKS
from workbook.synthesis.across import Across, Effect

OTHER = ("#CC79A7", "v")
INCHES, LEAST = 0.21, 0.6  # of height a line; yardsticks shown on either side, at least


def drawn(claim: str, sentence: str, rows: Sequence[Across]) -> Figure:
    """rows: of `across`, of one claim. Raises: ValueError for none."""
    if not rows:
        raise ValueError(f"{claim}: no test of it is made by two profiles")
    effects = [e for row in rows for e in row.profiles]
    ends = [abs(v) for e in effects for v in (e.low, e.high, e.value) if v is not None]
    reach = max(LEAST, 1.1 * float(np.quantile(ends, 0.97)))
    lines = [len(row.profiles) + 1 + bool(row.pooled) for row in rows]
    with styled():
        figure = Figure(figsize=(10.0, 2.9 + INCHES * (sum(lines) + len(rows))), layout="constrained")
        axis = figure.subplots()
        axis.grid(visible=False, axis="y")
        names, y = [], 0.0
        for row in rows:
            axis.text(-0.99 * reach, y, row.test, ha="left", va="center_baseline", fontsize=9.5, fontweight="bold")
            names.append((y, ""))
            for effect in row.profiles:
                y += 1
                _line(axis, y, effect, reach)
                names.append((y, f"{effect.name}, {effect.length or 'no'} length, n = {effect.n}"))
            y += 1
            if row.pooled:
                names.append((y, f"together, k = {row.pooled.k} studies"))
                _pooled(axis, y, row, reach)
                y += 1
            y += 0.4
        axis.axvline(0, color=INK, linewidth=1.1, zorder=1)
        axis.set_ylim(y + 0.4, -0.8)
        axis.set_xlim(-reach, reach)
        axis.set_yticks([at for at, _ in names], [name for _, name in names])
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("effect in yardsticks, 95 % intervals")
        figure.legend(handles=_handles(rows), loc="outside upper center", ncols=4, title=f"{claim}. {sentence}")
        caption(figure, READ)
    return alt_text(figure, f"Forest across profiles, {claim}: {' '.join(told(row) for row in rows)}")


READ = (
    "Filled marks: profiles, bar: 95 % t interval over draws. Profiles of the same settings and draws are runs of one "
    "study and count once. Diamond: mean of the studies, thick bar: its Hartung-Knapp interval; thin dashed bar: where "
    "the true effect of a further study would lie (95 % prediction interval); an arrowhead goes on beyond the axis. "
    "τ²: variance of true effects between studies (Paule-Mandel), with its 95 % interval (Q profile). Two to four "
    "studies hardly tell how much settings change an effect: read those intervals, not the point."
)


def told(row: Across) -> str:
    """A test in a sentence."""
    said = ", ".join(f"{e.name} {_signed(e.value)}" for e in row.profiles)
    p = row.pooled
    if p is None:
        return f"{row.test}: {said}" + (f" ({row.note})." if row.note else " (one study).")
    return (
        f"{row.test}: {said}; together {_signed(p.mean)} [{_signed(p.low)}, {_signed(p.high)}], "
        f"prediction [{_signed(p.new_low)}, {_signed(p.new_high)}], {spread(row)}."
    )


def spread(row: Across) -> str:
    """τ² with its interval, I², Q."""
    p = row.pooled
    ends = f"{_digits(p.tau2_low)}, {_end(p.tau2_high)}"
    return f"τ² {_digits(p.tau2)} [{ends}], I² {p.i2:.0%}, Q {_digits(p.q, 3)} (p {_p(p.p_q)})"


def _digits(value: float, count: int = 2) -> str:
    """So many significant digits, never a power of ten."""
    return f"{Decimal(f'{value:.{count}g}'):f}"


def _pooled_text(row: Across) -> str:
    p = row.pooled
    mean, new = (f"[{_signed(low)}, {_signed(high)}]" for low, high in ((p.low, p.high), (p.new_low, p.new_high)))
    return f"mean {_signed(p.mean)} {mean}; a further study {new}; {spread(row)}"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else "< 0.001"


def _end(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _look(name: str) -> tuple[str, str]:
    return LOOKS.get(name, OTHER)


def _line(axis: Axes, y: float, effect: Effect, reach: float) -> None:
    color, marker = _look(effect.name)
    if effect.low is not None:
        _bar(axis, y, effect.low, effect.high, reach, color, 1.4)
    axis.plot(
        [np.clip(effect.value, -reach, reach)], [y], color=color, marker=marker, markersize=5.5, zorder=3, gid="profile"
    )


def _pooled(axis: Axes, y: float, row: Across, reach: float) -> None:
    p = row.pooled
    _bar(axis, y, p.new_low, p.new_high, reach, GREY, 1.0, "--")
    _bar(axis, y, p.low, p.high, reach, INK, 2.6)
    axis.plot(
        [np.clip(p.mean, -reach, reach)],
        [y],
        color=INK,
        marker="D",
        markersize=6,
        mfc="white",
        zorder=4,
        gid="together",
    )
    axis.text(
        reach * 0.99,
        y + 0.95,
        _pooled_text(row),
        ha="right",
        va="center_baseline",
        fontsize=8.5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )


def _bar(
    axis: Axes, y: float, low: float, high: float, reach: float, color: str, width: float, style: str = "-"
) -> None:
    axis.plot(
        np.clip([low, high], -reach, reach),
        [y, y],
        color=color,
        linewidth=width,
        linestyle=style,
        zorder=2,
        gid="interval",
    )
    for beyond, edge, head in ((low < -reach, -reach, "<"), (high > reach, reach, ">")):
        if beyond:
            axis.plot([edge], [y], color=color, marker=head, markersize=4.5, clip_on=False, zorder=2, gid="goes on")


def _handles(rows: Sequence[Across]) -> list[Line2D]:
    names = list(dict.fromkeys(e.name for row in rows for e in row.profiles))
    found = [Line2D([], [], color=_look(n)[0], marker=_look(n)[1], label=n) for n in names]
    if any(row.pooled for row in rows):
        found.append(Line2D([], [], color=INK, marker="D", mfc="white", linewidth=2.6, label="mean of the studies"))
        found.append(Line2D([], [], color=GREY, linestyle="--", label="prediction interval"))
    return found
