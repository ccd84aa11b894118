"""Figures that answer the pointer: Vega-Lite specifications made from committed tables. Hovering over a point shows its
draw, its value, its setting and a text that the run wrote.

    effects(found, "settle", tests)      # a row a test: every draw's difference, their mean, what was published
    draws(found, "settle", tests)        # a row a run: every draw's value, in the metric's unit

Each gives charts by name, a figure that is drawn in the page by docs/assets/charts.js.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import pandas as pd

from workbook.figures import names as naming
from workbook.figures.parts import listed
from workbook.figures.style import COLORS
from workbook.ledger import one_model
from workbook.ledger.claim import repetitions
from workbook.results.measures import label
from workbook.results.tables import number, signed
from workbook.site import effects as told
from workbook.site import text_pages
from workbook.site.committed import Committed
from workbook.site.vega import INK, Chart, layer, rows_axis, rows_height, spec, tip

FAINT = 0.45  # of a draw beside its mean
WIDTH = 32  # letters of a line of an axis's title, so that a phone shows it whole
OPENS = {"cursor": {"expr": "datum.page ? 'pointer' : 'default'"}}  # docs/assets/charts.js opens it
SHORT = 160  # letters of a text that hovering shows
MEASURED = ("breaks", "decodings", "test_prompts")  # of a run's entry: how it is measured and checked
IN_NAMES = ("replicate",)  # of an entry: what the run's name says, as a repetition
WROTE = "wrote (decoded plainly)"  # title of a text: the committed ones are, whatever the point is the value of


def replicate(found: Committed, profile: str) -> str:
    """What a profile's seeds are called: draws, but of one base model seeds."""
    return "seed" if one_model.marked(found.ledgers[profile].values()) else "draw"


def quoted(found: Committed, profile: str, condition: str, seed: int) -> str:
    """The run's first text, decoded plainly: of this draw where it is committed, else of the first that is, which it
    names."""
    texts = found.texts[profile].get(condition, [])
    text = next((text for text in texts if text.seed == seed), texts[0] if texts else None)
    if text is None:
        return "no text of this run is committed"
    cut = shortened(text.plain)
    return cut if text.seed == seed else f"(of {replicate(found, profile)} {text.seed}) {cut}"


def shortened(text: str) -> str:
    """A text as hovering shows it, cut between two words."""
    return text if len(text) <= SHORT else text[:SHORT].rsplit(" ", 1)[0] + " …"


def named(found: Committed, profile: str, condition: str) -> str:
    """A run in words; its id where no settings of it are committed."""
    return found.names[profile].get(condition, condition)


