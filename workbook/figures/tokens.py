"""Tokens on coloured backgrounds: one episode in a figure, or a line of HTML."""

from __future__ import annotations

import html
import textwrap

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from workbook.figures.parts import alt_text, ink, styled


def episode(episodes: list[tuple[str, dict]], columns: int = 96) -> Figure:
    """One episode per entry, token by token: the text three times, coloured by reward, KL and advantage.

    episodes: (title, {"prompt", "tokens", "rewards", "kl", "advantages"}); columns: characters per line.
    Each quantity has one colour scale for all episodes, so that they can be compared; it is logarithmic away from 0.
    """
    rows = (("rewards", "reward"), ("kl", "KL"), ("advantages", "advantage"))
    layouts = [_lay_out(e["tokens"], columns) for _, e in episodes]
    height = [max(line for _, line, _, _ in layout) + 1 for layout in layouts]
    with styled(**{"axes.grid": False}):
        inches = sum(0.75 + 3 * (0.2 * h + 0.26) for h in height) + 1.2
        figure = Figure(figsize=(9.6, inches))
        left, right, top = 0.1, 0.985, 1 - 0.1 / inches
        scales = {key: scale([v for _, e in episodes for v in e[key]]) for key, _ in rows}
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
        _bars(figure, scales, inches)
        text = (
            f"n = {len(episodes)} single episode{'s' if len(episodes) > 1 else ''}, one seed: an illustration, "
            "not a result. Blue is negative, red positive; the score is paid on the last token. Colours are comparable "
            "between episodes."
        )
        figure.text(0.015, 0.1 / inches, textwrap.fill(text, 140), fontsize=9, color="#444444", va="bottom")
    said = "; ".join(f"{title}: “{_plain(e['tokens'])}”, score {e['score']:.2f}" for title, e in episodes)
    return alt_text(figure, f"Tokens of one episode coloured by reward, KL and advantage. {said}.")


def _bars(figure: Figure, scales: dict[str, tuple], inches: float) -> None:
    """What the colours mean, below."""
    for place, (key, (norm, cmap)) in enumerate(scales.items()):
        bar = figure.add_axes((0.05 + 0.325 * place, 0.8 / inches, 0.26, 0.13 / inches))
        color_bar = figure.colorbar(mpl.cm.ScalarMappable(norm, cmap), cax=bar, orientation="horizontal")
        color_bar.set_ticks(_ends(norm))
        color_bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.2g}"))
        color_bar.ax.xaxis.set_minor_locator(NullLocator())
        unit = {"rewards": "reward per token", "kl": "KL per token, sampled (nats)", "advantages": "advantage"}[key]
        bar.set_title(unit, fontsize=9, pad=3)
        bar.tick_params(labelsize=9)


def tokens_html(tokens: list[str], values: list[float], label: str) -> str:
    """The tokens as HTML, each on a background that shows its value (hover for the number); blue < 0 < red.

    tokens, values: of equal length; label: what the values are. Raises: ValueError for different lengths.
    """
    if len(tokens) != len(values):
        raise ValueError(f"{label}: {len(tokens)} tokens but {len(values)} values")
    norm, cmap = scale(values)
    spans = []
    for token, value in zip(tokens, values):
        color = cmap(norm(value))
        spans.append(
            f'<span style="background:{mpl.colors.to_hex(color)};color:{ink(color)};padding:1px 3px;margin:1px;'
            f'border-radius:3px;display:inline-block" '
            f'title="{html.escape(label)} {value:.3g}">{html.escape(_shown(token))}</span>'
        )
    low, high = (min(values), max(values)) if len(values) else (0.0, 0.0)
    said = f"{html.escape(label)}: {low:.2g} to {high:.2g}"
    head = f'<b style="font-family:sans-serif">{said}</b><br>'
    return f'<p style="line-height:1.9;font-family:monospace">{head}{"".join(spans)}</p>'


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


def scale(values: list[float]):
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
