"""The comparison of one worker and two: what it compares, what it says, and at its smallest size that it runs."""

from __future__ import annotations

import pytest

from bench import workers
from workbook.runs import checks


def test_a_profile_is_cut_to_some_conditions_and_draws(tmp_path):
    params = checks.load(workers.prepare("smoke", tmp_path, ["ppo_kl_0"], 1) / "params.yaml")
    whole = checks.load(workers.prepare("mini", tmp_path / "whole", [], 0) / "params.yaml")
    assert list(params.all_runs) == ["ppo_kl_0"] and len(params.seeds) == 1
    assert set(params.draws) == {*params.seeds, params.tune.draw}
    assert len(whole.all_runs) > 50 and params.scratch == (tmp_path / ".scratch" / "smoke").resolve()


def test_every_byte_counts(tmp_path):
    for folder in ("one", "two"):
        for place in ("runs/a/per_seed.csv", "models/draw1/policy/model.safetensors", "build/x.json"):
            (tmp_path / folder / place).parent.mkdir(parents=True)
            (tmp_path / folder / place).write_text("1")
    one = workers.written(tmp_path / "one")
    assert len(one) == 2 and workers.differing(one, workers.written(tmp_path / "two")) == []
    (tmp_path / "two/models/draw1/policy/model.safetensors").write_text("2")
    (tmp_path / "two/runs/a/more.csv").write_text("")
    different = workers.differing(one, workers.written(tmp_path / "two"))
    assert different == ["models/draw1/policy/model.safetensors", "runs/a/more.csv"]
    seconds = {"start": 1.0, "units": 2.0, "head": 3.0}
    found = {"profile": "smoke", "machine": "it", "load": 0.5, "seconds": {"1": seconds}, "files": 2}
    assert "**2 differ**: models/draw1" in workers.markdown({**found, "different": different})
    text = workers.markdown({**found, "different": []})
    assert "| 1 | 1.0 | 2.0 | 3.0 |" in text and "2 files, tables and weights: all the same, byte for byte." in text


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
def test_one_condition_of_smoke_is_the_same_on_one_worker_and_on_two(tmp_path):
    report = tmp_path / "workers.md"
    small = ["--conditions", "ppo_kl_0", "--draws", "2"]
    assert workers.main([*small, "--report", str(report)]) == 0
    said = report.read_text()
    assert "| 1 |" in said and "| 2 |" in said and "all the same, byte for byte" in said
