"""The tables of finished parts as the rows of a leaderboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbook.grue import baselines, board
from workbook.grue.settings import Grue, arms_of
from workbook.grue.tasks import task as tasks_named
from workbook.results.files import PER_SEED, SAMPLES, packed, read_rows
from workbook.store.tables import read_table


def all_seeds(ours: Grue, runs: Path, submitted: Path, report: Path | None = None) -> tuple[list[dict], list[dict]]:
    """(rows, samples) of every task and arm of the settings, with the answers that no policy wrote and the submitted
    rows. report: the committed report, whose rows stand for the runs where none is here (a fresh clone). Raises:
    BoardError for an arm without a table."""
    take = _kept(report) if report and not any(runs.glob("*/*/per_seed.csv")) else _run(runs)
    rows, samples = [], []
    for name in ours.tasks:
        rows += baselines.rows(ours, tasks_named(name))
        for condition in arms_of(ours, name):
            mine, texts = take(name, condition)
            rows, samples = rows + mine, samples + texts
    for path in sorted(submitted.glob("*.csv")):
        rows += _of_others(path, ours)
    return rows, samples


def _of_others(path: Path, ours: Grue) -> list[dict]:
    """Submitted rows. Raises: BoardError naming the file, where they are of other tasks or seeds than the settings'."""
    rows = read_table(path)
    for name in dict.fromkeys(row["task"] for row in rows):
        seeds = sorted(row["seed"] for row in rows if row["task"] == name)
        if name not in ours.tasks or seeds != sorted(ours.seeds):
            expected = f"expected a row of each of the seeds {list(ours.seeds)} of a task among {', '.join(ours.tasks)}"
            raise board.BoardError(f"{path}: {expected}, found {name}, {seeds}; submit the answers again, or remove it")
    return rows


def _run(runs: Path) -> Callable[[str, str], tuple[list[dict], list[dict]]]:
    """Task and arm -> (rows, samples) of a finished part."""

    def take(name: str, condition: str) -> tuple[list[dict], list[dict]]:
        folder = runs / name / condition
        if not (folder / PER_SEED).exists():
            raise board.BoardError(f"{folder}: no {PER_SEED}; run this task and arm first")
        return read_table(folder / PER_SEED), read_rows(folder / SAMPLES)

    return take


def _kept(report: Path) -> Callable[[str, str], tuple[list[dict], list[dict]]]:
    """Task and arm -> (rows, samples) that a report keeps."""
    table = report / packed(PER_SEED)
    rows = read_table(table) if table.is_file() else []
    samples = read_rows(report / packed(SAMPLES)) if table.is_file() else []

    def take(name: str, condition: str) -> tuple[list[dict], list[dict]]:
        mine, texts = (
            [one for one in of if (one["task"], one["condition"]) == (name, condition)] for of in (rows, samples)
        )
        if not mine:
            raise board.BoardError(
                f"{table}: no rows of {name}, {condition}, and no runs are here; `make grue` makes them"
            )
        return mine, texts

    return take


def draws(ours: Grue, folder: Path) -> tuple[list[dict], list[dict]]:
    """(rows, samples) of the draws in ``folder`` that have every task. Raises: BoardError where none has."""
    files = {seed: [folder / str(seed) / name for name in ours.tasks] for seed in ours.seeds}
    both = (".csv", ".jsonl")
    whole = [f for f in files.values() if all(file.with_suffix(suffix).exists() for file in f for suffix in both)]
    if not whole:
        raise board.BoardError(f"{folder}: no draw of {list(ours.seeds)} has all {len(ours.tasks)} tasks yet")
    rows = [row for each in whole for file in each for row in read_table(file.with_suffix(".csv"))]
    return rows, [row for each in whole for file in each for row in read_rows(file.with_suffix(".jsonl"))]
