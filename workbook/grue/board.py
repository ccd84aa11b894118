"""The rows of the leaderboard as numbers per seed, with intervals, scales and ranks. Nothing here reads a file.

    found = board(rows)                                   # rows: dicts, one per task, condition and seed
    found.values("common_gen", "ppo", "reward")           # [n], seed by seed; None where it was not measured
    normalised(found, "common_gen", "ppo", "reward")      # 0 = best trivial answer, 1 = another human
    overall(found, "judge/judge"), ranks(found, "reward")

Intervals are those of the ledger: t, over seeds, 95 %. A row: task, condition, seed, kind (``model`` where it says
none), n, split, decoding, checkpoint, data (generated where it says none), and numbers: reward, metric/*, judge/*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from workbook.grue import scores
from workbook.grue.arms import ARMS
from workbook.grue.baselines import HUMAN, TRIVIAL
from workbook.statistics import paired
from workbook.statistics.paired import Interval

REWARD, JUDGE = "reward", "judge/judge"
MODEL, SUBMITTED = "model", "submitted"
KINDS = (TRIVIAL, HUMAN, MODEL, SUBMITTED)  # in this order in tables
SAME = ("n", "split", "decoding", "checkpoint", "data")  # what a table says of a row's numbers
START, IMITATED, RAW_LEARNER = "zero_shot", "supervised", "ppo"  # arms that have a part of their own here
ABOUT = {"kind": MODEL, "data": "generated"}  # of a row that does not say it


class BoardError(ValueError):
    """Rows from which no table can be made; named are task, condition and seed."""


@dataclass(frozen=True)
class Board:
    """seeds: those of every row; rows: task -> condition -> its rows in the order of the seeds; unit: what a seed is
    called, a draw where the rows are real ones."""

    seeds: tuple[int, ...]
    rows: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    unit: str = "seed"

    @property
    def counted(self) -> str:
        """How many seeds, in words."""
        return f"{len(self.seeds)} {self.unit}{'s' * (len(self.seeds) != 1)}"

    def values(self, task: str, condition: str, column: str) -> np.ndarray | None:
        """[n seeds]; None where the condition or the number is not there for every seed."""
        found = [row.get(column) for row in self.rows.get(task, {}).get(condition, ())]
        return None if not found or None in found else np.array(found, dtype=float)

    def kind(self, task: str, condition: str) -> str:
        return self.rows[task][condition][0]["kind"]

    def named(self, task: str, *kinds: str) -> list[str]:
        """Conditions of a task, of these kinds."""
        return [name for name in self.rows[task] if self.kind(task, name) in kinds]

    def columns(self, task: str) -> list[str]:
        """The numbers that some row of a task has: the reward, the judge's, then the scores in their own order."""
        found = dict.fromkeys(name for rows in self.rows[task].values() for row in rows for name in row)
        numbers = [name for name in found if name == REWARD or name.startswith(("judge/", "metric/"))]
        return sorted(numbers, key=lambda name: (name != REWARD, name != JUDGE, not name.startswith("judge/")))


def board(rows: Iterable[Mapping[str, Any]], unit: str = "seed") -> Board:
    """Raises: BoardError for two rows of one seed, or seeds that some condition lacks: arms are compared seed by
    seed."""
    found: dict[str, dict[str, dict[int, dict]]] = {}
    for row in rows:
        task, name, seed = (row[key] for key in ("task", "condition", "seed"))
        mine = found.setdefault(task, {}).setdefault(name, {})
        if seed in mine:
            raise BoardError(f"{task}, {name}: two rows of seed {seed}; expected one")
        mine[seed] = {**ABOUT, **{key: value for key, value in row.items() if value is not None}}
    seeds = sorted({seed for named in found.values() for mine in named.values() for seed in mine})
    for task, named in found.items():
        for name, mine in named.items():
            if gone := [seed for seed in seeds if seed not in mine]:
                raise BoardError(f"{task}, {name}: no row of seed {gone[0]}; arms are compared seed by seed")
    ordered = {
        task: {name: [mine[seed] for seed in seeds] for name, mine in sorted(named.items(), key=_place)}
        for task, named in found.items()
    }
    return Board(tuple(seeds), ordered, unit)


def _place(item: tuple[str, Mapping[int, Mapping]]) -> tuple:
    name, mine = item
    kind, known = next(iter(mine.values()))["kind"], [*ARMS]
    return KINDS.index(kind), known.index(name) if name in known else len(known), name if kind == SUBMITTED else ""


def interval(values: np.ndarray) -> Interval:
    """Mean over seeds and its interval."""
    return paired.mean_interval(values)


def sign(column: str) -> int:
    """+1 where more is better, -1 where less is, 0 where neither is (how long, how varied)."""
    if column == REWARD or column.startswith("judge/"):
        return 1
    score = scores.known().get(column.removeprefix("metric/"))
    return 0 if score is None else 1 if score.higher_is_better else -1


def alike(found: Board, task: str) -> list[tuple[str, ...]]:
    """Policies whose every number is the same in every seed: one and the same model under several names."""
    return [group for group in models_of(found, task) if len(group) > 1]


def kept_raw(found: Board, task: str) -> bool:
    """Whether supervision kept the raw model of every seed, so that no arm of the task has a supervised start."""
    return any({START, IMITATED} <= {*group} for group in alike(found, task))


def models_of(found: Board, task: str, *kinds: str) -> list[tuple[str, ...]]:
    """The task's policies as models: all names of each, in the order of tables. kinds: of rows; none: our own."""
    named: dict[tuple, list[str]] = {}
    for name in found.named(task, *(kinds or (MODEL,))):
        rows = found.rows[task][name]
        numbers = tuple(row.get(column) for row in rows for column in found.columns(task))
        named.setdefault(numbers, []).append(name)
    return [tuple(names) for names in named.values()]


