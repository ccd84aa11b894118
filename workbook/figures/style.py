"""One look for every figure: seaborn's white grid, a palette that colour-blind readers can tell apart, shapes beside
it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import matplotlib as mpl
import seaborn as sns

COLORS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#5E3C99")  # Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("", (4, 2), (6, 2, 1, 2), (1, 1.5), (5, 1, 1, 1, 1, 1), (2, 1), (8, 2), (3, 3))
JOINS = tuple((0, dash) if dash else "-" for dash in DASHES)  # the same as matplotlib names them
GREY, INK, NOTE = "#7F7F7F", "#222222", "#444444"  # the untrained model; text; captions
LIGHT = 0.48  # of the way along "cividis" black is read better than white
NO_KL = "#D55E00"  # where one run without the penalty stands beside one with it
STYLE = {
    **sns.axes_style("whitegrid"),
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.bottom": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "figure.dpi": 100,
    "svg.hashsalt": "rlnlp",
    "svg.fonttype": "none",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def styled(**other: object) -> AbstractContextManager:
    """The look while a figure is drawn."""
    return mpl.rc_context({**STYLE, **other})
