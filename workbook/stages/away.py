"""A profile where neither DVC nor Jupyter is, such as a rented GPU: run it there, and pack what its stages write.

    python -m workbook.stages.away run PROFILE --jobs 4 --gpus 1 --seconds 560   # the same command goes on
    python -m workbook.stages.away pack PROFILE FOLDER                           # for `make adopt FROM=FOLDER`

Units of work and finished parts are those of the pipeline. Conditions go in the profile's order, each with all its
seeds: those that are whole when the time is up can be packed. Packed are tables, samples, facts and the base model that
was made beside the profile; and the hashes of all that stays: other weights and texts.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError
from workbook.runs import checks, conditions
from workbook.runs.params import Params
from workbook.stages import cards, depends, parcels, units
from workbook.stages.command import Stopped, status
from workbook.stages.outside import planned
from workbook.stages.pipeline import RUNS, key, kind
from workbook.stages.processes import environment, machine, signal_at_parents_end
from workbook.stages.progress import clock
from workbook.store.files import atomic_json, file_hash, read_json
from workbook.store.fingerprint import libraries
from workbook.store.locks import writer_lock

ABOUT = "executed/away.json"  # in the profile's folder: the machine that runs it
SMALL = 100_000  # bytes: facts of models and data are smaller, tokenizers and texts are not


class TimeUp(Exception):
    """So many units were not begun."""


def stages(params: Params) -> list[list[str]]:
    """The stages that make results, as DVC calls them, in lists that wait for each other."""
    draws = [[f"{kind}@{draw}" for draw in params.draws] for kind in ("data", "models", "variants", "worlds")]
    runs = ([f"{kind}@{name}" for name in getattr(params, kind)] for kind in RUNS)
    return [*draws, [f"tune@{name}" for name in params.tune.own], *runs]


def out_of(stage: str) -> str:
    """What a stage writes, below the profile's folder."""
    place, name = kind(stage), key(stage)
    return {"tune": f"tune/{name}.json", "continued": f"runs/{name}"}.get(
        place, f"{place}/{name}" if place in RUNS else f"{place}/draw{name}"
    )


def given(params: Params) -> dict[str, dict[str, Any]]:
    """Stage -> the identity of its code and its settings: what the pipeline compares, but for versions of libraries."""
    settings, values = conditions.files(params), params.model_dump(mode="json")
    found = {}
    with tempfile.TemporaryDirectory() as place:
        depends.write(values, Path(place) / "code", Path(place) / "record")
        for stage in (stage for part in stages(params) for stage in part):
            name = key(stage)
            code = {"tune": f"tune/{name}"}.get(kind(stage), f"runs/{name}" if kind(stage) in RUNS else kind(stage))
            own = {"tune": f"settings/tune_{name}"}.get(
                kind(stage), f"conditions/{name}" if kind(stage) in RUNS else f"settings/{kind(stage)}"
            )
            identity = read_json(Path(place) / "code" / f"{code}.json")["code"]
            found[stage] = {"code": identity, "settings": settings[f"{own}.json"]}
    return json.loads(json.dumps(found))


# run --------------------------------------------------------------------------------------------------------------


