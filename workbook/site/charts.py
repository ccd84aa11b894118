"""Figures that answer the pointer: Vega-Lite specifications made from committed tables. Hovering over a point shows its
draw, its value, its setting and a text that the run wrote.

    effects(found, "settle", tests)      # a row a test: every draw's difference, their mean, what was published
    draws(found, "settle", tests)        # a row a run: every draw's value, in the metric's unit
    frontier(found, "mini", runs)        # score against what it costs, a point a draw
    curves(found, "mini", runs)          # along training

Each gives charts by name, a figure that is drawn in the page by docs/assets/charts.js.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import wrap
from typing import Any

import pandas as pd

from workbook.figures import names as naming
from workbook.figures.style import COLORS, GREY
from workbook.ledger import one_model
from workbook.ledger.claim import repetitions
from workbook.results.files import CURVES, standing
from workbook.results.measures import label
from workbook.results.tables import number, signed
from workbook.site import effects as told
from workbook.site.committed import Committed
from workbook.site.vega import INK, ROW, SEEN, Chart, layer, rows_axis, spec, tip

FAINT = 0.45  # of a draw beside its mean
SYMLOG = 0.05  # nats per token below which the axis of the KL is linear
TICKS = (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # of that axis; its own would be evenly spaced, and overlap
WIDTH = 32  # letters of a line of an axis's title, so that a phone shows it whole
FIRST, START = ("PPO", "NLPO"), "untrained"  # lines whose colours are those of the pictures
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-right", "triangle-left", "stroke")
AGAIN = "run again on another processor"
SHORT = 160  # letters of a text that hovering shows
MEASURED = ("breaks", "decodings", "test_prompts")  # of a run's entry: how it is measured and checked


def quoted(found: Committed, profile: str, condition: str, seed: int) -> str:
    """The run's first text, of this draw where it is committed, else of the first draw that is, which it names; so is
    said of one that another processor wrote."""
    texts = found.texts_of(profile).get(condition, [])
    text = next((text for text in texts if text.seed == seed), texts[0] if texts else None)
    if text is None:
        return "no text of this run is committed"
    cut = text.plain if len(text.plain) <= SHORT else text.plain[:SHORT].rsplit(" ", 1)[0] + " …"
    of = "the same draw" if text.seed == seed else f"of draw {text.seed}"
    return f"({of}{f', {AGAIN}' * text.again}) {cut}" if text.again or text.seed != seed else cut


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
    names = [naming.decoded(named(found, profile, c), d) for c, d in pair]
    return [
        {
            "draw": int(seed),
            "effect": round(float(gap / test["yardstick"]), 4),
            "difference": signed(gap, None, None),
            "first": f"{names[0]}: {number(first[seed])}",
            "second": f"{names[1]}: {number(second[seed])}",
            "text": quoted(found, profile, pair[0][0], int(seed)),
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
    drawn = tip(
        row="test", draw="draw", difference="difference", first="first", second="second", text="the first wrote"
    )
    layers = [
        layer("means", {"type": "rule", "color": INK, "opacity": 0.5, "strokeDash": [3, 3]}, x={"datum": 0}),
        layer("draws", {"type": "point", "color": COLORS[0], "opacity": FAINT, "size": 45}, x=x, y=y, tooltip=drawn),
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
    about = "; ".join(f"{m['row']}: {m['difference']}, published {m['told']}" for m in means)
    return {name: spec(about, {"means": means, "draws": each}, layers, height={"step": ROW})}


def draws(found: Committed, name: str, profile: str, tests: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """A chart for each metric of the tests: a row a run, in words, a point a draw, a line at the mean."""
    made = {}
    for metric in dict.fromkeys(test["metric"] for test in tests):
        longest = max((test for test in tests if test["metric"] == metric), key=lambda test: test["n"])
        shown = dict.fromkeys(pair for test in tests if test["metric"] == metric for pair in parted(test))
        rows = []
        for condition, decoding in shown:
            row = naming.decoded(named(found, profile, condition), decoding)
            for (seed, run), value in values(found, profile, longest, condition, decoding).stack().items():
                one = {"row": row, "run": named(found, profile, run), "draw": int(seed), "value": float(f"{value:.6g}")}
                about = {"setting": settings(found, profile, run), "text": quoted(found, profile, run, int(seed))}
                rows.append(one | about)
        if rows:
            made[f"{name}-{metric}"] = dots(rows, " ".join(label(metric).split()))
    return made


def dots(rows: Sequence[Mapping[str, Any]], title: str) -> Chart:
    """A row a run, a point a draw, a line at their mean."""
    x = {"field": "value", "type": "quantitative", "title": wrap(title, WIDTH), "scale": {"zero": False}}
    y = rows_axis([row["row"] for row in rows])
    said = tip(run="run", draw="draw", value=title, setting="setting", text="it wrote")
    means = averaged(rows, "row", ["value"])
    layers = [
        layer("draws", {"type": "point", "color": COLORS[0], "opacity": 0.6, "size": 50}, x=x, y=y, tooltip=said),
        layer(
            "means",
            {"type": "tick", "color": INK, "thickness": 2, "size": 18},
            x=x,
            y=y,
            tooltip=tip(row="run", value=f"mean {title}", draws="values", setting="setting"),
        ),
    ]
    about = f"{title}: " + "; ".join(f"{mean['row']} {mean['value']:.3g}" for mean in means)
    return spec(about, {"draws": rows, "means": means}, layers, height={"step": ROW})


def averaged(rows: Sequence[Mapping[str, Any]], by: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """A row per value of `by`, as its first, the fields their means; draws: how many."""
    made = []
    for _, group in pd.DataFrame(rows).groupby(by, sort=False):
        means = {field: float(f"{group[field].mean():.5g}") for field in fields}
        made.append({**group.iloc[0].drop(["draw", "text"]).to_dict(), **means, "draws": len(group)})
    return made


def settings(found: Committed, profile: str, condition: str) -> str:
    """What a run sets beside its profile's sections."""
    entry = {k: v for k, v in found.runs[profile].get(condition, {}).items() if k not in MEASURED}
    return ", ".join(f"{name} {value}" for name, value in entry.items()) or "–"


