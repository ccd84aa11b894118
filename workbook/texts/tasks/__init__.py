"""Where the examples come from: a file here for each task, found by its name. Adding a task is adding a file.

A task's file says what it is in ``TASK``, a frozen record of functions. Its ``load(params, draw)`` returns the rows of
each file of a data folder (see ``workbook.texts.data``): no text is in two parts, so that what judges a policy has not
seen what trained it. Everything is seeded by the draw.

Nothing here imports a task's file by name: so the key of a result does not know of other tasks than its own
(``roots``).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlnlp.settings import nearest
from workbook.texts.hub import DataError


def cut_at(text: str, words: int) -> dict[str, str]:
    """The first words of a text as a prompt, the others as its reference."""
    split = text.split()
    return {"prompt": " ".join(split[:words]), "reference": " ".join(split[words:])}


def halves(row: dict) -> dict:
    """A review as a prompt, the first half of its words, and a reference, the others."""
    label = {"label": row["label"]} if "label" in row else {}
    return dict(id=row["id"], **cut_at(row["text"], max(1, len(row["text"].split()) // 2)), **label)


def normalised(text: str) -> str:
    """What decides whether two texts are the same: lower case, blanks as one space."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class Task:
    """load: (params, draw) -> {part: rows}; source, licence: for ``facts.json``; hub: id of the data set that ``load``
    reads from the hub or a mirror, "" where it reads none; cut: (params, text) -> {"prompt", "reference"}, by default
    half of the words each; draw: which draw of texts and models a draw's number stands for, by default its own.

    judge, judge_2: who judges, files of ``workbook.draws.named``; evaluator: the one there that makes the evaluator
    where a model is brought, "" = the brought model is the evaluator too; metrics: those whose ``measure(responses,
    prompts) -> {name: number}`` every evaluation adds to its row."""

    load: Callable
    source: str
    licence: str
    hub: str = ""
    cut: Callable = lambda params, text: cut_at(text, max(1, len(text.split()) // 2))
    draw: Callable = lambda draw: draw
    judge: str = "tfidf"
    judge_2: str = "characters"
    evaluator: str = ""
    metrics: tuple[str, ...] = ()


@functools.cache
def names() -> list[str]:
    """The tasks that settings can name: the files here that have a ``TASK``. Nothing is imported."""
    folder = Path(__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if "\nTASK = " in path.read_text(encoding="utf-8"))


def task(name: str) -> Task:
    """The task of a name. Raises: DataError naming the nearest one."""
    if name not in names():
        raise DataError(f"task.name: expected one of {', '.join(names())}, got {name!r}{nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}").TASK


def roots(name: str) -> list[str]:
    """What is asked of a task by name, which no reader of the code sees: roots of an identity."""
    return [f"{__name__}.{name}:TASK"]
