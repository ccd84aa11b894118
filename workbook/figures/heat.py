"""A grid of numbers: the sampler in training by the decoding in use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workbook.figures.parts import alt_text, caption, counted, listed, lost_note, nothing, short, styled, told
from workbook.figures.style import COLORS, LIGHT
from workbook.results.results import Results
from workbook.results.tables import minus
from workbook.statistics import paired


def heat(results: Results, grids: Mapping[str, Mapping[tuple[str, str], np.ndarray]], note: str = "") -> Figure:
    """A panel per metric: rows are samplers in training, columns decodings; each cell has its mean and interval.

    grids: metric -> (row, column) -> seeds. Framed cells: decoded as trained. Brighter is higher, from the lowest to
    the highest of the columns that some row was trained with (greedy decoding would take the whole scale); the numbers
    say by how much.
    """
    grids = {m: g for m, g in grids.items() if g}
    if not grids:
        return nothing(results, "training sampler by decoding")
    n, said = len(results.seeds), []
    with styled(**{"axes.grid": False}):
        deepest = max(len({r for r, _ in g}) for g in grids.values())
        figure = Figure(figsize=(9.6, (1.2 + 0.62 * deepest) * len(grids) + 0.9), layout="constrained")
        for axis, (metric, cells) in zip(figure.subplots(len(grids), 1, squeeze=False)[:, 0], grids.items()):
            rows, columns = (list(dict.fromkeys(k[i] for k in cells)) for i in (0, 1))
            found = {k: paired.mean_interval(v) for k, v in cells.items()}
            means, texts = (pd.DataFrame(index=rows, columns=columns, dtype=t) for t in (float, object))
            for (row, column), cell in found.items():
                bars = minus(f"\n[{cell.low:.3f}, {cell.high:.3f}]") if n >= 3 else ""
                means.loc[row, column], texts.loc[row, column] = cell.estimate, minus(f"{cell.estimate:.3f}") + bars
                said.append(told(f"{row} in training, {column} in use:", metric, cell.estimate))
            own = means[[c for c in columns if c in rows] or columns]
            scale = {"vmin": own.min(axis=None), "vmax": own.max(axis=None), "cmap": "cividis", "cbar": False}
            sns.heatmap(means, annot=texts.fillna(""), fmt="", annot_kws={"fontsize": 9}, ax=axis, **scale)
            bright = scale["vmin"] + LIGHT * (scale["vmax"] - scale["vmin"])
            for text, mean in zip(axis.texts, means.stack().dropna()):
                text.set_color("black" if mean > bright else "white")
            for i, row in enumerate(rows):
                if row in columns:
                    frame = (columns.index(row) + 0.02, i + 0.03)
                    axis.add_patch(Rectangle(frame, 0.96, 0.94, fill=False, edgecolor=COLORS[1], linewidth=2.6))
            axis.set(title=short(metric), xlabel="decoded with", ylabel="trained with")
            axis.tick_params(length=0, rotation=0)
        bars = " and its 95 % interval" if n >= 3 else ""
        caption(
            figure,
            f"Mean of {counted(n)}{bars}. Framed: decoded as trained. Brighter: higher, on the scale of the columns "
            f"that some row was trained with. {note}{lost_note(results)}",
        )
    return alt_text(figure, f"Samplers in training by decodings, {counted(n)}. {listed(said)}.{lost_note(results)}")
