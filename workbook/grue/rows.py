"""Rows of a data set: a split from a mirror or the hub, and what a row must have to become an example.

The order of rows is the split's own: of one file its rows, of several files (``train-00000-of-00002.parquet``, ...)
those of the first by name, then of the next. Nothing is shuffled or left out here.

    rows = real(task, "test")           # dicts, in the hub's columns
    found = examples(task, rows)        # or usable(task, rows): what can be taken, and a line for each row that cannot

Hostile rows. Taken: no reference or an empty one (``references=()``: a score refuses them), a source of any length
(``encoding`` shortens it), control characters (a blank each), the same prompt again (ids stay distinct), "|" in cells.
Refused, with the row's place and what was expected: an empty source, a column that is missing or of another kind, an
unknown act, a table without highlighted cells or with one outside it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rlnlp.settings import nearest
from workbook.grue.example import Example, Task
from workbook.texts.hub import DataError, find, load_dataset

Made = TypeVar("Made")

# C0 and C1 control characters, DEL, and halves of surrogate pairs: none of them is text
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
SHOWN = 3  # problems that a message spells out


class RowsError(DataError):
    """Rows that cannot be examples. problems: {place of the row: what is wrong with it}."""

    def __init__(self, problems: Mapping[int, str]) -> None:
        self.problems = dict(problems)
        lines = [f"row {place}: {problem}" for place, problem in self.problems.items()]
        more = len(lines) - SHOWN
        super().__init__("; ".join(lines[:SHOWN]) + (f"; and {more} more rows" if more > 0 else ""))


# ----------------------------------------------------------------------------------------- what a task asks of a row
def each(rows: Sequence[Mapping], one: Callable[[Mapping, int], list[Made]]) -> list[Made]:
    """What ``one(row, place)`` makes of every row, one after the other. Raises: RowsError with every row refused."""
    made: list[Made] = []
    problems: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            made += one(row, place)
        except DataError as error:
            problems[place] = str(error)
    if problems:
        raise RowsError(problems)
    return made


def column(row: Mapping, path: str, kind: type) -> Any:
    """The value of a column; "document.summary.text" is one inside others. Raises: DataError naming the nearest."""
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise DataError(f"no column {path!r}{nearest(name, value) if isinstance(value, Mapping) else ''}")
        value = value[name]
    if not isinstance(value, kind):
        raise DataError(f"{path}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def clean(text: str) -> str:
    """One line: control characters and blanks of every kind as one space, none at the ends."""
    return " ".join(CONTROL.sub(" ", text).split())


def source(row: Mapping, path: str) -> str:
    """A text column that must say something. Raises: DataError where it does not."""
    text = clean(column(row, path, str))
    if not text:
        raise DataError(f"{path}: expected a text, found an empty one")
    return text


def references(texts: Iterable[Any]) -> tuple[str, ...]:
    """References that say something, each as it is but for control characters: () where they are hidden."""
    cleaned = ("\n".join(clean(line) for line in str(text or "").splitlines()).strip() for text in texts)
    return tuple(text for text in cleaned if text)


def truth(facts: dict | None) -> dict[str, dict]:
    """{"facts": ...} of a generated row, {} of a real one.

    facts: what the world's file of the task reads from the row. That is its mark: the world knows a row whose texts are
    sentences of the world, and gives None for any other.
    """
    return {} if facts is None else {"facts": facts}


def distinct(examples: list[Example]) -> list[Example]:
    """The same examples under ids that occur once: ``x``, ``x#2``, ``x#3``, ... in their order."""
    seen: Counter[str] = Counter()
    named = []
    for example in examples:
        seen[example.id] += 1
        again = f"{example.id}#{seen[example.id]}"
        named.append(example if seen[example.id] == 1 else replace(example, id=again))
    return named


# -------------------------------------------------------------------------------------------- rows to examples
def examples(task: Task, rows: Sequence[Mapping]) -> list[Example]:
    """``task.read(rows)`` where every row can be taken. Raises: RowsError; DataError where there is no row."""
    if not rows:
        raise DataError(f"{task.name}: no rows")
    return task.read(rows)