def parted(test: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A test's runs, each with its decoding."""
    pairs = [name.partition("@") for name in test["conditions"].split()]
    return [(name, decoding or test["decoding"]) for name, _, decoding in pairs]


def values(found: Committed, profile: str, test: Mapping[str, Any], condition: str, decoding: str) -> pd.DataFrame:
    """Draw x (the run and its repetitions) -> the test's metric, of the first n draws, n as in the test; a repetition
    that lacks one of them takes no part, as in the ledger. No row or column where the metric was not measured."""
    table, metric = found.measured[profile], test["metric"]
    if metric not in table:
        return pd.DataFrame()
    names = repetitions(found.runs[profile], condition)
    rows = table[table.condition.isin(names) & (table.decoding == decoding)]
    wide = rows.pivot(index="seed", columns="condition", values=metric).sort_index()
    first = wide.loc[wide.index.isin(sorted(wide.index)[: test["n"]])]
    return first[[name for name in names if name in first and (name == condition or first[name].notna().all())]]


# charts --------------------------------------------------------------------------------------------------------------


def differences(found: Committed, profile: str, test: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per draw of a test of two runs: first − second in the metric's unit, and in yardsticks; none of another
    test."""
    pair = parted(test)
    if test["kind"] != "contrast" or len(pair) != 2 or not (test["yardstick"] and test["unit"] == told.YARDSTICKS):
        return []
    first, second = (values(found, profile, test, *each).mean(axis=1) for each in pair)
    known = text_pages.addresses(found, profile)
    names = [naming.decoded(named(found, profile, c), d) for c, d in pair]
    return [
        {
            "draw": int(seed),
            "effect": round(float(gap / test["yardstick"]), 4),
            "difference": signed(gap, None, None),
            "first": f"{names[0]}: {number(first[seed])}",
            "second": f"{names[1]}: {number(second[seed])}",
            "text": quoted(found, profile, pair[0][0], int(seed)),
            "page": known.get((pair[0][0], int(seed)), ""),
        }
        for seed, gap in (first - second).dropna().items()
    ]


def effects(found: Committed, name: str, rows: Sequence[tuple[str, str, Mapping[str, Any]]]) -> dict[str, Chart]:
    """Tests compared in yardsticks, a row each. rows: (what the row is called, profile, test)."""
    rows = [(called, p, t) for called, p, t in rows if t["unit"] == told.YARDSTICKS and t["effect"] is not None]
    if not rows:
        return {}
    means = [
        {
            "row": called,
            "effect": test["effect"],
            "low": test["effect_low"],
            "high": test["effect_high"],
            "published": test["published"],
            "difference": f"{told.raw(test)} {told.unit(test)}".strip(),
            "told": told.raw_published(test) or "no number",
            "profile": f"{profile}, {test['n']} {one_model.units(found.ledgers[profile].values())}",
            "word": test["word"],
        }
        for called, profile, test in rows
    ]
    each = [{"row": called, **one} for called, p, test in rows for one in differences(found, p, test)]
    y = rows_axis([called for called, _, _ in rows])
    x = {"field": "effect", "type": "quantitative", "title": "effect in yardsticks"}
    said = tip(row="test", profile="of", difference="difference", told="published", word="word")
    drawn = tip(row="test", draw=replicate(found, rows[0][1]), difference="difference")
    drawn += tip(first="first", second="second", text=f"the first {WROTE}")
    layers = [
        layer("means", {"type": "rule", "color": INK, "opacity": 0.5, "strokeDash": [3, 3]}, x={"datum": 0}),
        layer(
            "draws",
            {"type": "point", "color": COLORS[0], "opacity": FAINT, "size": 45, **OPENS},
            x=x,
            y=y,
            tooltip=drawn,
        ),
        layer("means", {"type": "rule", "color": INK, "size": 2}, x=x | {"field": "low"}, x2={"field": "high"}, y=y),
        layer("means", {"type": "point", "color": INK, "size": 70, "opacity": 1}, x=x, y=y, tooltip=said),
        layer(
            "means",
            {"type": "point", "shape": "diamond", "filled": False, "color": COLORS[1], "size": 90, "strokeWidth": 2},
            x=x | {"field": "published"},
            y=y,
            tooltip=said,
        ),
    ]
    about = listed([f"{m['row']}: {m['difference']}, published {m['told']}" for m in means])
    height = rows_height([called for called, _, _ in rows])
    return {name: spec(about, {"means": means, "draws": each}, layers, height=height)}


def draws(found: Committed, name: str, profile: str, tests: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """A chart for each metric of the tests: a row a run, in words, a point a draw, a line at the mean."""
    made, known = {}, text_pages.addresses(found, profile)
    for metric in dict.fromkeys(test["metric"] for test in tests):
        longest = max((test for test in tests if test["metric"] == metric), key=lambda test: test["n"])
        shown = dict.fromkeys(pair for test in tests if test["metric"] == metric for pair in parted(test))
        rows = []
        for condition, decoding in shown:
            row = naming.decoded(named(found, profile, condition), decoding)
            for (seed, run), value in values(found, profile, longest, condition, decoding).stack().items():
                one = {"row": row, "run": named(found, profile, run), "draw": int(seed), "value": float(f"{value:.6g}")}
                about = {"setting": settings(found, profile, run), "text": quoted(found, profile, run, int(seed))}
                rows.append(one | about | {"page": known.get((run, int(seed)), "")})
        if rows:
            made[f"{name}-{metric}"] = dots(rows, " ".join(label(metric).split()), replicate(found, profile))
    return made


def dots(rows: Sequence[Mapping[str, Any]], title: str, unit: str) -> Chart:
    """A row a run, a point a draw and repetition, a line at their mean. unit: what a draw is called."""
    x = {"field": "value", "type": "quantitative", "title": wrap(title, WIDTH), "scale": {"zero": False}}
    y = rows_axis([row["row"] for row in rows])
    said = tip(run="run", draw=unit, value=title, setting="setting", text=f"it {WROTE}")
    means = averaged(rows, "row", ["value"])
    layers = [
        layer(
            "draws", {"type": "point", "color": COLORS[0], "opacity": 0.6, "size": 50, **OPENS}, x=x, y=y, tooltip=said
        ),
        layer(
            "means",
            {"type": "tick", "color": INK, "thickness": 2, "size": 18},
            x=x,
            y=y,
            tooltip=tip(row="run", value=f"mean {title}", draws="values", setting="setting"),
        ),
    ]
    about = f"{title}: " + listed([f"{mean['row']} {mean['value']:.3g}" for mean in means])
    return spec(about, {"draws": rows, "means": means}, layers, height=rows_height([row["row"] for row in rows]))


def averaged(rows: Sequence[Mapping[str, Any]], by: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """A row per value of `by`, as its first, the fields their means; draws: how many."""
    made = []
    for _, group in pd.DataFrame(rows).groupby(by, sort=False):
        means = {field: float(f"{group[field].mean():.5g}") for field in fields}
        same = group.iloc[0].drop(["draw", "text", "page"], errors="ignore").to_dict()
        made.append({**same, **means, "draws": len(group)})
    return made


def settings(found: Committed, profile: str, condition: str) -> str:
    """What a run sets beside its profile's sections."""
    entry = {k: v for k, v in found.runs[profile].get(condition, {}).items() if k not in (*MEASURED, *IN_NAMES)}
    return ", ".join(f"{name} {value}" for name, value in entry.items()) or "–"


# on a page -----------------------------------------------------------------------------------------------------------


def of_claim(found: Committed, claim: str) -> dict[str, Chart]:
    """The tests of the first profile that speaks of a claim, in yardsticks, and every draw of their runs."""
    for profile, row in found.rows(claim).items():
        tests = [c for c in row["components"] if c["effect"] is not None]
        rows = [(test["name"] + " (beside)" * (test["role"] == "beside"), profile, test) for test in tests]
        deciding = [test for test in tests if test["role"] == "decides"]
        return effects(found, f"{claim}-{EFFECTS}", rows) | draws(found, claim, profile, deciding)
    return {}


EFFECTS = "effects"
