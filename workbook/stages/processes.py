"""Start commands that end with us, one thread each, their output in a file; ask several at once; end them all."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
# looked up here, because between fork and exec only a bare call is safe
_PRCTL = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None


def environment() -> dict[str, str]:
    """Variables for everything started here: this Python first, one thread per process, plain text."""
    return {
        **os.environ,
        **ONE_THREAD,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "SHELL": "/bin/sh",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "DVC_NO_ANALYTICS": "1",
        **mirror(),
    }


def mirror() -> dict[str, str]:
    """$RLNLP_MIRROR, if it is set, as an absolute path: a relative one is meant from where the user stands, and stages
    run in the profile's folder."""
    given = os.environ.get("RLNLP_MIRROR")
    return {"RLNLP_MIRROR": os.path.abspath(os.path.expanduser(given))} if given else {}


def machine() -> str:
    """The kind of this machine: its architecture and its processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor()
    return f"{platform.machine()} {name}"


def signal_at_parents_end(sign: int = signal.SIGTERM) -> None:
    """From here on the kernel sends this process `sign` when what started it ends (Linux; elsewhere nothing happens).

    Lighter than `store.locks.die_with_parent`, which also watches the processes further up.
    """
    if _PRCTL is not None:
        _PRCTL(1, int(sign), 0, 0, 0)  # 1 = PR_SET_PDEATHSIG


def start(command: list[str], folder: Path, log: Path, variables: dict[str, str] | None = None) -> psutil.Popen:
    """Start a Python module in its own process group, its output into a file; it ends when this process does."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        return psutil.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**environment(), **(variables or {})},
            start_new_session=True,
            preexec_fn=signal_at_parents_end,  # noqa: PLW1509 (one system call)
        )


@contextmanager
def passing_tempdir(prefix: str) -> Iterator[None]:
    """Temporary files of this process lie in a folder that is gone after the block, also if we are killed inside it.

    A shell, of a session of its own, waits for the end of a pipe that ends with us, and removes the folder.
    """
    before, folder = tempfile.tempdir, tempfile.mkdtemp(prefix=prefix)
    guard = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0"', folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = before
        guard.communicate()


def stop(processes: list[psutil.Popen]) -> None:
    """End process groups: ask, wait, then force."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            os.killpg(process.pid, sign)
        psutil.wait_procs(running, timeout=5)


def ask(commands: dict[str, list[str]], folder: Path, logs: Path) -> dict[str, str]:
    """Run commands side by side; their outputs by name. SystemExit with the output of the first that fails."""
    processes = {name: start(command, folder, logs / f"{name}.log") for name, command in commands.items()}
    try:
        for name, process in processes.items():
            if process.wait():
                raise SystemExit((logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip())
    finally:
        stop(list(processes.values()))
    return {name: (logs / f"{name}.log").read_text(encoding="utf-8") for name in commands}
