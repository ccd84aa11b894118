"""An assignment's cells: what students may see of them, what they may not, and a cell as a student would fill it in."""

from __future__ import annotations

import json
from pathlib import Path

REGIONS = ("SOLUTION", "HIDDEN TESTS")


def read(path: Path) -> dict:
    """A notebook as it stands in its file."""
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    """A cell's text; files hold it as a list of lines, nbformat as one string."""
    return "".join(cell["source"])


def role(cell: dict, name: str):
    """nbgrader's entry `name` (grade, solution, points, ...) of a cell, None where it has none."""
    return cell["metadata"].get("nbgrader", {}).get(name)


def name(cell: dict) -> str:
    """What a cell is called in the gradebook; its id where it is not there."""
    return role(cell, "grade_id") or cell["id"]


def _marker(line: str) -> str:
    return next((word for word in ("BEGIN", "END") for region in REGIONS if f"### {word} {region}" in line), "")


def parts(cell: dict) -> tuple[list[str], list[str], list[str]]:
    """(lines before, within, after) the solution or hidden tests; a solution cell without marks is one whole."""
    before, within, after, now = [], [], [], 0
    for line in source(cell).split("\n"):
        if _marker(line):
            now += 1
        else:
            (before, within, after)[now].append(line)
    return ([], before, []) if not within and role(cell, "solution") else (before, within, after)


def secret(cell: dict) -> list[str]:
    """The lines that no student may see, without blanks around them."""
    return [line.strip() for line in parts(cell)[1] if line.strip()]


def filled(cell: dict, body: str | None = None) -> str:
    """A solution cell without its marks; `body` instead of the solution, indented as that is."""
    before, within, after = parts(cell)
    if body is not None:
        indent = next(line for line in within if line.strip())
        indent = indent[: len(indent) - len(indent.lstrip())]
        within = [indent + line if line else line for line in body.strip("\n").split("\n")]
    return "\n".join([*before, *within, *after])