# ------------------------------------------------------------------------------------------------ one scale for all
@dataclass(frozen=True)
class Room:
    """What lies between the best trivial answer and the top. best: its name; floor [n]; gap: mean of top - floor over
    seeds, in the better direction; top: what the top is; why: "" or why a column has no room."""

    best: str = ""
    floor: np.ndarray | None = None
    gap: float = 0.0
    top: str = ""
    why: str = ""


def room(found: Board, task: str, column: str) -> Room:
    """The top is another human's reference; of the judge, what it says of a right answer: 1. There is room only where
    the interval of top - best trivial answer, seed by seed, lies above 0."""
    way = sign(column)
    floors = {name: found.values(task, name, column) for name in found.named(task, TRIVIAL)}
    floors = {name: way * values for name, values in floors.items() if values is not None}
    if not way or not floors:
        return Room(why="no direction" if not way else "no trivial answer")
    best = max(floors, key=lambda name: floors[name].mean())
    if column == JUDGE:
        top, values = "the judge's optimum", np.ones(len(found.seeds))
    else:
        named = found.named(task, HUMAN)
        top = named[0] if named else ""
        values = found.values(task, top, column) if top else None
        if values is None:
            return Room(best, floors[best], top=top, why="no second reference")
        values = way * values
    gap = interval(values - floors[best])
    if gap.low is None:
        return Room(best, floors[best], gap.estimate, top, f"no room can be shown on {gap.n} seed")
    why = "" if gap.low > 0 else f"no room: {top} does not beat the best trivial answer beyond its interval"
    return Room(best, floors[best], gap.estimate, top, why)


def normalised(found: Board, task: str, condition: str, column: str) -> np.ndarray | None:
    """(x - best trivial answer) / (top - best trivial answer) [n]: the numerator seed by seed, the denominator a mean
    over seeds (its own uncertainty is left out, as the ledger's yardsticks are). None without room or numbers."""
    scale, values = room(found, task, column), found.values(task, condition, column)
    return None if scale.why or values is None else (sign(column) * values - scale.floor) / scale.gap


@dataclass(frozen=True)
class Overall:
    """Over the tasks with room. mean, iqm: of the seeds' means and interquartile means over tasks."""

    condition: str
    mean: Interval
    iqm: Interval


def overall(found: Board, column: str) -> tuple[list[str], list[Overall]]:
    """(tasks with room, a line for each policy that all of them have), the best first."""
    tasks = [task for task in found.rows if not room(found, task, column).why]
    lines = []
    for name in everywhere(found, tasks):
        values = [normalised(found, task, name, column) for task in tasks]
        if not any(v is None for v in values):
            grid = np.array(values)
            lines.append(Overall(name, interval(grid.mean(0)), interval(np.array(paired.iqm(grid, axis=0)))))
    return tasks, sorted(lines, key=lambda line: -line.mean.estimate)


def everywhere(found: Board, tasks: Sequence[str]) -> list[str]:
    """Policies that each of the tasks has, in the order of tables."""
    named = [found.named(task, MODEL, SUBMITTED) for task in tasks]
    return [name for name in named[0] if all(name in other for other in named)] if named else []


def ahead(found: Board, column: str, first: str, second: str) -> np.ndarray | None:
    """[n] how far one policy is ahead of another on the common scale, mean over `tasks_ahead`, seed by seed; None where
    some of them lacks one of the two, or there is none."""
    tasks = tasks_ahead(found, column)
    sides = [[normalised(found, task, name, column) for task in tasks] for name in (first, second)]
    if not tasks or any(values is None for side in sides for values in side):
        return None
    return (np.array(sides[0]) - np.array(sides[1])).mean(0)


def tasks_ahead(found: Board, column: str) -> list[str]:
    """Tasks with room and a supervised start."""
    return [task for task in found.rows if not room(found, task, column).why and not kept_raw(found, task)]


def ranks(found: Board, column: str) -> dict[str, np.ndarray]:
    """Policy -> its rank among those that every task has, mean over tasks [n]; 1 is best, ties share their mean. {}
    where some task does not have the column."""
    names = everywhere(found, [*found.rows])
    grid = [[found.values(task, name, column) for name in names] for task in found.rows]
    if not names or any(values is None for line in grid for values in line):
        return {}
    placed = rankdata(-sign(column) * np.array(grid), axis=1).mean(0)  # [policies, n]
    return dict(zip(names, placed))


# --------------------------------------------------------------------------- what was known before any update was made
def foretold(found: Board, column: str = "spread_p10") -> np.ndarray | None:
    """[n] Spearman's correlation over tasks, seed by seed, of how much the raw model's rewards differ within a prompt
    and how far supervision is ahead of RL from scratch, in reward (Razin et al. 2023, arXiv:2310.20703: where they
    hardly differ, RL fails; so negative). None below three tasks; 0.0 for a seed in which one side is all the same."""
    pairs = []
    for task in found.rows:
        start = found.values(task, START, column)
        first, second = (found.values(task, name, REWARD) for name in (IMITATED, RAW_LEARNER))
        if not any(values is None for values in (start, first, second)):
            pairs.append((start, first - second))
    if len(pairs) < 3:
        return None
    spread, lost = np.array(pairs).transpose(1, 2, 0)  # each [n, tasks]
    return np.array(
        [float(spearmanr(a, b).statistic) if np.ptp(a) and np.ptp(b) else 0.0 for a, b in zip(spread, lost)]
    )
