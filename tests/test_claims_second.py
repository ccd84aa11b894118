"""The second paper's claims, on planted runs."""

import math

import numpy as np
import pytest

from tests.claims_made import NOISE, SHIPPED, results
from workbook.ledger import judge
from workbook.statistics.rule import (
    HOLDS,
    HOLDS_SMALLER,
    OPEN,
    OPPOSITE,
    TOO_SMALL,
)

# the second paper's claims, on planted runs --------------------------------------------------------------------------


FIVE_MASKS = ("top_p", "typical", "epsilon", "eta", "mirostat")


def planted(**scores) -> dict:
    """A score for each condition, which its judge confirms, in all of its decodings; the untrained model has 0.3, PPO
    0.6, PPO without KL 0.8."""
    base, values = 0.1 * NOISE, {}
    for i, (c, score) in enumerate({"zero_shot": 0.3, "ppo_kl_default": 0.6, "ppo_kl_0": 0.8, **scores}.items()):
        found = base + score + 0.004 * np.roll(NOISE, i)
        cells = {d: found for d in ("plain", "own", "greedy")}
        values[c] = {"score": cells, "judge": cells}
    return values


def word(name: str, values: dict, *runs: str) -> str:
    here = dict.fromkeys((*values, *runs), {"decodings": ["greedy"]})
    return judge.judge(SHIPPED[name], results(values, runs=here)).word


@pytest.mark.parametrize(
    "dqn, said",
    [(0.3, HOLDS), (0.2, HOLDS), (0.35, HOLDS), (0.6, OPPOSITE), (0.45, OPPOSITE), (0.37, OPPOSITE), (0.36, OPEN)],
)
def test_a_dqn_learns_if_it_gains_a_fifth_of_what_ppo_gains(dqn, said):
    """The fifth lies at 0.36: a threshold, passed or not, by however little."""
    assert word("C09", planted(dqn_mlp=dqn)) == said
    low, mixed = planted(dqn_mlp=0.3)["dqn_mlp"]["score"]["plain"], planted(dqn_mlp=dqn)
    for decoding in ("plain", "own"):  # drawn from the values, or the best token: not in either
        mixed["dqn_mlp"] = {"judge": {**planted(dqn_mlp=dqn)["dqn_mlp"]["judge"], decoding: low}}
        assert word("C09", mixed) == said
    betas = {f"dqn_mlp_kl_{b}": 0.3 for b in ("0001", "001", "01", "1")}
    assert word("C10", planted(**{**betas, "dqn_mlp_kl_01": dqn})) == said


@pytest.mark.parametrize("typical, said", [(0.6, HOLDS), (0.58, HOLDS), (0.5, OPPOSITE), (0.57, OPEN)])
def test_a_mask_costs_nothing_if_it_keeps_nine_tenths_of_the_gain(typical, said):
    """Nine tenths lie at 0.57; mirostat takes no part."""
    assert (
        word("C17", planted(**{f"mask_{r}": 0.6 for r in FIVE_MASKS} | {"mask_typical": typical, "mask_mirostat": 0.3}))
        == said
    )


def test_the_masks_order_of_the_published_table_gives_the_published_claims():
    """Scores in the report's order of its Table 1: C01, C02 and C05 hold (C02 by less than the stated 0.05 over top-p),
    and no mask as good as epsilon turns C01 and not C02."""
    scores = dict(zip(FIVE_MASKS, (0.68, 0.55, 0.7, 0.66, 0.4)))
    values = planted(**{f"mask_{r}": v for r, v in scores.items()})
    assert {c: word(c, values) for c in ("C01", "C02", "C05")} == {"C01": HOLDS, "C02": HOLDS_SMALLER, "C05": HOLDS}
    same = planted(ppo_kl_default=0.7, **{f"mask_{r}": v for r, v in scores.items()})
    same["mask_epsilon"] = same["ppo_kl_default"]
    assert (word("C01", same), word("C02", same)) == (TOO_SMALL, HOLDS_SMALLER)
    beside = {c.name: c.word for c in judge.judge(SHIPPED["C02"], results(same)).components}
    assert beside["the same as no mask"] == HOLDS


def test_delayed_masks_are_judged_by_the_training_curve():
    def curves_of(wobble, score):
        values = planted()
        for i, r in enumerate(FIVE_MASKS):
            for c, w, s in ((f"mask_{r}", 0.04, 0.5), (f"mask_{r}_delayed", 0.04 * wobble, 0.5 + score)):
                values[c] = {
                    "wobble": w * np.exp(0.05 * np.roll(NOISE, i)),
                    "rollout_score": s + 0.01 * np.roll(NOISE, i),
                    "score": 0.5,
                }
        return values

    assert [word("C06", curves_of(w, 0.0)) for w in (0.5, 2.0, 1.0)] == [HOLDS, OPPOSITE, TOO_SMALL]
    assert [word("C07", curves_of(1.0, s)) for s in (0.1, -0.1, 0.0)] == [HOLDS, OPPOSITE, TOO_SMALL]
    (component, *_) = judge.judge(SHIPPED["C06"], results(curves_of(0.5, 0.0))).components
    assert component.effect == pytest.approx(-math.log(2))


def test_ppo_beats_reinforce_only_if_it_does_in_every_respect():
    def runs_of(judge, perplexity):
        values = planted(reinforce=0.5)
        for i, (c, j, p) in enumerate(
            (
                ("zero_shot", 0.3, 2.0),
                ("ppo_kl_0", 0.3, 4.0),
                ("ppo_kl_default", 0.6, 1.5),
                ("reinforce", judge, perplexity),
            )
        ):
            values[c] |= {
                "judge": j + 0.01 * np.roll(NOISE, i),
                "generation_log_perplexity": p + 0.01 * np.roll(NOISE, i),
            }
        return values

    cases = {(0.5, 2.0): HOLDS, (0.5, 1.0): OPPOSITE, (0.7, 2.0): OPPOSITE}
    cases |= {(0.6, 2.0): TOO_SMALL, (0.58, 2.0): HOLDS_SMALLER, (0.6, 1.0): OPPOSITE}  # one is, and one is too small
    assert {case: word("P41", runs_of(*case)) for case in cases} == cases


def test_what_a_dqn_writes_is_bad_if_it_repeats_or_is_unlikely():
    def text_of(repetition, perplexity, before=0.01):
        values = planted(dqn_mlp=0.3)
        for i, (c, r, p) in enumerate(
            (
                ("zero_shot", before, 2.0),
                ("ppo_kl_0", 0.01, 4.0),
                ("ppo_kl_default", 0.01, 1.5),
                ("dqn_mlp", repetition, perplexity),
            )
        ):
            numbers_ = {
                "repetition": r + 0.002 * np.roll(NOISE, i),
                "generation_log_perplexity": p + 0.02 * np.roll(NOISE, i),
            }
            values[c] |= {m: dict.fromkeys(("plain", "own", "greedy"), v) for m, v in numbers_.items()}
        return values

    cases = {(0.9, 1.0): HOLDS, (0.0, 8.0): HOLDS, (0.001, 1.0, 0.2): OPPOSITE}
    cases |= {(0.001, 1.0): TOO_SMALL, (0.02, 1.0): HOLDS_SMALLER}  # there is little repetition to lose: not opposite
    assert {case: word("C11", text_of(*case)) for case in cases} == cases
