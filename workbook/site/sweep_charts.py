"""Figures that answer the pointer, of runs that differ in one setting, and of samplers by decodings.

along("gamma", "score")(found, "full-gamma-gamma", "full", runs)    # a line a learner, along its values of gamma
heat(found, "full-sampling-heat", "full", runs)                     # trained with, decoded with
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workbook.figures import names as naming
from workbook.figures.parts import listed
from workbook.figures.style import COLORS, LIGHT
from workbook.results.measures import label
from workbook.results.tables import number, signed
from workbook.runs.algorithms import label as learner
from workbook.site.charts import MEASURED, WROTE, averaged, named, replicate, settings
from workbook.site.committed import Committed, read_params
from workbook.site.report_charts import START, Draw, joined, on_reviews
from workbook.site.vega import Chart, layer, rows_axis, spec, tip
from workbook.statistics import paired

NEVER = "never"  # along the updates between two refreshes: the mask stays the first one
AXES = {"gamma": "γ", "mask_top_p": "p (mass kept)", "sync_every": "μ (updates between refreshes)"}
WITHOUT = {"gamma": "one action", "mask_top_p": "no mask", "sync_every": "no mask"}  # learners that lack the setting
WAYS = {"plain": "ancestral", "top_k": "top-k", "top_p": "top-p", "temperature": "temperature", "greedy": "greedy"}
SAMPLED = ("top_k", "top_p", "temperature")


def usually(found: Committed, profile: str) -> dict[str, Any]:
    """What a profile's runs have that say nothing else."""
    params = read_params(found.root, profile)
    return {**params["learner"], **params["nlpo"], **params["sampling"]}


