"""A settings file as values and lines: YAML 1.2, bounded in size, depth and what its aliases grow to."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node

from rlnlp.settings import ConfigError
from workbook.draws.shapes import Misfit
from workbook.runs.messages import listed, show

LONGEST, DEEPEST, MOST, SCALAR = 300_000, 16, 30_000, 20_000  # characters, levels, values, characters of one value


def read(path: Path) -> tuple[dict, dict[tuple, int]]:
    """A settings file's values, and the line of each key. Raises ConfigError for what is no such file, or too large."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file{_instead(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    try:
        _bounded(text)
        node = YAML(pure=True).compose(text)
        raw = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        said = _twice(node, mark.index) if isinstance(error, DuplicateKeyError) else said
        raise ConfigError(f"{path}:{where} not valid YAML: {said}") from None
    except Misfit as error:
        raise ConfigError(f"{path}: {error}") from None
    except (ValueError, TypeError, OverflowError, RecursionError, AttributeError, LookupError) as error:
        said = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise ConfigError(f"{path}: not valid YAML: {said}") from None  # a date that does not exist, a list as a name
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected lines of `name: value`, found {show(raw)}")
    lines: dict[tuple, int] = {}

    def walk(item, keys):
        for i, child in enumerate(item.value if not isinstance(item.value, str) else ()):
            key, value = (child[0].value, child[1]) if isinstance(child, tuple) else (i, child)
            if isinstance(key, (str, int)):
                lines[keys + (key,)] = (child[0] if isinstance(child, tuple) else child).start_mark.line + 1
                walk(value, keys + (key,))

    walk(node, ())
    return raw, lines


def _instead(path: Path) -> str:
    """What is said of a file that is not there: the file or profile of the nearest name, or else what there is."""
    own = path.match("profiles/*/*.y*ml")
    root, name = (path.parents[2], path.parent.name) if own else (path.parent, path.stem)
    known = {file.stem: file for file in sorted(root.glob("*.y*ml")) if not own}
    known |= {"mini": root / "params.yaml"} if (root / "params.yaml").is_file() else {}
    known |= {file.parent.name: file for file in sorted(root.glob("profiles/*/params.yaml"))}
    if near := difflib.get_close_matches(name, known, 1, 0.7):
        return f"; did you mean {known[near[0]]} ({near[0]})?"
    return f" (looked in {root.resolve()}; known there: {listed(known) or 'none'})"


def _twice(node: Node, place: int) -> str:
    """What is said of a key that a section below `node` has twice, the second time at the character `place`."""
    nodes = [node]
    for node in nodes:  # it grows
        if not isinstance(node, MappingNode):
            nodes += node.value if isinstance(node.value, list) else []
            continue
        keys = [key for key, _ in node.value]
        for second in (key for key in keys if key.start_mark.index == place):
            first = next(key for key in keys if key.value == second.value).start_mark.line + 1
            return f"the key {second.value!r} stands twice in one section, the first time on line {first}; keep one"
        nodes += [value for _, value in node.value]
    return "a key stands twice in one section; keep one"


def _bounded(text: str) -> None:
    """Refuse a text that would take long to read, or is too large for settings once its aliases are replaced."""
    if len(text) > LONGEST:
        raise Misfit(((), f"expected at most {LONGEST:,} characters, found {len(text):,}"))
    sizes: dict[str, int] = {}  # of what has an anchor
    open_: list[tuple[str | None, int]] = [(None, 0)]  # anchor, values in it so far

    def add(count: int, line: int) -> None:
        anchor, so_far = open_.pop()
        open_.append((anchor, so_far + count))
        if sum(n for _, n in open_) > MOST:
            raise Misfit(((), f"line {line}: expected at most {MOST:,} values in all, aliases (*name) replaced"))

    for event in YAML(pure=True).parse(text):
        line = event.start_mark.line + 1
        if isinstance(event, CollectionStartEvent):
            if len(open_) > DEEPEST:
                raise Misfit(((), f"line {line}: expected at most {DEEPEST} levels"))
            open_.append((event.anchor, 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, count = open_.pop()
            sizes |= {anchor: count} if anchor else {}
            add(count, line)
        elif isinstance(event, AliasEvent):
            if any(event.anchor == anchor for anchor, _ in open_):
                raise Misfit(((), f"line {line}: *{event.anchor} is part of itself"))
            add(sizes.get(event.anchor, 1), line)
        elif isinstance(event, ScalarEvent):
            if len(event.value) > SCALAR or (len(event.value) > 400 and re.fullmatch(r"[-+\d._]+", event.value)):
                raise Misfit(((), f"line {line}: a value of {len(event.value):,} characters is too long"))
            sizes |= {event.anchor: 1} if event.anchor else {}
            add(1, line)
