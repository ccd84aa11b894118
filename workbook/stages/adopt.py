"""Bring home what `away` computed: all checked before anything is written, then recorded by DVC as its stages' results.

    make adopt PROFILE=gpu FROM=folder        # folder: with the archive that `away pack` wrote

Code and settings have to be those of here, stage by stage; libraries may differ, and are named. Weights and texts
stayed there, but for a base model made beside the profile: in their place lies stayed.json, with their hashes. The rows
of adopted runs name the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from rlnlp.settings import ConfigError
from workbook.results.files import PER_SEED
from workbook.results.tables import join
from workbook.runs import checks
from workbook.runs.messages import listed
from workbook.runs.params import Params
from workbook.stages import away
from workbook.stages.pipeline import DVC, RUNS, Pipeline, keep_lock, key, kind
from workbook.stages.processes import ask
from workbook.store.archives import unpacked
from workbook.store.files import atomic_json, atomic_write, file_hash, read_json, whole
from workbook.store.locks import LockError, writer_lock
from workbook.store.tables import read_table, write_table

NAME = r"\w[\w.+-]*"
PLACE = re.compile(rf"manifest\.json|{NAME}(/{NAME})+")
STAYED = "stayed.json"


def adopt(params: Params, folder: Path) -> list[str]:
    """Check, write, record; the stages that were adopted. Raises ConfigError, before anything is written, for whatever
    is not as it should be."""
    path = folder / f"{params.profile}.tar.xz"
    if not path.is_file():
        there = listed(sorted(p.name for p in folder.glob("*.tar.xz"))) or "no archive"
        found = f"in it {there}" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
        packed = f"the folder of `python -m workbook.stages.away pack {params.profile} FOLDER`"
        raise ConfigError(f"{path}: no such file; expected {packed}, found {found}")
    with opened(path, params.scratch) as (manifest, files):
        check(params, manifest, files)
        for name in manifest["brought"]:
            atomic_write(params.folder / name, (files / name).read_bytes())
        for stage, said in manifest["stages"].items():
            put(params.folder, stage, said, files, manifest["about"])
    pipeline = Pipeline(params.folder, params.scratch, ours=True)
    pipeline.run_light()
    ask({"adopt": [*DVC, "commit", "--force", *manifest["stages"]]}, params.folder, pipeline.logs)
    keep_lock(params.folder, params.scratch)
    return list(manifest["stages"])


@contextlib.contextmanager
def opened(path: Path, scratch: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """(manifest, a folder with the archive's files). Raises ConfigError for no archive, a damaged one, and for anything
    in it that is no plain file below the folders of stages."""
    with unpacked(path, PLACE, "results of stages", scratch) as given:
        if (manifest := read_json(given / "manifest.json")) is None:
            raise ConfigError(f"{path}: not an archive of `away pack`: it has no manifest.json")
        yield manifest, given


def check(params: Params, manifest: Mapping[str, Any], files: Path) -> None:
    """Raises ConfigError naming every stage whose code, settings or files are not those that they have to be."""
    parts = {"profile": str, "stages": dict, "brought": dict, "about": dict}
    known = manifest if isinstance(manifest, dict) else {}
    if wrong := [name for name, what in parts.items() if not isinstance(known.get(name), what)]:
        raise ConfigError(f"manifest.json: expected {join([*parts])}, as `away pack` writes them; lacks {wrong[0]}")
    if manifest["profile"] != params.profile:
        raise ConfigError(f"expected results of the profile {params.profile}, found those of {manifest['profile']}")
    ours, wrong = away.given(params), []
    for stage, said in manifest["stages"].items():
        if stage not in ours:
            wrong.append(f"{stage}: no such stage here")
            continue
        mine, its = ours[stage]["settings"], said["settings"]
        names = sorted(name for name in {*mine, *its} if mine.get(name) != its.get(name))
        wrong += [f"{stage}: settings differ: {', '.join(names)}"] * bool(names)
        wrong += [f"{stage}: its code is not that of here"] * (said["code"] != ours[stage]["code"])
        out = away.out_of(stage)
        wrong += [
            f"{stage}: {name} is not its" for name in said["files"] if name != out and not name.startswith(out + "/")
        ]
        if made_here(params.folder / out, files / out):
            wrong.append(f"{stage}: it was made here; remove {params.folder / out} to adopt another's")
    before = [stage for part in away.stages(params)[:-2] for stage in part]
    wrong += [f"{stage}: not in the archive, and runs need it" for stage in before if stage not in manifest["stages"]]
    packed = manifest["brought"] | {n: h for said in manifest["stages"].values() for n, h in said["files"].items()}
    there = {path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file()} - {"manifest.json"}
    wrong += [f"{name}: not in the manifest" for name in sorted(there - packed.keys())]
    home = f"{params.bring.model}/"  # of a base model that was made beside the profile
    wrong += [f"{name}: not of the base model" for name in manifest["brought"] if not name.startswith(home)]
    wrong += [
        f"{name}: another one lies here"
        for name, its in manifest["brought"].items()
        if (params.folder / name).is_file() and file_hash(params.folder / name) != its
    ]
    wrong += [f"{n}: not what was packed" for n, h in packed.items() if n not in there or file_hash(files / n) != h]
    if wrong:
        more = f"; {len(wrong) - 5} more" * (len(wrong) > 5)
        raise ConfigError(f"nothing was adopted: {'; '.join(wrong[:5])}{more}")


def made_here(ours: Path, theirs: Path) -> bool:
    """Whether a stage's result lies here that was not adopted, and cannot be that of the archive."""
    if ours.suffix == ".json":
        return ours.is_file() and theirs.is_file() and file_hash(ours) != file_hash(theirs)
    return ours.is_dir() and not (ours / STAYED).is_file()


def put(folder: Path, stage: str, said: Mapping[str, Any], files: Path, about: Mapping[str, Any]) -> None:
    """What a stage wrote elsewhere, where it writes here; of a run with the machine in its rows."""
    out = folder / away.out_of(stage)
    if out.suffix == ".json":
        atomic_write(out, (files / away.out_of(stage)).read_bytes())
    else:
        with whole(out) as fresh:
            for name in said["files"]:
                place = fresh / (folder / name).relative_to(out)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files / name, place)
            atomic_json(fresh / STAYED, said["stayed"])
            if kind(stage) in RUNS:
                atomic_json(fresh / "config.json", {**read_json(fresh / "config.json"), "adopted": about})
                rows = [{**row, "machine": named(about)} for row in read_table(fresh / PER_SEED)]
                write_table(fresh / PER_SEED, rows)
    place = "runs" if kind(stage) in RUNS else kind(stage)
    text = f"Computed elsewhere ({named(about)}, commit {about['commit'][:12]}) and adopted: no notebook was run."
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="adopted")])
    atomic_write(folder / "executed" / place / f"{key(stage)}.ipynb", nbformat.writes(page) + "\n")


def named(about: Mapping[str, Any]) -> str:
    """The machine in a few words."""
    return f"{about.get('gpu') or about['machine']}, {about['precision']}, torch {about['libraries']['torch']}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.adopt", description=__doc__.partition("\n")[0])
    parser.add_argument("profile", help="the name of a folder in profiles/")
    parser.add_argument("folder", type=Path, help="with the archive that `away pack` wrote")
    args = parser.parse_args(argv)
    try:
        params = checks.load(Path("profiles") / args.profile / "params.yaml")
        with writer_lock(params.scratch / "reproduce", wait_s=0):
            stages = adopt(params, args.folder)
    except (ConfigError, LockError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    runs = [key(stage) for stage in stages if kind(stage) in RUNS]
    missing = ", ".join(name for name in params.all_runs if name not in runs)
    print(f"adopted {len(runs)} runs of {args.profile}" + (f"; not in the archive: {missing}" if missing else ""))
    print(f"now `make reports PROFILE={args.profile}` makes tables, reports and ledger")
    return 0


if __name__ == "__main__":
    sys.exit(main())
