"""Wait for what happens, never for time: the only file of the tests that sleeps, between two looks.

    python -m tests.waiting FILE [FILE ...]      until they are all there (for what a test starts)

A deadline only bounds a failure; it is generous, because a busy machine may be slow and is not wrong for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
DEADLINE_S = 240


def until(true: Callable[[], T], what: str | Callable[[], str] = "it", seconds: float = DEADLINE_S) -> T:
    """What ``true()`` returns once that is true. what: named, or made, if it does not happen before the deadline."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return found


def text_of(path: Path) -> str:
    """The text of a file as soon as it has any."""
    return until(lambda: path.exists() and path.read_text(), f"a text in {path}")


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    until(lambda: all(Path(name).exists() for name in sys.argv[1:]), " and ".join(sys.argv[1:]))
