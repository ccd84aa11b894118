"""Real rows as the examples of a draw, and what raw models read of them.

A draw has no rows of its own here. Test and validation are the first examples of their split, the same for every draw;
training examples are the split's in an order that is the draw's, without those whose prompt is asked in validation or
test. So an interval over draws is of what training varies (order, first weights, samples), not of other test examples.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from random import Random

from workbook.grue import tasks
from workbook.grue.example import Example, Task
from workbook.grue.rows import place, places, real, usable
from workbook.grue.settings import Grue
from workbook.store.files import folder_hash
from workbook.texts.hub import DataError

WORDS = 100  # of a text that a raw model reads
LEFT_OUT = "{task}: {part}: none of {rows} rows can be taken: {why}"


@functools.lru_cache(maxsize=3)  # the parts of one task: they are asked for again and again
def _every(name: str, part: str, where: str) -> tuple[Example, ...]:
    """All examples of a part; rows that cannot be taken are left out. where: names the place, for the cache."""
    task = tasks.task(name)
    rows = real(task, part)
    try:
        found, refused = usable(task, rows)
    except DataError as error:
        raise DataError(LEFT_OUT.format(task=name, part=part, rows=len(rows), why=error)) from error
    if not found:
        raise DataError(LEFT_OUT.format(task=name, part=part, rows=len(rows), why=(refused or ["no example"])[0]))
    return tuple(found)


def every(task: Task, part: str) -> tuple[Example, ...]:
    """All examples of a part of the mirror's or the hub's rows that can be taken. Raises: DataError saying what was
    looked for and where."""
    return _every(task.name, part, str(place(task)))


def examples(ours: Grue, task: Task, draw: int, part: str) -> list[Example]:
    """Those of a draw, as many as the settings say or there are. part: train, validation or test.

    Raises: DataError where the rows are not found, or hide the references that are to be scored against.
    """
    sizes, tested = ours.rows_of(task.name), ours.overrides[task.name].test
    if part == "test":
        return _shown(task, tested)[: sizes.test]
    if part == "validation" and tested == "test":
        return _shown(task, "validation")[: sizes.validation]
    asked = {e.prompt for name in {"validation", tested} for e in every(task, name)}
    mine = [e for e in every(task, "train") if e.references and e.prompt not in asked]
    Random(f"grue {task.name} {draw}").shuffle(mine)
    if tested == "test":
        return mine[: sizes.train]
    # the validation split is the tables': what chooses the epoch is held out from the training rows
    return mine[-sizes.validation :] if part == "validation" else mine[: -sizes.validation][: sizes.train]


def _shown(task: Task, part: str) -> list[Example]:
    """Examples of a part that have references."""
    found = every(task, part)
    kept = [e for e in found if e.references]
    if not kept:
        cure = f"overrides.{task.name}.test: validation" if part == "test" else "a copy that has them"
        hidden = f"the references of {part} are hidden in all {len(found)} examples"
        raise DataError(f"{task.name}: {hidden}; expected {cure}")
    return kept


def about(ours: Grue, task: Task) -> dict[str, str]:
    """What a table says of its rows: which data, and which split, whole or how much of it."""
    part, where = ours.overrides[task.name].test, place(task)
    whole, size = len(every(task, part)), len(examples(ours, task, 0, "test"))
    data = f"{task.hub}, from a mirror" if isinstance(where, Path) else task.hub
    return {"data": data, "split": part if size == whole else f"{part}, the first {size} of {whole}"}


def check(names: Sequence[str]) -> None:
    """Raises: DataError, one for all these tasks, where rows are not found."""
    missing = []
    for task in map(tasks.task, names):
        try:
            place(task)
        except DataError:
            missing.append(f"  {task.name}: datasets/{' or datasets/'.join(places(task))}")
    if missing:
        raise DataError(
            f"real rows: {len(missing)} of {len(names)} data sets were not found in a mirror, and the hub is not "
            "asked (HF_HUB_OFFLINE). Set RLNLP_MIRROR to a folder that holds them:\n" + "\n".join(missing)
        )


def identity(task: Task) -> dict[str, str]:
    """What the rows are: the content of a mirror's folder; of the hub its id."""
    return {"data": _content(str(where)) if isinstance(where := place(task), Path) else where}


@functools.cache
def _content(folder: str) -> str:
    return folder_hash(folder)


def readers(ours: Grue, causal: bool) -> list[Task]:
    """The tasks whose texts a raw model reads: those of its kind whose numbers are to mean something, else all."""
    named = [task for task in map(tasks.task, ours.tasks) if task.causal == causal]
    return [task for task in named if task.name not in ours.meaningless] or named


def texts(ours: Grue, causal: bool, draw: int) -> list[str]:
    """What a raw model reads: references of the draw's training examples, and of an encoder-decoder their sources, each
    once, at most ``WORDS`` words of it, in the draw's order. No prompt with its answer is among them."""
    found: dict[str, None] = {}
    for task in readers(ours, causal):
        for e in examples(ours, task, draw, "train"):
            for text in (*e.references, *(() if causal else (e.source,))):
                found[" ".join(text.split()[:WORDS])] = None
    read = [text for text in found if len(text.split()) > 1]
    Random(f"grue raw {causal} {draw}").shuffle(read)
    return read[: ours.raw.texts]
