"""How a command that starts many processes ends: when all is done, by a signal, or because another one is at work."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable

from workbook.store.locks import LockError, die_with_parent

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # a full disk, a used quota, a folder that is read-only


class Stopped(Exception):
    """A signal asked us to end."""


def status(work: Callable[[], bool], tied: bool, hint: str) -> int:
    """The exit status of a command: 0 if `work` says that all went well, else 1; 128 + the number of a signal.

    `work` sees SIGINT and SIGTERM as Stopped, and ends what it started. A disk without room is said in a line: what is
    finished is whole, as it was put there in one step. tied: end with the process that started this one; hint: what to
    do after a stop.
    """
    if tied:
        die_with_parent()

    def stopping(number: int, frame: object) -> None:
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopping)
    try:
        return 0 if work() else 1
    except Stopped as stopped:
        print(f"\nstopped; {hint}", file=sys.stderr)
        return 128 + int(stopped.args[0])
    except LockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(f"error: {error}; finished work is kept. With room to write, {hint}", file=sys.stderr)
        return 1
