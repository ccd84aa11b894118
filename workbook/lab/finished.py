"""The finished runs that are here, and the rows of their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pandas as pd

from workbook.results.files import per_seed, read_rows
from workbook.store.tables import read_table


@dataclass
class Found:
    """What is there. per_seed: a row per condition, seed, split and decoding; folders: condition -> its folder, for
    those whose curves and samples are here too; problems: condition -> why it cannot be read."""

    per_seed: pd.DataFrame
    folders: dict[str, Path]
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def conditions(self) -> list[str]:
        return list(dict.fromkeys(self.per_seed.condition)) if len(self.per_seed) else []


def find(folder: str | Path, reports: str | Path) -> Found:
    """Finished runs: the folders that hold a per_seed.csv, and the rows of the report's table for those that are not
    here.

    A run's folder appears whole when it ends, so one that is being written (`.part`) or trained is not among them.
    """
    parts, folders, problems = [], {}, {}
    for path in sorted(Path(folder).glob("*/per_seed.csv")):
        if path.parent.name.endswith(".part"):
            continue
        try:
            parts.append(_numbers(path))
            folders[path.parent.name] = path.parent
        except ValueError as error:
            problems[path.parent.name] = str(error)
    if (summary := per_seed(Path(reports))).is_file():
        rows = _numbers(summary)
        parts.append(rows[~rows.condition.isin([*folders, *problems])])
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Found(table, folders, problems)


def _numbers(path: Path) -> pd.DataFrame:
    """The rows of a table of numbers per seed. Raises ValueError where it is none."""
    rows = pd.DataFrame(read_table(path))
    if lacking := [c for c in ("condition", "seed", "split", "decoding", "score") if c not in rows]:
        raise ValueError(f"{path}: no column {', '.join(lacking)}")
    return rows


def rows_of(found: Found, condition: str, name: str) -> list[dict]:
    """The rows of one of a run's files; none where it is not here, or the run was not trained."""
    path = found.folders.get(condition, Path("nowhere")) / name
    if not path.is_file():
        return []
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except ValueError as error:  # of one run: the others can still be looked at
        found.problems[condition] = f"{path}: {error}"
        return []


@lru_cache(maxsize=512)
def _parsed(path: Path, written: int) -> list[dict]:
    """The rows of a file as it was written at that time (ns)."""
    if path.suffix == ".jsonl":
        return read_rows(path)
    return read_table(path)
