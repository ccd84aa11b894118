"""Tables to figures, in one style: a colour-blind-safe palette, seeds shown and counted, a caption that says how to read.

Every function takes a table (pandas, columns as in runs/<condition>/per_seed.csv or curves.csv) and returns a matplotlib
Figure whose label (`figure.get_label()`) is its alt text. `save` writes PNG and SVG whose bytes depend on the numbers only.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import textwrap
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from rlnlp.runs import atomic_json, atomic_write
from rlnlp.stats import mean_interval, paired

# Okabe and Ito's palette; red-orange is kept for "no KL penalty" and grey for the untrained model
NO_KL, GREY, INK = "#D55E00", "#7F7F7F", "#222222"
PENALTY = ("#E69F00", "#0072B2", "#000000", "#56B4E9", "#8C564B")  # beta > 0, from small to large
TARGET = ("#009E73", "#CC79A7", "#5E3C99", "#F0E442")  # adaptive targets, from low to high
ALGORITHM = {"ppo": "#0072B2", "nlpo": "#D55E00"}
MARKER = {"ppo": "o", "nlpo": "s"}
NAME = {"ppo": "PPO", "nlpo": "NLPO"}
JOIN = {"ppo": "-", "nlpo": "--"}
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "svg.hashsalt": "rlnlp",
    "svg.fonttype": "path",
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
LABELS = {
    "score": "score (reward model)",
    "score_response": "score of the response alone",
    "judge": "held-out judge",
    "generation_log_perplexity": "log-perplexity of the generations\nunder an independent model (nats/token)",
    "human_log_perplexity": "log-perplexity of the policy\non human reviews (nats/token)",
    "kl": "exact KL to the base model (nats/token)",
    "kl_deployed": "exact KL to the base model\nas decoded (nats/token)",
    "kl_deployed_per_response": "KL per response (nats)",
    "length": "length (tokens)",
    "terminated": "share ended by EOS",
    "distinct_1": "distinct-1",
    "distinct_2": "distinct-2",
    "msttr": "MSTTR",
    "entropy_2": "bigram entropy",
    "repetition": "repetition rate",
    "shared_5gram": "share sharing a 5-gram",
    "objective/score": "score in training",
    "objective/kl": "sampled KL (nats/token)",
}
DECODINGS = {"plain": "both plain", "top_p": "both top-p", "own": "each its own"}


def settings(table: pd.DataFrame) -> pd.DataFrame:
    """One row per condition, in the table's order: algorithm, kl_coef, kl_target, updates, label, color.

    label: "zero-shot", "β = 0.05" or "KL target 0.2"; the condition's name where that would not be unique.
    """
    rows = (
        table.drop_duplicates("condition")
        .set_index("condition")[["algorithm", "kl_coef", "kl_target", "updates"]]
        .copy()
    )
    rows["kl_target"] = rows["kl_target"].fillna(0)
    rows["label"] = [
        "zero-shot" if r.updates == 0 else f"KL target {r.kl_target:g}" if r.kl_target else f"β = {r.kl_coef:g}"
        for r in rows.itertuples()
    ]
    repeated = rows.duplicated(["algorithm", "label"], keep=False)
    rows.loc[repeated, "label"] = rows.index[repeated]
    trained = rows[rows.updates > 0]
    betas = sorted(set(trained.kl_coef[(trained.kl_target == 0) & (trained.kl_coef > 0)]))
    targets = sorted(set(trained.kl_target[trained.kl_target > 0]))
    rows["color"] = [
        GREY
        if r.updates == 0
        else TARGET[targets.index(r.kl_target) % len(TARGET)]
        if r.kl_target
        else NO_KL
        if r.kl_coef == 0
        else PENALTY[betas.index(r.kl_coef) % len(PENALTY)]
        for r in rows.itertuples()
    ]
    return rows


def learning_curves(curves: pd.DataFrame, table: pd.DataFrame) -> Figure:
    """Score and KL against updates, a column per algorithm, a line per condition.

    curves: columns condition, seed, update, objective/score, objective/kl; table: per_seed rows (for the settings).
    Band: 95 % t interval over seeds; below three seeds each seed is drawn instead, because the interval says nothing.
    """
    curves = curves[curves["update"].notna()] if len(curves) else curves
    if not len(curves):
        raise ValueError("no learning curves: no condition of the table was trained")
    look = settings(table).loc[lambda s: s.updates > 0]
    algorithms = [a for a in NAME if a in set(look.algorithm)]
    n = curves.seed.nunique()
    metrics = ("objective/score", "objective/kl")
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(1.2 + 4.0 * len(algorithms) if len(algorithms) > 1 else 6.4, 6.2), layout="constrained"
        )
        axes = figure.subplots(2, len(algorithms), sharex=True, sharey="row", squeeze=False)
        ends = []
        for column, algorithm in enumerate(algorithms):
            for condition, row in look[look.algorithm == algorithm].iterrows():
                own = curves[curves.condition == condition]
                for axis, metric in zip(axes[:, column], metrics):
                    grid = own.pivot(index="update", columns="seed", values=metric)
                    _line_with_spread(axis, grid, row.color, "--" if row.kl_target else "-", row.label)
                    if metric == "objective/score":
                        ends.append(f"{NAME[algorithm]} {row.label}: {grid.iloc[-1].mean():.2f}")
                if row.kl_target:
                    axes[1, column].axhline(row.kl_target, color=row.color, linewidth=0.9, linestyle=":")
            axes[0, column].set_title(f"{NAME[algorithm]} (n = {n} seeds)")
            axes[1, column].set_xlabel("update")
            axes[1, column].xaxis.set_major_locator(MaxNLocator(integer=True))
            symlog(axes[1, column], "y", curves["objective/kl"])
        lines = {}  # a setting looks the same in every column, so one legend serves all
        for axis in axes[0]:
            for handle, label in zip(*axis.get_legend_handles_labels()):
                lines.setdefault(label, handle)
        figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=min(6, len(lines)))
        for axis, metric in zip(axes[:, 0], metrics):
            axis.set_ylabel(LABELS[metric])
        spread = "Band: 95 % interval over seeds." if n >= 3 else "Thin lines: single seeds (too few for a band)."
        caption(
            figure,
            f"Line: mean of {n} seeds. {spread} Dotted: the adaptive target. KL axis linear up to 0.1, then logarithmic."
            + (" NLPO: as it samples, under its mask; its KL is the bare policy's log-ratio there." if "nlpo" in algorithms else ""),
        )
    return alt_text(
        figure, f"Learning curves, {n} seeds: score above, KL below. Score at the last update: {'; '.join(ends)}."
    )


def frontier(table: pd.DataFrame, decoding: str = "plain") -> Figure:
    """Score against log-perplexity of the generations and against exact KL, both algorithms under the same decoding.

    Small points are seeds; large ones their mean, joined along fixed beta; open ones are adaptive targets; the cross is
    the untrained model. Up is more reward, right is further from language as it was.
    """
    rows, look = _test(table, decoding), settings(table)
    n, trained = rows.seed.nunique(), look[look.updates > 0]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        said = []
        for axis, metric in zip(axes, ("generation_log_perplexity", "kl_deployed")):
            mean = rows.groupby("condition")[[metric, "score"]].mean()
            for algorithm in NAME:
                line = trained[(trained.algorithm == algorithm) & (trained.kl_target == 0)].sort_values("kl_coef")
                axis.plot(
                    mean.loc[line.index, metric],
                    mean.loc[line.index, "score"],
                    color=GREY,
                    linewidth=1.1,
                    linestyle=JOIN[algorithm],
                )
            for condition, row in trained.iterrows():
                seeds, marker = rows[rows.condition == condition], MARKER[row.algorithm]
                axis.scatter(
                    seeds[metric], seeds["score"], s=13, color=row.color, marker=marker, alpha=0.4, linewidths=0
                )
                face = "white" if row.kl_target else row.color
                x, y = mean.loc[condition, metric], mean.loc[condition, "score"]
                axis.scatter(
                    [x], [y], s=58, marker=marker, facecolor=face, edgecolor=row.color, linewidths=1.6, zorder=3
                )
                if metric == "kl_deployed":
                    said.append(f"{NAME[row.algorithm]} {row.label}: score {y:.2f} at KL {x:.2f}")
            for condition in look.index[look.updates == 0]:
                zero = rows[rows.condition == condition]
                axis.scatter(zero[metric], zero["score"], s=14, color=GREY, marker="x", linewidths=0.8, alpha=0.7)
                axis.scatter(
                    [mean.loc[condition, metric]],
                    [mean.loc[condition, "score"]],
                    s=90,
                    color=GREY,
                    edgecolor="white",
                    marker="X",
                    zorder=3,
                )
            axis.set_xlabel(LABELS[metric])
        symlog(axes[1], "x", rows["kl_deployed"])
        axes[0].set_ylabel(LABELS["score"])
        handles = [
            Line2D([], [], color=GREY, marker=MARKER[a], linestyle=JOIN[a], label=f"{NAME[a]}, joined along β")
            for a in NAME
            if a in set(trained.algorithm)
        ]
        if (look.updates == 0).any():
            handles.append(Line2D([], [], color=GREY, marker="X", linestyle="", markersize=8, label="zero-shot"))
        ordered = trained.sort_values(["kl_target", "kl_coef"]).drop_duplicates(["label", "color"])
        handles += [
            Line2D(
                [],
                [],
                color=r.color,
                marker="D",
                linestyle="",
                label=r.label,
                markerfacecolor="white" if r.kl_target else r.color,
            )
            for r in ordered.itertuples()
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
        shown = {
            "plain": "Plain sampling for both",
            "top_p": "Top-p sampling for both",
            "own": "Each method's own decoding",
        }
        caption(
            figure,
            f"{shown.get(decoding, decoding)}. Small points: n = {n} seeds; large: their mean; open: adaptive β. Up: more reward. "
            "Right: further from the language the model started with (KL axis linear up to 0.1, then logarithmic). A better method lies up and left.",
        )
    return alt_text(
        figure, f"Score against log-perplexity and KL, {shown.get(decoding, decoding)}, {n} seeds. {'; '.join(said)}."
    )


def by_condition(
    table: pd.DataFrame, metrics: tuple[str, ...], title: str, note: str, decoding: str = "plain"
) -> Figure:
    """A panel per metric, a row per condition: seeds as small points, mean and 95 % t interval; dashed: zero-shot."""
    rows, look = _test(table, decoding), settings(table)
    order = list(look.index[look.updates == 0]) + [
        c for a in NAME for c in look.index[(look.algorithm == a) & (look.updates > 0)]
    ]
    n = rows.seed.nunique()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 1.9 + 0.3 * len(order)), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        said = []
        for axis, metric in zip(axes, metrics):
            for place, condition in enumerate(order):
                values = rows[rows.condition == condition].set_index("seed")[metric].dropna()
                if not len(values):
                    continue
                found, color = mean_interval(values), look.loc[condition, "color"]
                axis.scatter(values, np.full(len(values), place + 0.27), s=9, color=color, alpha=0.55, linewidths=0)
                if found.low is not None and n >= 3:
                    axis.plot([found.low, found.high], [place, place], color=color, linewidth=2)
                face = "white" if look.loc[condition, "kl_target"] else color
                axis.scatter([found.estimate], [place], s=46, facecolor=face, edgecolor=color, linewidths=1.5, zorder=3)
                said.append(f"{_full(look, condition)} {metric} {found.estimate:.2f}")
                if look.loc[condition, "updates"] == 0:
                    axis.axvline(found.estimate, color=GREY, linestyle="--", linewidth=1)
            axis.set_xlabel(LABELS[metric])
        axes[0].set_yticks(range(len(order)), [_full(look, c) for c in order])
        axes[0].set_ylim(len(order) - 0.5, -0.5)
        figure.suptitle(f"{title} (n = {n} seeds)", fontsize=11)
        interval = "bar: 95 % interval" if n >= 3 else "no interval below three seeds"
        dashed = " Dashed: zero-shot." if (look.updates == 0).any() else ""
        caption(figure, f"Large point: mean; small: seeds; {interval}; open: adaptive β.{dashed} {note}")
    return alt_text(figure, f"{title}, {n} seeds. {'; '.join(said)}.")


def diversity(table: pd.DataFrame, decoding: str = "plain") -> Figure:
    """Distinct-2, MSTTR and repetition by condition."""
    note = "Diverse text lies right in the first two panels and left in the third."
    return by_condition(table, ("distinct_2", "msttr", "repetition"), "Diversity of the generated text", note, decoding)


def perplexities(table: pd.DataFrame, decoding: str = "plain") -> Figure:
    """The two quantities that are both called perplexity, beside each other and named."""
    note = 'exp of the left panel is the "perplexity" the papers publish; the right one judges the text that was generated.'
    return by_condition(
        table, ("human_log_perplexity", "generation_log_perplexity"), "Two log-perplexities", note, decoding
    )


def decodings(table: pd.DataFrame, ppo: str, nlpo: str) -> Figure:
    """PPO beside NLPO under the same decodings and under each one's own; below, the paired difference NLPO - PPO.

    ppo, nlpo: names of the two conditions.
    """
    metrics = [m for m in ("score", "generation_log_perplexity", "distinct_2") if m in table]
    shown = [d for d in DECODINGS if d in set(table.decoding)]
    look, n = settings(table), table[table.condition == ppo].seed.nunique()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.8), layout="constrained")
        axes = figure.subplots(2, len(metrics), sharex=True, squeeze=False, height_ratios=(3, 2))
        said = []
        for column, metric in enumerate(metrics):
            for place, decoding in enumerate(shown):
                both = [
                    _test(table, decoding).query("condition == @c").set_index("seed")[metric].sort_index()
                    for c in (ppo, nlpo)
                ]
                for shift, algorithm, values in zip((-0.14, 0.14), NAME, both):
                    color = ALGORITHM[algorithm]
                    spots = (
                        place + shift + np.linspace(-0.05, 0.05, len(values)) if len(values) > 1 else [place + shift]
                    )
                    axes[0, column].scatter(
                        spots, values, s=14, color=color, marker=MARKER[algorithm], alpha=0.45, linewidths=0
                    )
                    found = mean_interval(values)
                    axes[0, column].scatter(
                        [place + shift], [found.estimate], s=52, color=color, marker=MARKER[algorithm], zorder=3
                    )
                result = paired(both[1], both[0])
                axes[1, column].scatter(
                    np.full(len(both[0]), place), both[1].values - both[0].values, s=14, color=GREY, alpha=0.7
                )
                if result.low is not None and n >= 3:
                    axes[1, column].plot([place, place], [result.low, result.high], color=INK, linewidth=2)
                axes[1, column].scatter([place], [result.difference], s=46, color=INK, zorder=3)
                said.append(f"{metric} {DECODINGS[decoding]}: {result.difference:+.3f}")
            axes[1, column].axhline(0, color=INK, linewidth=1)
            axes[1, column].set_xticks(range(len(shown)), [DECODINGS[d].replace(" ", "\n", 1) for d in shown])
            axes[1, column].set_xlim(-0.5, len(shown) - 0.5)
            axes[0, column].set_title(LABELS[metric].split("\n")[0], fontsize=10)
        axes[0, 0].set_ylabel("mean (large) and seeds")
        axes[1, 0].set_ylabel("NLPO − PPO, paired")
        handles = [
            Line2D(
                [], [], color=ALGORITHM[a], marker=MARKER[a], linestyle="", label=f"{NAME[a]}, {look.loc[c, 'label']}"
            )
            for a, c in zip(NAME, (ppo, nlpo))
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
        interval = "bar: 95 % interval of the paired difference. " if n >= 3 else ""
        caption(
            figure,
            f"n = {n} seeds, paired by seed; {interval}A difference that shows only in the last column of a panel "
            "comes from decoding (NLPO's own uses its mask), not from training.",
        )
    return alt_text(figure, f"PPO and NLPO by decoding, {n} seeds. NLPO minus PPO: {'; '.join(said)}.")


def episode(episodes: list[tuple[str, dict]], columns: int = 96) -> Figure:
    """One episode per entry, token by token: the text three times, coloured by reward, KL and advantage.

    episodes: (title, {"prompt", "tokens", "rewards", "kl", "advantages"}); columns: characters per line.
    Each quantity has one colour scale for all episodes, so that they can be compared; it is logarithmic away from 0.
    """
    rows = (("rewards", "reward"), ("kl", "KL"), ("advantages", "advantage"))
    layouts = [_lay_out(e["tokens"], columns) for _, e in episodes]
    height = [max(line for _, line, _, _ in layout) + 1 for layout in layouts]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        inches = sum(0.75 + 3 * (0.2 * h + 0.26) for h in height) + 1.2
        figure = Figure(figsize=(9.6, inches))
        left, right, top = 0.1, 0.985, 1 - 0.1 / inches
        scales = {key: _scale([v for _, e in episodes for v in e[key]]) for key, _ in rows}
        for (title, item), layout, lines in zip(episodes, layouts, height):
            figure.text(
                0.015, top - 0.2 / inches, f"{title}: score {item['score']:.2f}", fontsize=11, fontweight="bold"
            )
            prompt = textwrap.shorten(" ".join(item["prompt"].split()[-20:]), 120, placeholder=" …")
            figure.text(0.015, top - 0.45 / inches, f"prompt: … {prompt}", fontsize=9, color="#555555")
            top -= 0.62 / inches
            for key, name in rows:
                tall = (0.2 * lines + 0.06) / inches
                axis = figure.add_axes((left, top - tall, right - left, tall))
                axis.set(xlim=(0, columns), ylim=(lines, 0))
                axis.axis("off")
                norm, cmap = scales[key]
                for (start, line, width, text), value in zip(layout, item[key]):
                    color = cmap(norm(value))
                    axis.add_patch(
                        mpl.patches.Rectangle((start - 0.3, line + 0.06), width + 0.6, 0.88, color=color, linewidth=0)
                    )
                    axis.text(
                        start,
                        line + 0.52,
                        text,
                        fontsize=9,
                        family="DejaVu Sans Mono",
                        va="center",
                        color=ink(color),
                        clip_on=True,
                    )
                figure.text(0.015, top - tall / 2, name, fontsize=10, va="center")
                top -= tall + 0.2 / inches
            top -= 0.33 / inches - 0.2 / inches
        for place, (key, name) in enumerate(rows):
            norm, cmap = scales[key]
            bar = figure.add_axes((0.05 + 0.325 * place, 0.8 / inches, 0.26, 0.13 / inches))
            color_bar = figure.colorbar(mpl.cm.ScalarMappable(norm, cmap), cax=bar, orientation="horizontal")
            color_bar.set_ticks(_ends(norm))
            color_bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.2g}"))
            color_bar.ax.xaxis.set_minor_locator(NullLocator())
            unit = {"rewards": "reward per token", "kl": "KL per token, sampled (nats)", "advantages": "advantage"}[key]
            bar.set_title(unit, fontsize=9, pad=3)
            bar.tick_params(labelsize=9)
        text = (
            f"n = {len(episodes)} single episode{'s' if len(episodes) > 1 else ''}, one seed: an illustration, not a result. "
            "Blue is negative, red positive; the score is paid on the last token. Colours are comparable between episodes."
        )
        figure.text(0.015, 0.1 / inches, textwrap.fill(text, 140), fontsize=9, color="#444444", va="bottom")
    said = "; ".join(f"{title}: “{_plain(e['tokens'])}”, score {e['score']:.2f}" for title, e in episodes)
    return alt_text(figure, f"Tokens of one episode coloured by reward, KL and advantage. {said}.")


def tokens_html(tokens: list[str], values: list[float], label: str) -> str:
    """The tokens as HTML, each on a background that shows its value (hover for the number); blue < 0 < red.

    tokens, values: of equal length; label: what the values are. Raises: ValueError for different lengths.
    """
    if len(tokens) != len(values):
        raise ValueError(f"{label}: {len(tokens)} tokens but {len(values)} values")
    norm, cmap = _scale(values)
    spans = []
    for token, value in zip(tokens, values):
        color = cmap(norm(value))
        spans.append(
            f'<span style="background:{mpl.colors.to_hex(color)};color:{ink(color)};padding:1px 3px;margin:1px;'
            f'border-radius:3px;display:inline-block" title="{html.escape(label)} {value:.3g}">{html.escape(_shown(token))}</span>'
        )
    low, high = (min(values), max(values)) if len(values) else (0.0, 0.0)
    scale = f"{html.escape(label)}: {low:.2g} to {high:.2g}"
    return f'<p style="line-height:1.9;font-family:monospace"><b style="font-family:sans-serif">{scale}</b><br>{"".join(spans)}</p>'


def save(figure: Figure, folder: str | Path, name: str, alt: str = "") -> dict[str, str]:
    """Write <name>.png and <name>.svg, and the alt text into the SVG's title and description and into alt.json.

    alt: default, the figure's label. No clock, version or random id gets into the files. Returns {"png", "svg", "alt"}.
    """
    folder = Path(folder)
    alt = alt or str(figure.get_label())
    if not alt:
        raise ValueError(f"{name}: a figure needs alt text")
    atomic_write(folder / f"{name}.png", _png(figure))
    figure.set_layout_engine("none")  # both files have the layout of the first
    with mpl.rc_context(STYLE):
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    words = f'<title id="title">{html.escape(name)}</title>\n <desc id="desc">{html.escape(alt)}</desc>\n'
    svg = re.sub(
        r"(<svg\b)([^>]*>)",
        lambda m: f'{m[1]} role="img" aria-labelledby="title desc"{m[2]}\n {words}',
        out.getvalue(),
        count=1,
    )
    atomic_write(folder / f"{name}.svg", "\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    known = json.loads((folder / "alt.json").read_text(encoding="utf-8")) if (folder / "alt.json").exists() else {}
    atomic_json(folder / "alt.json", {**known, name: alt})
    return {"png": f"{name}.png", "svg": f"{name}.svg", "alt": alt}


def show(figure: Figure, folder: str | Path, name: str, alt: str = "") -> None:
    """`save`, and display the picture in a notebook with its alt text (which nbconvert carries into HTML)."""
    from IPython.display import display

    alt = save(figure, folder, name, alt)["alt"]
    data = base64.b64encode((Path(folder) / f"{name}.png").read_bytes()).decode()
    display({"image/png": data, "text/plain": alt}, metadata={"image/png": {"alt": alt}}, raw=True)


# parts ---------------------------------------------------------------------------------------------------------------


def _png(figure: Figure) -> bytes:
    with mpl.rc_context(STYLE):
        out = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def alt_text(figure: Figure, text: str) -> Figure:
    figure.set_label(" ".join(text.split()))
    return figure


def caption(figure: Figure, text: str) -> None:
    width = int(figure.get_figwidth() * 14)
    figure.supxlabel(textwrap.fill(text, width), x=0.01, ha="left", fontsize=9, color="#444444")


def _test(table: pd.DataFrame, decoding: str) -> pd.DataFrame:
    rows = table[(table.split == "test") & (table.decoding == decoding)]
    if not len(rows):
        raise ValueError(f"no test rows decoded {decoding!r} (decodings: {sorted(set(table.decoding))})")
    return rows


def _full(look: pd.DataFrame, condition: str) -> str:
    row = look.loc[condition]
    return (
        row.label
        if row.updates == 0 or row.label == condition
        else f"{NAME.get(row.algorithm, row.algorithm)} {row.label}"
    )


def _line_with_spread(axis: Axes, grid: pd.DataFrame, color: str, style: str, label: str) -> None:
    """grid: update x seed."""
    mean, n = grid.mean(axis=1), grid.shape[1]
    axis.plot(grid.index, mean, color=color, linestyle=style, linewidth=1.7, label=label)
    if n >= 3:
        bounds = [mean_interval(row.dropna()) for _, row in grid.iterrows()]
        low = [mean.iloc[i] if b.low is None else b.low for i, b in enumerate(bounds)]
        high = [mean.iloc[i] if b.high is None else b.high for i, b in enumerate(bounds)]
        limits = axis.dataLim.frozen()
        axis.fill_between(grid.index, low, high, color=color, alpha=0.16, linewidth=0)
        axis.dataLim.set(limits)  # a wide band is cut rather than squeezing the lines
    elif n == 2:
        for seed in grid:
            axis.plot(grid.index, grid[seed], color=color, linewidth=0.6, alpha=0.6)


def symlog(axis: Axes, which: str, values: pd.Series) -> None:
    """Linear to 0.1, logarithmic above, plain numbers on the ticks."""
    highest = float(np.nanmax(values))
    getattr(axis, f"set_{which}scale")("symlog", linthresh=0.1, linscale=0.5)
    ticks = [t for t in (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if t <= max(highest, 0.1) * 1.1]
    getattr(axis, f"set_{which}ticks")(ticks, [f"{t:g}" for t in ticks])
    getattr(axis, f"{which}axis").set_minor_locator(NullLocator())


def _shown(token: str) -> str:
    text = token.replace("Ġ", " ").replace("Ċ", "⏎").replace("\n", "⏎").replace("\ufffd", "·").strip()
    return text or "␣"


def _plain(tokens: list[str]) -> str:
    return " ".join(_shown(t) for t in tokens)


def _lay_out(tokens: list[str], columns: int) -> list[tuple[int, int, int, str]]:
    """(column, line, width, text) of each token, lines broken at `columns` characters."""
    places, column, line = [], 1, 0
    for token in tokens:
        text = _shown(token)[: columns - 2]
        if column > 1 and column + len(text) > columns - 1:
            column, line = 1, line + 1
        places.append((column, line, len(text), text))
        column += len(text) + 1
    return places


def _scale(values: list[float]):
    """A norm symmetric about 0 (logarithmic away from it where values differ much), and a diverging colour map."""
    sizes = np.abs(np.asarray(values, dtype=float))
    top = float(sizes.max()) if sizes.size and sizes.max() > 0 else 1.0
    median = float(np.median(sizes)) if sizes.size else top
    cmap = mpl.colormaps["RdBu_r"]
    if median < top / 8:
        return SymLogNorm(linthresh=max(median, top / 100), vmin=-top, vmax=top, base=10), cmap
    return Normalize(-top, top), cmap


def _ends(norm) -> list[float]:
    half = norm.inverse(0.75) if not isinstance(norm, SymLogNorm) else float(norm.inverse(0.75))
    return [norm.vmin, -half, 0.0, half, norm.vmax]


def ink(color) -> str:
    red, green, blue = mpl.colors.to_rgb(color)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"
