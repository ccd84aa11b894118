"""One table of all runs: nothing lost, nothing invented, the same columns everywhere."""

import json
import math

import pytest

from rlnlp import tidy
from rlnlp.runs import read_table, write_table

RUN = {"condition": "a", "seed": 1, "split": "test", "decoding": "plain", "score": 0.5}


@pytest.fixture
def profile(tmp_path):
    """Two runs with different columns, one that failed, and one that params.yaml does not name any more."""
    folder = tmp_path / "profiles" / "x"
    rows = [{**RUN, "seed": s, "split": split, "score": v} for s, split, v in ((1, "test", 0.5), (2, "test", 0.25), (1, "half", 0.0))]
    write_table(folder / "runs/a/per_seed.csv", [*rows, {**RUN, "decoding": "top_p", "score": 0.9}])
    write_table(folder / "runs/d/per_seed.csv", [{**RUN, "condition": "d", "score": None, "judge": 1 / 3, "kl_deployed": math.inf}])
    write_table(folder / "runs/gone/per_seed.csv", [{**RUN, "condition": "gone"}])
    (folder / "params.yaml").write_text("root: ../..\nprofile: x\nruns: {a: {}, failed: {}}\ncontinued: {d: {}}\n")
    return folder


def test_every_row_of_every_listed_run_and_no_other(profile, tmp_path):
    assert tidy.main([str(profile / "params.yaml")]) == 0
    rows = read_table(tmp_path / "reports/x/per_seed.csv")
    assert [(r["condition"], r["seed"], r["split"], r["decoding"], r["score"], r["judge"]) for r in rows] == [
        ("a", 1, "test", "plain", 0.5, None), ("a", 2, "test", "plain", 0.25, None), ("a", 1, "half", "plain", 0.0, None),
        ("a", 1, "test", "top_p", 0.9, None), ("d", 1, "test", "plain", None, 1 / 3),
    ]  # fmt: skip


def test_means_are_over_seeds_and_never_over_some_of_them(profile, tmp_path):
    tidy.main([str(profile / "params.yaml")])
    found = json.loads((tmp_path / "reports/x/metrics.json").read_text())
    assert found == {"a": {"score": 0.375}, "d": {"judge": 0.333333}}


def test_a_wrong_call_says_what_was_expected(capsys):
    assert tidy.main([]) == 2 and "usage: python -m rlnlp.tidy params.yaml" in capsys.readouterr().err
