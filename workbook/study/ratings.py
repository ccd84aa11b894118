"""Items to rate, ratings with rater ids, and their files.

An item is a ``Pair`` of responses to one prompt, or one ``Text``. A rating is a ``Choice`` between a pair, or the
``Likert`` value of a text on one question. A ``Preference`` is what a reward model learns from. All are one row of a
file, JSONL or CSV by the file's name. Items hold who wrote a text; ratings do not, and raters never see it.

A simulated rater's id starts with "simulated-", so that every file, table and figure that names a rater says so; a
person cannot take such an id.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from filelock import FileLock

from rlnlp.settings import nearest
from workbook.store.files import atomic_write

SIMULATED = "simulated-"
ANSWERS = ("first", "second", "tie")
SIDES = ("first", "second")
Row = TypeVar("Row")


class PreferenceError(ValueError):
    """Items or ratings that cannot be used; the message names the file, the row or the rater, and what was expected."""


@dataclass(frozen=True)
class Pair:
    """Two responses to a prompt. first_system, second_system: who wrote them."""

    id: str
    prompt: str
    first: str
    second: str
    first_system: str = ""
    second_system: str = ""


@dataclass(frozen=True)
class Text:
    """One response to a prompt. system: who wrote it."""

    id: str
    prompt: str
    response: str
    system: str = ""


@dataclass(frozen=True)
class Choice:
    """One rater's answer about one pair.

    chosen: "first", "second" or "tie"; left: which response was shown on the left, "first" or "second"; place: when the
    rater saw it, 0 first; seconds: it took (0 unknown); revision: 0, or n when the rater went back for the n-th time:
    the last one counts.
    """

    item: str
    rater: str
    chosen: str
    left: str = "first"
    place: int = 0
    seconds: float = 0.0
    revision: int = 0

    def __post_init__(self) -> None:
        _known(self, chosen=ANSWERS, left=SIDES)

    @property
    def answer(self) -> str:
        return self.chosen


@dataclass(frozen=True)
class Likert:
    """One rater's value, 1 (worst) to 5 (best), for one text on one question; the other fields as in ``Choice``."""

    item: str
    rater: str
    question: str
    value: int
    place: int = 0
    seconds: float = 0.0
    revision: int = 0

    def __post_init__(self) -> None:
        _known(self, value=(1, 2, 3, 4, 5))

    @property
    def answer(self) -> int:
        return self.value


@dataclass(frozen=True)
class Preference:
    """A response that was preferred to another. votes: "2/3" is two of three raters; source: where it is from."""

    prompt: str
    chosen: str
    rejected: str
    votes: str = "1/1"
    source: str = ""


def _known(row: Row, **allowed: tuple) -> None:
    for name, values in allowed.items():
        if getattr(row, name) not in values:
            expected = ", ".join(map(str, values))
            raise PreferenceError(f"{name}: expected one of {expected}; got {getattr(row, name)!r}")


# ------------------------------------------------------------------------------------------------------------- files
def save(path: str | Path, rows: Sequence[Row]) -> None:
    """Write rows of one kind to ``path`` (.jsonl or .csv), replacing it as a whole. Raises PreferenceError for no
    rows."""
    if not rows:
        raise PreferenceError(f"{path}: no rows to write")
    kind = type(rows[0])
    lines = [_line(path, row) for row in rows]
    atomic_write(path, (_header(kind) if _suffix(path) == ".csv" else "") + "".join(lines))


