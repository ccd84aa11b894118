"""Anybody's answers as a row of the leaderboard: whatever wrote them, they are scored and judged as ours are.

prompts(settings, task("common_gen"), seed=6)       # what has to be answered: example_id and prompt
rows(settings, "my method", answers)                # answers: dicts with task, seed, example_id, response
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlnlp.settings import nearest
from workbook.grue import tasks
from workbook.grue.arms import ARMS
from workbook.grue.baselines import ANOTHER, judged
from workbook.grue.example import Task
from workbook.grue.run import given
from workbook.grue.scoring import ready
from workbook.grue.settings import Grue
from workbook.store.tables import reads_back

KEYS = ("task", "seed", "example_id", "response")
# of a method: it names a file and a line of a table
NAME = re.compile(r"[A-Za-z]([A-Za-z0-9 ._+-]{0,38}[A-Za-z0-9._+-])?")


class SubmissionError(ValueError):
    """Answers that cannot be scored; named are file, line or task and seed, what was expected, the nearest name."""


def prompts(ours: Grue, task: Task, seed: int | str) -> list[dict[str, Any]]:
    """task, seed, example_id and prompt of a seed's test examples, in their order. No reference is shown.

    Raises: SubmissionError for a task or a seed that is not the benchmark's.
    """
    _known(ours, task.name)
    known = {f"{one}": one for one in ours.seeds}
    if f"{seed}" not in known:
        raise SubmissionError(f"seed: expected one of {', '.join(known)}, got {seed}")
    seed = known[f"{seed}"]
    found = given(ours, task, seed, "test")
    return [{"task": task.name, "seed": seed, "example_id": e.id, "prompt": e.prompt} for e in found]


def read(path: str | Path) -> list[dict[str, Any]]:
    """Answers of a JSONL file. Raises: SubmissionError naming the line."""
    path, found = Path(path), []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # an answer may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise SubmissionError(f"{path}: expected lines of JSON, found {error}") from None
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise SubmissionError(f"{path}, line {place}: not JSON: {error}") from None
        gone = [key for key in KEYS if not isinstance(answer, dict) or key not in answer]
        if gone:
            raise SubmissionError(f"{path}, line {place}: expected {', '.join(KEYS)}; no {gone[0]}")
        if type(answer["seed"]) is not int or not all(isinstance(answer[key], str) for key in KEYS if key != "seed"):
            raise SubmissionError(
                f"{path}, line {place}: expected a whole number as seed and text as task, example_id and response"
            )
        found.append(answer)
    if not found:
        raise SubmissionError(f"{path}: expected a line of JSON for each answer, found none")
    return found


def rows(ours: Grue, name: str, answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each task and seed. Every test example of every seed must be answered once; tasks may be left out.

    Raises: SubmissionError for a name that is taken or cannot name a file, an unknown task or seed, and answers that
    are missing, unknown or twice.
    """
    if not NAME.fullmatch(name):
        said = "expected a letter, then letters, digits, ' ._+-', no blank at its end, at most 40"
        raise SubmissionError(f"name: {said}; got {name!r}")
    if not reads_back(name):
        raise SubmissionError(f"name: expected one that no table takes for a number or a truth, got {name!r}")
    names = taken(ours)
    if name.lower() in {each.lower() for each in names}:
        raise SubmissionError(f"name: expected one that is not taken ({', '.join(names)}), got {name!r}")
    said: dict[tuple[str, int], dict[str, str]] = {}
    for answer in answers:
        task, seed = answer["task"], answer["seed"]
        _known(ours, task)
        if seed not in ours.seeds:
            raise SubmissionError(f"{task}: seed: expected one of {list(ours.seeds)}, got {seed}")
        mine = said.setdefault((task, seed), {})
        if answer["example_id"] in mine:
            raise SubmissionError(f"{task}, seed {seed}: {answer['example_id']} is answered twice")
        mine[answer["example_id"]] = answer["response"]
    return [_row(ours, name, task, seed, said.get((task, seed), {})) for task in _named(said) for seed in ours.seeds]


def taken(ours: Grue) -> list[str]:
    """The names of the tables' other rows, in keys and in print: arms, trivial answers of every task, another human's
    reference."""
    return [
        *dict.fromkeys([*ARMS, *(each.label for each in ARMS.values())]),
        *sorted({answer for name in ours.tasks for answer in tasks.task(name).trivial}),
        ANOTHER,
    ]


def _known(ours: Grue, task: str) -> None:
    if task not in ours.tasks:
        raise SubmissionError(f"task: expected one of {', '.join(ours.tasks)}, got {task!r}{nearest(task, ours.tasks)}")


def _named(said: Mapping[tuple[str, int], Any]) -> list[str]:
    return list(dict.fromkeys(task for task, _ in said))


def _row(ours: Grue, name: str, task_name: str, seed: int, said: Mapping[str, str]) -> dict[str, Any]:
    task = tasks.task(task_name)
    train, test = (given(ours, task, seed, part) for part in ("train", "test"))
    ids = [e.id for e in test]
    if spare := [one for one in said if one not in {*ids}]:  # first: what is misspelt is missing too
        raise SubmissionError(
            f"{task_name}, seed {seed}: no test example is called {spare[0]!r}{nearest(spare[0], ids)}"
        )
    if gone := [one for one in ids if one not in said]:
        raise SubmissionError(
            f"{task_name}, seed {seed}: {len(gone)} of {len(ids)} answers are missing: {gone[0]}, ..."
        )
    scoring = ready(task, ours.reward(task), train, ours.models_of(task_name), ours.device)
    numbers = judged(task, scoring, test, [said[one] for one in ids])
    about = {"task": task_name, "condition": name, "seed": seed, "kind": "submitted", "split": "test"}
    return {**about, "decoding": "its own", "checkpoint": "its own", **numbers}
