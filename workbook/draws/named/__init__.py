"""Parts of a draw that a task chooses by name: judges, and the evaluator beside a brought model. A file here for each.

A part's file has READS, the files of the draw's texts that it is made from; SETTINGS, the sections of params.yaml that
it reads; ``fit(make, fresh, states) -> (facts, loss curve or None)``, see ``Maker.part``; and, of a judge,
``load(folder) -> judge(responses, prompts=None)``. Nothing here imports a part by name: so the key of a result does not
know of other parts than those its task names (``roots``).
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType

MADE = ("READS", "SETTINGS", "fit")  # what the stage that makes a part asks it for
LOADED = ("load",)  # what a run asks a judge for


@functools.cache
def names() -> list[str]:
    """The parts there are. Nothing is imported."""
    folder = Path(__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if "\nREADS = " in path.read_text(encoding="utf-8"))


def module(name: str) -> ModuleType:
    """A part's file. Raises: KeyError naming the parts there are."""
    if name not in names():
        raise KeyError(f"kind {name!r}, expected one of {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def roots(name: str, protocol: tuple[str, ...]) -> list[str]:
    """What is asked of a part by name, which no reader of the code sees: roots of an identity."""
    return [f"{__name__}.{name}:{each}" for each in protocol]
