"""Reference pages: the API from the docstrings, every setting with its meaning and, where it has one, its source, from
the code that checks it."""

from __future__ import annotations

import typing
from importlib import import_module
from pathlib import Path

import pandas as pd
import pydantic

import rlnlp
from workbook.results.tables import markdown
from workbook.runs.params import Params

ORIGIN = "meaning and unit; a source's value, where there is a source"  # most settings have none


def api(root: Path) -> dict[str, str]:
    """Page -> Markdown: one for each module of rlnlp, which mkdocstrings fills from its docstrings, and their list."""
    pages, rows = {}, []
    for file in sorted((root / "rlnlp").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        place = f"reference/api/{name}/index.md"
        first = (import_module(name).__doc__ or "").strip().partition("\n\n")[0]
        pages[place] = f"# `{name}`\n\n::: {name}\n"
        rows.append({"module": f"[`{name}`](/{place})", "what it is": " ".join(first.split())})
    pages["reference/api/index.md"] = f"# The API\n\n{markdown(pd.DataFrame(rows))}\n"
    return pages


def settings() -> str:
    """Every setting: of the sections of params.yaml, then of each learner what PPO does not have or has otherwise."""
    parts = [
        "# Settings",
        "Made from the records that check them: a name that is not here is refused, with the nearest that is. Values "
        "of the default profile are in [params.yaml](/params.yaml); of another, in the same file of its folder. Where "
        "the last column names a paper, the report or a code, the setting is from there, with its value there; where "
        "it names none, the default is our choice.",
    ]
    for name, field in Params.model_fields.items():
        if inner := record(field.annotation):
            parts += [f"## `{name}`", " ".join((inner.__doc__ or "").split()), fields(inner)]
    plain = {name: f for name, f in Params.model_fields.items() if not record(f.annotation)}
    parts += ["## At the top level, and sections that others check", rows(plain)]
    base = rlnlp.ppo.Config
    parts += ["## Learner `ppo`", fields(base)]
    for name in rlnlp.LEARNERS:
        if (config := getattr(rlnlp, name).Config) is base:
            continue
        own = {n: f for n, f in config.model_fields.items() if repr(f) != repr(base.model_fields.get(n))}
        also = "Otherwise as `ppo`." if config.model_fields.keys() & base.model_fields.keys() else ""
        parts += [f"## Learner `{name}`", also, rows(own) if own else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(annotation: object) -> type[pydantic.BaseModel] | None:
    """The settings record of a section; None for a plain value or a mapping."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel) else None


def fields(model: type[pydantic.BaseModel]) -> str:
    return rows(model.model_fields)


def rows(named: typing.Mapping[str, pydantic.fields.FieldInfo]) -> str:
    """name | default | range | meaning, unit and what a source has, as the record says them."""
    table = [
        {
            "setting": f"`{name}`",
            "default": default(field),
            "range": ", ".join(bounds(field)) or "–",
            ORIGIN: field.description or "–",
        }
        for name, field in named.items()
    ]
    return markdown(pd.DataFrame(table))


def default(field: pydantic.fields.FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    return "a section" if record(type(field.default)) else f"`{field.default!r}`"


def bounds(field: pydantic.fields.FieldInfo) -> list[str]:
    """ "≥ 0", "< 1": the limits of a number."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [(name, getattr(limit, name)) for limit in field.metadata for name in signs if hasattr(limit, name)]
    return [f"{signs[name]} {value:,.9g}" for name, value in found if value is not None]
