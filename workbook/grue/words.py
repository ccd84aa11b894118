"""The words that raw models know: those of the generated world, and those of every task's prompts."""

from __future__ import annotations

from collections.abc import Sequence

from workbook.grue import tasks
from workbook.grue.raw import pieces
from workbook.grue.rows import examples
from workbook.grue.world import english, german, totto

ROWS = 200  # of a task, whose prompts show the words that it adds


def words(names: Sequence[str]) -> list[str]:
    """Those of these tasks, sorted, the same for every draw: ids of one word are the same everywhere. Adding a task
    with new words makes all raw models again."""
    found = {*english.vocabulary(), *german.vocabulary(), *totto.vocabulary()}
    shown = [text for name in names for e in _of(name) for text in (e.prompt, *e.references)]
    return pieces([*found, *shown])


def _of(name: str):
    task = tasks.task(name)
    return examples(task, task.rows(0, "train", ROWS))
