"""What the benchmark's arms wrote, none selected: of generated rows the first answers of every seed, on a page a task;
a claim's page has some of the first seed and leads there. Behind them, what is committed of real rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.grue import gather, tasks
from workbook.grue import settings as settings_of
from workbook.grue.pictures import label
from workbook.grue.report import SHOWN, sampled
from workbook.results.files import SAMPLES, TEXTS_OF_A_SEED, packed, read_rows
from workbook.results.tables import join, markdown
from workbook.site.blocks import folded

KEPT, REAL = f"reports/grue/{packed(SAMPLES)}", "grue/real"  # of generated rows; a profile's folder


def place(task: str) -> str:
    """The page of what was written on a task's generated rows."""
    return f"texts/grue/{task}/index.md"


def section(root: Path, concerned: Sequence[str], arms: Collection[str]) -> str:
    """What these arms wrote on these tasks, a block a task: on generated rows, of which a claim's word is, and on real
    ones."""
    made = written(root)
    if not made:
        return "No text of these runs is committed; the command below writes some of every run and seed."
    first = min(one["seed"] for one in made)
    there = [task for task in concerned if any(one["task"] == task for one in made)]
    blocks = [block(task, "", rows) for task in there if (rows := _of(made, task, arms, [first]))]
    real = [block(task, ", real rows", rows) for task in concerned if (rows := _drawn(root, task, arms))]
    pages = join([f"[{tasks.task(task).title}](/{place(task)})" for task in there])
    behind = (
        f" Behind them, the first {SHOWN} of each draw on [real rows](/reports/grue_real/leaderboard.md), of which the "
        "word is not."
    ) * bool(real)
    said = (
        f"**Seed by seed**, the first {TEXTS_OF_A_SEED} answers of every arm and seed, nothing selected: {pages}. Here "
        f"are the first {SHOWN} of seed {first}.{behind}"
    )
    return "\n\n".join([said, *blocks, *real])


def links(root: Path) -> list[str]:
    """A section that leads to the pages; none where no text is committed."""
    listed = [f"- [{tasks.task(name).title}](/{place(name)})" for name in named(root)]
    return ["## What the arms of the benchmark wrote", "\n".join(listed)] if listed else []


def block(task: str, of: str, rows: Sequence[Mapping[str, str]]) -> str:
    return folded(tasks.task(task).title + of, markdown(pd.DataFrame(rows)))


def _of(
    made: Sequence[Mapping[str, Any]], task: str, arms: Collection[str], seeds: Sequence[int], each: int = SHOWN
) -> list[dict]:
    mine = [one for one in made if one["task"] == task and one["condition"] in arms]
    return [{"seed": str(seed)} | line for seed in seeds for line in sampled(mine, seed, each)]


def _drawn(root: Path, task: str, arms: Collection[str]) -> list[dict]:
    """On real rows, every draw; of a task whose numbers mean nothing there, none. No judge reads a real answer."""
    ours, made = _of_draws(root)
    if task in ours.meaningless:
        return []
    rows = _of(made, task, arms, sorted({one["seed"] for one in made}))
    return [
        {"draw": row["seed"]} | {name: cell for name, cell in row.items() if name not in ("seed", "judge")}
        for row in rows
    ]


def pages(root: Path, about: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Page -> Markdown, of each task of which texts of generated rows are committed. about: task -> claims tested on
    it."""
    made = written(root)
    return {
        place(task): page(task, [one for one in made if one["task"] == task], about.get(task, ()))
        for task in named(root)
    }


def page(task: str, made: Sequence[Mapping[str, Any]], claims: Sequence[str]) -> str:
    """What every arm wrote on a task's generated rows: a heading an arm, a table with every seed."""
    seeds = sorted({one["seed"] for one in made})
    links = [f"[{claim}](/claims/{claim}/index.md)" for claim in claims]
    parts = [
        f"# What the benchmark's arms wrote: {tasks.task(task).title}",
        f"Generated rows, seeds {seeds[0]} to {seeds[-1]}: of each arm and seed the answers to the first "
        f"{TEXTS_OF_A_SEED} test rows, nothing selected, from the very runs whose numbers [the leaderboard]"
        "(/reports/grue/leaderboard.md) has. Of a prompt its last words; reward and judge run from 0 to 1, and the "
        "judge knows the truth of the row.",
    ]
    parts += [f"Claims that are tested on this task: {join(links)}."] if links else []
    for arm in dict.fromkeys(one["condition"] for one in made):
        rows = _of(made, task, [arm], seeds, TEXTS_OF_A_SEED)
        parts += [f"## {label(arm)}", markdown(pd.DataFrame(rows).drop(columns="policy"))]
    return "\n\n".join(parts) + "\n"


@cache
def written(root: Path) -> list[dict[str, Any]]:
    """The committed answers of generated rows, those of a task one after the other."""
    return read_rows(root / KEPT) if (root / KEPT).is_file() else []


def named(root: Path) -> list[str]:
    """The tasks of which answers of generated rows are committed."""
    return list(dict.fromkeys(one["task"] for one in written(root)))


@cache
def _of_draws(root: Path) -> tuple[settings_of.Grue, list[dict[str, Any]]]:
    """The settings of real rows, and the answers that are committed of their draws."""
    ours = settings_of.load(root / REAL / "params.yaml")
    return ours, gather.draws(ours, root / REAL / "draws")[1]
