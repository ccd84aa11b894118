"""Where one run's number scatters: components with intervals, by hand, on planted numbers, and the committed table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbook.runs import checks
from workbook.synthesis import closer, page, spread

ROOT = Path(__file__).resolve().parents[1]


def test_components_and_their_intervals_by_hand():
    """Draws 0 and 4 with runs -1, +1 about them: mean squares 16 (1 degree of freedom) and 2 (2), F = 8. Quantiles of
    tables: chi-square(2) 7.3778 and 0.050636, chi-square(1) 5.0239 and 0.00098207, F(1, 2) 38.506 and 1 / 799.50."""
    found = spread.one_way(np.array([[-1.0, 3.0], [1.0, 5.0]]))
    assert found.run == pytest.approx((2**0.5, (4 / 7.3778) ** 0.5, (4 / 0.050636) ** 0.5), rel=1e-3)
    high = ((16 - 2 / 799.5) / (2 * 0.00098207)) ** 0.5
    assert found.draw == pytest.approx((7**0.5, 0.0, high), rel=1e-3)  # 8 is below 38.5: no draws at all would do
    assert found.share == pytest.approx((2 / 9, 1 / (1 + (8 * 799.5 - 1) / 2), 1.0), rel=1e-3)
    alike = spread.one_way(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert alike.draw[:2] == (0.0, 0.0) and alike.share[0] == alike.share[2] == 1.0
    same = spread.one_way(np.array([[1.0, 2.0], [1.0, 2.0]]))  # runs that never differ
    assert same.run == (0.0, 0.0, 0.0) and same.share == (0.0, 0.0, 0.0)
    assert spread.one_way(np.ones((3, 5))).share == (0.0, 0.0, 0.0)


def test_intervals_cover_what_was_planted():
    """Of 400 planted designs of 12 draws x 3 runs, each end is passed in about 2.5 %."""
    rng = np.random.default_rng(0)
    truth = {"draw": 1.0, "run": 0.8, "share": 0.64 / 1.64}
    designs = rng.normal(0, 1.0, (400, 1, 12)) + rng.normal(0, 0.8, (400, 3, 12))
    found = [spread.one_way(d) for d in designs]
    for part, value in truth.items():
        ends = np.array([getattr(one, part)[1:] for one in found])
        missed = np.array([(ends[:, 0] > value).mean(), (ends[:, 1] < value).mean()])
        assert (missed < 0.06).all(), (part, missed)  # 2.5 % ± 4 standard errors


def test_the_spread_between_seeds_is_that_of_a_normal_sample():
    """Of 1, 2, 3, 4, 5 the variance is 2.5; chi-square(4) quantiles 11.1433 and 0.48442."""
    expected = (2.5**0.5, (10 / 11.1433) ** 0.5, (10 / 0.48442) ** 0.5)
    assert spread.between_seeds(np.arange(1.0, 6)) == pytest.approx(expected, rel=1e-4)


def test_evaluation_is_what_prompts_and_runs_leave_of_an_answer():
    """Easy prompts and good runs count for nothing; what is sampled does, over the root of prompts."""
    rng = np.random.default_rng(1)
    prompts, runs = rng.normal(0, 3, (200, 1, 5)), rng.normal(0, 2, (200, 4, 1))
    assert spread.evaluation(prompts + runs, 100)[0] == pytest.approx(0, abs=1e-9)
    estimate, low, high = spread.evaluation(prompts + runs + rng.normal(0, 0.5, (200, 4, 5)), 100)
    assert estimate == pytest.approx(0.05, rel=0.05) and low < estimate < high
    assert spread.evaluation(rng.normal(0, 0.5, (200, 4, 5)), 100)[0] == pytest.approx(0.05, rel=0.05), (
        "at most so much"
    )


def test_a_draw_that_lacks_the_texts_of_a_run_is_left_out(tmp_path):
    """As where a row came out otherwise on another processor. A text may hold a line separator."""
    names = [name for repeated in closer.REPEATED.values() for name in repeated]
    rows = [
        {"condition": c, "seed": s, "prompt": f"p{s} {k}", "response": "a\u2028b", "score": 0.1 * k + 0.01 * i}
        for i, c in enumerate(names) for s in (1, 2, 3) for k in range(2) if (c, s) != (names[1], 2)
    ]  # fmt: skip

    def kept(found) -> dict:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
        (tmp_path / "samples.jsonl").write_text(lines, encoding="utf-8")
        return spread._answers(tmp_path)

    assert {d.shape[::2] for d in kept(rows).values()} == {(2, 2)}  # draws 1 and 3
    assert kept([row for row in rows if row["seed"] != 3]) == kept([]) == {}
    with pytest.raises(ValueError, match="expected the same prompts of each draw"):
        kept([{**row, "prompt": "another"} if row is rows[0] else row for row in rows])


def test_the_committed_components_are_those_of_the_committed_draws():
    design = checks.load(ROOT / "profiles/settle/params.yaml")
    rows = spread.table(design.reports_folder, design.evaluation.test_prompts, ROOT / "reports" / spread.REVIEWS)
    committed = pd.read_csv(ROOT / "reports/synthesis/spread.csv")
    pd.testing.assert_frame_equal(committed, pd.DataFrame(rows).astype(committed.dtypes), rtol=6e-3, atol=1e-9)
    assert len(rows) == len(closer.SPREAD) * (len(closer.REPEATED) + 1)
    score = next(row for row in rows if row["metric"] == "score")
    assert (score["draws"], score["runs"], score["seeds"]) == (32, 6, 5) and 0 < score["evaluation"] < score["run"]
    shares, *_ = closer.within(closer.of_draws(ROOT / "reports").query("split == 'test'"))
    assert shares["PPO (32 × 6)"].startswith(f"{score['share']:.0%} [")  # the closer look's, from the same table
    assert spread.table(design.reports_folder, 1024, ROOT / "nowhere")[0]["seed"] is None


def test_the_page_says_of_which_edition_repeated_runs_are():
    text = (ROOT / "reports/synthesis/synthesis.md").read_text()
    before, _, parts = text.partition("## Where the spread comes from")
    for section in (before.partition("## What a second machine said")[2], parts):
        today, _, edition = section.partition("edition before (texts of free length, β 0.05)")
        assert "settle" in today and ("earlier.csv" in edition or "components.csv" in edition)
    assert "none\nwere run" not in text and "run once" not in text and page.HEAD in text
