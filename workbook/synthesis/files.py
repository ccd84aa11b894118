"""How the pages of this room are kept: figures small enough to commit, tables of three digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from workbook.figures.parts import save
from workbook.store.files import atomic_write
from workbook.store.tables import write_table

STROKE = r"M (?P<x>\S+) (\S+) L (?P=x) (?P<end>\S+)(?: L (?P=x) (?P=end))? ?"  # the last point may come twice


def keep(figure: Figure, folder: Path, name: str) -> Path:
    """`save`, with places of one digit."""
    path = save(figure, folder, name)
    atomic_write(path, tight(path.read_text(encoding="utf-8")))
    return path


def tight(text: str) -> str:
    """An SVG with lines in their short form: places to a tenth of a point, upright strokes each from where the one
    before ends, no clipping, and nothing that draws nothing."""

    def short(found: re.Match) -> str:
        path = " ".join(re.sub(r"-?\d+\.\d+", lambda v: f"{float(v[0]):.1f}", found[2]).split())
        if re.fullmatch(f"(?:{STROKE})+", path):
            return f'{found[1]}{strokes(path)}"'
        return found[1] + re.sub(r" ?([A-Za-z]) ?", r"\1", path.replace(".0 ", " ").removesuffix(".0")) + '"'

    text = re.sub(r'( d=")([^"]*)"', short, text)
    text = re.sub(r'( [xy]=")(-?\d+\.\d+)"', lambda v: f'{v[1]}{float(v[2]):.1f}"', text)
    text = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", text)
    text = re.sub(
        r'<g id="(?:line2d|text|patch|[xy]tick|PathCollection|matplotlib[.]axis|axes|legend|figure)_\d+">', "<g>", text
    )
    text = re.sub(r' clip-path="[^"]*"', "", text)  # nothing is drawn beyond its panel
    text = re.sub(r'<path d="M[-0-9.]+ [-0-9.]+"[^>]*/>\n?', "", text)  # the line of a lone mark
    before = ""
    while before != text:  # groups that say nothing, from the inside out
        before, text = text, re.sub(r"<g>\n?((?:(?!</?g\b).)*?)</g>\n?|<g/>\n?", r"\1", text, flags=re.S)
    return text


def strokes(path: str) -> str:
    """Upright strokes, each by the way to it and its length."""
    found, at = "", (0.0, 0.0)
    for x, start, end in (map(float, places) for places in re.findall(STROKE, path)):
        ways = (f"{round(way, 1):g}" for way in (x - at[0], start - at[1], end - start))
        found += "m{} {}v{}".format(*ways)
        at = x, end
    return found


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A table of three digits; what is not there is an empty cell."""
    write_table(path, [{k: _short(v) for k, v in row.items()} for row in rows])


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return None if value == "" else value
