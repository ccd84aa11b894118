"""Which kind of machine is at what is not finished: another kind does not go on from its states, as digits may differ.

The head keeps it, where workers share its folder. What no line is about the head did, in its stages.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from workbook.stages.pipeline import RUNS, key, kind
from workbook.store.files import atomic_json, read_json
from workbook.store.locks import LockError, writer_lock

KEPT = "begun.json"  # in the scratch: unit -> kind of the machine that was given it last


def left(stage: str, draw: int, scratch: Path) -> list[tuple[Path, Path]]:
    """(folder with the lock of who writes there, state or what was measured on the way to one) of a unit."""
    name = key(stage)
    if kind(stage) in RUNS:
        patterns = [f"runs/{name}/seed{draw}-*/{what}" for what in ("checkpoint", "half.json")]
    else:
        patterns = [f"tune/{name}/*/checkpoint"] if kind(stage) == "tune" else [f"{kind(stage)}_draw{draw}/*/*/state-*"]
    return [(path.parent, path) for pattern in patterns for path in sorted(scratch.glob(pattern))]


def by(machine: str, stage: str, draw: int, scratch: Path, head: str) -> str:
    """From here on a unit is done by this kind of machine, and anew where another kind was at it: that kind; "" where
    nothing was there of another. What somebody writes at this moment stays, and stays theirs."""
    known, unit = read_json(scratch / KEPT) or {}, f"{stage}-{draw}"
    before, removed = known.get(unit, head), False
    try:
        for home, path in left(stage, draw, scratch) if before != machine else ():
            with writer_lock(home, wait_s=0):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                removed = True
    except LockError:
        return ""
    if known.get(unit) != machine:
        atomic_json(scratch / KEPT, {**known, unit: machine})
    return before if removed else ""


def alone(machine: str, scratch: Path) -> list[str]:
    """The head does all from here on: the units that it begins anew, a line each."""
    said = []
    for unit in read_json(scratch / KEPT) or {}:
        stage, _, draw = unit.rpartition("-")
        if before := by(machine, stage, int(draw), scratch, machine):
            said.append(f"{stage}, draw {draw}, {anew(before)}")
    return said


def anew(before: str) -> str:
    return f"begins anew: its checkpoint is of another kind of machine, {before}"
