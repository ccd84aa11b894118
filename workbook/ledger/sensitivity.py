"""How sharp the ledger is: what a claim's tests would say of worlds in which the answer is known.

    assay(claim, made, n=8)     # Assay(holds=.91, refuted=.97): of a world as stated, and of one where nothing is there

The claim's own numbers give the noise: their covariance over seeds, all tests together, so that tests which share
conditions err together. Their means are replaced by what the claim states, or by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbook.ledger.claim import Claim
from workbook.ledger.made import Made
from workbook.statistics.rule import AGAINST, FOR, combine, decide

REPEATS = 400
STATED, NOTHING, REVERSED = 1.0, 0.0, -1.0  # effects in units of the stated one


@dataclass(frozen=True)
class Assay:
    """holds: share of worlds as stated of which a claim's word is one of `rule.FOR`; refuted: share of worlds where
    nothing is there (an equality: twice its margin is) of which it is one of `rule.AGAINST`."""

    holds: float
    refuted: float


def assay(claim: Claim, made: Sequence[Made], n: int, repeats: int = REPEATS) -> Assay | None:
    """The assay sensitivity of a claim's deciding tests at n seeds; None where a test has no sample.

    made: its deciding tests, of >= 2 seeds. Standard error of a share p: sqrt(p (1 - p) / repeats). Limits: without
    noise 1 and 1; far more noise than effect: 0 and 0.
    """
    if any(one.sample is None for one in made):
        return None
    return Assay(
        holds=_share(words(claim, made, n, STATED, repeats), FOR),
        refuted=_share(words(claim, made, n, NOTHING, repeats), AGAINST),
    )


def words(claim: Claim, made: Sequence[Made], n: int, effect: float, repeats: int = REPEATS) -> list[str]:
    """The claim's word in `repeats` made-up worlds of n seeds whose effects are `effect` times the stated ones.

    The noise is normal, with the covariance over seeds of the claim's own numbers; the same call gives the same words.
    """
    numbers = np.vstack([one.sample.values for one in made])  # [all m, seeds]
    centred = (numbers - numbers.mean(1, keepdims=True)) / np.sqrt(numbers.shape[1] - 1)
    drawn = np.random.default_rng(0).normal(size=(repeats, n, numbers.shape[1]))
    noise = np.einsum("rns,ms->rmn", drawn, centred)
    found, start = [], 0
    for one in made:
        stop = start + len(one.sample.values)
        found.append(one.sample.judge(noise[:, start:stop] + one.sample.at(effect)[:, None]))
        start = stop
    return [decide(combine(parts, claim.decided_by)) for parts in zip(*found)]


def _share(said: Sequence[str], wanted: Sequence[str]) -> float:
    return sum(word in wanted for word in said) / len(said)