def append(path: str | Path, row: Row) -> None:
    """Add one row at the end: one write, put on the disk before this returns. A kill leaves the row whole or absent.

    A torn last line, of a machine that stopped in the middle of it, is cut off first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = _line(path, row)
    with FileLock(path.with_name(f".{path.name}.lock")):  # raters may share a file
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            content = os.pread(handle, os.lseek(handle, 0, os.SEEK_END), 0)
            whole = _whole(content, path.suffix)
            if not whole and path.suffix == ".csv":
                line = _header(type(row)) + line
            kept = min(len(whole), len(content))
            os.ftruncate(handle, kept)
            os.pwrite(handle, whole[kept:] + line.encode(), kept)  # whole may have gained the end of its last line
            os.fsync(handle)
        finally:
            os.close(handle)


def _whole(content: bytes, suffix: str) -> bytes:
    """The lines of a file, each with its end; a last one without an end counts if nothing of it is missing."""
    done, end, rest = content.rpartition(b"\n")
    done, rest = done + end, rest.decode(errors="replace")
    if not rest:
        return done
    if suffix == ".csv":
        cells = len(next(csv.reader([done.decode(errors="replace").partition("\n")[0] or rest]), []))
        complete = len(found := next(csv.reader([rest]), [])) == cells and found[-1] != ""
    else:
        try:
            complete = bool(json.loads(rest))
        except json.JSONDecodeError:
            complete = False
    return done + rest.encode() + b"\n" if complete else done


def load(path: str | Path, kind: type[Row], may_be_empty: bool = False) -> list[Row]:
    """The rows of a file as ``kind`` (Pair, Text, Choice, Likert or Preference). Other columns are ignored.

    A torn last line (see ``append``) is left out. Raises: PreferenceError for a missing file, a missing column (with
    the nearest one there), a cell that is not of the column's type (file and line named), no rows (unless
    ``may_be_empty``).
    """
    path, suffix = Path(path), _suffix(path)
    if not path.is_file():
        raise PreferenceError(f"{path}: no such file")
    try:
        text = _whole(path.read_bytes(), suffix).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PreferenceError(f"{path}: not UTF-8: {error}") from None
    rows = []
    for number, cells in _cells(path, text, suffix):
        try:
            rows.append(kind(**{field.name: _typed(field, cells) for field in dataclasses.fields(kind)}))
        except PreferenceError as error:
            raise PreferenceError(f"{path}, line {number}: {error}") from None
    if not rows and not may_be_empty:
        raise PreferenceError(f"{path}: no rows; expected the columns {', '.join(_names(kind))}")
    return rows


def _suffix(path: str | Path) -> str:
    if Path(path).suffix not in (".jsonl", ".csv"):
        raise PreferenceError(f"{path}: expected a name that ends in .jsonl or .csv")
    return Path(path).suffix


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _header(kind: type) -> str:
    return ",".join(_names(kind)) + "\n"


def _line(path: str | Path, row: Row) -> str:
    if _suffix(path) == ".jsonl":
        return json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n"
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(dataclasses.astuple(row))
    return out.getvalue()


def _cells(path: Path, text: str, suffix: str):
    """(line number, {column: cell}) of each row."""
    if suffix == ".csv":
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            for cells in reader:
                if None in cells or None in cells.values():
                    raise PreferenceError(f"{path}, line {reader.line_num}: expected {len(reader.fieldnames)} cells")
                yield reader.line_num, cells
        except csv.Error as error:
            raise PreferenceError(f"{path}: not a CSV: {error}") from None
        return
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            cells = json.loads(line)
        except json.JSONDecodeError as error:
            raise PreferenceError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(cells, dict):
            raise PreferenceError(f"{path}, line {number}: expected a JSON object, found {type(cells).__name__}")
        yield number, cells


def _typed(field: dataclasses.Field, cells: dict):
    if field.name not in cells:
        if field.default is not dataclasses.MISSING:
            return field.default
        raise PreferenceError(f"no column {field.name!r}{nearest(field.name, cells)} (there: {', '.join(cells)})")
    value, kind = cells[field.name], {"str": str, "int": int, "float": float}[field.type]
    if kind is str and isinstance(value, str):
        return value
    try:
        number = float(value)
        if isinstance(value, bool) or kind is str or not np.isfinite(number) or kind(number) != number:
            raise ValueError
        return kind(number)
    except (TypeError, ValueError):
        raise PreferenceError(f"{field.name}: expected {field.type}, found {value!r}") from None


# ----------------------------------------------------------------------------------------------------------- ratings
def checked(ratings: Sequence[Row], items: Sequence[Pair | Text] | None = None) -> list[Row]:
    """The ratings that count: of each rater's answers to a question the last revision, in the order they came.

    The same answer twice (a file that was merged twice) counts once. Raises: PreferenceError for an item that ``items``
    does not hold (the nearest id named), an id that two items share, and a rater who answered one question differently
    without a revision.
    """
    if items is not None:
        ids = {item.id for item in items}
        if len(ids) < len(items):
            twice = next(name for name, n in Counter(item.id for item in items).items() if n > 1)
            raise PreferenceError(f"items: the id {twice!r} is given to {sum(i.id == twice for i in items)} of them")
        for row in ratings:
            if row.item not in ids:
                raise PreferenceError(
                    f"rater {row.rater!r} rated {row.item!r}, which is no item{nearest(row.item, ids)}"
                )
    last: dict[tuple, Row] = {}
    for row in ratings:
        key = (row.rater, row.item, getattr(row, "question", ""))
        seen = last.get(key)
        if seen is not None and seen.revision == row.revision and seen.answer != row.answer:
            raise PreferenceError(
                f"rater {row.rater!r} answered item {row.item!r} twice: {seen.answer} and {row.answer}, both as "
                f"revision "
                f"{row.revision}; keep one, or give the one that counts a higher revision"
            )
        if seen is None or row.revision > seen.revision:
            last[key] = row
    return list(last.values())


def table(ratings: Sequence[Row], items: Sequence[Pair | Text] | None = None) -> pd.DataFrame:
    """One row per rating that counts (see ``checked``), for ``agreement``.

    Columns as the ratings' fields and ``simulated``; with items also ``system`` (of a text), or, of a pair, ``value``:
    +1 where the second system was chosen, -1 the first, 0 a tie, whichever response it had written, in the order of
    their names, which are in ``attrs["systems"]``. Raises: PreferenceError, as ``checked``; for pairs of other than two
    systems.
    """
    if not ratings:
        raise PreferenceError("no ratings")
    rows = checked(ratings, items)
    out = pd.DataFrame([dataclasses.asdict(row) for row in rows])
    out["simulated"] = out["rater"].str.startswith(SIMULATED)
    if items is None:
        return out
    known = {item.id: item for item in items}
    if isinstance(items[0], Text):
        return out.assign(system=[known[row.item].system for row in rows])
    systems = sorted({name for item in items for name in (item.first_system, item.second_system)})
    if len(systems) != 2 or any(item.first_system == item.second_system for item in items):
        raise PreferenceError(f"pairs: expected each to be of the same two systems, found {systems}")
    signs = {"tie": 0}
    values = []
    for row in rows:
        signs["second"] = 1 if known[row.item].second_system == systems[1] else -1
        signs["first"] = -signs["second"]
        values.append(signs[row.chosen])
    out = out.assign(value=values)
    out.attrs["systems"] = systems
    return out


def preferences(pairs: Sequence[Pair], choices: Sequence[Choice]) -> list[Preference]:
    """What more raters chose than chose the other; pairs where as many chose either, and unrated ones, are left out.

    A tie is a vote for neither, so that one vote and two ties make a preference ("1/3"). Raises: PreferenceError, as
    ``checked``.
    """
    votes: dict[str, Counter] = {}
    simulated: set[str] = set()
    for row in checked(choices, pairs):
        votes.setdefault(row.item, Counter())[row.chosen] += 1
        simulated |= {row.item} if row.rater.startswith(SIMULATED) else set()
    out = []
    for pair in pairs:
        counted = votes.get(pair.id, Counter())
        first, second = counted["first"], counted["second"]
        if first == second:
            continue
        chosen, rejected = (pair.first, pair.second) if first > second else (pair.second, pair.first)
        source = "simulated raters" if pair.id in simulated else "raters"
        out.append(Preference(pair.prompt, chosen, rejected, f"{max(first, second)}/{counted.total()}", source))
    return out
