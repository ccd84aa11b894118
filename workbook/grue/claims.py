"""The claims on the benchmark, judged by the ledger's rule at one look over the seeds.

verdicts = [judge(name, contrast, claims[name], board, tasks) for name, contrast in contrasts.items()]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from workbook.grue import board
from workbook.grue.arms import ARMS
from workbook.grue.board import Board
from workbook.grue.contrasts import Contrasts, Test, scale
from workbook.ledger.claim import Claim
from workbook.ledger.ruling import ELSEWHERE
from workbook.results.tables import effect, join, minus
from workbook.statistics import paired, power
from workbook.statistics.rule import AGAINST, FEW, FOR, Evidence, combine, decide, fair

NOT_RUN, NO_START = "not run here", "no supervised start"
OURS = (
    "Every word is about models of this size, trained from scratch on generated rows, a draw of texts and a raw model "
    "each seed; none is about T5-base or GPT-2 on the data sets of the hub."
)


@dataclass(frozen=True)
class Part:
    """What one test came to. difference, low, high: mean over seeds and its 95 % interval, in units of the scale;
    stated: the effect or margin that was fixed beforehand, 0 = a threshold; p: of the claimed direction."""

    name: str
    role: str
    direction: str
    stated: float
    word: str
    n: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim's word, what it rests on, one computed sentence, and what has to be said beside it.

    same: of the tasks it rests on, those where policies are one model (`one_model`); p: of "holds"; q: see
    `over_the_board`; both None for a claim without a word.
    """

    id: str
    claim: str
    word: str
    parts: tuple[Part, ...]
    sentence: str
    said: str
    same: tuple[str, ...] = ()
    p: float | None = None
    q: float | None = None


def expanded(test: Test, tasks: Sequence[str]) -> list[Test]:
    """The test with its tasks named; where ``each``, one for every task."""
    named = test.tasks or tuple(tasks)
    if not test.each:
        return [test.replace(tasks=named)]
    return [test.replace(name=f"{test.name}, {task}", tasks=(task,), each=False) for task in named]


def numbers(test: Test, found: Board) -> np.ndarray | None:
    """[n] the test's number of every seed; None where some arm, column or task has none."""
    sides = []
    for side in filter(None, (test.tasks, test.minus)):
        sums = []
        for task in side:
            parts = [(found.values(task, arm, column), column, w) for arm, column, w in test.columns()]
            if any(values is None for values, _, _ in parts):
                return None
            sums.append(sum(w * values / scale(column) for values, column, w in parts))
        sides.append(np.mean(sums, axis=0))
    return sides[0] - sides[1] if len(sides) == 2 else sides[0]


def evidence(test: Test, values: np.ndarray) -> Evidence:
    """By the ledger's rule: of equality by two one-sided t tests; else t and exact sign-flip test, with what is known
    of the size where one was stated."""
    if test.direction == "equal":
        return paired.equivalence(values, test.margin).evidence
    found = paired.one_sample(values, test.direction).evidence
    if test.threshold or not found.testable:
        return found
    return replace(found, p_small=paired.equivalence(values, test.effect).p)


def judge(name: str, contrasts: Contrasts, claim: Claim, found: Board, tasks: Sequence[str]) -> Verdict:
    """A claim's verdict on the rows of a leaderboard. All deciding tests are needed (intersection-union); one that was
    not run leaves the claim without a word. So does one that compares supervised arms where supervision kept the raw
    model (`without_start`), unless the others refute the claim: for that one part is enough."""
    tests = [one for test in contrasts.tests for one in expanded(test, tasks)]
    values = [numbers(test, found) for test in tests]
    made = [None if v is None else evidence(test, v) for test, v in zip(tests, values)]
    needed = [i for i, test in enumerate(tests) if test.role == "decides"]
    lacking = {i for i, test in enumerate(tests) if made[i] is not None and without_start(test, found)}
    decides = [i for i in needed if i not in lacking]
    stepped = {}
    if decides and all(made[i] is not None for i in decides):
        stepped = dict(zip(decides, fair([made[i] for i in decides], "all")))
    parts = tuple(_part(t, v, stepped.get(i, made[i])) for i, (t, v) in enumerate(zip(tests, values)))
    parts = tuple(replace(part, word=NO_START) if i in lacking else part for i, part in enumerate(parts))
    about = {"id": name, "claim": claim.claim, "parts": parts, "said": contrasts.said}
    about["same"] = tuple(task for task in concerned(tests) if one_model(found, task))
    if not needed:
        return Verdict(**about, word=ELSEWHERE, sentence=f"Not testable here: needs {join(claim.needs)}.")
    unmade = [tests[i].name for i in needed if i in lacking]
    if not decides:
        return Verdict(**about, word=ELSEWHERE, sentence=_without(unmade))
    if not stepped:
        gone = [tests[i].name for i in decides if made[i] is None]
        return Verdict(**about, word=ELSEWHERE, sentence=f"Not testable here: not run: {'; '.join(gone)}.")
    whole = combine([made[i] for i in decides], "all")
    word = decide(whole)
    if word == FEW:
        need = f"at least {power.fewest_seeds()} seeds (here {len(found.seeds)})"
        return Verdict(**about, word=ELSEWHERE, sentence=f"Not testable here: needs {need}.")
    if unmade and word not in AGAINST:
        return Verdict(**about, word=ELSEWHERE, sentence=_without(unmade))
    return Verdict(**about, word=word, sentence=_sentence(word, [parts[i] for i in needed]), p=whole.p)


