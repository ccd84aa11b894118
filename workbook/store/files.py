"""Files and folders that are whole or absent, however a process dies; hashes of what is in them. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_hashes: dict[tuple, str] = {}  # (path, size, mtime in ns) -> content hash; this process only


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes, hex. Raises FileNotFoundError."""
    path = Path(path).resolve()
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    if key not in _hashes:
        with open(path, "rb") as file:
            _hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _hashes[key]


def folder_hash(folder: str | Path) -> str:
    """SHA-256 over the names and contents of all files below a folder, hex; names that start with "." are left out.

    Raises: FileNotFoundError if there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, so it cannot be part of a fingerprint")
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            total.update(json.dumps([name.as_posix(), file_hash(path)]).encode())
    return total.hexdigest()


def seal(folder: str | Path) -> None:
    """Keep, in a hidden file, what a finished folder holds, for ``is_sealed``."""
    atomic_write(Path(folder) / ".hash", folder_hash(folder))


def is_sealed(folder: str | Path) -> bool:
    """Whether a folder is there and every file in it is as ``seal`` found it; warns where one is not."""
    folder = Path(folder)
    if not folder.is_dir():
        return False
    kept = folder / ".hash"
    if kept.is_file() and kept.read_text() == folder_hash(folder):
        return True
    warnings.warn(f"{folder}: its files are not as they were when it was finished; they are made again", stacklevel=2)
    return False


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Write a file so that a reader, or a kill at any moment, sees the old content or the new, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def atomic_json(path: str | Path, value: Any) -> None:
    """`atomic_write` of JSON: sorted names, floats by repr (they read back equal). Raises ValueError for NaN or inf."""
    atomic_write(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False, default=plain) + "\n")


def sync(path: Path) -> None:
    """Put a file, or a folder's list of names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain(value: Any) -> Any:
    """JSON for paths, tuples' kin, settings, and numbers of numpy or torch."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def whole(out: str | Path) -> Iterator[Path]:
    """An empty folder to write a result into; at the end of the block it becomes ``out``, whole, in place of what was
    there.

    If the block fails, or is killed, ``out`` stays as it was.
    """
    out = Path(out)
    fresh, retired = (out.with_name(f".{out.name}.{what}") for what in ("part", "old"))
    for left in (fresh, retired):  # of a killed writer
        shutil.rmtree(left, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        for path in fresh.rglob("*"):
            sync(path)
        if out.exists():
            os.replace(out, retired)
        os.replace(fresh, out)
    finally:
        for left in (fresh, retired):
            shutil.rmtree(left, ignore_errors=True)
    sync(out.parent)


def publish(folder: str | Path, out: str | Path) -> None:
    """Copy a finished result into place (``whole``). Hidden names, states and damaged states stay behind.

    Raises FileNotFoundError if ``folder`` is missing.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, nothing to publish")
    left_out = shutil.ignore_patterns(".*", "state-*.safetensors", "damaged-*")
    with whole(out) as fresh:
        shutil.copytree(folder, fresh, ignore=left_out, dirs_exist_ok=True)
