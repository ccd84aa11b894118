"""What the cells of lessons gave, kept small, with the identity of the code that gave it.

    outputs.write(root, "06_nlpo", executed, seconds, code)     # after a run: workbook.stages.lessons
    outputs.read(root, "06_nlpo")                               # Outputs, or None where it was never run
    outputs.current(root, "06_nlpo", Code(root))                # made by the code as it is?

The key holds a lesson's code cells and every definition that they reach, not its text: words may change at any time.
A cell that shows nothing but the committed tables (`lesson.verdicts` and the like) is not kept: it is computed when
the site is built, so that no page can contradict the tables.
"""

from __future__ import annotations

import ast
import base64
import html
import json
import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workbook.figures.parts import compact
from workbook.store.files import atomic_write
from workbook.store.identity import Code

FOLDER = "docs/learn/outputs"
LARGEST = 100_000  # bytes of a figure as SVG, a sixteenth of that when packed; of a larger one the picture in dots
TABLES = {"pd", "lesson", "display"}  # all that a cell of committed tables may name
LOOKED_UP = {  # what a lesson finds by a name in a text, which reading its code does not
    "13_the_metric_is_not_the_task": (
        "workbook.grue.tasks.common_gen:TASK",
        *(f"workbook.scores.{name}.{name}:SCORES" for name in ("meteor_stem", "rouge_all", "coverage")),
    ),
}
ADDRESSED = re.compile(r"\[?<.*>,?.*", re.DOTALL)  # of an object that has no words for itself
PIECES = re.compile(r"<style.*?</style>|<script.*?</script>|<!--.*?-->", re.DOTALL)


class Outputs(NamedTuple):
    """key: identity of the code; seconds: of one core; cells: number of a cell in the notebook -> what it gave, each
    {"text" | "html" | "svg" | "png": it}, a png in base64."""

    key: str
    seconds: int
    cells: Mapping[int, list[dict[str, str]]]


def names(root: Path) -> list[str]:
    """The lessons, in order."""
    return sorted(file.stem for file in (root / "notebooks").glob("[01][0-9]_*.ipynb"))


def key(root: Path, name: str, code: Code) -> str:
    """Identity of what a lesson executes: its code cells, and what they call."""
    return code.identity([f"notebooks/{name}.ipynb", *LOOKED_UP.get(name, ())])


def place(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.json.xz"


def read(root: Path, name: str) -> Outputs | None:
    """What was kept of a lesson. Raises: ValueError for a file that is none of ours."""
    if not (file := place(root, name)).is_file():
        return None
    try:
        kept = json.loads(lzma.decompress(file.read_bytes()))
        return Outputs(kept["key"], kept["seconds"], {int(cell): found for cell, found in kept["cells"].items()})
    except (lzma.LZMAError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: expected the outputs of a lesson, found {error!r}; type: make lessons") from None


def current(root: Path, name: str, code: Code) -> bool:
    """Whether a lesson's outputs are there and were given by the code as it is."""
    kept = read(root, name)
    return kept is not None and kept.key == key(root, name, code)


def write(root: Path, name: str, executed: Mapping[str, Any], seconds: int, code: Code) -> Path:
    """Keep what an executed copy of a lesson holds; the file."""
    cells = {}
    for number, cell in enumerate(executed["cells"]):
        if cell["cell_type"] == "code" and not from_tables("".join(cell["source"])):
            if found := [small for each in cell["outputs"] if (small := shrunk(each))]:
                cells[number] = found
    kept = {"key": key(root, name, code), "seconds": seconds, "cells": cells}
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    atomic_write(place(root, name), lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return place(root, name)


def shrunk(output: Mapping[str, Any]) -> dict[str, str]:
    """One output as the smallest thing that shows the same; {} where nothing of it can be seen on a page."""
    if output["output_type"] == "stream":
        return {"text": "".join(output["text"]).rstrip()}
    data = {kind: "".join(found) for kind, found in output.get("data", {}).items() if kind != "application/json"}
    if "image/svg+xml" in data:
        drawn = svg(data["image/svg+xml"])
        if len(drawn.encode()) <= LARGEST or "image/png" not in data:
            return {"svg": drawn}
    if "image/png" in data:
        return {"png": re.sub(r"\s", "", data["image/png"])}
    if "text/html" in data:
        return {"html": bare(data["text/html"])}
    text = data.get("text/plain", "")
    return {"text": text} if text and not ADDRESSED.fullmatch(text) else {}


def svg(text: str) -> str:
    """A figure without what nobody sees: the declaration, clocks and places finer than a tenth of a point."""
    text = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r">\s+<", "><", compact(text.strip()))


def bare(text: str) -> str:
    """HTML of a table or a view in one piece, without a look, a script or a table's own border."""
    text = re.sub(r' (?:border|class)="(?:1|dataframe)"| style="text-align: right;"', "", PIECES.sub("", text))
    return re.sub(r"\s*\n\s*", "", text)


def picture(data: str) -> bytes:
    """The bytes of a png that was kept."""
    return base64.b64decode(data)


# Cells of committed tables ---------------------------------------------------------------------------------------


def from_tables(source: str) -> bool:
    """Whether a cell shows nothing but committed tables: it names ``lesson``, and otherwise pandas and its own."""
    nodes = list(ast.walk(ast.parse(source)))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return "lesson" in named and named <= own | TABLES | {"float", "range"}


def computed(source: str) -> list[dict[str, str]]:
    """What a cell of committed tables shows today."""
    import pandas as pd

    from workbook.lab import lesson

    shown: list[Any] = []
    body, space = ast.parse(source).body, {"pd": pd, "lesson": lesson, "display": shown.append}
    exec(compile(ast.Module(body[:-1], []), "cell", "exec"), space)
    shown.append(eval(compile(ast.Expression(body[-1].value), "cell", "eval"), space))
    with pd.option_context("display.max_colwidth", None):
        return [{"html": bare(each.to_html(border=0, na_rep=""))} for each in shown]


def alt(text: str) -> str:
    """Markdown as the words of an alternative text."""
    return html.escape(re.sub(r"\s+", " ", re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", text)).strip(), quote=True)
