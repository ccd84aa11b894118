"""One writer at a time, which ends with the process that started it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

PIPELINE = ("make", "gmake", "dvc", "papermill")  # commands of the pipeline's own chain


class LockError(RuntimeError):
    """Another process is writing; the message names it."""


@contextmanager
def writer_lock(folder: str | Path, wait_s: float = 60.0) -> Iterator[None]:
    """Hold the only right to write in `folder`; the kernel gives it back when the holder dies, however it dies.

    wait_s: seconds to wait for another holder. Raises LockError naming the holder's process id.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock, name = FileLock(folder / ".lock"), folder / ".holder"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = (name.read_text() if name.is_file() else "").strip() or "unknown process"
        if wait_s:
            print(f"{folder}: waiting for {holder} to finish writing", file=sys.stderr, flush=True)
        try:
            lock.acquire(timeout=wait_s, poll_interval=0.1)
        except Timeout:
            raise LockError(
                f"{folder}: {holder} is writing here; waited {wait_s:g} s. "
                "Let it finish, or stop it and start again: it continues from its last checkpoint."
            ) from None
    try:
        name.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
        yield
    finally:
        lock.release()


def die_with_parent(poll_s: float = 0.25) -> list[int]:
    """Make this process die when what started it dies, so that killing the outer process leaves no writer behind.

    A thread watches the processes above, up to the topmost one that is make, dvc, papermill or this package, and kills
    us when any of them ends (a killed dvc does not take its shell along). Killing is safe: see ``states.save_state``.
    Call it once, before the first write. poll_s: seconds between looks.
    Returns the process ids watched, nearest first.
    """
    parent = os.getppid()
    above = [process for process in psutil.Process().parents() if process.pid > 1]
    ours = max((n for n, process in enumerate(above, 1) if _is_ours(process)), default=1)
    watched = above[:ours]

    def watch() -> None:
        while os.getppid() == parent and all(map(alive, watched)):
            time.sleep(poll_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die_with_parent", daemon=True).start()
    return [process.pid for process in watched]


def alive(process: psutil.Process) -> bool:
    """Whether this very process (not another of its number) runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_ours(process: psutil.Process) -> bool:
    """Whether a process is part of the pipeline's own chain (a shell whose text merely mentions dvc is not)."""
    try:
        names = [os.path.basename(word) for word in process.cmdline()]
    except psutil.Error:
        return False
    if not names or names[0] in PIPELINE:
        return bool(names)
    return names[0].startswith("python") and any(
        name in PIPELINE or name.split(".")[0] in ("rlnlp", "workbook") for name in names[1:5]
    )
