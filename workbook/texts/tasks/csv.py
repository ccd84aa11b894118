"""Bring your own prompts, in a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

from rlnlp.settings import nearest
from workbook.texts.hub import DataError, beside
from workbook.texts.tasks import Task, normalised

COLUMNS = ("prompt", "reference", "split")
SPLITS = ("train", "validation", "test")
SHOWN = 3  # training prompts, in notebooks/run.ipynb


def load(params, draw: int) -> dict[str, list[dict]]:
    """Prompts from ``bring.prompts``: a CSV (UTF-8, comma) with a column ``prompt`` and, if wanted, ``reference`` and
    ``split`` (train, validation or test; given for all rows or for none).

    Without ``split``, rows are shuffled by the draw and split 80 / 10 / 10, rows with the same prompt together; each
    split gets at least one prompt. ``task.train_prompts`` and so on are the most that is used. With references the
    test rows also make ``human_reviews`` (prompt and reference).

    Raises: DataError naming the file and the row (the header is row 1) or the nearest column.
    """
    if not params.bring.prompts:
        raise DataError("task csv: bring.prompts is empty; set it to a CSV file with a column 'prompt'")
    splits = in_splits(beside(params, params.bring.prompts), draw)
    task, parts = params.task, {}
    for split, most in zip(SPLITS, (task.train_prompts, task.validation_prompts, task.test_prompts)):
        parts[f"prompts_{split}"] = splits[split][:most]
    human = [row for row in splits["test"] if row.get("reference")][: params.evaluation.human_reviews]
    if human:
        parts["human_reviews"] = [{"id": row["id"], "text": f"{row['prompt']} {row['reference']}"} for row in human]
    return parts


def check(path: Path) -> None:
    """Raises: as ``load`` of any draw, and where fewer prompts are left to train on than a run's notebook shows."""
    if (found := len(in_splits(path, 0)["train"])) < SHOWN:
        raise DataError(
            f"bring.prompts: {path}: expected >= {SHOWN} prompts to train on, found {found}; without a column 'split', "
            f"{SHOWN + 2} different prompts are enough"
        )


def read(path: Path) -> list[dict]:
    """The rows of the file, checked. Raises: as ``load``."""
    if not path.is_file():
        there = sorted(p.name for p in path.parent.glob("*.csv")) if path.parent.is_dir() else []
        raise DataError(f"bring.prompts: {path}: no such file{nearest(path.name, there)}")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
            if not columns:
                raise DataError(f"bring.prompts: {path}: an empty file; expected a header with a column 'prompt'")
            for column in columns:
                if column not in COLUMNS:
                    raise DataError(f"bring.prompts: {path}: unknown column {column!r}{nearest(column, COLUMNS)}")
            if "prompt" not in columns or len(set(columns)) < len(columns):
                raise DataError(f"bring.prompts: {path}: expected one column 'prompt', found {columns}")
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"bring.prompts: {path}: not a CSV in UTF-8: {error}") from None
    if not rows:
        raise DataError(f"bring.prompts: {path}: a header and no rows")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise DataError(f"bring.prompts: {path}, row {number}: expected {len(columns)} cells (quote commas)")
        if not row["prompt"].strip():
            raise DataError(f"bring.prompts: {path}, row {number}: the prompt is empty")
        if row.get("split") and row["split"] not in SPLITS:
            raise DataError(
                f"bring.prompts: {path}, row {number}: expected split {', '.join(SPLITS)}, "
                f"got {row['split']!r}{nearest(row['split'], SPLITS)}"
            )
    return rows


def in_splits(path: Path, draw: int) -> dict[str, list[dict]]:
    """Split -> the prompts of the file. Raises: as ``load``."""
    rows = read(path)
    entries, given = [], {row.get("split") or "" for row in rows}
    for number, row in enumerate(rows, 2):
        reference = {"reference": row["reference"]} if row.get("reference") else {}
        entries.append((row.get("split") or "", dict(id=f"{path.name}/{number}", prompt=row["prompt"], **reference)))
    if given != {""}:
        return _given_splits(path, entries)
    groups: dict[str, list[dict]] = {}
    for _, entry in entries:
        groups.setdefault(normalised(entry["prompt"]), []).append(entry)
    if len(groups) < 3:
        raise DataError(f"bring.prompts: {path}: expected >= 3 different prompts (three splits), found {len(groups)}")
    order = Random(f"csv {draw}").sample(list(groups), len(groups))
    tenth = max(1, len(order) // 10)
    cut = {"test": order[:tenth], "validation": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
    return {split: [entry for key in keys for entry in groups[key]] for split, keys in cut.items()}


def _given_splits(path: Path, entries: list[tuple[str, dict]]) -> dict[str, list[dict]]:
    splits: dict[str, list[dict]] = {split: [] for split in SPLITS}
    home: dict[str, str] = {}
    for split, entry in entries:
        where = f"bring.prompts: {path}, row {entry['id'].rpartition('/')[2]}"
        if not split:
            raise DataError(f"{where}: no split, though other rows have one")
        if home.setdefault(normalised(entry["prompt"]), split) != split:
            raise DataError(f"{where}: this prompt is in {home[normalised(entry['prompt'])]} and in {split}")
        splits[split].append(entry)
    for split, found in splits.items():
        if not found:
            raise DataError(f"bring.prompts: {path}: no row with split {split}")
    return splits


TASK = Task(load, source="bring.prompts", licence="the user's")
