"""The GPU bench where there is no GPU: every stage's code at tiny shapes, what is resumed, and what the report says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import command, running, scale, work
from bench.gpu.report import markdown
from bench.gpu.update import fixed_batch
from rlnlp.engine import RATIO
from workbook.stages import roofline

ROOT = Path(__file__).resolve().parents[1]


# what a rented machine may not have: packages of this project that neither torch nor transformers brings
ABSENT = """accelerate dask datasets distributed dvc evaluate IPython ipykernel ipywidgets jupyterlab krippendorff
matplotlib nbclient nbconvert nbformat nltk pandas papermill psutil pytest rouge_score ruamel sacrebleu scipy seaborn
sklearn statsmodels""".split()


def bench(*given: str, before: str = "") -> subprocess.CompletedProcess:
    """The command in a process of its own, as it forks, without what is ABSENT; ``before``: Python that runs in it
    first."""
    bare = f"sys.modules.update(dict.fromkeys({ABSENT!r}))"
    code = f"import sys\n{bare}\nfrom bench.gpu import command, work\n{before}\nsys.exit(command.main({list(given)!r}))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The files that every stage leaves at tiny shapes."""
    folder = tmp_path_factory.mktemp("gpu")
    done = bench("--tiny", "--precision", "fp32,bf16", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_stage_runs_on_the_cpu_at_tiny_shapes(measured):
    found = running.read(measured)
    assert tuple(found) == work.STAGES and len(list(measured.iterdir())) == len(work.STAGES)
    for name, one in found.items():
        assert one["tiny"] and one["rows"] and not one["left_out"] and one["device"] == "CPU"
        assert not [row for row in one["rows"] if "error" in row], name
    assert all(row["equal"] for row in found["works"]["rows"])
    assert {row["learner"] for row in found["works"]["rows"]} == {"ppo", "nlpo", "a2c", "trpo", "dqn", "sac"}
    paths = [row for row in found["exact"]["rows"] if row["name"] == "paths"]
    assert [row["rule"] for row in paths] == list(scale.RULES)
    assert all(row["graph_is_eager"] and row["rows_equal"] == 1 and row["logprobs_off"] < 1e-5 for row in paths)
    updates = [row for row in found["exact"]["rows"] if row["name"] == "update"]
    assert [row["precision"] for row in updates] == ["fp32", "bf16"] and updates[0]["weights_off"] < 1e-6
    for update in updates:
        assert update["moved"] > 1e-5 and update["graph_is_eager"] and not update["recorded"]  # on the CPU nothing is
    ratios = {row["precision"]: row["first_ratio_off"] for row in found["exact"]["rows"] if row["name"] == "mismatch"}
    stepped = [
        update["first_ratio_error"] for update in updates
    ]  # of an update's own minibatches, against passes of all
    assert 0 < stepped[0] <= RATIO["fp32"] and stepped[1] <= RATIO["bf16"]
    assert set(ratios) == {"fp32", "bf16"} and ratios["fp32"] < 1e-3
    assert {row["name"] for row in found["decode"]["rows"]} == {"readable", "eager", "graph", "compiled"}
    assert {row["name"] for row in found["update"]["rows"]} == {"eager", "recorded", "compiled, recorded", "optimizer"}
    assert {row["processes"] for row in found["share"]["rows"]} == {1, 2}


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped_and_a_stage_that_fails_leaves_nothing(measured):
    for name in ("facts", "exact"):
        (measured / f"{name}.json").unlink()
    kept = {file.name: file.stat().st_mtime_ns for file in measured.iterdir()}
    fails = "work.WORK['exact'] = lambda stage: 1 / 0"
    done = bench("--tiny", "--precision", "fp32,bf16", "--out", str(measured), before=fails)
    assert done.returncode == 1 and "failed: exact (exit code 1)" in done.stderr and "facts: begins" in done.stderr
    assert "decode: there" in done.stderr and "decode: begins" not in done.stderr
    assert {file.name for file in measured.iterdir()} == {*kept, "facts.json"}
    assert all((measured / name).stat().st_mtime_ns == then for name, then in kept.items())


def record(folder: Path, stage: str, rows: list[dict], **more) -> None:
    whole = {"stage": stage, "device": "X100", "tiny": False, "precisions": ["bf16"], "seconds": 1.0, "left_out": []}
    whole |= {"about": "What it was.", "limit_s": 110}
    (folder / f"{stage}.json").write_text(json.dumps({**whole, "rows": rows, **more}))


def test_a_report_without_files_says_not_measured_for_each_stage(tmp_path):
    assert command.main(["--out", str(tmp_path), "--report", str(tmp_path / "new" / "gpu.md")]) == 0
    text = (tmp_path / "new" / "gpu.md").read_text()
    for name in work.STAGES:
        assert "\nnot measured\n" in text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert "GPU: not measured." in text and "an H200's, **not measured**" in text
    targets = text.split("## Targets")[1].split("## Roofline")[0]
    assert targets.count("| not measured |") == 8
    assert re.search(r"as computed, not measured: \d\.\d\d for 34 conditions x 5 seeds .* not measured \|", targets)


def test_where_profiles_cannot_be_read_the_report_says_what_lacks(tmp_path):
    done = bench("--out", str(tmp_path), "--report", str(tmp_path / "gpu.md"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"at most 2 \|  \| not computed: no [\w.]+ here \|", (tmp_path / "gpu.md").read_text())


def test_a_trial_on_the_cpu_is_not_reported_as_measured(tmp_path):
    record(tmp_path, "evaluate", [{"name": "one decoding", "total_s": 0.1}], tiny=True, device="CPU")
    text = markdown(running.read(tmp_path))
    assert "not measured: what lies there is of `--tiny`" in text and "0.1" not in text.split("## evaluate")[1]
    assert "GPU: not measured." in text


def test_rows_stand_beside_what_they_need_at_the_measured_rates(tmp_path):
    gemms = [
        {"name": "gemm", "precision": p, "tflop_s": rate} for p, rate in (("fp32", 50), ("tf32", 300), ("bf16", 500))
    ]
    record(tmp_path, "facts", [{"name": "copy", "tb_s": 2.0}, *gemms])
    graph = {"name": "graph", "shape": "124M", "B": 256, "precision": "bf16", "rule": "plain"}
    few = {**graph, "B": 64, "bytes": 1e8, "tokens": 64, "median_ms": 1.4, "prefill_ms": 28.0}
    readable = {"name": "readable", "shape": "124M", "B": 64, "precision": "fp32", "rule": "plain", "median_ms": 20.0}
    rows = [{**graph, "bytes": 1e9, "tokens": 256, "median_ms": 0.8}, few, readable]
    record(tmp_path, "decode", rows, left_out=["compiled"])
    compiled = {"name": "compiled", "shape": "124M", "precision": "bf16", "tokens": 3552}
    record(tmp_path, "update", [{**compiled, "flops": 4e12, "median_ms": 40.0}], device="Y100")
    text = markdown(running.read(tmp_path))
    assert "GPU: X100, Y100." in text and "**Stages of different GPUs are mixed here.**" in text
    assert "Rates (measured here): copy 2 TB/s, fp32 50 TFLOP/s" in text
    row = dict(
        zip(
            *(
                [cell.strip() for cell in line.split("|")[1:-1]]
                for line in text.split("## decode")[1].splitlines()[4:7:2]
            )
        )
    )
    assert row["floor_ms"] == "0.5" and row["share"] == "0.625" and row["tokens_s"] == "320,000"
    assert "Left out, no time: compiled." in text
    targets = text.split("## Targets")[1].split("## Roofline")[0]
    assert "| at least 0.5 | 0.625 | met |" in targets and "| at least 0.4 | 0.2 | **missed** |" in targets
    # of whole rollouts, the prompt too: 20 ms a token against (28 + 47 steps of 1.4) / 48
    assert "| at least 10 | 10.23 | met |" in targets and targets.count("| not measured |") == 4


def test_the_plan_reckons_with_what_was_measured(tmp_path):
    record(tmp_path, "evaluate", [{"name": "one decoding", "total_s": 0.1}], tiny=True, device="CPU")
    report, written = tmp_path / "gpu.md", tmp_path / "gpu.json"
    assert command.main(["--out", str(tmp_path), "--report", str(report)]) == 0 and not written.exists()
    gemms = [
        {"name": "gemm", "precision": "bf16", "tflop_s": 500},
        {"name": "gemm", "precision": "fp32", "tflop_s": 50},
    ]
    record(tmp_path, "facts", [{"name": "copy", "tb_s": 2.0}, *gemms])
    graph = {"name": "graph", "precision": "bf16", "rule": "plain", "bytes": 1e9}
    rows = [{**graph, "B": B, "median_ms": ms} for B, ms in ((64, 1.0), (512, 0.8), (8, 9.0))]
    record(tmp_path, "decode", [*rows, {"name": "readable", "B": 64, "median_ms": 7.0}])
    eager = {"name": "eager", "precision": "fp32", "tokens": 3552, "flops": 1e12}
    record(tmp_path, "update", [{**eager, "median_ms": 40.0}])
    paper = {
        "name": "PPO, paper",
        "precision": "bf16",
        "seconds": {"update at fixed shapes": 1.0, "update": 10.0},
        "iteration_s": 11.0,
        "fixed_s": 2.0,
    }
    large = {**paper, "name": "PPO, large", "seconds": {"update": 1.0}}
    record(tmp_path, "iteration", [paper, large, {"name": "NLPO, paper", "precision": "bf16", "error": "no memory"}])
    assert command.main(["--out", str(tmp_path), "--report", str(report)]) == 0
    found = json.loads(written.read_text())
    assert found["device"] == "X100" and (found["copy_tb_s"], found["bf16"], found["tf32"]) == (2.0, 500, None)
    assert found["decode_share"] == 0.5 and found["update_share"] is None and found["readable_ms"] == 7.0
    assert found["update_fp32_share"] == 0.5 and found["gradient_s"] == 0.1  # 5 epochs of 20 minibatches, as written
    record(tmp_path, "iteration", [{**paper, "recorded": True}, large])
    assert command.main(["--out", str(tmp_path), "--report", str(report)]) == 0
    assert json.loads(written.read_text())["gradient_s"] == 0.01  # those of a run were recorded


@pytest.mark.parametrize(
    "name, B, step, rate", [("124M", 64, 115, 481), ("124M", 256, 287, 711), ("774M", 512, 2363, 143)]
)
def test_the_limits_of_decoding_from_shapes(name, B, step, rate):
    """An H200's 4.3 TB/s and 790 TFLOP/s, prompts of 64 and 48 new tokens: microseconds a step, thousand tokens/s."""
    shape = scale.REAL.shapes[name]
    seconds = roofline.step_bytes(shape, B, 64, 48, "bf16") / 4.3e12
    whole = 48 * seconds + roofline.prefill_flops(shape, B, 64) / 790e12
    assert seconds * 1e6 == pytest.approx(step, rel=0.01) and B * 48 / whole / 1e3 == pytest.approx(rate, rel=0.01)


def test_the_limits_of_an_update_from_shapes():
    """Milliseconds at 40 % of 790 TFLOP/s, and of AdamW with clip and casts at 4.3 TB/s."""
    for name, needed, optimizer in (("124M", 12.9, 3.0), ("355M", 43, 8.6), ("774M", 99, 18.7)):
        shape = scale.REAL.shapes[name]
        assert roofline.update_flops(shape, 32, 64, 48) / (0.4 * 790e9) == pytest.approx(needed, rel=0.01)
        assert roofline.optimizer_bytes(shape) / 4.3e9 == pytest.approx(optimizer, rel=0.02)


def test_a_shape_has_the_models_weights():
    from rlnlp.models import ValueModel

    shape = roofline.Shape(3, 64, 100, 32, 16)
    policy = scale.model_of(shape, "cpu")
    assert sum(weight.numel() for weight in policy.parameters()) == shape.total
    assert sum(weight.numel() for weight in policy.transformer.h.parameters()) + 2 * shape.width == shape.trunk
    assert sum(weight.numel() for weight in ValueModel(policy).parameters()) == shape.total + shape.width + 1


def test_a_minibatch_of_the_bench_is_what_a_run_makes_of_its_episodes():
    """Of the same prompts and responses ``static_update.cells`` makes the same tensors, by the same names."""
    import torch

    from rlnlp.static_update import cells
    from rlnlp.types import Experience, Rollout, Sampling

    shape, P, T, n = scale.TINY.shapes["tiny"], 6, 8, 4
    batch = fixed_batch(shape, n, P, T, "cpu")
    prompts, real = scale.prompts_of(shape, n, P, "cpu", seed=5), torch.ones(n, T, dtype=torch.bool)
    old, advantages, values, returns = (batch[name] for name in ("old", "advantages", "values", "returns"))
    drawn = Rollout(prompts, batch["responses"], real, ~real[:, 0], old, old, Sampling(299, 299, T, 1.0, T))
    found = cells(Experience(drawn, returns[:, 0], {}, old, old, returns, values, advantages, returns))
    assert found.keys() == batch.keys()
    assert all(torch.equal(found[name], batch[name]) for name in batch)


def test_what_cannot_be_run_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["--stages", "facts,speed"])
    assert "--stages: expected any of facts, works" in capsys.readouterr().err
    record(tmp_path, "facts", [])
    assert command.main(["--tiny", "--out", str(tmp_path)]) == 1
    assert "facts there are not of --tiny; choose another --out" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_gpu_and_without_time_nothing_is_begun(tmp_path):
    done = bench("--out", str(tmp_path))
    assert done.returncode == 1 and "no GPU is seen here: nothing was measured" in done.stderr
    done = bench("--tiny", "--seconds", "60", "--out", str(tmp_path))
    assert done.returncode == 0 and "facts: not begun, 60 s would be over" in done.stderr
    assert not list(tmp_path.iterdir())
