"""The leaderboard's pages: reports/grue/leaderboard.csv.xz and .md, figures, claims.csv and .md.

    rows, samples = gather.all_seeds(settings, Path("runs"), Path("submitted"))   # or gather.draws
    write(rows, tasks, contrasts, claims, samples, out)

Of generated rows, each seed's numbers stand beside the pages (per_seed.csv.xz), and its first answers
(samples.jsonl.bz2). Every table says split, n, decoding and checkpoint. What the paper printed stands under its own
heading, and in our table only where data set, split, checkpoint, decoding and score are the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.figures.parts import save
from workbook.grue import board, claims, contrasts, over_tasks, pictures, scores
from workbook.grue.arms import ARMS
from workbook.grue.baselines import HUMAN, TRIVIAL
from workbook.grue.board import REWARD, Board
from workbook.grue.claims import Verdict
from workbook.grue.evaluate import said
from workbook.grue.example import Published, Task
from workbook.grue.published import ALIKE, checkpoint
from workbook.grue.scoring import PLAIN
from workbook.grue.settings import Grue
from workbook.ledger.claim import Claim
from workbook.results.files import PER_SEED, SAMPLES, TEXTS_OF_A_SEED, packed
from workbook.results.pack import write_packed
from workbook.results.tables import PROMPT_WORDS, between, join, markdown, number, safe, short
from workbook.statistics.rule import FOR
from workbook.store.files import atomic_write
from workbook.store.tables import write_table

HEAD = """# The benchmark's leaderboard

