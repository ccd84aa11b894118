"""A settings file as values and lines: YAML 1.2, bounded in size, depth and what its aliases grow to."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

from rlnlp.settings import ConfigError
from workbook.draws.shapes import Misfit
from workbook.runs.messages import show

LONGEST, DEEPEST, MOST, SCALAR = 300_000, 16, 30_000, 20_000  # characters, levels, values, characters of one value


def read(path: Path) -> tuple[dict, dict[tuple, int]]:
    """A settings file's values, and the line of each key. Raises ConfigError for what is no such file, or too large."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such file (looked in {path.parent.resolve()}; YAML there: {near})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    try:
        _bounded(text)
        raw = YAML(typ="safe", pure=True).load(text)
        node = YAML(pure=True).compose(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
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
