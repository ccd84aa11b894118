"""The questions there are: the files of workbook/reports, found by listing; a new one is a new file and nothing
else."""

from __future__ import annotations

from pathlib import Path

ENGINE = ("__init__", "pages")


def names(folder: Path = Path(__file__).parents[1] / "reports") -> tuple[str, ...]:
    """The names of the reports that a profile may list, sorted. Nothing is imported."""
    return tuple(sorted(path.stem for path in folder.glob("*.py") if path.stem not in ENGINE))
