"""Vega-Lite: what all charts of the site have in common, and the files that bring them into a page.

spec(about, {"draws": rows}, [layer("draws", {"type": "point"}, x=..., y=...)])    # a chart, as wide as its place
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import vl_convert

from workbook.figures.style import COLORS

Chart = Mapping[str, Any]
INK = "currentColor"  # of the page, light or dark
SEEN = [color for color in COLORS if color != "#000000"]  # which no one sees in the dark
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched from there
CONFIG = {
    "view": {"stroke": None},
    "axis": {"labelColor": INK, "titleColor": INK, "tickColor": INK, "domainColor": INK, "gridOpacity": 0.25}
    | {"titleFontWeight": "normal", "labelOverlap": True, "labelFontSize": 12, "titleFontSize": 12}
    | {"labelFlush": False, "labelSeparation": 4},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "bottom", "labelFontSize": 12, "columns": 1}
    | {"labelLimit": 280, "titleFontWeight": "normal", "symbolOpacity": 1},
    "range": {"category": SEEN},
    "point": {"filled": True},
    "mark": {"aria": False},  # a point by itself says nothing; the chart's description does
}
LETTERS, LINE = 24, 13  # of a line of a row's name; its height
ROW, GAP = 40, 10  # least height of a row; what keeps the lines of two names apart


def spec(about: str, data: Mapping[str, Sequence[Mapping[str, Any]]], layers: Sequence[Chart], **more: Any) -> Chart:
    """A chart as wide as its place; data: name -> rows, which layers name. about: what it shows, for those who do not
    see it."""
    whole = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}, "background": None}
    return {
        "$schema": SCHEMA,
        "description": about,
        **whole,
        "config": CONFIG,
        "datasets": data,
        "layer": layers,
    } | more


def layer(data: str, mark: Mapping[str, Any], **encoding: Any) -> Chart:
    return {"data": {"name": data}, "mark": mark, "encoding": encoding}


def tip(**titles: str) -> list[Chart]:
    """What hovering shows: field -> its title, in this order."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in titles.items()]


def rows_axis(names: Sequence[str]) -> Chart:
    """An axis of rows in this order; a long name in several lines, whose middle is its row's."""
    lines = f"split(trim(replace(datum.label, /(.{{1,{LETTERS}}})(?: |$)/g, '$1\\n')), '\\n')"
    axis = {"labelExpr": lines, "labelLimit": 0, "labelLineHeight": LINE, "labelOverlap": False}
    up = {"test": "true", "expr": f"-{LINE / 2} * (length({lines}) - 1)"}  # a label's first line is at its tick
    axis["labelOffset"] = {"condition": up, "value": 0}
    return {"field": "row", "type": "nominal", "sort": list(dict.fromkeys(names)), "title": None, "axis": axis}


def rows_height(names: Sequence[str]) -> Chart:
    """As high as the longest of the names needs, in each row."""
    lines = max(len(wrap(name, LETTERS, break_on_hyphens=False)) for name in names)
    return {"step": max(ROW, GAP + LINE * lines)}


def place(name: str) -> str:
    """Where a page draws it, as Markdown."""
    return f'<div class="chart" data-chart="{name}"></div>'


def script(name: str, chart: Chart) -> str:
    """The file that hands a chart over: a page on a disk may load scripts and nothing else. Its rows are by columns,
    which docs/assets/charts.js turns back: as rows, the site's charts take nearly twice the room."""
    whole = {**chart, "datasets": {name: columns(rows) for name, rows in chart["datasets"].items()}}
    whole = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return f"charts[{json.dumps(name)}] = {whole}\n"


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Any]]]:
    """Field -> its different values, and which of them each row has, unless each has one of its own, in order."""
    made = {}
    for field in dict.fromkeys(field for row in rows for field in row):
        values = [row.get(field) for row in rows]
        place = {value: i for i, value in enumerate(dict.fromkeys(values))}
        made[field] = [[*place], [place[v] for v in values]] if len(place) < len(rows) else [values]
    return made


def library() -> str:
    """Vega-Lite and what it needs, as one script that leaves nothing behind but `vegaEmbed`."""
    return f"(() => {{\n{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed')}\n}})()\n"
