"""The base of every settings class: frozen, strict, and with no field that the class does not name.

A learner's `Config` subclasses `Settings`; each field carries its unit, range and source in `Field(description=...)`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import get_origin

import pydantic
from pydantic_core import PydanticCustomError


def nearest(name: object, names: Iterable[object], cutoff: float = 0.6) -> str:
    """`; did you mean 'x'?` for the closest of `names`, or nothing. cutoff: how like it must be, 0 to 1."""
    near = difflib.get_close_matches(str(name), [str(known) for known in names], 1, cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


class ConfigError(ValueError):
    """Settings that cannot be used. The message names file, key, what was expected and what was found.

    problems: one line of text per problem (all that were found, not only the first).
    """

    def __init__(self, message: str, problems: list[str] | None = None):
        super().__init__(message)
        self.problems = problems or [message]


class Settings(pydantic.BaseModel):
    """Frozen, validated settings.

    Strict: text is never read as a number and a boolean is never a number. A whole number is accepted where a float
    is expected, and a list where a tuple is (YAML and JSON have no tuples). NaN and infinities are errors.

    Raises:
        pydantic.ValidationError (a ValueError): an unknown name, a wrong type, or a value out of range.
        `workbook.runs.checks.load` turns all of them into one `ConfigError`.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _lists_to_tuples(cls, data):
        if not isinstance(data, dict):
            return data
        tuples = {name for name, field in cls.model_fields.items() if get_origin(field.annotation) is tuple}
        return {k: tuple(v) if k in tuples and isinstance(v, list) else v for k, v in data.items()}

    def replace(self, **changes) -> Settings:
        """A validated copy with some fields changed (`model_copy` alone does not validate)."""
        return type(self).model_validate({**self.model_dump(), **changes})

    def at_most(self, name: str, bound: str) -> None:
        """Raise ``ValueError`` where the setting ``name`` is larger than the setting ``bound``."""
        if (value := getattr(self, name)) > (most := getattr(self, bound)):
            raise ValueError(f"{name} {value}: expected at most {bound} ({most})")


class ByHand(Settings):
    """Settings that are written in Python, where no check of a file stands before them: what is misspelt is told the
    nearest name there is."""

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _nearest_names(cls, data, handler):
        """Pydantic's errors, of which those of an unknown name say the nearest one there is."""

        def told(error: dict) -> dict:
            known, (*above, name) = cls.model_fields, error["loc"] or ("",)
            unknown = error["type"] == "extra_forbidden" and not above
            message = f"no such setting{nearest(name, known)}" if unknown else error["msg"]
            kind = PydanticCustomError(error["type"], message, error.get("ctx"))
            return {"type": kind, "loc": error["loc"], "input": error["input"]}

        try:
            return handler(data)
        except pydantic.ValidationError as error:
            found = [told(each) for each in error.errors(include_url=False)]
            raise pydantic.ValidationError.from_exception_data(error.title, found) from None


class Horizon(ByHand):
    """Settings of whoever samples: ``min_new_tokens``, before which EOS is blocked, is at most ``max_new_tokens``."""

    @pydantic.model_validator(mode="after")
    def _blocked_tokens_end_before_the_horizon(self):
        self.at_most("min_new_tokens", "max_new_tokens")
        return self
