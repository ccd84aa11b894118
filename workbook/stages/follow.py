"""Curves of runs in TensorBoard, Weights & Biases, MLflow or DVCLive, while they are trained.

    make reproduce LOG=tensorboard,wandb
    python -m workbook.stages.follow mini --to tensorboard      # once, of what a profile has trained so far

A process of its own reads what trainings leave behind, checkpoints and finished tables: no digit, key or run depends on
a tracker. One that raises is asked no more, and the runs go on. What each was told is kept, so that the curve of a run
that is resumed goes on where it was. All of it lies in the profile's scratch folder.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rlnlp.settings import ConfigError, nearest
from workbook.results.files import CURVES
from workbook.stages.processes import environment
from workbook.store.files import atomic_json, is_sealed, read_json
from workbook.store.states import newest_meta
from workbook.store.tables import read_table

PACKAGES = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "dvclive": ("dvclive",),
}
EVERY_S = 60  # between two looks at what was trained
PATIENCE_S = 300  # for the last look: a tracker may be waiting for its server
NOT_METRICS = ("condition", "seed", "update")


def check(names: str) -> list[str]:
    """The trackers of LOG. Raises ConfigError for one that is not known, or whose package is not installed."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if name not in PACKAGES:
            known = ", ".join(PACKAGES)
            raise ConfigError(f"LOG={names}: {name}: expected some of {known}{nearest(name, PACKAGES)}")
        if not any(find_spec(package) for package in PACKAGES[name]):
            raise ConfigError(f"LOG={names}: {name} is not installed here: .venv/bin/python -m pip install {name}")
    return found


@contextmanager
def beside(profile: str, root: Path, names: str) -> Iterator[None]:
    """Within it the runs of a profile are followed, after it once more; what a tracker had to say against it is
    printed."""
    if not names:
        yield
        return
    log = root / ".scratch" / profile / "logs" / "follow.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "workbook.stages.follow", profile, "--to", names, "--until-told", "--root", root]
    with open(log, "wb") as out:
        follower = subprocess.Popen(
            [*map(str, command)],
            cwd=root,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C is for us, and it looks once more
        )
    try:
        yield
    finally:
        follower.stdin.close()
        try:
            follower.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            follower.kill()
        said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("LOG=")]
        print("".join(f"{line} ({os.path.relpath(log)})\n" for line in said), end="", flush=True)


def curves(scratch: Path, told: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], bool]]:
    """(condition/seed<k>-<key>, metrics of each update so far, whether it is finished) of the runs of which not all is
    told."""
    for folder in sorted((scratch / "runs").glob("*/seed*")):
        name, final = folder.relative_to(scratch / "runs").as_posix(), folder / "final"
        if told.get(name, {}).get("finished"):
            continue
        try:
            if is_sealed(final) and (final / CURVES).is_file():
                found = read_table(final / CURVES), True
            elif (meta := newest_meta(folder / "checkpoint")) is not None:
                found = meta["curve"], False
            else:
                continue
        except (OSError, ValueError, SafetensorError) as error:  # no tracker's fault; it may be whole at the next look
            print(f"{name}: not read: {error}", flush=True)
            continue
        yield name, *found


def tell(name: str, curve: Sequence[Mapping[str, Any]], before: dict[str, Any], profile: str, place: Path) -> None:
    """Tell one tracker of one run the updates from the ``before["updates"]``-th on; what it needs to go on is put
    there."""
    tracker, run = opened(name, before, profile, place)
    tracker.start()
    if name == "mlflow":  # which names its runs itself
        before["run_id"] = tracker.active_run.info.run_id
    try:
        if not before.get("begun"):
            condition, _, seed = run.partition("/")
            tracker.store_init_configuration({"profile": profile, "condition": condition, "seed": seed})
            before["begun"] = True
        for update in range(before["updates"], len(curve)):
            values = {k: v for k, v in curve[update].items() if k not in NOT_METRICS and number(v)}
            tracker.log(values, step=update + 1)
            before["updates"] = update + 1
    finally:
        tracker.finish()


def opened(name: str, before: Mapping[str, Any], profile: str, place: Path) -> tuple[Any, str]:
    """(accelerate's tracker of a run, to go on where it was; the run's name)."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    run, project = before["run"], f"rlnlp-{profile}"
    key = run.rpartition("-")[2]
    given = {
        # its files have the second in their names: two of one second would be one
        "tensorboard": lambda: {"run_name": run, "logging_dir": place, "filename_suffix": f".{before['updates']}"},
        "wandb": lambda: {"run_name": project, "name": run, "id": key, "resume": "allow", "dir": str(place)},
        "mlflow": lambda: {"experiment_name": project, "run_name": run, "run_id": before.get("run_id")},
        "dvclive": lambda: {"dir": str(place / run), "resume": True, "save_dvc_exp": False, "dvcyaml": None},
    }
    return LOGGER_TYPE_TO_CLASS[name](**given[name]()), run


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def look(profile: str, scratch: Path, names: list[str]) -> None:
    """Tell the trackers what they do not know yet. One that raises is taken out of ``names``, with a line that says
    so."""
    for name in list(names):
        place = scratch / "followed" / name
        told = read_json(place / "told.json") or {}
        try:
            for run, curve, finished in curves(scratch, told):
                before = told.setdefault(run, {"run": run, "updates": 0})
                try:
                    if len(curve) > before["updates"]:
                        tell(name, curve, before, profile, place)
                    before["finished"] = finished
                finally:
                    atomic_json(place / "told.json", told)
        except Exception as error:  # noqa: BLE001 (whatever a tracker does, the runs and the other trackers go on)
            print(f"LOG={name}: told no more: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
            names.remove(name)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.follow", description=__doc__.partition("\n")[0])
    parser.add_argument("profile", nargs="?", default="mini", help="mini or the name of a folder in profiles/")
    parser.add_argument("--to", default="tensorboard", help=f"some of {','.join(PACKAGES)}")
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    parser.add_argument("--until-told", action="store_true", help="look again and again, until standard input ends")
    args = parser.parse_args(argv)
    scratch = args.root.resolve() / ".scratch" / args.profile
    try:
        names = check(args.to)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from accelerate import PartialState

    PartialState(cpu=True)  # it asks for a GPU otherwise, which belongs to the runs
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{scratch / 'followed' / 'mlflow.db'}")
    while args.until_told and not select.select([sys.stdin], [], [], EVERY_S)[0]:
        look(args.profile, scratch, names)
    look(args.profile, scratch, names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
