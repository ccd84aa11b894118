"""Workers without the head's folder: what a unit reads comes by content hash, what it finished goes back, as bytes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError
from workbook.runs import conditions
from workbook.runs.settings import Bring
from workbook.stages.pipeline import RUNS, key, kind
from workbook.store import locks
from workbook.store.files import atomic_write, file_hash, is_sealed, whole

READS = {
    "models": ("data",),
    "variants": ("data", "models"),
    "worlds": (),
}  # kind of stage -> folders of draws it reads
OPTIONS = {"tasks at once": "--nthreads 1", "memory limit": "--memory-limit 0"}  # of a worker, see `of_process`
ALL = ("data", "models", "variants", "worlds")
FINISHED = ("runs/*/*/final", "tune/*/*/row.json", "*_draw*/*/*/finished")  # in the scratch
NAME = r"\w[\w.+-]*"
FOLDERS = rf"(runs/{NAME}/{NAME}/final|{NAME}_draw\d+/{NAME}/{NAME}/finished)"
INSIDE = re.compile(rf"{FOLDERS}(/{NAME})*")
SEND_S = 300.0  # seconds that one content may take to a worker; then it is gone
LOG_BYTES = 8192  # of what a unit printed, its end
SAFE = re.compile(rf"{FOLDERS}(/{NAME})*/\.?{NAME}|tune/{NAME}/{NAME}/row\.json")


def inputs(stage: str, draw: int, root: Path, folder: Path) -> dict[str, str]:
    """What a unit reads: path below root -> SHA-256; without what `unsent` names."""
    name, places = key(stage), [f"{place}/draw{draw}" for place in READS.get(kind(stage), ALL)]
    if kind(stage) in RUNS and (start := conditions.load_condition(name, folder).run.start):
        places.append(f"runs/{start}/policy_seed{draw}")
    found = [p for place in ("build", "tune", *places) for p in sorted((folder / place).rglob("*")) if p.is_file()]
    return {path.relative_to(root).as_posix(): file_hash(path) for path in found}


def unsent(bring: Bring) -> list[str]:
    """Why a worker without the head's folder cannot take part, a line each; none where all that units read is sent."""
    why = (
        "its files are not sent, and a hub id may stand for others in the mirror there; start the worker where it sees"
    )
    return [f"bring.{name}: {value}: {why} the head's folder" for name, value in bring.model_dump().items() if value]


def send(client: Any, address: str, manifest: Mapping[str, str], root: Path) -> None:
    """Give a worker the contents that it has not. One that is lost meanwhile is not waited for. Raises TimeoutError for
    one that does not answer."""
    paths, to = {name: root / path for path, name in manifest.items()}, {"workers": [address], "on_error": "ignore"}
    to["callback_timeout"] = SEND_S
    for name in client.run(lacking, list(paths), **to).get(address, ()):  # one by one, as they may be large
        client.run(receive, paths[name].read_bytes(), **to)


# on the worker ----------------------------------------------------------------------------------------------------


def own(dask_worker: Any) -> Path:
    return Path(dask_worker.local_directory) / "rlnlp"


def of_process() -> dict[str, Any]:
    """How many tasks this process does side by side, which has to be one: folder, output and torch's modes are the
    process's. And what memory Dask allows it: at a limit it is killed, or paused and given nothing, maybe for ever."""
    from distributed import get_worker

    count, limit = 1, None
    with contextlib.suppress(ValueError):  # the head is no worker
        worker = get_worker()
        count, limit = worker.state.nthreads, worker.memory_manager.memory_limit
    return {"tasks at once": count, "memory limit": f"{limit / 1e9:.1f} GB" if limit else "none"}


def lacking(hashes: Iterable[str], dask_worker: Any) -> list[str]:
    return [name for name in hashes if not (own(dask_worker) / "content" / name).is_file()]


def receive(content: bytes, dask_worker: Any) -> None:
    atomic_write(own(dask_worker) / "content" / sha256(content).hexdigest(), content)


def laid(manifest: Mapping[str, str]) -> Path:
    """A fresh folder that holds what a manifest says, and nothing else."""
    from distributed import get_worker

    here = own(get_worker())
    shutil.rmtree(here / "tree", ignore_errors=True)
    for path, name in manifest.items():
        place = here / "tree" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not (content := here / "content" / name).is_file():  # what `send` met there is told to nobody
            free = shutil.disk_usage(here.parent).free / 1e6
            raise OSError(f"{path} was sent and could not be kept in {here} ({free:,.0f} MB free)")
        os.link(content, place)
    return here / "tree"


def packed(scratch: Path) -> bytes:
    """A tar of what is FINISHED in a scratch."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(path for pattern in FINISHED for path in scratch.glob(pattern)):
            archive.add(path, path.relative_to(scratch).as_posix())
    return out.getvalue()


def tail(log: Path) -> str:
    """The end of what a unit printed."""
    return log.read_bytes()[-LOG_BYTES:].decode("utf-8", errors="replace")


# on the head ----------------------------------------------------------------------------------------------------


def told(text: str, log: Path) -> None:
    """Put what a worker's unit printed behind what is in its log here."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out:
        out.write(text)


def unpack(content: bytes, scratch: Path) -> None:
    """Put what a worker finished where its stage looks for it, whole; what is there, and lacks nothing, stays. Raises
    ConfigError where anything else is in it, tarfile.TarError where it is cut short, LockError where somebody writes
    there."""
    if not content:
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as given:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            known = {tarfile.DIRTYPE: INSIDE, tarfile.REGTYPE: SAFE, tarfile.AREGTYPE: SAFE}
            if strange := [m.name for m in archive if not (m.type in known and known[m.type].fullmatch(m.name))]:
                raise ConfigError(f"expected finished units alone from a worker, found {strange[0]}")
            archive.extractall(given, filter="data")
        for one in sorted(path for pattern in FINISHED for path in Path(given).glob(pattern)):
            place = scratch / one.relative_to(given)
            with locks.writer_lock(place.parent):
                if one.is_file():
                    atomic_write(place, one.read_bytes())
                elif not _usable(place, one):
                    if place.is_symlink():  # to what counts under another key, see `carry.recount`
                        place.unlink()
                    with whole(place) as fresh:
                        shutil.copytree(one, fresh, dirs_exist_ok=True)


def _usable(place: Path, one: Path) -> bool:
    """Whether what is there is as it was when it was finished, where such things are sealed, and has all that came."""
    there = {path.relative_to(place) for path in place.rglob("*")}
    sealed = is_sealed(place) if (one / ".hash").is_file() else place.is_dir()
    return sealed and {path.relative_to(one) for path in one.rglob("*")} <= there
