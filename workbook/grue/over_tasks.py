"""The leaderboard's sections over all tasks: one scale, ranks, what training added, whether reward and judge agree."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbook.grue import board, pictures
from workbook.grue.board import JUDGE, REWARD, Board
from workbook.results.tables import between, effect, markdown, number, signed
from workbook.statistics import ordered

NORMALISED = """## One scale for all tasks

(x - best trivial answer) / (another human's reference - best trivial answer). A task counts only where the top beats
the best trivial answer beyond its interval (of real rows both are the same in every draw, and have none). Of the seeds'
means over tasks, and of their interquartile means (IQM). Left out of the intervals is how uncertain the two ends of the
scale are, and the human's answer has one reference fewer to be like than the others have."""
JUDGED = " On the judge's scale the top is 1, which is out of reach where it expects one of several good answers."
SPREAD = """## What the spread of the reward says beforehand

Razin et al. (arXiv:2310.20703): RL fails where the rewards of one prompt's samples hardly differ. Spearman's
correlation over tasks, seed by seed, of that spread under the raw model (10th percentile over prompts) and of how far
supervision is ahead of RL from scratch, in reward; they expect it below 0. The interval is over seeds of the same few
tasks, and says nothing of other tasks. """
ADDED = """## What training added

Differences in the same seed, of the reward and, of generated rows, of the judge. Where supervision kept the raw model
(*), what stands under "supervised" is the raw model, and PPO after it is PPO alone."""
STEPS = (  # (what is added, to what)
    ("ppo", board.START),
    (board.IMITATED, board.START),
    ("sup_ppo", board.IMITATED),
    ("sup_shuffled", board.IMITATED),
    ("sup_ppo", "sup_shuffled"),
)


def over_all(found: Board) -> list[str]:
    judged = any(board.JUDGE in found.columns(task) for task in found.rows)
    parts = [NORMALISED + (JUDGED if judged else "")]
    for column, name in pictures.SAID.items():
        if not any(column in found.columns(task) for task in found.rows):  # no judge of real rows
            continue
        tasks, ranked = board.overall(found, column)
        why = {task: board.room(found, task, column).why for task in found.rows}
        without = [f"{task}: {reason}" for task, reason in why.items() if reason]
        parts.append(f"On the {name}: {', '.join(tasks) or 'no task'}. " + " ".join(f"{line}." for line in without))
        if ranked:
            table = [
                {"policy": pictures.label(line.condition), "mean": cell(line.mean), "IQM": cell(line.iqm)}
                for line in ranked
            ]
            parts.append(markdown(pd.DataFrame(table)))
    if table := _ranks(found):
        parts += [
            "## Rank on the reward beside rank on the judge",
            f"Mean over {len(found.rows)} tasks, 1 is best. A difference above 0: further up "
            "by what is paid than by what was meant.",
            markdown(pd.DataFrame(table)),
        ]
    if table := added(found):
        parts += [ADDED, *table]
    if table := _agreement(found):
        parts += [
            "## Do the reward and the judge order the policies alike?",
            "Kendall's tau of a task's models, seed by seed: 1, the same order; 0, no relation. One model counts once.",
            markdown(pd.DataFrame(table)),
        ]
    if (told := board.foretold(found)) is not None:
        parts.append(f"{SPREAD}Here: {cell(board.interval(told))}, of {found.counted}.")
    return parts


def _ranks(found: Board) -> list[dict[str, str]]:
    """A line for each policy that every task has, the best by reward first."""
    paid, meant = (board.ranks(found, column) for column in (REWARD, JUDGE))
    table = []
    for name in sorted(paid, key=lambda name: paid[name].mean()) if meant else ():
        apart = board.interval(meant[name] - paid[name])
        cells = {"on the reward": cell(board.interval(paid[name])), "on the judge": cell(board.interval(meant[name]))}
        said = effect(apart.estimate, apart.low, apart.high)
        table.append({"policy": pictures.label(name), **cells, "judge - reward": said})
    return table


def added(found: Board) -> list[str]:
    """A table for each column: a line a task and the mean of the tasks that have a supervised start; below, on the
    common scale."""
    tables = []
    for column, name in pictures.SAID.items():
        lines, raw = [], {task for task in found.rows if board.kept_raw(found, task)}
        steps = {f"{pictures.label(a)} − {pictures.label(b)}": (a, b) for a, b in STEPS}
        made = {
            task: {said: _difference(found, task, column, *pair) for said, pair in steps.items()} for task in found.rows
        }
        for task, values in made.items():
            lines.append({"task": f"{task}{' *' * (task in raw)}"} | {said: _change(v) for said, v in values.items()})
        own = [values for task, values in made.items() if task not in raw]
        means = {said: [v[said] for v in own if v[said] is not None] for said in steps}
        mean = {said: f"{_change(np.mean(v, axis=0))} ({len(v)})" if v else "" for said, v in means.items()}
        lines.append({"task": "mean over tasks without * (how many)"} | mean)
        if any(v is not None for values in made.values() for v in values.values()):
            tables.append(f"On the {name}:\n\n{markdown(pd.DataFrame(lines))}")
        if (lead := board.ahead(found, column, "sup_ppo", board.IMITATED)) is not None:
            where = ", ".join(board.tasks_ahead(found, column))
            tables.append(f"On the common scale supervised + PPO − supervised: {_change(lead)} ({where}).")
    return tables


def _difference(found: Board, task: str, column: str, first: str, second: str) -> np.ndarray | None:
    sides = [found.values(task, name, column) for name in (first, second)]
    return None if any(side is None for side in sides) else sides[0] - sides[1]


def _change(values: np.ndarray | None) -> str:
    span = None if values is None else board.interval(values)
    return "" if span is None else signed(span.estimate, span.low, span.high)


def _agreement(found: Board) -> list[dict[str, str]]:
    table = []
    for task in found.rows:
        names = [group[0] for group in board.models_of(found, task, board.MODEL, board.SUBMITTED)]
        pairs = [[found.values(task, name, column) for column in (REWARD, JUDGE)] for name in names]
        pairs = [pair for pair in pairs if not any(values is None for values in pair)]
        if len(pairs) > 1:
            tau = ordered.kendall(*(np.array(side) for side in zip(*pairs)))
            table.append({"task": task, "models": len(pairs), "tau": cell(board.interval(tau))})
    return table


def cell(cell) -> str:
    return f"{number(cell.estimate)} {between(cell.low, cell.high)}".strip()