def usable(task: Task, rows: Sequence[Mapping]) -> tuple[list[Example], list[str]]:
    """(examples of the rows that can be taken, a line for each row that cannot)."""
    try:
        return examples(task, rows), []
    except RowsError as error:
        kept = [row for place, row in enumerate(rows) if place not in error.problems]
        return examples(task, kept), [f"row {place}: {problem}" for place, problem in error.problems.items()]


# ---------------------------------------------------------------------------------------------- where a data set lies
def places(task: Task) -> list[str]:
    """Folders below ``datasets`` that may hold the task's data: by its hub id and the further names of its file."""
    return [f"{task.hub}/{task.config}".rstrip("/"), *task.mirror]


def place(task: Task, mirror: str | Path = "") -> Path | str:
    """Where the task's data is: a folder of a mirror, or the hub id where the hub is to be asked.

    mirror: a folder with ``datasets/<hub id>[/<config>]``; else $RLNLP_MIRROR; else the hub unless HF_HUB_OFFLINE.
    Raises: DataError saying what was looked for and where.
    """
    for root in (str(mirror), os.environ.get("RLNLP_MIRROR", "")):
        for name in places(task) if root else []:
            folder = Path(root).expanduser() / "datasets" / name
            if folder.is_dir() and any(folder.iterdir()):
                return folder
    try:
        found = find("datasets", task.hub, mirror)
    except DataError as error:
        raise DataError(f"{error}\n(task {task.name}: any of datasets/{', datasets/'.join(places(task))})") from None
    return found if isinstance(found, str) else task.hub  # a folder of that id without the configuration is no answer


def real(task: Task, part: str, mirror: str | Path = "") -> list[dict]:
    """The rows of one part, in the hub's columns and the split's own order.

    part: "train", "validation" or "test", as the task's ``splits`` name them; mirror: as in ``place``.
    Raises: DataError for an unknown part, a data set that is not found or cannot be read, a split it does not have.
    """
    if part not in task.splits:
        raise DataError(f"{task.name}: no part {part!r}{nearest(part, task.splits)} (there: {', '.join(task.splits)})")
    split = task.splits[part]
    where = place(task, mirror)
    data = _folder(where, split) if isinstance(where, Path) else _hub(task)
    if split not in data:
        raise DataError(f"{where}: no split {split!r}{nearest(split, data)} (there: {', '.join(sorted(data))})")
    if not len(data[split]):
        raise DataError(f"{where}: split {split!r} has no rows")
    return data[split].to_list()


def _folder(folder: Path, split: str) -> Mapping:
    """A split's files in one of the layouts of the hub, else whatever ``load_dataset`` makes of the folder."""
    for pattern in (f"{split}-*.parquet", f"data/{split}-*.parquet", f"{split}/*.parquet"):
        shards = sorted(map(str, folder.glob(pattern)))
        if shards:
            return _read("parquet", str(folder), data_files={split: shards})
    try:
        return load_dataset(folder)
    except DataError as error:
        raise DataError(f"{error}{_instead(error)}") from error


def _hub(task: Task) -> Mapping:
    return _read(task.hub, f"hub id {task.hub!r}", name=task.config or None)


def _read(path: str, where: str, **options) -> Mapping:
    import datasets

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(path, **options)
    except Exception as error:  # the hub, a cache and the file formats raise what they like
        first = (str(error).strip().splitlines() or [""])[0]
        what = f"{where} could not be read as a data set: {type(error).__name__}: {first}"
        raise DataError(what + _instead(error)) from error
    finally:
        datasets.enable_progress_bars()


def _instead(error: Exception) -> str:
    """What to do where the hub holds a script, which today's ``datasets`` does not run."""
    if "script" not in str(error):
        return ""
    return "; copy the data set's branch refs/convert/parquet (<config>/<split>/*.parquet) into a mirror: RLNLP_MIRROR"