def without_start(test: Test, found: Board) -> bool:
    """Whether a side of the test compares arms that imitate, or go on from there, on tasks of which none has a
    supervised start: what it would tell apart was never made different."""
    imitating = any(_imitates(arm) for arm, _, _ in test.columns())
    return imitating and any(
        all(task in found.rows and board.kept_raw(found, task) for task in side)
        for side in filter(None, (test.tasks, test.minus))
    )


def _imitates(arm: str) -> bool:
    return arm in ARMS and (ARMS[arm].imitates or _imitates(ARMS[arm].start))


def _without(names: Sequence[str]) -> str:
    return f"Not testable here: {NO_START}, as supervision kept the raw model: {'; '.join(names)}."


def over_the_board(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with their q: the share of false ones to be expected among the claims that hold with a q as small
    (Benjamini-Yekutieli over every claim of the benchmark that was tested, whatever the tests share)."""
    tested = [verdict.p for verdict in verdicts if verdict.p is not None]
    shares = iter(false_discovery_control(tested, method="by") if tested else [])
    return [verdict if verdict.p is None else replace(verdict, q=float(next(shares))) for verdict in verdicts]


def concerned(tests: Sequence[Test]) -> list[str]:
    """The tasks of the tests, each once."""
    return list(dict.fromkeys(task for test in tests for task in (*test.tasks, *test.minus)))


def one_model(found: Board, task: str) -> str:
    """Which policies of a task are the same model, in a sentence; "" where all differ."""
    groups = board.alike(found, task) if task in found.rows else []
    if not groups:
        return ""
    same = "; ".join(join([ARMS[name].label if name in ARMS else name for name in group]) for group in groups)
    why = " No step of supervision beat the raw model on validation references there, so that it was kept."
    why *= board.kept_raw(found, task)
    return f"On {task} these are one and the same model: {same}.{why}"


def _part(test: Test, values: np.ndarray | None, found: Evidence | None) -> Part:
    part = Part(test.name, test.role, test.direction, test.margin or test.effect or 0.0, NOT_RUN)
    if values is None or found is None:
        return part
    span = paired.mean_interval(values)
    numbers = {"difference": span.estimate, "low": span.low, "high": span.high, "p": found.p, "n": span.n}
    return replace(part, word=decide(found), **numbers)


def _sentence(word: str, parts: Sequence[Part]) -> str:
    said = [f"{part.name} {minus(effect(part.difference, part.low, part.high))}" for part in parts]
    said = [text if part.word == word else f"{text}: {part.word}" for text, part in zip(said, parts)]
    held = f"; {sum(part.word in FOR for part in parts)} of {len(parts)} parts hold" if len(parts) > 1 else ""
    return f"{word.capitalize()}{held}: {'; '.join(said)}."


def table(verdicts: Sequence[Verdict], found: Board) -> list[dict[str, Any]]:
    """A line for each test of each claim; a claim without tests has one line."""
    lines = []
    for verdict in verdicts:
        said = " ".join(filter(None, [verdict.said, *(one_model(found, task) for task in verdict.same)]))
        about = {"id": verdict.id, "word": verdict.word, "q": verdict.q, "said": said or None}
        blank = dict.fromkeys(Part.__dataclass_fields__)
        for part in verdict.parts or (None,):
            own = blank if part is None else {**part.__dict__}
            own["test_word"] = own.pop("word")
            lines.append({**about, **own})
    return lines