def run(params: Params, jobs: int, gpus: int, seconds: float) -> bool:
    """All stages of a profile; whether all went well and nothing is left. Raises ConfigError on another machine than
    the one that began, and for more GPUs than are seen here or than the settings name."""
    if gpus > 1 and params.device not in ("cpu", "cuda"):
        raise ConfigError(f"--gpus {gpus}: expected 1, as the settings name one card, device {params.device}")
    if params.device == "cuda" and gpus > (seen := len(cards.visible())) > 0:
        raise ConfigError(f"--gpus {gpus}: expected at most {seen}, as many as this process may use ({cards.VISIBLE})")
    root = (params.folder / params.root).resolve()
    places = (str(path.relative_to(root)) for path in (params.folder, params.scratch))
    unit_of = functools.partial(_unit, str(root), *places)
    if conditions.main([str(params.path), str(params.folder / "build")]):
        return False
    os.environ.update({**environment(), **cards.of_slot(params.device, 0, [])})
    until, failed, method = time.monotonic() + seconds, 0, multiprocessing.get_context("spawn")
    slots = method.SimpleQueue()
    for number in range(jobs):
        slots.put(str(number % gpus) if params.device == "cuda" else "")
    with ProcessPoolExecutor(jobs, method, slot, (slots,)) as pool:
        try:
            _one_machine(params, pool.submit(about, params.device, params.precision).result())
            for part in stages(params):
                todo = {stage: units.of_stage(stage, params.folder) for stage in part}
                both = unit_of, functools.partial(collect, str(params.folder))
                ends, began, of = 0, time.monotonic(), sum(map(len, todo.values()))
                for one, error in whole_stages(pool, jobs, until, *both, todo):
                    failed += bool(error)
                    if isinstance(one, str):
                        print(f"{one}: {error or 'written'}", flush=True)
                        continue
                    ends, so_far = ends + 1, time.monotonic() - began
                    left = f"{ends} of {of}, {clock(so_far)} so far, about {clock(so_far / ends * (of - ends))} left"
                    print(f"{one.stage}, draw {one.draw}: {error or 'done'}  ({left})", flush=True)
        except TimeUp as left:
            print(f"the time is up; {left} of this part are left, the same command goes on", flush=True)
            return False
        except BrokenProcessPool:
            print("a process was ended from outside; the same command goes on", file=sys.stderr)
            return False
        except Stopped:  # not after what runs now, which may be hours: it goes on from its last state
            for one in multiprocessing.active_children():
                one.terminate()
            raise
    return not failed


def whole_stages(
    pool, jobs: int, until: float, work: Callable, collect: Callable, todo: Mapping[str, Sequence[units.Unit]]
) -> Iterator[tuple[Any, Any]]:
    """(unit, what ``work`` returns of it: an error or nothing) and (stage, what ``collect`` returns of it) as they end,
    ``jobs`` side by side. A stage is collected as soon as all its units are done, before further units begin and also
    when the time is up; one with a unit that failed is left to the next command. Raises TimeUp where the time was up
    before all began."""
    left = [one for stage, of_stage in todo.items() for one in of_stage or [stage]]  # some stages have no units
    whole, done, going = [], Counter(), {}
    while whole or going or (left and time.monotonic() < until):
        while len(going) < jobs and (whole or (left and time.monotonic() < until)):
            one = (whole or left).pop(0)
            going[pool.submit(work if isinstance(one, units.Unit) else collect, one)] = one
        for future in wait(going, return_when=FIRST_COMPLETED).done:
            one, error = going.pop(future), future.result()
            yield one, error
            if isinstance(one, units.Unit):
                done[one.stage] += not error
                whole += [one.stage] * (done[one.stage] == len(todo[one.stage]))
    if left:
        raise TimeUp(len(left))


def slot(slots) -> None:
    """The GPU of this process, before anything looks for one. It ends with what started it."""
    signal_at_parents_end(signal.SIGKILL)
    if gpu := slots.get():
        known = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = known[int(gpu)] if int(gpu) < len(known) and known[0] else gpu


def _unit(root: str, folder: str, scratch: str, unit: tuple[str, int]) -> str:
    return units.Outcome(*units.run(unit, root, folder, scratch)).error


def collect(folder: str, stage: str) -> str:
    """What the stage's notebook does with units that are done; the error's last line."""
    from workbook.draws import base, variants, worlds
    from workbook.runs import experiment, tune
    from workbook.texts import data

    home, name = Path(folder), key(stage)
    builders = {"data": data.build, "models": base.build, "variants": variants.build, "worlds": worlds.build}
    with contextlib.chdir(home):
        try:
            if kind(stage) in RUNS:
                experiment.run_condition(conditions.load_condition(name, home), home / out_of(stage))
            elif kind(stage) == "tune":
                tune.search(conditions.load_search(name, home), home / out_of(stage))
            else:
                params = conditions.load_stage(kind(stage), home)
                read = [home / place / f"draw{name}" for place in parcels.READS.get(kind(stage), ())]
                more = (params.scratch,) if kind(stage) in parcels.READS else ()
                builders[kind(stage)](params, int(name), *read, home / out_of(stage), *more)
        except Exception as error:  # the others go on; the same command tries again
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def about(device: str, precision: str) -> dict[str, Any]:
    """The machine: what decides digits beside code and settings."""
    if device != "cpu":
        import torch

        gpu = {"gpu": cards.card(device), "cuda": torch.version.cuda}
    return {"machine": machine(), "precision": precision, **(gpu if device != "cpu" else {}), "libraries": libraries()}


