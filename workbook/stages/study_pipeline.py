"""The preference study as one command: seeds, the check of the tests, real preferences if given, the report.

    python -m workbook.stages.study_pipeline [--jobs 2]      from nothing to reports/study; again, only what changed

DVC owns the stages (study/dvc.yaml, study/params.yaml); what shows progress and time left, stops and goes on is
``workbook.stages.reproduce``. The stages call this file with the name of one part
(``draw 0``, ``calibration``, ``real``, ``code``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from ruamel.yaml import YAML

from workbook.stages.command import status
from workbook.store.files import atomic_json, folder_hash, publish
from workbook.store.fingerprint import fingerprint_inputs, keyed_folder, libraries
from workbook.store.identity import Code
from workbook.store.locks import LockError

ROOT = Path(__file__).resolve().parents[2]
USES = {  # stage -> roots of what it runs
    "draw": ["workbook.study.protocol:Config", "workbook.study.protocol:run"],
    "calibration": ["workbook.study.report:calibrate"],
    "real": ["workbook.study.real:measure"],
    "report": ["notebooks/study.ipynb", "workbook.stages.nb:run"],
}
EXPECTED = {
    "draws@": 300,
    "calibration": 200,
    "real": 400,
    "report": 120,
}  # seconds on a busy core; measured ones replace them


def settings() -> dict:
    return YAML(typ="safe", pure=True).load(Path("params.yaml"))


def code(out: str | Path) -> None:
    """One file for each stage: the identity of the code that it runs, and the versions of the libraries."""
    for name, roots in USES.items():
        atomic_json(Path(out) / f"{name}.json", {"code": Code(ROOT).identity(roots), **libraries()})


def draw(seed: int) -> None:
    """The study for one seed into draws/<seed>, its work in a scratch folder: stopped, it goes on from there."""
    from workbook.study import protocol

    config = protocol.Config.model_validate(settings()["study"])
    inputs = fingerprint_inputs({"config": config, "seed": seed}, code=USES["draw"])
    home = keyed_folder(ROOT / ".scratch" / "study" / "draws" / str(seed), inputs) / "study"
    protocol.run(config, seed, home, progress=True)
    publish(home, Path("draws") / str(seed))
    shutil.rmtree(Path("draws") / str(seed) / "models")  # megabytes that no report reads


def calibration() -> None:
    from workbook.study import report

    atomic_json("calibration.json", report.calibrate(**settings()["calibration"]))


def real() -> None:
    from workbook.study import real as people

    atomic_json("real.json", people.measure(**settings()["real"], kind=settings()["study"]["kind"]))


def mirror_digest(folder: Path, hub_id: str) -> None:
    """Note which data are given, as what a stage reads: DVC knows no environment variables."""
    from workbook.texts.hub import DataError, find

    try:
        place = find("datasets", hub_id)
    except DataError:
        place = None
    known = folder_hash(place) if isinstance(place, Path) else "the hub" if place else None
    atomic_json(folder / "build" / "given.json", {hub_id: known})


def everything(jobs: int) -> bool:
    """Run the pipeline; whether all went well."""
    from workbook.stages.reproduce import reproduce

    folder, scratch = ROOT / "study", ROOT / ".scratch" / "study"
    values = YAML(typ="safe", pure=True).load(folder / "params.yaml")
    if any(type(seed) is not int or seed < 0 for seed in values["seeds"]):  # they stand in commands and name folders
        raise ValueError(f"study/params.yaml: seeds: expected whole numbers, found {values['seeds']}")
    mirror_digest(folder, values["real"]["hub_id"])
    if not (scratch / "durations.json").exists():
        stages = {
            name + str(seed): s for name, s in EXPECTED.items() for seed in (values["seeds"] if "@" in name else [""])
        }
        atomic_json(scratch / "durations.json", stages)
    good = reproduce(folder, scratch, jobs, ours=False)
    if good:
        print(f"report: {os.path.relpath(ROOT / 'reports' / 'study' / 'report.html')}", flush=True)
    return good


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workbook.stages.study_pipeline", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "part", nargs="?", choices=("draw", "calibration", "real", "code"), help="a stage; default: all of them"
    )
    parser.add_argument("seed", nargs="?", type=int, help="of draw")
    parser.add_argument("--jobs", type=int, default=2, help="stages side by side, one thread each")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    if (args.part == "draw") != (args.seed is not None):
        parser.error("draw takes a seed, nothing else does")
    try:
        if args.part is None:
            return status(lambda: everything(max(1, args.jobs)), args.tied, "the same command goes on from here")
        parts = {"draw": lambda: draw(args.seed), "calibration": calibration, "real": real}
        (parts | {"code": lambda: code("build/code")})[args.part]()
    except (LockError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
