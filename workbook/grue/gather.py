"""The tables of finished parts as the rows of a leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

from workbook.grue import baselines, board
from workbook.grue.settings import Grue, arms_of
from workbook.grue.tasks import task as tasks_named
from workbook.store.tables import read_table


def all_seeds(ours: Grue, runs: Path, submitted: Path) -> tuple[list[dict], list[dict]]:
    """(rows, samples) of every task and arm of the settings, with the answers that no policy wrote and the submitted
    rows. Raises: BoardError for an arm whose table is not there."""
    rows, samples = [], []
    for name in ours.tasks:
        rows += baselines.rows(ours, tasks_named(name))
        for condition in arms_of(ours, name):
            folder = runs / name / condition
            if not (folder / "per_seed.csv").exists():
                raise board.BoardError(f"{folder}: no per_seed.csv; run this task and arm first")
            rows += read_table(folder / "per_seed.csv")
            samples += lines_of((folder / "samples.jsonl").read_text("utf-8"))
    for path in sorted(submitted.glob("*.csv")):
        rows += read_table(path)
    return rows, samples


def draws(ours: Grue, folder: Path) -> tuple[list[dict], list[dict]]:
    """(rows, samples) of the draws in ``folder`` that have every task. Raises: BoardError where none has."""
    files = {seed: [folder / str(seed) / name for name in ours.tasks] for seed in ours.seeds}
    whole = [each for each in files.values() if all(file.with_suffix(".csv").exists() for file in each)]
    if not whole:
        raise board.BoardError(f"{folder}: no draw of {list(ours.seeds)} has all {len(ours.tasks)} tasks yet")
    rows = [row for each in whole for file in each for row in read_table(file.with_suffix(".csv"))]
    texts = [file.with_suffix(".jsonl").read_text("utf-8") for each in whole for file in each]
    return rows, [line for text in texts for line in lines_of(text)]


def lines_of(text: str) -> list[dict]:
    """The values of lines of JSON. A line ends at "\\n" alone: what a model wrote may hold other ends of lines."""
    return [json.loads(line) for line in text.split("\n") if line]
