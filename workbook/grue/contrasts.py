"""grue/contrasts.yaml: which numbers decide the claims on the benchmark. `claims` judges them.

load("contrasts.yaml", settings)      # checked against the tasks, arms and scores of the settings
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pydantic
from pydantic import Field, model_validator

from rlnlp.settings import ConfigError, Settings, nearest
from workbook.grue import scores, tasks
from workbook.grue.settings import Grue, arms_of
from workbook.grue.world.judging import ASPECTS
from workbook.runs.messages import dotted
from workbook.runs.reading import read


class Test(Settings):
    """One number per seed; the file's head says how."""

    __test__ = False  # no test of pytest's

    name: str = Field(min_length=1, description="what is compared; unique within the claim")
    role: Literal["decides", "beside"] = Field("decides", description="beside: shown, but not part of the word")
    tasks: tuple[str, ...] = Field((), description="over which the terms are averaged; () = all of the benchmark")
    each: bool = Field(False, description="a test of every one of the tasks, instead of their mean")
    minus: tuple[str, ...] = Field((), description="tasks whose mean is taken off")
    terms: dict[str, float] = Field(min_length=1, description="arm or arm@column: weight")
    column: str = Field("reward", description="of the terms that name none: reward, judge/<aspect>, metric/<score>")
    direction: Literal["greater", "less", "equal"] = Field(description="what is claimed of the number")
    effect: float | None = Field(None, gt=0, description="what the claim states at least, in units of the scale")
    margin: float | None = Field(None, gt=0, description="of `equal`: within this the number is none")
    threshold: bool = Field(False, description="a point that is passed or missed by any size; no effect is stated")

    @model_validator(mode="after")
    def _one_size(self):
        wanted = "margin" if self.direction == "equal" else None if self.threshold else "effect"
        given = {name for name in ("margin", "effect") if getattr(self, name) is not None}
        if given != ({wanted} if wanted else set()):
            raise ValueError(
                f"{self.name}: expected {wanted or 'no size'} (direction, threshold), found {sorted(given)}"
            )
        return self

    def columns(self) -> list[tuple[str, str, float]]:
        """(arm, column, weight) of each term."""
        split = [(*term.partition("@")[::2], weight) for term, weight in self.terms.items()]
        return [(arm, column or self.column, weight) for arm, column, weight in split]


class Contrasts(Settings):
    """What decides one claim. No test that decides: it is not testable here, and ``said`` tells why."""

    said: str = Field("", description="how the claim is read, and what the numbers leave out")
    tests: tuple[Test, ...] = ()

    @model_validator(mode="after")
    def _unique(self):
        names = [test.name for test in self.tests]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"tests: expected names of their own, found {twice[0]!r} twice")
        return self


def load(path: str | Path, ours: Grue) -> dict[str, Contrasts]:
    """Claim -> its contrasts. Raises: ConfigError naming claim, test, what was expected and the nearest name."""
    raw, _ = read(Path(path))
    problems, found = [], {}
    for name, values in raw.items():
        try:
            found[name] = Contrasts.model_validate(values)
        except pydantic.ValidationError as error:
            problems += [f"{name}: {dotted(e['loc'])}: {e['msg']}" for e in error.errors()]
            continue
        problems += [f"{name}: {test.name}: {said}" for test in found[name].tests for said in _wrong(test, ours)]
    if problems:
        raise ConfigError("\n  ".join([f"{path}: {len(problems)} problem(s)", *problems]), problems)
    return found


def _wrong(test: Test, ours: Grue) -> Iterable[str]:
    for name in (*(test.tasks or ours.tasks), *test.minus):
        if name not in ours.tasks:
            yield f"no task {name!r} in the settings{nearest(name, ours.tasks)}"
            continue
        task = tasks.task(name)
        arms = [*arms_of(ours, name), *task.trivial]
        known = ["reward", *(f"judge/{each}" for each in ("judge", *ASPECTS)), *(f"metric/{m}" for m in task.metrics)]
        for arm, column, _ in test.columns():
            if arm not in arms:
                yield f"{name} has no arm {arm!r}{nearest(arm, arms)}"
            if column not in known:
                yield f"{name} has no column {column!r}{nearest(column, known)}"


def scale(column: str) -> float:
    """What one unit of a column is: 100 points of BLEU are 1, ten of CIDEr, one word is a word."""
    known = scores.known().get(column.removeprefix("metric/"))
    return known.scale if known else 1.0


def fingerprint(found: Mapping[str, Contrasts]) -> str:
    """SHA-256, hex, of all that decides a word; prose and names are not in it. The first 12 digits are shown."""
    fixed = {
        name: [test.model_dump(mode="json", exclude={"name"}) for test in claim.tests] for name, claim in found.items()
    }
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
