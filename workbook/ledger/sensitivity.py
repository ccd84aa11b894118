"""How sharp the ledger is: what a claim's tests would say of worlds in which the answer is known.

    assay(claim, made, [8])     # Assay(holds=.91, refuted=.97): of a world as stated, and of one where nothing is there
    sequence(claim, made, [8, 16, 32], STATED)      # the last word and the seeds it took, world by world

The claim's own numbers give the noise: their covariance over seeds, all tests together, so that tests which share
conditions err together. Their means are replaced by what the claim states, or by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbook.ledger.claim import Claim
from workbook.ledger.made import Made
from workbook.statistics.paired import ALPHA
from workbook.statistics.rule import AGAINST, FOR, Evidence, combine, decide, fair, settled
from workbook.statistics.sequential import levels

REPEATS, SEED = 400, 0
STATED, NOTHING, REVERSED = 1.0, 0.0, -1.0  # effects in units of the stated one
MIDWAY = 0.5  # of an equality its margin, of a threshold what just reaches it


@dataclass(frozen=True)
class Assay:
    """holds: share of worlds as stated of which a claim's word is one of `rule.FOR`; refuted: share of worlds where
    nothing is there (an equality: twice its margin is; a threshold: it is missed by as much as stated) of
    which it is one of `rule.AGAINST`."""

    holds: float
    refuted: float


def assay(
    claim: Claim, made: Sequence[Made], looks: Sequence[int], repeats: int = REPEATS, alpha: float = ALPHA
) -> Assay | None:
    """The assay sensitivity of a claim's deciding tests, looked at after each n seeds of `looks` (often one); None
    where a test has no sample.

    made: its deciding tests, of >= 2 seeds. Standard error of a share p: sqrt(p (1 - p) / repeats). Limits: without
    noise 1 and 1; far more noise than effect: 0 and 0.
    """
    if any(one.sample is None for one in made):
        return None
    return Assay(
        holds=share([word for word, _ in sequence(claim, made, looks, STATED, repeats, alpha)], FOR),
        refuted=share([word for word, _ in sequence(claim, made, looks, NOTHING, repeats, alpha)], AGAINST),
    )


def words(
    claim: Claim, made: Sequence[Made], n: int, effect: float | Sequence[float], repeats: int = REPEATS
) -> list[str]:
    """The claim's word in `repeats` made-up worlds of n seeds whose effects are `effect` times the stated ones: one
    number for all tests, or one a test.

    The noise is normal, with the covariance over seeds of the claim's own numbers; the same call gives the same words.
    """
    worlds = _worlds(made, n, effect, repeats)
    return [decide(combine(parts, claim.decided_by)) for parts in zip(*_judged(made, worlds, ALPHA))]


def sequence(
    claim: Claim,
    made: Sequence[Made],
    looks: Sequence[int],
    effect: float | Sequence[float],
    repeats: int = REPEATS,
    alpha: float = ALPHA,
) -> list[tuple[str, int]]:
    """(the claim's last word, the seeds it took) in such worlds, looked at after each n of `looks` at
    `sequential.levels`, alpha over all of them together. A claim leaves at the first look at which each of its deciding
    tests is settled."""
    worlds = _worlds(made, looks[-1], effect, repeats)
    said: list[tuple[str, int]] = [("", 0)] * repeats
    going = np.arange(repeats)
    for n, level in zip(looks, levels(looks, alpha)):
        parts = list(zip(*_judged(made, worlds[going, :, :n], level)))
        for world, found in zip(going, parts):
            said[world] = decide(combine(found, claim.decided_by)), n
        going = going[[not settled(decide(e) for e in fair(found, claim.decided_by)) for found in parts]]
        if not len(going):
            break
    return said


def share(said: Sequence[str], wanted: Sequence[str]) -> float:
    """Of the words said, the part that is among those wanted; there is at least one."""
    return sum(word in wanted for word in said) / len(said)


def _worlds(made: Sequence[Made], n: int, effect: float | Sequence[float], repeats: int) -> np.ndarray:
    """[repeats, all m, n]: the same noise for every n and effect, cut or moved."""
    numbers = np.vstack([one.sample.values for one in made])  # [all m, seeds]
    centred = (numbers - numbers.mean(1, keepdims=True)) / np.sqrt(numbers.shape[1] - 1)
    drawn = np.random.default_rng(SEED).normal(size=(n, repeats, numbers.shape[1]))
    means = np.concatenate([one.sample.at(e) for one, e in zip(made, np.broadcast_to(effect, len(made)))])
    return np.einsum("nrs,ms->rmn", drawn, centred) + means[:, None]


def _judged(made: Sequence[Made], worlds: np.ndarray, level: float) -> list[list[Evidence]]:
    """A list a test, a piece of evidence a world."""
    found, start = [], 0
    for one in made:
        stop = start + len(one.sample.values)
        found.append(one.sample.judge(worlds[:, start:stop], level))
        start = stop
    return found
