"""Bits per byte of candidates for a base model along their budget."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from workbook.figures.parts import alt_text, caption, handle, legend, mark, panels, styled
from workbook.figures.style import COLORS, INK, JOINS, MARKERS
from workbook.results.tables import join

X, Y = "training budget (minutes at the measured speed, logarithmic)", "bits per byte, burn reviews"


def pilot(rows: Sequence[dict]) -> Figure:
    """A line per candidate; dotted: the five-grams of their tokens and reviews.

    rows: as ``workbook.draws.pilot.rows``. Raises: ValueError for none.
    """
    if not rows:
        raise ValueError("pilot: there is no row to draw")
    names, said = list(dict.fromkeys(row["candidate"] for row in rows)), []
    with styled():
        figure, (axis,) = panels(1, 1, 8.4, 4.2)
        for place, name in enumerate(names):
            own = sorted((row for row in rows if row["candidate"] == name), key=lambda row: row["minutes"])
            look = {"color": COLORS[place % 8], "marker": MARKERS[place % 8], "linestyle": JOINS[place % 8]}
            axis.plot([row["minutes"] for row in own], [row["bits_per_byte"] for row in own], **look)
            said.append(f"{name} {own[-1]['bits_per_byte']:.3f} after {own[-1]['minutes']:g} minutes")
        for height in sorted({row["five_gram_bits_per_byte"] for row in rows}):
            mark(axis, height, color=INK, style=":")
        axis.set_xscale("log")
        tried = sorted({row["minutes"] for row in rows})
        axis.set_xticks(tried, [f"{minutes:g}" for minutes in tried])
        axis.minorticks_off()
        axis.set(xlabel=X, ylabel=Y)
        legend(figure, [handle(place, name) for place, name in enumerate(names)])
        caption(
            figure,
            "Each point is a training of its own with its whole schedule; one seed. Lower is better. Dotted: "
            "Kneser-Ney 5-grams of the same tokens and reviews. The burn reviews choose the model and are used for "
            "nothing else.",
        )
    return alt_text(figure, f"Bits per byte along the training budget: {join(said)}.")
