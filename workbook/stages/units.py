"""What a worker does: one seed of a condition, one draw's models, or one search; written only into the keyed scratch.

A worker runs no DVC and writes no output of a stage: the stage itself, run on the head, finds what is finished and
collects it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workbook.runs import conditions
from workbook.stages import cards, parcels
from workbook.stages.pipeline import RUNS, key, kind
from workbook.stages.processes import ONE_THREAD
from workbook.store import identity
from workbook.store.fingerprint import libraries

ADVICE = {"GPU": f"; {cards.ADVICE}", **{n: f"; start it with {o}" for n, o in parcels.OPTIONS.items()}}  # of `differs`


class Unit(NamedTuple):
    stage: str
    draw: int


class Outcome(NamedTuple):
    error: str = ""  # its last line, empty if all went well
    again: bool = False  # it may go well elsewhere
    packed: bytes = b""  # of a worker's own folder: a tar of what is finished
    log: str = ""  # of its own folder: the end of what it printed


def has(stage: str) -> bool:
    """Whether a stage consists of units; else the head does it all."""
    return kind(stage) in (*RUNS, "tune", *parcels.READS)


def of_stage(stage: str, folder: Path) -> list[Unit]:
    """What a stage consists of."""
    if kind(stage) in RUNS:
        return [Unit(stage, seed) for seed in conditions.load_condition(key(stage), folder).seeds]
    if kind(stage) == "tune":  # whose candidates follow each other
        return [Unit(stage, conditions.load_search(key(stage), folder).draw)]
    return [Unit(stage, int(key(stage)))] if has(stage) else []


def about(mark: str, task: str, device: str = "cpu") -> dict[str, Any]:
    """What has to be the same on the head and here, the kind of this machine, and whether the head's folder is here.

    All the code is imported, so that what is said of it stays true while this process lives.
    """
    from workbook.runs import algorithms, roots

    code = identity.here()
    learners = [root for name in algorithms.names() for root in roots.of_run(name, task, code)]
    known = code.reach([identity.root_of(work), *learners, *roots.of_models(task, False), *roots.of_variants(task)])
    for module in dict.fromkeys(name.partition(":")[0] for name in known):
        importlib.import_module(module)
    same = {name: os.environ.get(name, "not set") for name in ONE_THREAD}
    same |= {**libraries(), **cards.in_keys(device), **parcels.of_process()}
    return {"same": same, "code": known, "machine": cards.machine(device), "shared": Path(mark).is_file()}


def differs(head: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Why a worker cannot take part, a line each: what `about` says there and on the head."""
    mine, its = head["same"], other["same"]
    lines = [
        f"{n}: {mine.get(n, 'none')} on the head, {its.get(n, 'none')} there{ADVICE.get(n, '')}"
        for n in sorted(mine.keys() | its.keys())
        if mine.get(n) != its.get(n)
    ]
    return lines + [f"code: {line}" for line in identity.differences(head["code"], other["code"])]


def work(unit: Unit, folder: Path) -> None:
    """Do a unit, or find it done. Raises as its stage does."""
    from workbook.draws import base, variants, worlds
    from workbook.runs import experiment, train, tune

    name, draw, new = key(unit.stage), unit.draw, cards.as_new()
    with new, tempfile.TemporaryDirectory(prefix="unit-") as unused, contextlib.chdir(folder):  # stages say draw1
        out = Path(unused) / "out"
        if kind(unit.stage) in RUNS:
            given = conditions.load_condition(name, folder)
            train.setup(given)
            experiment.run_seed(given, draw, experiment.chosen(given))
        elif kind(unit.stage) == "tune":
            searched = conditions.load_search(name, folder)
            train.setup(searched)
            tune.search(searched, out)
        else:
            params = conditions.load_stage(kind(unit.stage), folder)
            build = {"models": base.build, "variants": variants.build, "worlds": worlds.build}[kind(unit.stage)]
            read = [folder / place / f"draw{draw}" for place in parcels.READS[kind(unit.stage)]]
            build(params, draw, *read, out, params.scratch)


def run(
    unit: tuple[str, int], root: str, folder: str, scratch: str, manifest: Mapping[str, str] | None = None
) -> tuple:
    """`work`, what it prints into a file; an `Outcome`, as plain values. unit: a `Unit`, the same.

    folder, scratch: of the profile, below root; manifest: of what the unit reads, where root is not here."""
    from workbook.stages.one_draw import OF_THE_MACHINE

    unit, base = Unit(*unit), Path(root) if manifest is None else parcels.laid(manifest)
    log, line, again = base / scratch / log_of(unit), "", False
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            work(unit, base / folder)
        except Exception as error:
            traceback.print_exc()
            line = " ".join("".join(traceback.format_exception_only(error)).split())[:300]
            again = isinstance(error, OF_THE_MACHINE)
    sent = () if manifest is None else (parcels.packed(base / scratch), parcels.tail(log))
    return (line, again, *sent)


def log_of(unit: Unit) -> str:
    """Below the scratch."""
    return f"logs/units/{unit.stage}-{unit.draw}.log"
