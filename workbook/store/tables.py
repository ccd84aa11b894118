"""Tables as CSV: the same rows give the same bytes, and read back equal."""

from __future__ import annotations

import csv
import io
import lzma
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbook.store.files import atomic_write

Row = Mapping[str, Any]


def write_table(path: str | Path, rows: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    """Write rows as CSV, atomically; the same rows give the same bytes (floats by repr, "\\n" line ends).

    columns: names in order, default: those of the first row. A missing value (None) is an empty cell. A name that ends
    in .xz is compressed (`pandas.read_csv` reads it as it is).
    Raises: ValueError for a row with other columns, or text that would read back as something else ("1.5", "").
    """
    columns = list(columns if columns is not None else rows[0] if rows else ())
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    for i, row in enumerate(rows):
        if set(row) != set(columns):
            raise ValueError(f"{path}: row {i}: expected columns {columns}, found {list(row)}")
        writer.writerow([_cell(row[name], f"{path}: row {i}, {name}") for name in columns])
    text = out.getvalue()
    atomic_write(path, lzma.compress(text.encode("utf-8")) if Path(path).suffix == ".xz" else text)


def read_table(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a table that `write_table` wrote, with numbers, booleans and None back. Raises ValueError if ragged."""
    opened = lzma.open if Path(path).suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        return []
    columns, *cells = lines
    for i, row in enumerate(cells):
        if len(row) != len(columns):
            raise ValueError(f"{path}: row {i}: expected {len(columns)} cells, found {len(row)}")
    return [dict(zip(columns, map(_value, row))) for row in cells]


def _cell(value: Any, where: str) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if not isinstance(value, str):
        raise TypeError(f"{where}: expected a number, text, true/false or None, found {type(value).__name__}")
    if _value(value) != value:
        raise ValueError(f"{where}: the text {value!r} would read back as another value")
    return value


_NUMBER = re.compile(r"-?\d+|-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf)|nan")


def reads_back(text: str) -> bool:
    """Whether a text that is written is a text when it is read: nan, 1e3 and True are not."""
    return _value(text) == text


def _value(cell: str) -> Any:
    if cell in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[cell]
    if _NUMBER.fullmatch(cell):
        return int(cell) if cell.lstrip("-").isdigit() else float(cell)
    return cell
