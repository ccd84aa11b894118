"""Where each of a condition's values was decided: file, line and section, or the default of a class."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbook.runs import algorithms, resolve
from workbook.runs.messages import describe
from workbook.runs.params import Params
from workbook.runs.reading import read
from workbook.runs.settings import Run


class Origins:
    """The files that the settings of a profile come from, the first that has a value counts."""

    def __init__(self, params: Params):
        self.params, self.values = params, params.model_dump()
        overlay, base = params.folder / "overlay.yaml", params.folder / params.root / "params.yaml"
        paths = [overlay, base] if overlay.is_file() else [params.path]
        self.lines = [(os.path.relpath(path, params.folder), read(path)[1]) for path in map(Path, paths)]
        self.size = ("sizes", params.size) if params.size else ()

    def line(self, keys: tuple) -> str:
        """ "params.yaml:81 (learner.gamma)"; empty where no file has the value."""
        for place in ((*self.size, *keys), keys) if self.size else (keys,):
            for name, lines in self.lines:
                if place in lines:
                    return f"{name}:{lines[place]} ({'.'.join(map(str, place))})"
        return ""

    def of(self, given) -> dict[str, str]:
        """Dotted name of each value of a condition -> where it comes from."""
        group = "runs" if given.condition in self.params.runs else "continued"
        entry, algorithm = self.params.all_runs[given.condition], given.run.algorithm
        module = algorithms.module(algorithm)
        sections = resolve.given(algorithm, given.run.world, self.values)
        found = {}
        for name in module.Config.model_fields:
            default = f"default of {module.__name__}.Config"
            place = (group, given.condition, name) if name in entry else sections.get(name, ((), None))[0]
            found[f"learner.{name}"] = (self.line(place) if place else "") or default
        if given.searched:
            among = self.line(("tune", "own", given.searched, "learning_rates")) or self.line(
                ("tune", "learning_rates")
            )
            found["learner.learning_rate"] = f"tune/{given.searched}.json, the best of {among}"
        for name in Run.model_fields:
            own = self.line((group, given.condition, name)) if name in entry else ""
            found[f"run.{name}"] = own or "default of a run"
        for name, value in given.model_dump(exclude_none=True).items():
            if name not in ("learner", "run", "condition", "searched", "root", "profile"):
                found |= self._section((name,), value)
        return found

    def _section(self, keys: tuple, value: Any) -> dict[str, str]:
        if isinstance(value, dict) and value:
            return {k: v for name, item in value.items() for k, v in self._section((*keys, name), item).items()}
        return {".".join(keys): self.line(keys) or "default of workbook.runs.settings"}


def table(given, tuned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row {setting, value, meaning, origin} for each value that the run of a condition is given.

    given: a `conditions.Condition`; tuned: what the search chose. Without build/origins the column is empty.
    """
    path = given.folder / "build" / "origins" / f"{given.condition}.json"
    where = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    config = type(given.config(**tuned))
    values = given.model_dump(exclude_none=True) | {"learner": given.config(**tuned).model_dump()}
    rows = []

    def walk(keys: tuple, value: Any) -> None:
        if isinstance(value, dict) and value:
            for name, item in value.items():
                walk((*keys, name), item)
            return
        first, *rest = keys
        owner, place = {"learner": (config, rest), "run": (Run, rest)}.get(first, (Params, keys))
        name = ".".join(keys)
        meaning = describe(owner, tuple(place))
        rows.append({"setting": name, "value": value, "meaning": meaning, "origin": where.get(name, "")})

    for name in sorted(set(values) - {"root", "profile", "condition", "searched"}, key=lambda n: (n != "learner", n)):
        walk((name,), values[name])
    return rows
