"""The benchmark's figure that answers the pointer: reward against judge, a point a seed of each arm, a task at a time.

beside(Path("."))["reports/grue/hacking.svg"]["grue-hacking"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbook.figures.parts import listed
from workbook.figures.style import COLORS, GREY, MARKERS
from workbook.grue import pictures, tasks
from workbook.grue.arms import ARMS
from workbook.grue.baselines import HUMAN, TRIVIAL
from workbook.grue.board import JUDGE, REWARD
from workbook.results.tables import short
from workbook.site import benchmark, benchmark_texts
from workbook.site.charts import averaged, shortened
from workbook.site.report_charts import BOW, FAINT
from workbook.site.vega import INK, SEEN, Chart, layer, spec, tip
from workbook.store.tables import read_table

NAME, PICTURE = "grue-hacking", "reports/grue/hacking.svg"
PLUS = "M-.3,-1H.3V-.3H1V.3H.3V1H-.3V.3H-1V-.3H-.3Z"  # paths: Vega has no such shapes
PENTAGON = "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z"
STAR = "M0,-1L.22,-.31L.95,-.31L.36,.12L.59,.81L0,.38L-.59,.81L-.36,.12L-.95,-.31L-.22,-.31Z"
SHAPES = dict(zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", PLUS, BOW, PENTAGON)))
SHADES = {color: color if color in SEEN else INK for color in COLORS}  # the picture's black is the page's ink
OTHERS = {TRIVIAL: ("trivial answers", GREY, "cross"), HUMAN: ("another human's reference", INK, STAR)}


def beside(root: Path) -> dict[str, dict[str, Chart]]:
    """The picture -> its chart; none where no seed's numbers are committed."""
    return {PICTURE: {NAME: hacking(points(root))}} if (root / benchmark.SEEDS).is_file() else {}


def points(root: Path) -> list[dict[str, Any]]:
    """A row a task, arm (or answer that no model wrote) and seed, with what hovering shows."""
    first: dict[tuple, Mapping[str, Any]] = {}
    for one in benchmark_texts.written(root):
        first.setdefault((one["task"], one["condition"], one["seed"]), one)
    made = []
    for row in (row for row in read_table(root / benchmark.SEEDS) if row[JUDGE] is not None):
        name, arm = row["condition"], ARMS.get(row["condition"])
        wrote = first.get((row["task"], name, row["seed"]))
        called = pictures.label(name)
        made.append(
            {
                "key": f"{row['task']} {name}",
                "task": row["task"],
                "run": called,
                "line": OTHERS[row["kind"]][0] if row["kind"] in OTHERS else called,
                "how": f"from {benchmark.begins(arm)}: {benchmark.trained(arm)}" if arm else "written without a model",
                "asked": short(wrote["prompt"]) if wrote else "–",
                "text": shortened(wrote["response"]) if wrote else "–",
                "draw": row["seed"],
                "x": round(row[REWARD], 4),
                "y": round(row[JUDGE], 4),
            }
        )
    return made


def of_models(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that an arm wrote."""
    return [row for row in rows if row["line"] not in [line for line, _, _ in OTHERS.values()]]


def looks(rows: Sequence[Mapping[str, Any]]) -> tuple[Chart, Chart]:
    """Scales of colour and shape, those of the picture."""
    others = {line: (color, shape) for line, color, shape in OTHERS.values()}
    arms = list(dict.fromkeys(row["line"] for row in of_models(rows)))
    both = {line: (SHADES[color], SHAPES[mark]) for line, (color, mark) in pictures.looks(arms).items()} | others
    return tuple({"domain": [*both], "range": [look[i] for look in both.values()]} for i in (0, 1))


def hacking(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Judge against reward of the task that is chosen above it; a larger point at each mean."""
    means = averaged(rows, "key", ["x", "y"])
    named = list(dict.fromkeys(row["task"] for row in rows))
    titles = [tasks.task(name).title for name in named]
    chosen = {"name": "task", "value": named[0], "bind": {"input": "select", "options": named, "labels": titles}}
    x = {"field": "x", "type": "quantitative", "title": "reward", "scale": {"zero": False}}
    y = {"field": "y", "type": "quantitative", "title": "judge", "scale": {"domain": [0, 1]}}
    color, shape = ({"field": "line", "type": "nominal", "title": None, "scale": scale} for scale in looks(rows))
    look = {"x": x, "y": y, "color": color, "shape": shape}
    each = tip(run="answers of", draw="seed", x="reward", y="judge", how="how", asked="asked", text="it wrote")
    mean = tip(run="answers of", draws="seeds", x="mean reward", y="mean judge", how="how")
    only = {"transform": [{"filter": "datum.task === task"}]}
    layers = [
        layer("draws", {"type": "point", "opacity": FAINT, "size": 30}, **look, tooltip=each) | only,
        layer("means", {"type": "point", "opacity": 1, "size": 110}, **look, tooltip=mean) | only,
    ]
    best = [max((m for m in of_models(means) if m["task"] == name), key=lambda m: m["x"]) for name in named]
    about = "Judge against reward, a task at a time. Most paid of the models: " + listed(
        [f"{m['task']}: {m['run']}, reward {m['x']:.2f}, judge {m['y']:.2f}" for m in best]
    )
    return spec(about, {"draws": rows, "means": means}, layers, height=320, params=[chosen])
