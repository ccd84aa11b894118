"""One problem of a settings file in words: what was expected, what was found, the nearest name."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from typing import Any, get_args, get_origin

import pydantic

from rlnlp.settings import Settings, nearest
from workbook.runs import algorithms, resolve
from workbook.runs.params import Params
from workbook.runs.settings import Run, SamplingSettings, World

GROUPS = ("runs", "continued")
FREE = (*GROUPS, "sizes", "reports", "algorithms", "worlds")  # sections with names of the user's
_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a section (lines of `name: value`)",
    "model_type": "a section (lines of `name: value`)",
    "model_attributes_type": "a section (lines of `name: value`)",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
    "literal_error": "one of {expected}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "text",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def told(error: pydantic.ValidationError) -> list[dict]:
    """The errors to explain: not that a list is too short where its items are wrong, as these were not counted."""
    found = error.errors()
    inside = {e["loc"][:i] for e in found for i in range(len(e["loc"]))}
    return [e for e in found if e["type"] != "too_short" or e["loc"] not in inside]


def explain(error: dict, model: type[Settings], loc: tuple, section: tuple = ()) -> str:
    """One pydantic error in our words."""
    kind, found = error["type"], error.get("input")
    key = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "extra_forbidden":
        return f"unknown name{suggest(section + loc, model)}"
    description = describe(model, loc or error["loc"])
    if kind == "missing":
        return f"expected a value{unit(description)}, found nothing; add `{key}: ...`"
    if kind in ("value_error", "assertion_error"):
        return error["msg"].split(", ", 1)[-1]
    expected = _EXPECTED.get(kind, error["msg"]).format(**error.get("ctx", {}))
    hint = ""
    if kind == "literal_error" and isinstance(found, str):
        hint = nearest(found, re.findall(r"'([^']*)'", expected))
    return f"expected {expected}, found {show(found)}{hint}{unit(description)}"


def unit(description: str) -> str:
    return f" ({description})" if description else ""


def describe(model: Any, loc: tuple) -> str:
    """The description of the field at `loc`."""
    field, keys = None, list(loc)
    while keys:
        if get_origin(model) is dict:  # a key of the user's
            keys.pop(0)
            model = get_args(model)[1]
            continue
        key = keys.pop(0)
        if not (isinstance(model, type) and issubclass(model, Settings)) or key not in model.model_fields:
            break
        field = model.model_fields[key]
        model = field.annotation
    return (field.description or "") if field is not None else ""


def show(value: Any) -> str:
    kind = {str: "text", bool: "true/false", type(None): "nothing", dict: "a section", list: "a list"}.get(type(value))
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return "nothing" if value is None else f"{shown} ({kind})" if kind else shown


def dotted(keys: tuple) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


@functools.cache
def _sections() -> dict[str, list[str]]:
    """Section of the file -> the names it may have; a learner section has the fields it may set."""
    kinds = {k: f.annotation for k, f in Params.model_fields.items()}
    models = {k: list(t.model_fields) for k, t in kinds.items() if isinstance(t, type) and issubclass(t, Settings)}
    return {
        **{k: [] for k in kinds},
        **models,
        **resolve.own_sections(),
        "sampling": list(SamplingSettings.model_fields),
    }


def names_in(section: str) -> list[str]:
    return _sections().get(section, []) if section else list(Params.model_fields)


def is_known(keys: tuple) -> bool:
    """Whether dotted `keys` name a value of params.yaml (as far as the names are fixed)."""
    return keys[0] in Params.model_fields and (len(keys) == 1 or keys[0] in FREE or keys[1] in names_in(keys[0]))


def suggest(keys: tuple, model: type[Settings] | None = None) -> str:
    """The nearest valid name: first in the same section, then the same name in another section, then anywhere."""
    *section, name = [str(k) for k in keys]
    learner = list((model or algorithms.module("ppo").Config).model_fields)
    prefix = ".".join(section)
    if section[:1] in ([group] for group in GROUPS):
        names = [*learner, *Run.model_fields]
    elif "algorithms" in section:
        names = learner
    elif section[:1] == ["worlds"]:
        names = list(names_in(section[2]) if len(section) > 2 else World.model_fields)
    else:
        prefix = section[0] if section else ""
        names = names_in(prefix)
    if near := difflib.get_close_matches(name, names, 1, 0.6):
        return f"; did you mean {prefix + '.' if prefix else ''}{near[0]}?"
    places = {f: f"{s}.{f}" for s in reversed(Params.model_fields) for f in names_in(s)}  # of two, the first section
    if near := difflib.get_close_matches(name, places, 1, 0.75):
        return f"; did you mean {places[near[0]]}?"
    return f"; valid names: {', '.join(names)}" if names else ""
