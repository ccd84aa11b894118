"""What a task chooses by name: judges, the evaluator beside a brought model, metrics of its own. A file here for each.

The file of a metric has ``measure(responses, prompts) -> {name: number}``. That of another part has READS, the files of
the draw's texts that it is made from; SETTINGS, the sections of params.yaml that it reads; ``fit(make, fresh, states)
-> (facts, loss curve or None)``, see ``Maker.part``; and, of a judge, ``load(folder) -> judge(responses,
prompts=None)``. Nothing here imports a part by name: so the key of a result does not know of other parts than those
that its task names (``roots``).
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType

MADE = ("READS", "SETTINGS", "fit")  # what the stage that makes a part asks it for
LOADED = ("load",)  # what a run asks a judge for
MEASURED = ("measure",)  # what a run asks a metric for


@functools.cache
def names() -> list[str]:
    """The parts there are. Nothing is imported."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def module(name: str) -> ModuleType:
    """A part's file. Raises: KeyError naming the parts there are."""
    if name not in names():
        raise KeyError(f"kind {name!r}, expected one of {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def roots(name: str, protocol: tuple[str, ...]) -> list[str]:
    """What is asked of a part by name, which no reader of the code sees: roots of an identity."""
    return [f"{__name__}.{name}:{each}" for each in protocol]
