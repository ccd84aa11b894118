"""State of a training that survives kills: tensors and numbers in one file, with its checksum in its name."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbook.store.files import plain, sync

SHARE = 0.05  # of a training's time that its states may take
EVERY_S = 20.0  # seconds of work that a kill may cost, where states cost less than that share
EVERY_UPDATE = "RLNLP_SAVE_EVERY_UPDATE"  # the environment's: not by time; for tests, and for hunting an error
DISK = 200e6  # bytes a second that hashing and writing take until one was written
_STATE = re.compile(r"state-(\d{8})-([0-9a-f]{64})\.safetensors")


def save_state(
    folder: str | Path, tensors: Mapping[str, Any], meta: Mapping[str, Any] | None = None, keep: int = 2
) -> Path:
    """Save tensors and JSON values as one file state-<number>-<sha256>.safetensors; only one process may write.

    Written beside, put on disk, then renamed: a kill leaves the earlier states whole. Tensors that share memory (tied
    weights) are stored once and stay tied. keep: newest states kept.
    tensors: name -> tensor, any device; meta: JSON (a tuple comes back as a list). Raises ValueError for NaN in meta.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".state-*.tmp"):  # of a killed writer
        left.unlink(missing_ok=True)
    stored, ties, owners, storages = {}, {}, {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        storage = tensor.untyped_storage().data_ptr()
        view = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and view in owners:
            ties[name] = owners[view]
            continue
        owners[view] = name
        tensor = tensor.cpu().contiguous()
        stored[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in storages else tensor
        storages.add(stored[name].untyped_storage().data_ptr())
    header = {"meta": json.dumps(meta or {}, allow_nan=False, default=plain), "ties": json.dumps(ties)}
    number = max((n for n, _, _ in _states(folder)), default=0) + 1
    temporary = folder / f".state-{number:08d}.{os.getpid()}.tmp"
    try:
        save_file(stored, temporary, metadata=header)
        with open(temporary, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        path = folder / f"state-{number:08d}-{checksum}.safetensors"
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(folder)
    for _, _, old in _states(folder)[keep:]:
        old.unlink(missing_ok=True)
    for old in folder.glob("damaged-*"):
        old.unlink(missing_ok=True)
    return path


class Pace:
    """When to save a state of about ``size`` bytes: ``EVERY_S`` after the last one, in ``SHARE`` of the time so far."""

    def __init__(self, size: int) -> None:
        self.cost, self.spent, self.begun = size / DISK, 0.0, time.monotonic()
        self.last = self.begun
        self.always = bool(os.environ.get(EVERY_UPDATE))

    def due(self, end: bool = False) -> bool:
        """Whether a state is to be saved now; end: it is the last one, for which no time has to have gone by."""
        now = time.monotonic()
        fits = self.spent + self.cost <= SHARE * (now - self.begun)
        return self.always or (fits and (end or now - self.last >= EVERY_S))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within it a state is saved; what that takes is measured."""
        began = time.monotonic()
        yield
        self.last = time.monotonic()
        self.cost = self.last - began
        self.spent += self.cost


def leave() -> None:
    """This process was told to end: from here on a state is saved after each update, until it does."""
    global SHARE, EVERY_S
    SHARE, EVERY_S = math.inf, 0.0


def load_state(folder: str | Path, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(tensors, meta) of the newest whole state in a folder, None if there is none.

    A file whose bytes do not match the checksum in its name (cut short, damaged) is set aside with a warning, and an
    older one is used where there is one.
    """
    from safetensors import safe_open

    folder = Path(folder)
    for _attempt in range(3):
        gone = False
        for _, checksum, path in _states(folder):
            try:
                with open(path, "rb") as file:
                    whole = hashlib.file_digest(file, "sha256").hexdigest() == checksum
                if not whole:
                    said = (
                        f"{path}: damaged (its bytes do not match its checksum); an older one is used if there is one"
                    )
                    warnings.warn(said, stacklevel=2)
                    os.replace(path, path.with_name(f"damaged-{path.name}"))
                    continue
                with safe_open(path, framework="pt", device=device) as file:
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
                    header = file.metadata()
            except FileNotFoundError:  # the writer has moved on
                gone = True
                continue
            tensors.update({name: tensors[owner] for name, owner in json.loads(header["ties"]).items()})
            return tensors, json.loads(header["meta"])
        if not gone:
            break
    return None


def newest_meta(folder: str | Path) -> dict[str, Any] | None:
    """The JSON values of the newest state in a folder, None if there is none; its tensors are not read, nor checked."""
    from safetensors import safe_open

    for _, _, path in _states(Path(folder)):
        try:
            with safe_open(path, framework="pt") as file:
                return json.loads(file.metadata()["meta"])
        except FileNotFoundError:  # the writer has moved on: a newer one is there
            return newest_meta(folder)
    return None


def _states(folder: Path) -> list[tuple[int, str, Path]]:
    """(number, checksum, path) of the states in a folder, newest first."""
    found = [(m, p) for p in folder.glob("state-*.safetensors") if (m := _STATE.fullmatch(p.name))]
    return sorted(((int(m[1]), m[2], p) for m, p in found), reverse=True)
