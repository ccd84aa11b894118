"""``python -m bench.scores``: what the scores of the benchmark's tasks cost: 5,000 answers, every score of a table that
needs no model, and the task's reward.

Rows are the real ones of each task's training split ($RLNLP_MIRROR, or the hub), the generated ones where there are
none; an answer is the reference of the next row and a number, so that lengths are those of the task. A process a task,
one thread. Memory is the highest while scoring, less what the process held before (Linux). Writes
reports/bench/scores.md (--out: elsewhere) and prints it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import random
import sys
import time
from pathlib import Path

from bench.memory import table
from workbook.grue import rows, scores, scoring, tasks
from workbook.grue.example import Example, Task
from workbook.texts.hub import DataError

ROOT = Path(__file__).resolve().parent.parent
ANSWERS, TRAINING = 5_000, 1_000  # rows answered; rows that a score of its own is made of (document frequencies, acts)
LIMIT_S, LIMIT_MB = 30, 1_000


def examples_of(task: Task) -> tuple[list[Example], list[Example], str]:
    """``ANSWERS`` examples to score, ``TRAINING`` others or as many as a small data set can spare, and which rows they
    are of. Rows come again where the data set has fewer."""
    try:
        some, kind = rows.real(task, "train"), "real"
    except DataError:
        some, kind = task.rows(0, "train", 2 * (ANSWERS + TRAINING)), "generated"
    found = [example for example in rows.usable(task, some)[0] if example.references]
    random.Random(0).shuffle(found)  # some come sorted by label
    training = found[: min(TRAINING, len(found) // 2)]
    asked = found[len(training) :][:ANSWERS]
    different = f"{kind}, {len(asked):,} different" if len(asked) < ANSWERS else kind
    return (asked * (ANSWERS // len(asked) + 1))[:ANSWERS], training, different


def measured(name: str) -> list[str]:
    """A row of the table."""
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # what it thinks of our text
    task = tasks.task(name)
    asked, training, kind = examples_of(task)
    following = enumerate([*asked[1:], asked[0]])
    answers = [f"{example.references[0]} {place}" for place, example in following]  # no two alike: words cut are kept
    ready = scoring.ready(task, task.reward, training)
    ready.measure(answers[:8], asked[:8])  # what is imported at first use is imported
    costs, columns = {}, scores.columns(asked)
    before, began = _mb_held(), time.process_time()
    ready.reward(columns["prompts"], answers, columns["references"], [example.meta for example in asked])
    reward = time.process_time() - began
    for key, score in ready.metrics.items():
        began = time.process_time()
        score.each(answers, **columns)
        score.corpus(answers, **columns)
        costs[key] = time.process_time() - began
    for key, function in ready.plain.items():
        began = time.process_time()
        function(answers)
        costs[key] = time.process_time() - began
    added = _mb_at_most() - before
    slowest = max(costs, key=costs.__getitem__)
    words = sum(len(answer.split()) for answer in answers) / ANSWERS
    references = sum(len(example.references) for example in asked) / ANSWERS
    total = reward + sum(costs.values())
    return [
        name,
        kind,
        f"{words:.0f}",
        f"{references:.1f}",
        str(len(costs)),
        f"{total:.1f}",
        f"{reward:.1f}",
        f"{slowest} {costs[slowest]:.1f}",
        f"{added:.0f}",
        "met" if total <= LIMIT_S and added <= LIMIT_MB else "not met",
        ", ".join(ready.absent) or "none",
    ]


def _mb_held() -> float:
    """Megabytes of this process now; ``_mb_at_most`` counts from here."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the highest resident size
    return _mb_at_most()


def _mb_at_most() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1e3


def report(names: list[str]) -> str:
    head = ["task", "rows", "words an answer", "references a row", "scores", "CPU s", "of it the reward", "the slowest"]
    head += ["MB more (peak)", f"≤ {LIMIT_S} s and ≤ {LIMIT_MB:,} MB", "needs a model, left out"]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = pool.map(measured, names, chunksize=1)
    return (
        f"# What the benchmark's scores cost: {ANSWERS:,} answers\n\n"
        "Written by `python -m bench.scores`, one thread. As an evaluation does: the reward, then every score of the "
        "task's table that needs no model, once per example and once of all. An answer is the reference of the next "
        "row, with a number at its end so that no two are alike.\n\n" + table(head, found)
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scores", description=__doc__.split("\n\n")[0])
    parser.add_argument("tasks", nargs="*", default=tasks.names(), help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "bench" / "scores.md", help="file to write")
    options = parser.parse_args()
    try:
        text = report([tasks.task(name).name for name in options.tasks])
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