def frontier(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """Score against log-perplexity and against KL: a point a draw, a larger one at each run's mean; runs that differ
    in β alone are joined."""
    table, made = found.measured[profile], {}
    table = table[(table.decoding == "plain") & table.condition.isin(conditions)]
    for across in ("generation_log_perplexity", "kl_deployed"):
        rows = []
        for one in table.dropna(subset=[across, "score"]).itertuples():
            entry = {k: v for k, v in found.runs[profile][one.condition].items() if k != "kl_coef"}
            about = {"run": named(found, profile, one.condition), "line": naming.name(entry, found.runs[profile])}
            about |= {"x": float(f"{getattr(one, across):.5g}"), "y": float(f"{one.score:.5g}"), "beta": one.kl_coef}
            about |= {"setting": settings(found, profile, one.condition), "draw": one.seed}
            rows.append(about | {"text": quoted(found, profile, one.condition, one.seed)})
        if rows:
            scale = "symlog" if across == "kl_deployed" else "linear"
            made[f"{name}-{across}"] = scatter(rows, label(across, panel=True), scale)
    return made


def scatter(rows: Sequence[Mapping[str, Any]], title: str, scale: str) -> Chart:
    """y against x, coloured and shaped by the line that a point lies on."""
    x, title = {"field": "x", "type": "quantitative", "title": title.split("\n")}, title.replace("\n", " ")
    if scale == "symlog":
        far = max(row["x"] for row in rows)
        x |= {
            "scale": {"type": scale, "constant": SYMLOG},
            "axis": {"values": [at for at in TICKS if at <= far], "format": "~g"},
        }
    else:
        x["scale"] = {"type": scale, "zero": False}
    y = {"field": "y", "type": "quantitative", "title": "score", "scale": {"zero": False}}
    sort = {"field": "line", "type": "nominal", "title": None}
    color, shape = ({"scale": scale} for scale in looks([row["line"] for row in rows]))
    look = {"color": sort | color, "shape": sort | shape}
    means = averaged(rows, "run", ["x", "y"])
    said = tip(run="run", draw="draw", y="score", x=title, setting="setting", text="it wrote")
    short = tip(run="run", draws="draws", y="mean score", x=f"mean {title}", setting="setting")
    layers = [
        layer("means", {"type": "line", "opacity": 0.8}, x=x, y=y, color=look["color"], order={"field": "beta"}),
        layer("draws", {"type": "point", "opacity": FAINT, "size": 30}, x=x, y=y, **look, tooltip=said),
        layer("means", {"type": "point", "size": 110, "opacity": 1}, x=x, y=y, **look, tooltip=short),
    ]
    about = f"score against {title}: " + "; ".join(f"{m['run']} {m['y']:.3g} at {m['x']:.3g}" for m in means)
    return spec(about, {"draws": rows, "means": means}, layers, height=320)


def looks(lines: Sequence[str]) -> tuple[Chart, Chart]:
    """Scales of colour and shape: PPO's and NLPO's are those of the pictures, the untrained model is a grey cross."""
    known = [*FIRST, *dict.fromkeys(lines)]
    order = [line for line in dict.fromkeys(known) if line in lines and line != START]
    color, shape = dict(zip(order, cycle(SEEN))), dict(zip(order, cycle(SHAPES)))
    if START in lines:
        color[START], shape[START] = GREY, "cross"
    return tuple({"domain": list(look), "range": list(look.values())} for look in (color, shape))


def alike(entry: Mapping[str, Any]) -> bool:
    """Whether a run differs from its learner's others in β alone."""
    return "kl_coef" in entry and entry.keys() <= {"algorithm", "kl_coef", *MEASURED}


def curves(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """Score and KL along training, of the runs that differ in β: a line a draw, where curves of each are committed;
    else a line a run, the mean of its draws."""
    file, made = standing(found.root / "reports" / profile, CURVES), {}
    shown = [c for c in conditions if alike(found.runs[profile].get(c, {}))]
    for metric, title, short in (("objective/score", "score", "score"), ("objective/kl", "KL, nats per token", "kl")):
        if file.is_file():
            table = pd.read_csv(file, usecols=["condition", "seed", "update", metric], low_memory=False).dropna()
            rows = [(c, int(s), int(u), v) for c, s, u, v in table.itertuples(index=False) if c in shown]
        else:
            wide = pd.read_csv(found.root / "reports" / profile / "kl" / f"curves_{short}.csv")
            long = wide.melt("update", var_name="condition").dropna()
            rows = [(c, None, int(u), v) for u, c, v in long.itertuples(index=False) if c in shown]
        if rows:
            made[f"{name}-{short}"] = lines(found, profile, rows, title)
    return made


def lines(found: Committed, profile: str, rows: Sequence[tuple[str, int | None, int, float]], title: str) -> Chart:
    """rows: (condition, draw or None for the mean of all, update, value). What a line is stands in a table beside."""
    about = {}
    for condition, draw, _, _ in rows:
        called = named(found, profile, condition)
        learner, _, change = called.partition(", ")
        about[f"{condition} {draw}"] = {
            "run": called,
            "learner": learner,
            "change": change,
            "draw": "mean of all" if draw is None else draw,
            "setting": settings(found, profile, condition),
            "text": quoted(found, profile, condition, -1 if draw is None else draw),
        }
    points = [{"key": f"{c} {d}", "update": u, "value": float(f"{v:.4g}")} for c, d, u, v in rows]
    fields = ["run", "draw", "learner", "change", "setting", "text"]
    looked = {"transform": [{"lookup": "key", "from": {"data": {"name": "lines"}, "key": "key", "fields": fields}}]}
    x = {"field": "update", "type": "quantitative", "title": "update", "scale": {"nice": False}}
    y = {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}}
    look = {"field": "change", "type": "nominal", "title": None, "sort": None}
    dash = {"field": "learner", "type": "nominal", "title": None, "sort": None}
    said = tip(run="run", draw="draw", update="update", value=title, setting="setting", text="it wrote")
    line = {"type": "line", "opacity": 0.7, "strokeWidth": 1.3}
    dot = {"type": "point", "opacity": 0.01, "size": 60}  # what the pointer finds
    layers = [
        layer("points", line, x=x, y=y, color=look, strokeDash=dash, detail={"field": "key"}) | looked,
        layer("points", dot, x=x, y=y, tooltip=said) | looked,
    ]
    data = {"points": points, "lines": [{"key": key, **one} for key, one in about.items()]}
    told = f"{title} along training: {len(about)} lines of {len({one['run'] for one in about.values()})} runs"
    return spec(told, data, layers, height=320)


# on a page -----------------------------------------------------------------------------------------------------------

BESIDE = {  # a report's picture: what makes it one to work with
    ("kl", "learning_curves"): curves,
    ("kl", "frontier"): frontier,
    ("gamma", "frontiers"): frontier,
}


def beside(found: Committed) -> dict[str, dict[str, Chart]]:
    """Picture of a report -> the charts that show the same; of every profile that has the picture."""
    made = {}
    for profile in found.profiles:
        for (report, picture), draw in BESIDE.items():
            file = f"reports/{profile}/{report}/{picture}.svg"
            if (found.root / file).is_file():
                made[file] = draw(found, f"{profile}-{report}-{picture}", profile, found.shown[profile][report])
    return made


def of_claim(found: Committed, claim: str) -> dict[str, Chart]:
    """The tests of the first profile that speaks of a claim, in yardsticks, and every draw of their runs."""
    for profile, row in found.rows(claim).items():
        tests = [c for c in row["components"] if c["effect"] is not None]
        rows = [(test["name"] + " (beside)" * (test["role"] == "beside"), profile, test) for test in tests]
        deciding = [test for test in tests if test["role"] == "decides"]
        return effects(found, f"{claim}-{EFFECTS}", rows) | draws(found, claim, profile, deciding)
    return {}


EFFECTS = "effects"
