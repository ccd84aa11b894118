"""Figures that answer the pointer beside a report's pictures: what its runs are, point by point.

    frontier(found, "full-kl-frontier", "full", runs)    # score against what it costs, a point a draw
    curves(found, "full-kl-curves", "full", runs)        # along training
    at_equal_cut(found, "mini-samplers-mass", ...)       # score against what a mask keeps
    levels("score", "repetition")(found, ...)            # a row a run

Each gives charts by name, as `charts` does; `beside` says which picture has which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd

from workbook.figures import names as naming
from workbook.figures.parts import listed
from workbook.figures.style import GREY
from workbook.results.files import CURVES, standing
from workbook.results.measures import label
from workbook.site.charts import MEASURED, WROTE, averaged, dots, named, quoted, replicate, settings
from workbook.site.committed import Committed
from workbook.site.vega import SEEN, Chart, layer, spec, tip

FAINT = 0.45  # of a draw beside its mean
SYMLOG = 0.05  # nats per token below which the axis of the KL is linear
TICKS = (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # of that axis; its own would be evenly spaced, and overlap
TICKED = 8  # ticks of another axis, about: its own would be so many that a reader sees numbers only
FULL = 0.001  # share cut away below which the axis of the mass kept is linear
CUTS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001, 0)  # ticks of that axis, which runs to the right as less is cut
FIRST, START, NO_MASK = ("PPO", "NLPO"), "untrained", "no mask"  # lines that look as in the pictures, and grey ones
BOW = "M-.9,-.9L.9,.9L.9,-.9L-.9,.9Z"  # a path: Vega's other shapes are needles at this size
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-right", "triangle-left", BOW)
PLAIN = ("algorithm", "kl_coef", *MEASURED)  # settings of a run that differs from its learner in β alone, if at all
COSTS = ("generation_log_perplexity", "kl_deployed")
Draw = Callable[[Committed, str, str, Sequence[str]], dict[str, Chart]]


def on_reviews(
    found: Committed, profile: str, conditions: Sequence[str], decoding: str = "plain"
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Rows of the table of draws, of the runs that write reviews and in their order, each with what hovering shows."""
    table = found.measured[profile]
    table = table[table.decoding == decoding]
    for condition in conditions:
        if not found.runs[profile].get(condition, {}).get("world"):
            about = {"run": named(found, profile, condition), "setting": settings(found, profile, condition)}
            for one in table[table.condition == condition].itertuples():
                yield one, about | {"draw": one.seed, "text": quoted(found, profile, condition, one.seed)}


def line_of(found: Committed, profile: str, condition: str) -> str:
    """What a run is called but for β, or for the KL that an adaptive β is to keep: runs of one name are joined."""
    entry = {k: v for k, v in found.runs[profile].get(condition, {}).items() if k not in ("kl_coef", "kl_target")}
    name = naming.name(entry, found.runs[profile]) if entry else named(found, profile, condition)
    return f"{name}, adaptive β" if target(found, profile, condition) else name


def target(found: Committed, profile: str, condition: str) -> float:
    """The KL that a run's β adapts to keep, nats per token; 0 of a fixed β."""
    return found.runs[profile].get(condition, {}).get("kl_target") or 0.0


def frontier(
    found: Committed, name: str, profile: str, conditions: Sequence[str], costs: Sequence[str] = COSTS
) -> dict[str, Chart]:
    """Score against log-perplexity and against KL: a point a draw, a larger one at each run's mean; runs that differ
    in β alone, or in an adaptive one's target, are joined."""
    made = {}
    for across in costs:
        rows = [
            about
            | {
                "line": line_of(found, profile, one.condition),
                "along": target(found, profile, one.condition) or one.kl_coef,
            }
            | {"x": float(f"{getattr(one, across):.5g}"), "y": float(f"{one.score:.5g}")}
            for one, about in on_reviews(found, profile, conditions)
            if pd.notna(getattr(one, across)) and pd.notna(one.score)
        ]
        if rows:
            axis = of_kl(rows) if across == "kl_deployed" else {}
            made[f"{name}-{across}"] = scatter(rows, label(across, panel=True), axis, replicate(found, profile))
    return made


