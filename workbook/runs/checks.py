"""`params.yaml` to frozen, validated settings; every problem in the file is reported at once, before any work starts.

    params = load()                                   # ./params.yaml
    params = load(**{"learner.gamma": 1.0})           # with an override, by dotted name

YAML 1.2 rules (as DVC reads it): `1e-4` is a number, `on` is text; a key given twice is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from rlnlp.settings import ConfigError, Settings, nearest
from workbook.draws.shapes import Misfit
from workbook.runs import algorithms, resolve, rules
from workbook.runs.messages import (
    GROUPS,
    describe,
    dotted,
    explain,
    is_known,
    listed,
    names_in,
    show,
    suggest,
    told,
    unit,
)
from workbook.runs.params import Params
from workbook.runs.reading import read
from workbook.runs.settings import NAME, Run

LARGEST = {  # of learners' settings, beyond what their Config says: more is a slip of the keyboard
    "learning_rate": 1.0,
    "value_learning_rate": 1.0,
    "critic_learning_rate": 1.0,
    "max_new_tokens": 10**5,
}
LARGEST_INT, LARGEST_FLOAT = 10**8, 1e6  # of the others


def load(path: str | Path = "params.yaml", **overrides) -> Params:
    """Read and check a params file.

    path: the file; overrides: values by dotted name, given as `**{"learner.gamma": 1.0}`. They win over `sizes`.
    Raises: ConfigError listing every problem found, each with line, dotted key, expected, found and the nearest name.
    """
    path = Path(path)
    return checked(*read(path), path, **overrides)


def checked(raw: dict, lines: Mapping[tuple, int], path: Path, **overrides) -> Params:
    """Values of a file, and the line of each key, as settings. Raises: as `load`."""
    check = _Check(path, lines, raw, overrides)
    params = check.run()
    if check.problems:
        head = f"{path}: " + ("1 problem" if len(check.problems) == 1 else f"{len(check.problems)} problems")
        raise ConfigError("\n  ".join([head, *check.problems]), check.problems)
    params._path = path.resolve()
    return params


class _Check:
    """One pass over a file's values that collects problems instead of stopping at the first."""

    def __init__(self, path: Path, lines: dict, raw: dict, overrides: Mapping[str, Any]):
        self.path, self.lines, self.raw, self.overrides = path, lines, raw, overrides
        self.problems: list[str] = []
        self.origin: dict[tuple, str] = {}  # of values that do not come from their own line
        self.reported: set[tuple] = set()

    def add(self, keys: tuple, text: str) -> None:
        """A problem of the value at `keys`, one line, once."""
        found = (keys[:i] for i in range(len(keys), 0, -1) if keys[:i] in self.origin or keys[:i] in self.lines)
        place = next(found, None)
        where = self.origin.get(place) or (f"line {self.lines[place]}" if place in self.lines else "")
        self.reported.add(keys)
        line = f"{dotted(keys)}{f' ({where})' if where else ''}: {text}" if keys else text
        if line not in self.problems:
            self.problems.append(line)

    def refused(self, error: pydantic.ValidationError, model: type[Settings], at: tuple = ()) -> None:
        """Every problem that a model found in the values at `at`."""
        for e in told(error):
            if isinstance(misfit := e.get("ctx", {}).get("error"), Misfit):
                for keys, text in misfit.problems:
                    self.add((*at, *e["loc"], *keys), text)
            else:
                self.add((*at, *e["loc"]), explain(e, model, e["loc"], at))

    def run(self) -> Params | None:
        for keys, key in bad_keys(self.raw):
            self.add(keys, f"expected text as a name, found {show(key)}")
        if self.problems:
            return None
        self.raw = json.loads(json.dumps(self.raw, default=str))  # one copy; YAML anchors share their parts
        self.merge()
        params = None
        try:
            params = Params.model_validate(self.raw)
        except pydantic.ValidationError as error:
            self.refused(error, Params)
        self.learners()
        if params is not None and not self.problems:
            for keys, text in rules.places(params, self.path):
                self.add(keys, text)
            missing = set(self.reported)
            for keys, text in (*rules.runs(params), *rules.lengths(params, self.path)):
                if keys not in missing:
                    self.add(keys, text)
        return params

    def merge(self) -> None:
        """Put `sizes.<size>` and then the overrides over the file's values."""
        sizes = self.raw.get("sizes") or {}
        size = self.overrides.get("size", self.raw.get("size")) or ""
        chosen: list[tuple[tuple, Any, str]] = []
        if isinstance(size, str) and isinstance(sizes, dict):
            for name, values in sizes.items():
                for keys, value in leaves(values) if isinstance(values, dict) else ():
                    if not is_known(keys):
                        self.add(("sizes", name, *keys), f"unknown name{suggest(keys)}")
                    chosen += [(keys, value, f"from sizes.{size}")] if name == size else []
            if size and size not in sizes:
                self.add(("size",), f"expected a name in sizes {list(sizes)}, found {size!r}{nearest(size, sizes)}")
        chosen += [(tuple(name.split(".")), value, "override") for name, value in self.overrides.items()]
        for keys, value, origin in chosen:
            place = self.raw
            for i, key in enumerate(keys[:-1]):
                if key not in place and is_known(keys[: i + 1]):
                    place[key] = {}
                place = place.get(key)
                if not isinstance(place, dict):
                    self.add(keys, f"unknown name ({origin}){suggest(keys)}")
                    break
            else:
                place[keys[-1]] = value
                self.origin[keys] = origin

    # ------------------------------------------------------------------------------------------ what learners decide
    def learners(self) -> None:
        """Check the sections that learners' Config classes decide, and every run, against those classes."""
        from workbook.draws import worlds

        owners = resolve.own_sections()
        shared = {name: self.raw.get(name, {}) for name in ("sampling", *owners)}
        groups = {name: self.raw.get(name) or {} for name in (*GROUPS, "algorithms", "worlds")}
        if not all(isinstance(section, dict) for section in (*shared.values(), *groups.values())):
            return  # already reported
        before = len(self.problems)
        for section in owners:
            self.known_names((section,), shared[section], section)
        for name in groups["worlds"]:
            if name not in worlds.REWARDS:
                self.add(("worlds", name), f"expected one of {listed(worlds.REWARDS)}{nearest(name, worlds.REWARDS)}")
        known = {name: v for name, v in groups["worlds"].items() if name in worlds.REWARDS and isinstance(v, dict)}
        for name, world in known.items():
            for part in ("sampling", "learner"):
                self.known_names(("worlds", name, part), world.get(part), part)
        whole = self.horizon("")
        for section in owners:
            self.validate(_owner(section), "", (section,), whole)
        for name, entry in groups["algorithms"].items():
            self.algorithm_entry(name, "", entry, whole)
        for world, values in known.items():
            right = self.horizon(world) and whole
            self.validate("ppo", world, ("worlds", world), right)
            entries = values.get("algorithms")
            for name, entry in entries.items() if isinstance(entries, dict) else ():
                self.algorithm_entry(name, world, entry, right)
        sound = len(self.problems) == before
        for group in GROUPS:
            for name, run in groups[group].items():
                if not re.match(NAME.replace(r"\z", r"\Z"), name):
                    text = "expected a name of at most 80 letters, digits, _ and - (no dots), as it names a folder"
                    self.add((group, name), text)
                if isinstance(run, dict):
                    self.run_entry((group, name), run, sound)

    def known_names(self, keys: tuple, values: Any, section: str) -> None:
        """Report the names in `values`, which stand at `keys`, that the section does not have."""
        for name in [n for n in values if n not in names_in(section)] if isinstance(values, dict) else ():
            self.add((*keys, name), f"unknown name{suggest((*keys, name))}")

    def horizon(self, world: str) -> bool:
        """Whether EOS can be blocked for as long as the sections say; else reported here, as every learner would."""
        values = resolve.given("ppo", world, self.raw)
        least, most = (values.get(f"{name}_new_tokens", (None, None)) for name in ("min", "max"))
        if turned := isinstance(least[1], int) and isinstance(most[1], int) and least[1] > most[1]:
            self.add(least[0], f"expected at most max_new_tokens ({most[1]}), found {least[1]}")
        return not turned

    def algorithm_entry(self, name: str, world: str, entry: Any, whole: bool) -> None:
        """Check one entry of `algorithms`, or of a world's."""
        place = (*(("worlds", world) if world else ()), "algorithms", name)
        if name not in algorithms.names():
            self.add(place, f"expected one of {listed(algorithms.names())}{nearest(name, algorithms.names())}")
        elif isinstance(entry, dict):
            self.validate(name, world, place, whole)

    def run_entry(self, place: tuple, run: dict, sound: bool) -> None:
        """Check one entry of `runs` or `continued`: what a Run has, and what its learner has."""
        name, world = run.get("algorithm"), run.get("world", "")
        if name not in algorithms.names():
            found = "none" if name is None else f"{show(name)}{nearest(name, algorithms.names())}"
            self.add((*place, "algorithm"), f"expected one of {listed(algorithms.names())}; found {found}")
            return
        try:
            Run.model_validate(resolve.own(run, Run, inside=True))
        except pydantic.ValidationError as error:
            self.refused(error, Run, place)
        known = self.raw.get("worlds") or {}
        if not isinstance(world, str) or world not in ("", *known):
            if (*place, "world") not in self.reported:
                self.add((*place, "world"), f"expected a name in worlds, found {show(world)}{nearest(world, known)}")
            return
        self.validate(name, world, place, sound, resolve.own(run, Run, inside=False))

    def validate(
        self, algorithm: str, world: str, section: tuple, whole: bool = True, entry: dict | None = None
    ) -> None:
        """Report what the learner refuses, of a run's `entry` or else of its sections (and as a whole, if `whole`)."""
        config, found = algorithms.module(algorithm).Config, resolve.given(algorithm, world, self.raw)
        values = {k: v for k, (_, v) in found.items()} | (entry or {})
        places = {k: keys for k, (keys, _) in found.items()} if entry is None else {k: (*section, k) for k in entry}
        try:
            config.model_validate(values)
        except pydantic.ValidationError as error:
            for e in told(error):
                loc = e["loc"]
                if (loc and loc[0] not in places and not (whole and e["type"] == "missing")) or not (loc or whole):
                    continue
                keys = places.get(loc[0], section + loc[:1]) + loc[1:] if loc else section
                if keys not in self.reported:
                    self.add(keys, explain(e, config, loc, section))
        for name, keys in places.items():
            value, most = values[name], LARGEST.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or keys in self.reported:
                continue
            most = most or (LARGEST_INT if isinstance(value, int) else LARGEST_FLOAT)
            if not abs(value) <= most:
                self.add(keys, f"expected at most {most:g}, found {show(value)}{unit(describe(config, (name,)))}")


def _owner(section: str) -> str:
    return "ppo" if section == "learner" else section


def bad_keys(value: Any, keys: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(value, dict) and (not isinstance(key, str) or not key or len(key) > 200):
            yield (*keys, str(key)[:40] if isinstance(key, str) else key), key
        else:
            yield from bad_keys(item, (*keys, key))


def leaves(value: Mapping[str, Any], keys: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from leaves(item, (*keys, key))
        else:
            yield (*keys, key), item
