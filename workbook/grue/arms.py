"""The conditions of the benchmark, one record each: what it starts from and how it goes on from there.

    zero_shot                       the raw model of the draw
    ppo, nlpo                       reinforcement learning on the raw model
    supervised                      imitation of references, best epoch by validation loss
    sup_ppo, sup_nlpo               reinforcement learning on the supervised weights
    sup_more                        control: as many more supervised steps as reinforcement learning takes
    sup_shuffled                    control: PPO paid what another answer of its batch earned
    ppo_kl_0                        PPO without a penalty for leaving the raw model
    sup_ppo_meteor, sup_ppo_bleu    PPO on the supervised weights, paid another score than the task's

Another arm is another record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rlnlp.learners.common import Score
from rlnlp.settings import nearest
from rlnlp.types import Rollout, generator


def as_it_is(score: Score, seed: int) -> Score:
    """What the task pays."""
    return score


def shuffled(score: Score, seed: int) -> Score:
    """The batch's scores, dealt to its answers at random: the same numbers, without any word about which answer is
    good (Choshen et al. 2020, arXiv:1907.01752).

    The deal is a function of seed and answers alone, so that a resumed run deals as an uninterrupted one.
    """

    def dealt(rollout: Rollout):
        scores, parts = score(rollout)
        said = (rollout.responses * rollout.mask).tolist()
        order = torch.randperm(len(scores), generator=generator(seed, "shuffled", said)).to(scores.device)
        return scores[order], {name: values[order] for name, values in parts.items()}

    return dealt


@dataclass(frozen=True)
class Arm:
    """One condition.

    label: in tables; start: the arm whose weights it begins with, "" = the raw model of the draw.
    learner: a file of ``rlnlp.learners``, "" = none; settings: what differs from the task's settings of that learner;
    pay: (score, seed) -> the score that the learner sees; reward: scores and weights that training pays, {} = the
    task's. Tables show the task's reward, whatever was paid.
    imitates: supervised fine-tuning: for its own epochs, or, where the start has had those, for as many steps as the
    learner of the settings takes.
    """

    name: str
    label: str
    start: str = ""
    learner: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    pay: Callable[[Score, int], Score] = as_it_is
    imitates: bool = False
    reward: Mapping[str, float] = field(default_factory=dict)


ARMS = {
    arm.name: arm
    for arm in (
        Arm("zero_shot", "zero-shot"),
        Arm("ppo", "PPO", learner="ppo"),
        Arm("nlpo", "NLPO", learner="nlpo"),
        Arm("supervised", "supervised", imitates=True),
        Arm("sup_ppo", "supervised + PPO", start="supervised", learner="ppo"),
        Arm("sup_nlpo", "supervised + NLPO", start="supervised", learner="nlpo"),
        Arm("sup_more", "supervised, more steps", start="supervised", imitates=True),
        Arm("sup_shuffled", "supervised + PPO, shuffled reward", start="supervised", learner="ppo", pay=shuffled),
        Arm("ppo_kl_0", "PPO, no KL penalty", learner="ppo", settings={"kl_coef": 0.0}),
        Arm("sup_ppo_meteor", "supervised + PPO, METEOR paid", "supervised", "ppo", reward={"meteor_stem": 1.0}),
        Arm("sup_ppo_bleu", "supervised + PPO, BLEU paid", "supervised", "ppo", reward={"sacrebleu": 1.0}),
    )
}


def arm(name: str) -> Arm:
    """Raises ``ValueError`` for a name that no record has, with the nearest."""
    if name not in ARMS:
        raise ValueError(f"condition: expected one of {', '.join(ARMS)}, found {name!r}{nearest(name, ARMS)}")
    return ARMS[name]