def against_kl(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """`frontier` at equal KL alone."""
    return frontier(found, name, profile, conditions, COSTS[1:])


def along_beta(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """`against_kl` of the runs that another β was tried of, and of the untrained model; none where there are none."""
    lines = {c: line_of(found, profile, c) for c in conditions if not target(found, profile, c)}
    often = [c for c, line in lines.items() if line == START or [*lines.values()].count(line) > 1]
    return against_kl(found, name, profile, often) if {lines[c] for c in often} - {START} else {}


def at_equal_cut(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
    """Score against the share that the run's own mask keeps, decoded plainly and through the mask: a line a rule. Of
    masks that are not delayed, and PPO without one."""
    runs = {c: found.runs[profile].get(c, {}) for c in conditions}
    shown = [c for c, entry in runs.items() if entry.get("mask_rule") and not entry.get("mask_delay")]
    none = [c for c, entry in runs.items() if entry.get("updates") != 0 and not entry.keys() - {*PLAIN}]
    made = {}
    for decoding in ("plain", "own"):
        kept = {(one.condition, one.seed): one.kept_mass for one, _ in on_reviews(found, profile, shown, "own")}
        rows = []
        for one, about in on_reviews(found, profile, [*shown, *none], decoding):
            rule, value = (runs[one.condition].get(key) for key in ("mask_rule", "mask_value"))
            at = kept.get((one.condition, one.seed)) if rule else 1.0
            if pd.isna(at) or pd.isna(one.score):
                continue
            about |= {"line": rule.replace("_", "-") if rule else NO_MASK, "along": value}
            about |= {"kept": float(f"{at:.5g}"), "y": float(f"{one.score:.5g}")}
            rows.append(about | {"x": round(1 - about["kept"], 5)})
        if rows:
            how, unit = naming.decoded("score", decoding), replicate(found, profile)
            made[f"{name}-{decoding}"] = scatter(rows, label("kept_mass", panel=True), OF_KEPT, unit, how, "kept")
    return made


def levels(*metrics: str) -> Draw:
    """What draws a chart a metric: a row a run, decoded plainly."""

    def draw(found: Committed, name: str, profile: str, conditions: Sequence[str]) -> dict[str, Chart]:
        made = {}
        for metric in metrics:
            rows = [
                about | {"row": about["run"], "value": float(f"{getattr(one, metric):.5g}")}
                for one, about in on_reviews(found, profile, conditions)
                if pd.notna(getattr(one, metric, None))
            ]
            if rows:
                made[f"{name}-{metric}"] = dots(rows, " ".join(label(metric).split()), replicate(found, profile))
        return made

    return draw


def of_kl(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """An axis that is linear near 0 and logarithmic beyond."""
    far = max(row["x"] for row in rows)
    return {
        "scale": {"type": "symlog", "constant": SYMLOG},
        "axis": {"values": [at for at in TICKS if at <= far], "format": "~g"},
    }


OF_KEPT = {  # x: the share cut away; what stands there is what is kept
    "scale": {"type": "symlog", "constant": FULL, "reverse": True},
    "axis": {"values": CUTS, "labelExpr": "format(1 - datum.value, '.3~f')"},
}


def scatter(
    rows: Sequence[Mapping[str, Any]], title: str, axis: Chart, unit: str, up: str = "score", across: str = "x"
) -> Chart:
    """y against x, coloured and shaped by the line that a point lies on, which goes through its runs' means.

    axis: of x, linear where it says nothing; across: the field that hovering shows for it; unit: what a draw is
    called."""
    x = {"field": "x", "type": "quantitative", "title": title.split("\n"), "scale": {"zero": False}}
    x |= {"axis": {"tickCount": TICKED}, **axis}
    title = title.replace("\n", " ")
    y = {"field": "y", "type": "quantitative", "title": up, "scale": {"zero": False}}
    means = averaged(rows, "run", [*dict.fromkeys(("x", "y", across))])
    each = tip(run="run", draw=unit, y=up, **{across: title}, setting="setting", text=f"it {WROTE}")
    mean = tip(run="run", draws=f"{unit}s", y=f"mean {up}", **{across: f"mean {title}"}, setting="setting")
    layers = joined(x, y, [row["line"] for row in rows], "along", each, mean)
    about = f"{up} against {title}: " + listed([f"{m['run']} {m['y']:.3g} at {m[across]:.3g}" for m in means])
    return spec(about, {"draws": rows, "means": means}, layers, height=320)


def joined(x: Chart, y: Chart, lines: Sequence[str], along: str, each: list[Chart], mean: list[Chart]) -> list[Chart]:
    """Layers: a point a draw, a larger one at each mean, lines through the means.

    lines: that rows lie on; along: field in whose order a line goes; each, mean: what hovering shows of a point."""
    field = {"field": "line", "type": "nominal", "title": None}
    color, shape = (field | {"scale": scale} for scale in looks(lines))
    look = {"x": x, "y": y, "color": color, "shape": shape}
    return [
        layer("means", {"type": "line", "opacity": 0.8}, x=x, y=y, color=color, order={"field": along}),
        layer("draws", {"type": "point", "opacity": FAINT, "size": 30}, **look, tooltip=each),
        layer("means", {"type": "point", "size": 110, "opacity": 1}, **look, tooltip=mean),
    ]


def looks(lines: Sequence[str]) -> tuple[Chart, Chart]:
    """Scales of colour and shape: PPO's and NLPO's are those of the pictures, what the others start from is a grey
    cross."""
    known = [*FIRST, *dict.fromkeys(lines)]
    order = [line for line in dict.fromkeys(known) if line in lines and line not in (START, NO_MASK)]
    color, shape = dict(zip(order, cycle(SEEN))), dict(zip(order, cycle(SHAPES)))
    for line in (grey for grey in (START, NO_MASK) if grey in lines):
        color[line], shape[line] = GREY, "cross"
    return tuple({"domain": list(look), "range": list(look.values())} for look in (color, shape))


def alike(entry: Mapping[str, Any]) -> bool:
    """Whether a run differs from its learner's others in β alone."""
    return "kl_coef" in entry and entry.keys() <= {*PLAIN}


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
    said = tip(run="run", draw=replicate(found, profile), update="update", value=title, setting="setting")
    said += tip(text=f"after training it {WROTE}")
    line = {"type": "line", "opacity": 0.7, "strokeWidth": 1.3}
    dot = {"type": "point", "opacity": 0.01, "size": 60}  # what the pointer finds
    layers = [
        layer("points", line, x=x, y=y, color=look, strokeDash=dash, detail={"field": "key"}) | looked,
        layer("points", dot, x=x, y=y, tooltip=said) | looked,
    ]
    data = {"points": points, "lines": [{"key": key, **one} for key, one in about.items()]}
    told = f"{title} along training: {len(about)} lines of {len({one['run'] for one in about.values()})} runs"
    return spec(told, data, layers, height=320)
