"""Rows of answers that no policy wrote: the task's trivial answers, another human's reference, and anybody's own.

    rows(settings, task("common_gen"))              # a row per answer and seed, in the columns of a policy's row
    judged(task, scoring, examples, responses)      # the numbers of any answers to examples

A trivial answer is scored as a policy's is. Another human's reference is the first reference of each example that has
more, scored against the others (so against fewer than an answer of a policy, if anything too low); where examples have
a single one, the task's further answer (``Task.another``) to generated rows, if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workbook.grue.evaluate import verdicts
from workbook.grue.example import Example, Task
from workbook.grue.run import given, said_of
from workbook.grue.scoring import Scoring, ready
from workbook.grue.settings import Grue

TRIVIAL, HUMAN = "trivial", "human"
ANOTHER = "another human's reference"


def judged(task: Task, scoring: Scoring, examples: Sequence[Example], responses: Sequence[str]) -> dict[str, Any]:
    """n, reward, metric/* and, of generated rows, judge/* of answers [B] to examples [B], named as by ``evaluate``."""
    prompts, references = [e.prompt for e in examples], [list(e.references) for e in examples]
    paid, _ = scoring.reward(prompts, list(responses), references, [{**e.meta, "source": e.source} for e in examples])
    _, corpus = scoring.measure(responses, examples)
    return {
        "n": len(examples),
        "reward": float(np.mean([float(value) for value in paid])),
        **{f"metric/{name}": value for name, value in corpus.items()},
        **{f"judge/{name}": float(np.mean(values)) for name, values in verdicts(task, responses, examples).items()},
    }


def again(task: Task, examples: Sequence[Example]) -> tuple[list[Example], list[str]]:
    """(examples, another human's answer to each); none where no example has a second reference or answer."""
    several = [e for e in examples if len(e.references) > 1]
    if several:
        return [replace(e, references=e.references[1:]) for e in several], [e.references[0] for e in several]
    if task.another is None or not all("facts" in e.meta for e in examples):
        return [], []
    return list(examples), [task.another(e) for e in examples]


def rows(ours: Grue, task: Task) -> list[dict[str, Any]]:
    """A row for each trivial answer and for another human's, of every seed."""
    found = []
    for seed in ours.seeds:
        train, test = (given(ours, task, seed, part) for part in ("train", "test"))
        scoring = ready(task, ours.reward(task), train, ours.models_of(task.name), ours.device)
        about = {"task": task.name, "seed": seed, **said_of(ours, task), "decoding": "none", "checkpoint": "none"}
        for name, answer in task.trivial.items():
            numbers = judged(task, scoring, test, [answer(e) for e in test])
            found.append({**about, "condition": name, "kind": TRIVIAL, **numbers})
        others, answers = again(task, test)
        if others:
            found.append({**about, "condition": ANOTHER, "kind": HUMAN, **judged(task, scoring, others, answers)})
    return found
