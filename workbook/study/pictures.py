"""Figures of what the preference study found; each one's label is its alt text."""

from __future__ import annotations

import pandas as pd

from workbook.statistics import paired
from workbook.study.protocol import BASE, BOTH, TASK, TWICE
from workbook.study.results import MEASURES, OTHERS, compared, mean_said, who


def shares(rows: pd.DataFrame):
    """Share of judgements for task + preference, a row per seed and comparison; the label is the figure's alt text."""
    from matplotlib.figure import Figure

    from workbook.figures.parts import alt_text, caption
    from workbook.figures.style import GREY, styled

    raters, others = who(rows), compared(rows)
    with styled():
        figure = Figure(figsize=(4.4 * len(others), 2.1 + 0.32 * len(rows)), layout="constrained")
        for axis, other in zip(figure.subplots(1, len(others), sharex=True, squeeze=False)[0], others):
            mean = paired.mean_interval(rows[f"over {other}: share"])
            for place, (_, row) in enumerate(rows.iterrows(), 1):
                share, low, high = (row[f"over {other}: {name}"] for name in ("share", "low", "high"))
                axis.plot([low, high], [place, place], color="#0072B2")
                axis.plot(share, place, "o", color="#0072B2")
            if mean.low is not None:
                axis.plot([mean.low, mean.high], [0, 0], color="black", linewidth=2)
            axis.plot(mean.estimate, 0, "D", color="black")
            axis.axvline(0.5, color=GREY, linestyle="--")
            axis.set(
                yticks=range(len(rows) + 1),
                yticklabels=["mean", *(f"seed {seed}" for seed in rows["seed"])],
                xlim=(0, 1),
            )
            axis.set_ylim(len(rows) + 0.5, -0.5)
            axis.set(title=f"{BOTH}\nover {OTHERS[other]}", xlabel=f"share of judgements ({raters})")
        caption(
            figure,
            f"Dots: one seed, interval from whole {raters} and whole texts drawn anew. Diamond: mean of {len(rows)} "
            f"seeds, "
            "t interval over seeds. Right of the dashed line: preferred; ties count half.",
        )
    means = "; ".join(f"over {OTHERS[o]} {mean_said(rows[f'over {o}: share'])}" for o in others)
    return alt_text(
        figure, f"Share of {raters}' judgements for {BOTH}, mean of {len(rows)} seeds [95 % interval]: {means}."
    )


def what_is_written(rows: pd.DataFrame):
    """Each measure of each policy: seeds as small dots, their mean and interval; the label is the figure's alt text."""
    from matplotlib.figure import Figure

    from workbook.figures.parts import alt_text, caption
    from workbook.figures.style import styled

    colours = {BASE: "#7F7F7F", TASK: "#0072B2", TWICE: "#56B4E9", BOTH: "#D55E00"}
    names = [name for name in colours if f"{name}: task" in rows]
    with styled():
        figure = Figure(figsize=(9.6, 4.8), layout="constrained")
        for axis, (what, title) in zip(figure.subplots(2, 3).flat, MEASURES.items()):
            for place, name in enumerate(names):
                values = rows[f"{name}: {what}"]
                axis.plot(values, [place + 0.2] * len(values), "o", color=colours[name], markersize=3, alpha=0.6)
                mean = paired.mean_interval(values)
                if mean.low is not None:
                    axis.plot([mean.low, mean.high], [place] * 2, color=colours[name], linewidth=2)
                axis.plot(mean.estimate, place, "D", color=colours[name])
            axis.set(
                title=title,
                yticks=range(len(names)),
                yticklabels=names if axis.get_subplotspec().is_first_col() else [],
            )
            axis.set_ylim(len(names) - 0.5, -0.5)
        caption(
            figure,
            f"Small dots: seeds; diamonds: mean of {len(rows)} with 95 % t interval. The judge knows the grammar; "
            f"no policy was "
            "trained on it, but the simulated raters are made from it.",
        )
    means = "; ".join(
        f"{name}: judge {mean_said(rows[f'{name}: judge'])}, task reward {mean_said(rows[f'{name}: task'])}"
        for name in names
    )
    return alt_text(
        figure, f"Six measures of what each policy writes, mean of {len(rows)} seeds [95 % interval]. {means}."
    )