def _one_machine(params: Params, here: dict[str, Any]) -> None:
    if (began := read_json(params.folder / ABOUT)) not in (None, here):
        names = ", ".join(name for name in here if began.get(name) != here[name])
        raise ConfigError(
            f"{params.profile} began on another machine ({names} differ): models and seeds of one profile are of one "
            f"machine. Go on there, or remove {params.folder / ABOUT}, the scratch and what the stages wrote"
        )
    atomic_json(params.folder / ABOUT, here)


# pack -------------------------------------------------------------------------------------------------------------


def pack(params: Params, folder: Path) -> Path:
    """Write the archive of all stages that are done. Raises ConfigError where nothing was run."""
    if (where := read_json(params.folder / ABOUT)) is None:
        raise ConfigError(f"{params.folder / ABOUT}: no such file; `away run {params.profile}` comes first")
    decided, carried, known = given(params), [], {}
    for stage in (stage for part in stages(params) for stage in part):
        out = params.folder / out_of(stage)
        every = sorted(path for path in (out.rglob("*") if out.is_dir() else [out]) if path.is_file())
        if every:
            kept, stayed = _sorted_out(stage, every, params.folder)
            known[stage] = {**decided[stage], "files": kept, "stayed": stayed}
            carried += kept
    base = params.folder / params.bring.model
    brought = sorted(path for path in base.rglob("*") if path.is_file()) if planned(params) else []
    files = {path.relative_to(params.folder).as_posix(): path for path in brought}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=params.folder, capture_output=True, text=True).stdout
    said = {"profile": params.profile, "about": {**where, "commit": commit.strip() or "unknown"}, "stages": known}
    said["brought"] = {name: file_hash(path) for name, path in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{params.profile}.tar.xz"
    with tarfile.open(out.with_name(f".{out.name}.part"), "w:xz", preset=1) as archive:
        text = json.dumps(said, indent=1).encode()
        head = tarfile.TarInfo("manifest.json")
        head.size = len(text)
        archive.addfile(head, io.BytesIO(text))
        for name in [*carried, *files]:
            archive.add(params.folder / name, name)
    out.with_name(f".{out.name}.part").replace(out)
    return out


def _sorted_out(stage: str, every: Sequence[Path], folder: Path) -> tuple[dict[str, str], dict[str, list]]:
    """(what is carried, path -> hash; what stays, path -> [bytes, hash])."""
    kept, stayed = {}, {}
    for path in every:
        name = path.relative_to(folder).as_posix()
        of_run = kind(stage) in RUNS and path.parent == folder / out_of(stage)  # not its policies
        if of_run or (kind(stage) not in RUNS and path.suffix == ".json" and path.stat().st_size <= SMALL):
            kept[name] = file_hash(path)
        else:
            stayed[name] = [path.stat().st_size, file_hash(path)]
    return kept, stayed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.away", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="all stages of a profile; the same command goes on where it stopped")
    one.add_argument("profile", help="the name of a folder in profiles/")
    one.add_argument("--jobs", type=int, default=2, help="processes side by side")
    one.add_argument("--gpus", type=int, default=1, help="that they share, where the profile's device is cuda")
    one.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after these")
    two = commands.add_parser("pack", help="an archive of what is done, without its weights")
    two.add_argument("profile", help="the name of a folder in profiles/")
    two.add_argument("folder", type=Path, help="where the archive goes")
    args = parser.parse_args(argv)
    try:
        params = checks.load(Path("profiles") / args.profile / "params.yaml")
        if args.command == "pack":
            out = pack(params, args.folder)
            print(f"wrote {out} ({out.stat().st_size / 1000:.0f} kB)")
            return 0

        def work() -> bool:
            with writer_lock(params.scratch / "reproduce", wait_s=0):
                return run(params, max(1, args.jobs), max(1, args.gpus), args.seconds)

        return status(work, False, "the same command goes on")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