{tasks} tasks, {seeds}. Mean over seeds and its 95 % interval (t). A seed is a draw of rows and a raw model of its own.
Trivial answers are written without a model; another human's reference is scored against the other references of its
example. "judge" knows the truth of a generated row: grammar x sense x coverage x faithfulness, each from 0 to 1. The
reward runs from 0 to 1 too and is the task's, also of the rows whose training was paid another one; it is the mean over
answers, where a column of the same score may be of all answers together ([the scores](../../grue/metrics.md)).
[Each seed's numbers]({rows}) and its [first {texts} answers]({samples}) are tables beside this page.
Absent, and never replaced: {absent}."""
HEAD_REAL = """# The benchmark on real rows

{tasks} tasks, {seeds}: profile {profile}. Mean over draws and its 95 % interval (t). A draw is first weights, an order
of the training rows and samples of its own; test rows are the same for all, so that an interval says nothing of other
test rows. Trivial answers are written without a model; another human's reference is scored against the other references
of its example. Nobody knows the truth of a real row: there is no judge. Samples show at most {words} words of a prompt
and no reference. Absent, and never replaced: {absent}."""
NOTHING = (
    "**The numbers of this task mean nothing at this size**: they show that it runs from rows to table. It is in no "
    "mean, rank or figure over tasks."
)
SHOWN = 2  # samples of each policy


def write(
    rows: Iterable[Mapping[str, Any]],
    tasks: Sequence[Task],
    rules: Mapping[str, contrasts.Contrasts],
    known: Mapping[str, Claim],
    samples: Iterable[Mapping[str, Any]],
    out: Path,
    ours: Grue | None = None,
    further: Sequence[str] = (),
) -> list[Verdict]:
    """All pages of these rows into ``out``; the verdicts. ours: the settings they were made by (none: generated rows,
    each task's own reward); of real rows nobody judges the claims. further: paragraphs at the end of the leaderboard.
    Raises: BoardError for rows that cannot be compared."""
    rows, samples, real = list(rows), list(samples), ours is not None and ours.real
    found = board.board(rows, "draw" if real else "seed")
    nothing = ours.meaningless if ours else ()
    means = replace(found, rows={name: of for name, of in found.rows.items() if name not in nothing})
    named = [task.name for task in tasks]
    verdicts = claims.over_the_board(
        [claims.judge(name, rule, known[name], found, named) for name, rule in rules.items()]
    )
    write_table(out / packed("leaderboard.csv"), lines(found))
    if not real:  # of real rows both stand with their draws
        every = [row for named in found.rows.values() for mine in named.values() for row in mine]
        columns = list(dict.fromkeys(name for row in every for name in row))
        write_table(out / packed(PER_SEED), [dict.fromkeys(columns) | row for row in every], columns)
        write_packed(out / packed(SAMPLES), first(samples).encode())
    figures = pictures.shown(means)
    for figure in figures:
        save(figure.figure, out, figure.name)
    absent = sorted({name for row in rows for name in str(row.get("absent") or "").split()}) or ["nothing"]
    said = {"tasks": len(found.rows), "seeds": found.counted}
    said |= {"absent": ", ".join(absent), "profile": ours.profile if ours else "", "words": PROMPT_WORDS}
    said |= {"rows": packed(PER_SEED), "samples": packed(SAMPLES), "texts": TEXTS_OF_A_SEED}
    parts = [(HEAD_REAL if real else HEAD).format(**said), *over_tasks.over_all(means)]
    for figure in figures:
        alt = str(figure.figure.get_label()).replace("[", "(").replace("]", ")")
        parts += [f"## {figure.title}", f"![{alt}]({figure.name}.svg)", figure.read]
    for task in (task for task in tasks if task.name in found.rows):
        paid = ours.reward(task) if ours else task.reward
        vain = task.name in nothing  # so are its texts
        head, *tables = _task(found, task, paid, [one for one in samples if one["task"] == task.name and not vain])
        parts += [head, *([NOTHING] if vain else ()), *tables]
    atomic_write(out / "leaderboard.md", "\n\n".join([*parts, *further]) + "\n")
    if verdicts:
        write_table(out / "claims.csv", claims.table(verdicts, found))
        atomic_write(out / "claims.md", _claims(verdicts, rules, found))
    return verdicts


# --------------------------------------------------------------------------------------------------------- long form
def lines(found: Board) -> list[dict[str, Any]]:
    """A line for each task, condition and number: mean, interval, seeds, where it stands on the common scale."""
    made = []
    for task, named in found.rows.items():
        for name, rows in named.items():
            for column in found.columns(task):
                if (values := found.values(task, name, column)) is None:
                    continue
                cell, scaled = board.interval(values), board.normalised(found, task, name, column)
                made.append(
                    {
                        "task": task,
                        "condition": name,
                        "kind": found.kind(task, name),
                        "column": column,
                        "mean": cell.estimate,
                        "low": cell.low,
                        "high": cell.high,
                        "seeds": cell.n,
                        "normalised": None if scaled is None else float(scaled.mean()),
                        "room": board.room(found, task, column).why or "room",
                        **{key: _one(rows, key) for key in board.SAME},
                    }
                )
    return made


def _one(rows: Sequence[Mapping[str, Any]], key: str) -> Any:
    """What all rows say; of several things the first, and how many more: seeds have raw models of their own."""
    values = list(dict.fromkeys(row[key] for row in rows))
    return values[0] if len(values) == 1 else f"{values[0]} and {len(values) - 1} more"


# --------------------------------------------------------------------------------------------------------------- a task
def _task(found: Board, task: Task, reward: Mapping[str, float], samples: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = found.columns(task.name)
    plain = [name for name in columns if name.removeprefix("metric/") in PLAIN]
    judged = [name for name in columns if name.startswith("judge/")]
    scored = [name for name in columns if name not in (REWARD, *plain, *judged)]
    scale = board.room(found, task.name, REWARD)
    paid = " + ".join(f"{weight:g} {name}" for name, weight in reward.items())
    parts = [
        f"## {task.title}",
        f"Reward: {paid}. {_published_as(found, task)} On the common scale: "
        f"{scale.why or f'0 is {scale.best!r}, 1 is {scale.top}'}. {claims.one_model(found, task.name)}".strip(),
    ]
    for names in ([REWARD, *judged], scored, plain):
        if names:
            parts.append(markdown(pd.DataFrame(_rows(found, task, names))))
    for printed in (task.published, *task.more):
        if printed.rows:
            parts += [
                f"### Printed by the paper: {printed.source}",
                f"Split: {printed.split}; {checkpoint(task)}; {said(task.decode)}. "
                f"{_other_start(task)}{_compared(found, task, printed)}",
                markdown(pd.DataFrame(_printed(printed))),
            ]
    if samples:
        parts += ["### Samples", markdown(pd.DataFrame(sampled(samples, min(one["seed"] for one in samples))))]
    return parts


def _rows(found: Board, task: Task, columns: Sequence[str]) -> list[dict[str, str]]:
    table = []
    for name, rows in found.rows[task.name].items():
        cells = {}
        for column in columns:
            values = found.values(task.name, name, column)
            cells[_called(column)] = "" if values is None else over_tasks.cell(board.interval(values))
        kind = {TRIVIAL: "trivial: ", HUMAN: "", board.SUBMITTED: "submitted: "}.get(found.kind(task.name, name), "")
        about = {key: str(_one(rows, key)) for key in board.SAME}
        table.append({"answers of": kind + pictures.label(name), **cells, **about})
    for printed in (task.published, *task.more):
        if printed.rows and same(found, task, printed):
            table += _beside(task, printed, columns, table[0])
    return table


def _compared(found: Board, task: Task, printed: Published) -> str:
    """With which of our columns printed numbers may be compared."""
    alike = [name for name in next(iter(printed.rows.values())) if name in ALIKE]
    if not alike or not same(found, task, printed):
        return "Not to be compared with ours."
    others = "The other columns are other functions than ours of the same name, not to be compared with them."
    return f"Of the same function as ours, and in our tables too: {join(alike)}. {others}"


def _other_start(task: Task) -> str:
    """Of printed lines, where supervision was not of that checkpoint; else empty."""
    model = _of_another_model(task)
    return f"Its supervised lines, and RL after them, are of another model: {model}. " if model else ""


def _of_another_model(task: Task) -> str:
    """The model of the printed supervised lines, where it is not the checkpoint of the others; else empty."""
    return task.published.settings["supervised"].get("model", "")


def _after_supervision(method: str) -> bool:
    arm = ARMS[method]
    return arm.imitates or (bool(arm.start) and ARMS[arm.start].imitates)


def _beside(task: Task, printed: Published, columns: Sequence[str], like: Mapping[str, str]) -> list[dict[str, str]]:
    """Printed numbers as lines of our table, where they may stand in it: those of the same function and checkpoint."""
    lines = []
    for method, numbers in printed.rows.items():
        if _of_another_model(task) and _after_supervision(method):
            continue
        alike = {name: value for name, value in numbers.items() if name in ALIKE and f"metric/{name}" in columns}
        cells = {_called(f"metric/{name}"): number(value * _points(name)) for name, value in alike.items()}
        about = {"split": printed.split, "data": printed.source}
        line = dict.fromkeys(like, "") | cells | about
        lines += [line | {"answers of": f"printed: {pictures.label(method)}"}] if cells else []
    return lines


def _points(name: str) -> float:
    """The paper prints shares of 1 where our score has points."""
    score = scores.known().get(name)
    return score.scale if score and score.unit == "points" else 1.0


def same(found: Board, task: Task, printed: Published) -> bool:
    """Whether printed numbers may stand in our columns: our policies answer the same split of the hub's data, from the
    published checkpoint, decoded as published."""
    wanted = {"data": task.hub, "split": printed.split, "checkpoint": checkpoint(task), "decoding": said(task.decode)}
    rows = [row for name in found.named(task.name, board.MODEL) for row in found.rows[task.name][name]]
    return bool(rows) and all(row[key] == value for row in rows for key, value in wanted.items())


def _published_as(found: Board, task: Task) -> str:
    rows = [row for name in found.named(task.name, board.MODEL) for row in found.rows[task.name][name]]
    return f"Decoded {_one(rows, 'decoding')}; published: {said(task.decode)}." if rows else ""


def _called(column: str) -> str:
    name = column.removeprefix("metric/").removeprefix("judge/")
    score = scores.known().get(name) if column.startswith("metric/") else None
    return f"{name} ({score.unit})" if score and score.unit != "share" else name


def _printed(printed: Published) -> list[dict[str, Any]]:
    return [{"": pictures.label(method), **numbers} for method, numbers in printed.rows.items()]


def first(samples: Iterable[Mapping[str, Any]], each: int = TEXTS_OF_A_SEED) -> str:
    """The first answers of each task, policy and seed as lines of JSON, in their order."""
    taken: Counter[tuple[Any, ...]] = Counter()
    lines = []
    for one in samples:
        run = tuple(one[key] for key in ("task", "condition", "seed"))
        taken[run] += 1
        if taken[run] <= each:
            lines.append(json.dumps(one, ensure_ascii=False) + "\n")
    return "".join(lines)


def sampled(samples: Sequence[Mapping[str, Any]], seed: int, each: int = SHOWN) -> list[dict[str, str]]:
    """The first answers of each policy on a seed; of the prompt its last words, and no reference."""
    taken: dict[str, list[dict[str, str]]] = {}
    for one in samples:
        mine = taken.setdefault(one["condition"], [])
        if one["seed"] == seed and len(mine) < each:
            cells = {"prompt": _text(short(one["prompt"])), "answer": _text(one["response"])}
            numbers = {name: "" if one[name] is None else number(one[name]) for name in ("reward", "judge")}
            mine.append({"policy": pictures.label(one["condition"]), **cells, **numbers})
    return [line for mine in taken.values() for line in mine]


def _text(said: str) -> str:
    """Text as a cell shows it: one line, no markup; the table itself takes care of its bars."""
    return safe(" ".join(said.split())).replace("\\|", "|")


# --------------------------------------------------------------------------------------------------------------- claims
def _claims(verdicts: Sequence[Verdict], rules: Mapping[str, contrasts.Contrasts], found: Board) -> str:
    parts = [
        "# The claims on the benchmark",
        f"{claims.OURS} The contrasts (grue/contrasts.yaml, hash `{contrasts.fingerprint(rules)[:12]}`) were fixed "
        "before the first counted run; what else was changed since, and what moved with it, is on [the page of the "
        "editions](../grue_again/again.md). The rule is the ledger's, at one look. Each deciding test of a claim is "
        "needed. Numbers run from 0 to 1 whatever the score's unit; intervals are of 95 % (of an equality the rule "
        "asks for the one of 90 % inside the margin). A word against a deciding part is after Holm's correction "
        "over those that decide; words beside are uncorrected. A test of supervised arms on tasks where supervision "
        "kept the raw model in every seed says *no supervised start* and decides nothing; a mean over such tasks and "
        "others stands (a rule made on the first edition, when its words were known).",
        "Beside each word that holds stands its q, the share of false ones to be expected among the claims that hold "
        f"with a q as small (Benjamini-Yekutieli over the {sum(verdict.p is not None for verdict in verdicts)} claims "
        f"that were tested here). No p of a difference of {len(found.seeds)} seeds is below "
        f"{number(2.0 ** -len(found.seeds))}: q is large, whatever was found.",
        *(claims.one_model(found, task) for task in found.rows),
    ]
    for verdict in verdicts:
        q = f"q = {number(verdict.q)}." if verdict.q is not None and verdict.word in FOR else ""
        same = (
            f"With policies that are one and the same model: {join(list(verdict.same))} (above)."
            if verdict.same
            else ""
        )
        parts += [f"## {verdict.id}: {verdict.word}", verdict.claim, f"{verdict.sentence} {q}".strip()]
        parts += [f"{verdict.said} {same}".strip()]
        table = [
            {
                "test": part.name,
                "role": part.role,
                "claimed": f"{part.direction}, {f'{part.stated:g}' if part.stated else 'a threshold'}",
                "difference": ""
                if part.difference is None
                else f"{part.difference:+.3f} {between(part.low, part.high)}",
                "p": "" if part.p is None else number(part.p),
                "word": part.word,
            }
            for part in verdict.parts
        ]
        parts += [markdown(pd.DataFrame(table))] if table else []
    return "\n\n".join(part for part in parts if part) + "\n"
