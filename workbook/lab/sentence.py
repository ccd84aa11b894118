"""One sentence, its tokens coloured by a quantity that you choose."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import ipywidgets as widgets
import matplotlib as mpl
import numpy as np
from matplotlib.colors import SymLogNorm

from workbook.figures import tokens as colored
from workbook.figures.parts import ink
from workbook.lab import static


def coloured(tokens: Sequence[str], quantities: Mapping[str, Sequence[float]]) -> static.View:
    """The tokens on colours that show one number each; buttons choose which number.

    tokens: T strings; quantities: name -> T numbers. Red is above zero, blue below; hover over a token for its number,
    or open the table under the text (Tab to it, then Enter), which has them all.
    Raises ValueError where there is no quantity, lengths differ or a number is not finite (with the name).
    """
    if not quantities:
        raise ValueError("expected at least one quantity, such as {'advantage': [0.1, -0.2]}")
    pages = {name: _page(tokens, [float(v) for v in values], name) for name, values in quantities.items()}
    toggle = widgets.ToggleButtons(
        options=list(pages),
        description="colour by",
        tooltips=[f"colour the tokens by {name}" for name in pages],
        style={"button_width": "initial"},
    )
    shown = widgets.HTML(pages[toggle.value])
    toggle.observe(lambda change: setattr(shown, "value", pages[change.new]), "value")
    summary = f"{len(tokens)} tokens coloured by {', '.join(pages)}"
    rows = [[token, *(f"{float(v) + 0.0:.3g}" for v in values)] for token, *values in zip(tokens, *quantities.values())]
    numbers = widgets.HTML(f"<details><summary>all numbers</summary>{static.table(['token', *pages], rows)}</details>")

    def page() -> str:
        return "".join(pages.values()) + numbers.value

    return static.View([toggle, shown, numbers], page, summary, toggle=toggle, shown=shown, numbers=numbers)


def _page(tokens: Sequence[str], values: list[float], name: str) -> str:
    for token, value in zip(tokens, values):
        if not math.isfinite(value):
            raise ValueError(f"{name}: not finite at the token {token!r}: {value}")
    return colored.tokens_html(list(tokens), values, name) + legend(values, name)


def legend(values: Sequence[float], name: str) -> str:
    """The colour scale of `colored.tokens_html` for these values, with numbers on it, as HTML."""
    norm, colours = colored.scale(list(values))
    cells = []
    for share in np.linspace(0, 1, 9):
        colour = colours(share)
        text = f"{float(norm.inverse(share)) + 0.0:.2g}" if round(share * 8) % 2 == 0 else "&nbsp;"
        look = f"background:{mpl.colors.to_hex(colour)};color:{ink(colour)}"
        cells.append(f'<span style="{look};display:inline-block;width:4.2em;text-align:center">{text}</span>')
    note = ", logarithmic away from 0" if isinstance(norm, SymLogNorm) else ""
    what = f"scale of {name}: blue below 0, white 0, red above{note}"
    return (
        f'<p style="font-size:85%;line-height:1.6;margin-top:0" '
        f'aria-label="{html.escape(what)}">{"".join(cells)}'
        f"<br>{html.escape(what)}</p>"
    )
