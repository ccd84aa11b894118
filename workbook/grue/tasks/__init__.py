"""The tasks of the benchmark: a file here for each, found by its name. Adding a task is adding a file with ``TASK``, a
``workbook.grue.example.Task``. Nothing here, and nothing elsewhere, names one."""

from __future__ import annotations

import importlib
from pathlib import Path

from rlnlp.settings import nearest
from workbook.grue.example import Task
from workbook.texts.hub import DataError


def names() -> list[str]:
    """The files of this package that have a ``TASK``, in the order of their names. Nothing is imported."""
    files = [path for folder in __path__ for path in Path(folder).glob("*.py")]
    return sorted(path.stem for path in files if "\nTASK = " in path.read_text(encoding="utf-8"))


def root(name: str) -> str:
    """Where the code of a task begins."""
    return f"{__name__}.{name}:TASK"


def task(name: str) -> Task:
    """The task of a name. Raises: DataError naming the nearest one."""
    if name not in names():
        raise DataError(f"task: expected one of {', '.join(names())}, got {name!r}{nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}").TASK
