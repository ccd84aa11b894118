"""A closer look at words of the registered design: by hand on planted draws, and the committed page from its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbook.ledger.claim import repetitions
from workbook.runs import checks
from workbook.synthesis import closer
from workbook.synthesis.closer import SWEEP, Look

ROOT = Path(__file__).resolve().parents[1]
PLACES = dict(zip(SWEEP, (3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)))  # KL; the score is its square below


def table(own: dict[int, tuple[float, float]], **more: float) -> pd.DataFrame:
    """Test rows of draws: the sweep, and `mine` with (KL, score) by draw; more: condition=score."""
    rows = []
    for draw, (kl, score) in own.items():
        known = {
            **{c: (x, x**2) for c, x in PLACES.items()},
            "mine": (kl, score),
            **{c: (0, s) for c, s in more.items()},
        }
        for condition, (x, y) in known.items():
            rows.append({"seed": draw, "condition": condition, "decoding": "plain", "kl_deployed": x, "score": y})
    return pd.DataFrame(rows)


def test_a_sweep_is_read_between_its_neighbours_and_never_beyond_its_ends():
    found = table({1: (1.25, 0.0), 2: (3.0, 0.0), 3: (3.1, 0.0)})
    wide = {m: found.pivot(index="seed", columns="condition", values=m) for m in ("kl_deployed", "score")}
    read = closer.read_at(wide["kl_deployed"], wide["score"], "mine", SWEEP)
    assert read[1] == pytest.approx((1.0 + 2.25) / 2) and read[2] == pytest.approx(9.0) and np.isnan(read[3])
    wide["kl_deployed"].loc[1, "ppo_kl_0"] = np.nan  # a draw without one of the runs
    assert np.isnan(closer.read_at(wide["kl_deployed"], wide["score"], "mine", SWEEP)[1])


def test_a_difference_at_equal_kl_is_not_one_at_equal_strength():
    """Both draws lie 0.5 above the sweep where they are, and far above what the default has."""
    found = table({1: (1.25, 1.625 + 0.4), 2: (1.75, (2.25 + 4) / 2 + 0.6)})
    [at] = closer.looked(found, Look("P00", "", "mine", "", ("score",), at="kl_deployed"))
    assert (at["draws"], at["difference"]) == (2, pytest.approx(0.5))
    assert at["share"] == pytest.approx(0.5 / 9.0)  # PPO without the penalty: 9; untrained: 0
    half = 12.7062 * np.std([0.4, 0.6], ddof=1) / 2**0.5  # t of one degree of freedom
    assert (at["low"], at["high"]) == (pytest.approx(0.5 - half, abs=1e-4), pytest.approx(0.5 + half, abs=1e-4))
    [same] = closer.looked(found, Look("P00", "", "mine", "ppo_kl_default", ("score",)))
    assert same["difference"] == pytest.approx(0.5 + (1.625 + 3.125) / 2 - 1.0)
    ends = ("ppo_kl_0", closer.UNTRAINED)  # a sweep of its own: the straight line from 0 to 9, over a KL of 3
    [coarse] = closer.looked(found, Look("P00", "", "mine", "", ("score",), at="kl_deployed", sweep=ends))
    assert coarse["difference"] == pytest.approx((2.025 + 3.725) / 2 - 4.5)


def test_a_repeated_condition_is_the_mean_of_its_repetitions():
    again = dict(zip(closer.REPEATED["ppo_kl_default"][1:], (2.0, 3.0, 4.0, 5.0, 6.0)))
    found = table({1: (1.0, 5.0), 2: (1.0, 6.0)}, **again)
    [row] = closer.looked(found, Look("P00", "", "mine", "ppo_kl_default", ("score",)))
    assert row["difference"] == pytest.approx(5.5 - (1 + 2 + 3 + 4 + 5 + 6) / 6)


def test_what_is_repeated_is_what_the_ledger_takes_as_repetitions():
    runs = checks.load(ROOT / "profiles/settle/params.yaml").all_runs
    for condition, names in closer.REPEATED.items():
        assert sorted(repetitions(runs, condition)) == sorted(names)


def test_the_share_within_a_draw_is_one_where_draws_are_alike_and_none_where_runs_are():
    rows = []
    for draw in range(1, 5):
        for names in closer.REPEATED.values():
            for i, name in enumerate(names):
                values = {"score": float(draw), "judge": float(i), closer.HUMAN: draw + 0.0, closer.TEXTS: draw + 0.0}
                rows.append({"seed": draw, "condition": name, "decoding": "plain", **values})
    score, judge, *_ = closer.within(pd.DataFrame(rows))
    assert score["PPO (4 × 6)"] == "0% [0%, 0%]" and judge["PPO, γ = 0.95 (4 × 4)"] == "100% [100%, 100%]"


def test_the_committed_page_is_that_of_the_committed_draws(tmp_path):
    assert "closer.md" in closer.write(ROOT / "reports", tmp_path)
    for name in ("closer.md", "closer.csv"):
        assert (tmp_path / name).read_text() == (ROOT / "reports/synthesis" / name).read_text(), name
    assert closer.write(tmp_path, tmp_path) == ""  # no registered design


def test_a_page_of_a_claim_shows_its_rows():
    shown = closer.of_claim(ROOT, "C15")
    assert shown == closer.of_claim(ROOT, "C03") and "typical − top-p, plainly decoded" in shown and "gain" not in shown
    assert "REINFORCE − PPO, at equal KL" in closer.of_claim(ROOT, "P41")
    assert closer.of_claim(ROOT, "P02") == "" == closer.of_claim(ROOT / "none", "P41")


def test_at_the_same_strength_it_says_what_the_ledger_says():
    """The registered test of P41, at its look after eight draws, has the same mean."""
    rows = pd.read_csv(ROOT / "reports/synthesis/closer.csv")
    own = rows[(rows.claim == "P41") & rows.compared.str.endswith("same β") & (rows.metric == "score")]
    registered = pd.read_csv(ROOT / "reports/settle/claims/claims.csv").query("id == 'P41' and test == 'score'")
    assert own.difference.item() == pytest.approx(-registered.difference.item(), abs=5e-4)
