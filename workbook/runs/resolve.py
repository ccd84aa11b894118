"""From sections to the values of one learner: which section decides what, each replacing those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbook.runs import algorithms
from workbook.runs.settings import SamplingSettings


def layers(algorithm: str, world: str, values: Mapping[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """(keys, values there) of each section that a learner's settings come from, the later replacing the earlier.

    values: those of the file. Of the sections that algorithms share, only what the learner has and what is not fixed
    by what it is (a bandit's gamma is 1); its own sections count whole, so that a wrong name in them is noticed.
    """
    module = algorithms.module(algorithm)
    fixed, shared = getattr(module.Config, "fixed", {}), module.ABOUT.sections

    def section(*keys: str, whole: bool = False) -> tuple[tuple[str, ...], dict[str, Any]]:
        found: Any = values
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        found = found if isinstance(found, Mapping) else {}
        return keys, {k: v for k, v in found.items() if whole or (k in module.Config.model_fields and k not in fixed)}

    found = [*(section(name) for name in shared), section("algorithms", algorithm, whole=True)]
    if world:
        found += [section("worlds", world, name) for name in ("sampling", "learner") if name in shared]
        found.append(section("worlds", world, "algorithms", algorithm, whole=True))
    return found


def given(algorithm: str, world: str, values: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Setting -> (keys of the place that decides it, value): what an algorithm takes from the file's sections."""
    return {k: ((*keys, k), v) for keys, found in layers(algorithm, world, values) for k, v in found.items()}


def own(entry: Mapping[str, Any], model, *, inside: bool) -> dict[str, Any]:
    """What of a run's entry are fields of `model` (inside), or are not: those are its learner's."""
    return {k: v for k, v in entry.items() if (k in model.model_fields) == inside}


def own_sections() -> dict[str, list[str]]:
    """Shared section -> the fields that a learner's settings in it may have: those that no section before it has.

    A section that is called as a learner is that learner's; `learner` is PPO's, as are most of those that read it.
    """
    return {
        "learner": fields("ppo", without="sampling"),
        **{
            name: fields(name, without="learner" if "learner" in sections else "sampling")
            for name in algorithms.names()
            if name in (sections := algorithms.module(name).ABOUT.sections)
        },
    }


def fields(algorithm: str, without: str) -> list[str]:
    """Names of an algorithm's settings but for those that the section `without` has."""
    others = algorithms.module("ppo").Config if without == "learner" else SamplingSettings
    return [name for name in algorithms.module(algorithm).Config.model_fields if name not in others.model_fields]