def unusual(found: Committed, profile: str, conditions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run -> what it sets otherwise than its profile does."""
    usual, runs = usually(found, profile), found.runs[profile]
    return {
        c: {k: v for k, v in runs.get(c, {}).items() if k not in MEASURED and not (k in usual and usual[k] == v)}
        for c in conditions
    }


def swept(found: Committed, profile: str, conditions: Sequence[str], field: str) -> dict[str, float | str]:
    """Run -> its value of a setting: of learners that some run sets it for, the runs that set nothing else; beside
    them, at places of their own, other learners that set nothing, and the untrained model."""
    entries = unusual(found, profile, conditions)
    if field == "sync_every":
        never = {"mask_source": "initial"}.items()
        entries = {c: {field: NEVER} | dict(e.items() - never) if never <= e.items() else e for c, e in entries.items()}
    of = {entry["algorithm"] for entry in entries.values() if field in entry}
    usual, at = usually(found, profile), {}
    for condition, entry in entries.items():
        if entry.get("algorithm") in of and not entry.keys() - {"algorithm", field}:
            at[condition] = entry.get(field, usual.get(field))
        elif of and [*entry] == ["algorithm"]:
            at[condition] = WITHOUT[field]
        elif of and entry.get("updates") == 0 and not entry.keys() - {"algorithm", "updates"}:
            at[condition] = START
    return at


def along(field: str, *metrics: str, decodings: Sequence[str] = ("plain",)) -> Draw:
    """What draws a chart a metric: learners along a setting, each at every value that a run has which sets nothing
    else, at equal distances; decoded in these ways."""

    def draw(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
        at = swept(found, profile, conditions, field)
        lines = {c: START if v == START else learner(found.runs[profile][c]["algorithm"]) for c, v in at.items()}
        values = sorted({v for v in at.values() if not isinstance(v, str)})
        order = [*map(said, values), *(v for v in (NEVER, WITHOUT[field], START) if v in at.values())]
        unit = replicate(found, profile)
        return {
            f"{name}-{metric}": sweep(rows, label(metric, panel=True).replace("\n", " "), AXES[field], order, unit)
            for metric in metrics
            if (rows := points(found, profile, at, lines, metric, decodings))
        }

    return draw


def points(
    found: Committed,
    profile: str,
    at: Mapping[str, float | str],
    lines: Mapping[str, str],
    metric: str,
    decodings: Sequence[str],
) -> list[dict[str, Any]]:
    """A row a run, decoding and draw. at: run -> where it stands; lines: run -> whose line."""
    alone = {c for c, here in at.items() if here in (START, *WITHOUT.values())}

    def called(condition: str, decoding: str) -> str:
        how = naming.decoded_how(decoding)
        return lines[condition] if condition in alone or len(decodings) == 1 else f"{lines[condition]}, {how}"

    return [
        about | {"line": called(c, decoding), "at": said(here), "y": float(f"{getattr(one, metric):.5g}")}
        for decoding in decodings
        for c, here in at.items()
        if decoding == decodings[0] or c not in alone
        for one, about in on_reviews(found, profile, [c], decoding)
        if pd.notna(getattr(one, metric, None))
    ]


def said(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def sweep(rows: Sequence[Mapping[str, Any]], up: str, title: str, order: Sequence[str], unit: str) -> Chart:
    """A point a draw, a larger one at each mean, and a line through the means of a learner. unit: what a draw is
    called."""
    lines = [*dict.fromkeys(row["line"] for row in rows)]
    rows = [{**row, "place": order.index(row["at"])} for row in rows]
    rows = sorted(rows, key=lambda row: (lines.index(row["line"]), row["place"]))
    means = averaged([{**row, "key": f"{row['line']} {row['at']}"} for row in rows], "key", ["y"])
    x = {"field": "at", "type": "ordinal", "title": title, "sort": order, "axis": {"labelAngle": 0}}
    y = {"field": "y", "type": "quantitative", "title": up, "scale": {"zero": False}}
    each = tip(run="run", line="line", draw=unit, y=up, setting="setting", text=f"it {WROTE}")
    mean = tip(run="run", line="line", draws=f"{unit}s", y=f"mean {up}", setting="setting")
    layers = joined(x, y, lines, "place", each, mean)
    about = f"{up} along {title}: " + listed([f"{m['line']} {m['y']:.3g} at {m['at']}" for m in means])
    return spec(about, {"draws": rows, "means": means}, layers, height=280)


# samplers by decodings -----------------------------------------------------------------------------------------------


def trained_with(entry: Mapping[str, Any]) -> str:
    """The way of sampling that a run was trained with, where it sets nothing else; "" for any other run. entry: what
    it sets otherwise than its profile does."""
    own = [*(entry.keys() - {"algorithm"})] or ["plain"]
    return own[0] if len(own) == 1 and own[0] in ("plain", *SAMPLED) else ""


def heat(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """Score gained over the untrained model that is decoded in the same way: a row a sampler in training, a column a
    decoding."""
    scores = found.measured[profile].pivot_table(index=["condition", "decoding"], columns="seed", values="score")
    start = next((c for c in conditions if found.runs[profile][c].get("updates") == 0), None)
    entries = unusual(found, profile, conditions)
    ways = {c: way for c in conditions if c != start and (way := trained_with(entries[c]))}
    rows = []
    for condition, way in ways.items():
        for decoding in (d for d in WAYS if (condition, d) in scores.index and (start, d) in scores.index):
            gain = (scores.loc[condition, decoding] - scores.loc[start, decoding]).dropna()
            mean = paired.mean_interval(gain.to_numpy())
            cell = {"trained": WAYS[way], "decoded": WAYS[decoding], "gain": float(f"{mean.estimate:.4g}")}
            cell |= {"shown": signed(mean.estimate, None, None), "interval": signed(mean.estimate, mean.low, mean.high)}
            cell |= {"score": number(scores.loc[condition, decoding].mean()), "draws": len(gain)}
            cell |= {"own": "yes" if way == decoding else "no"}
            about = {"run": named(found, profile, condition), "setting": settings(found, profile, condition)}
            rows.append(about | cell)
    return {f"{name}-gain": grid(rows, replicate(found, profile))} if rows else {}


def grid(rows: Sequence[Mapping[str, Any]], unit: str) -> Chart:
    """A cell a sampler and decoding, brighter where more is gained, among decodings that some run was trained with;
    framed where it is decoded as trained. unit: what a draw is called."""
    ways = {row["trained"] for row in rows}  # greedy decoding alone would take the whole scale
    gains = [row["gain"] for row in rows if row["decoded"] in ways]
    dark = min(gains) + LIGHT * (max(gains) - min(gains))
    x = {"field": "decoded", "type": "nominal", "title": "decoded with", "sort": [*WAYS.values()]}
    x["axis"] = {"labelAngle": -35, "labelOverlap": False, "orient": "top"}
    y = rows_axis([row["trained"] for row in rows]) | {"field": "trained", "title": "trained with"}
    title = "score gained over the untrained model, decoded alike"
    whole = tip(run="run", decoded="decoded with", interval=title, score="mean score", draws=f"{unit}s")
    whole += tip(own="as trained")
    fill = {"field": "gain", "type": "quantitative", "legend": None}
    fill["scale"] = {"scheme": "cividis", "domain": [min(gains), max(gains)], "clamp": True}
    ink = {"condition": {"test": f"datum.gain > {dark:.4g}", "value": "black"}, "value": "white"}
    frame = {"type": "rect", "filled": False, "stroke": COLORS[1], "strokeWidth": 3}
    layers = [
        layer("cells", {"type": "rect"}, x=x, y=y, color=fill),
        layer("cells", frame, x=x, y=y) | {"transform": [{"filter": "datum.own == 'yes'"}]},
        layer("cells", {"type": "text", "fontSize": 12}, x=x, y=y, text={"field": "shown"}, color=ink),
        layer("cells", {"type": "rect", "opacity": 0}, x=x, y=y, tooltip=whole),  # what the pointer finds
    ]
    about = f"{title}: " + listed([f"{r['trained']} in training, {r['decoded']} in use {r['interval']}" for r in rows])
    return spec(about, {"cells": rows}, layers, height={"step": 44}, usermeta={"colours": "own"})
