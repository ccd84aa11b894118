"""The profile gpu at smoke size on the CPU: base model, runs without DVC or Jupyter, packed, brought home, recorded."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from ruamel.yaml import YAML

from rlnlp.settings import ConfigError
from tests.executed import ROOT
from tests.waiting import until
from workbook.results.files import CONDITIONS, PER_SEED
from workbook.runs import checks
from workbook.stages import adopt, away, base_model, cards
from workbook.stages.pipeline import REPRO
from workbook.stages.processes import ask
from workbook.store.files import read_json
from workbook.store.tables import read_table
from workbook.texts import corpus

pytestmark = [pytest.mark.xdist_group("away"), pytest.mark.slow, pytest.mark.timeout(1200)]

GPU = ROOT / "profiles" / "gpu"
RUNS = ("zero_shot", "ppo_kl_default", "nlpo_kl_default", "ppo_gamma_050")
SMOKE = {
    "device": "cpu",
    "precision": "fp32",
    "keep_policies": True,
    "threads": 1,
    "seeds": [1, 2],
    "draws": [0, 1, 2],
    "task.language_model_reviews": 20,
    "task.language_model_validation_reviews": 5,
    "task.evaluator_reviews": 20,
    "task.reward_reviews": 30,
    "task.reward_validation_reviews": 10,
    "task.judge_reviews": 20,
    "task.prompt_tokens": 8,
    "task.train_prompts": 12,
    "task.validation_prompts": 4,
    "task.test_prompts": 6,
    "language_model.layers": 1,
    "language_model.width": 16,
    "language_model.heads": 2,
    "language_model.context": 64,
    "language_model.vocabulary": 300,
    "language_model.steps": 2,
    "language_model.batch_size": 2,
    "reward_model.layers": 1,
    "reward_model.width": 16,
    "reward_model.heads": 2,
    "reward_model.max_tokens": 32,
    "reward_model.epochs": 1,
    "sampling.max_new_tokens": 4,
    "sampling.min_new_tokens": 4,
    "learner.updates": 2,
    "learner.episodes_per_update": 4,
    "tune.learning_rates": [1e-3],
    "tune.updates": 1,
    "evaluation.human_reviews": 4,
    "reports": {"kl": {"conditions": list(RUNS)}},
    "claims": [],
}
MODEL = {"layers": 1, "width": 16, "heads": 2, "context": 64, "vocabulary": 300, "reviews": 60, "steps": 2}
STAGES = ("check", "code", "data", "models", "variants", "worlds", "tune", "runs", "continued", "tidy")


def project(root: Path) -> Path:
    """A folder with the profile at smoke size, and of the pipeline the stages up to the tables."""
    yaml, folder = YAML(typ="safe", pure=True), root / "profiles" / "gpu"
    folder.mkdir(parents=True)
    values = yaml.load(GPU / "params.yaml")
    values["runs"] = {name: values["runs"][name] for name in RUNS}
    for name, value in SMOKE.items():
        *section, last = name.split(".")
        (values[section[0]] if section else values)[last] = value
    yaml.dump(values, folder / "params.yaml")
    plan = yaml.load(GPU / "base_model.yaml")
    plan |= {"device": "cpu", "threads": 1, "samples": 22, "model": {**plan["model"], **MODEL, "batch_size": 2}}
    yaml.dump(plan, folder / "base_model.yaml")
    stages = {name: stage for name, stage in yaml.load(ROOT / "dvc.yaml")["stages"].items() if name in STAGES}
    for stage in stages.values():  # of the repository itself, only what is in this folder
        body = stage.get("do", stage)
        body["deps"] = [dep for dep in body["deps"] if not dep.startswith(("${root}/", "build/code/tidy"))]
    yaml.dump({"stages": stages}, folder / "dvc.yaml")
    shutil.copy(ROOT / "claims.yaml", root)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A mirror with made-up reviews; the tests work in folders of their own, and find our code."""
    import datasets

    root = tmp_path_factory.mktemp("away")
    for split, n in (("train", 14_000), ("unsupervised", 1700), ("test", 7000)):
        made = corpus.generate(0, split, n)
        labels = [-1 if split == "unsupervised" else review.label for review in made]
        path = root / "mirror" / "datasets" / "imdb" / f"{split}.parquet"
        datasets.Dataset.from_dict({"text": [review.text for review in made], "label": labels}).to_parquet(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "cache")
        for name, value in (("HF_DATASETS_CACHE", root / "cache"), ("RLNLP_MIRROR", root / "mirror")):
            patch.setenv(name, str(value))
        patch.setenv("PYTHONPATH", str(ROOT))
        yield root


# neither DVC nor Jupyter can be imported by what runs there
THERE = """
import sys
for name in ("dvc", "papermill", "nbformat", "nbclient", "nbconvert", "IPython", "dask", "distributed"):
    sys.modules[name] = None
from workbook.stages import away
if __name__ == "__main__":
    sys.exit(away.main(sys.argv[1:]))
"""


def command(folder: Path, *given: str) -> subprocess.CompletedProcess:
    root = folder.parents[1]
    (root / "there.py").write_text(THERE)
    return subprocess.run([sys.executable, "there.py", *given], cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def there(world) -> Path:
    """The profile's folder where it was computed, all done; beside it `packed`, the archive."""
    folder = project(world / "there")
    assert base_model.main(["train", str(folder / "base_model.yaml")]) == 0
    done = command(folder, "run", "gpu", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("runs@") and ": done  (" in line]
    assert [line.split("@")[1].split(",")[0] for line in told] == [name for name in sorted(RUNS) for _ in (1, 2)]
    away.pack(checks.load(folder / "params.yaml"), folder.parents[1] / "packed")
    return folder


@pytest.fixture
def home(there, tmp_path, monkeypatch) -> Path:
    """The same profile in another folder, with nothing computed."""
    monkeypatch.chdir(tmp_path)
    return project(tmp_path)


def packed(there: Path, to: Path, **changes) -> Path:
    """A copy of the archive in which files have other content, by name; None takes one out, a new name adds one."""
    to.mkdir(parents=True)
    with (
        tarfile.open(there.parents[1] / "packed" / "gpu.tar.xz") as old,
        tarfile.open(to / "gpu.tar.xz", "w:xz") as new,
    ):
        content = {member.name: old.extractfile(member).read() for member in old}
        for name, value in {**content, **changes}.items():
            if value is not None:
                member = tarfile.TarInfo(name)
                member.size = len(value)
                new.addfile(member, io.BytesIO(value))
    return to


def test_no_weights_are_packed_and_no_checkpoints_kept(there):
    archive = there.parents[1] / "packed" / "gpu.tar.xz"
    with tarfile.open(archive) as found:
        names = found.getnames()
        manifest = json.load(found.extractfile("manifest.json"))
    assert [name for name in names if "safetensors" in name] == ["base/model.safetensors"]
    assert not [name for name in names if name.startswith("data") and name.endswith("jsonl")]
    run = manifest["stages"]["runs@ppo_kl_default"]
    weights = there / "runs/ppo_kl_default/policy_seed1/model.safetensors"
    assert run["stayed"]["runs/ppo_kl_default/policy_seed1/model.safetensors"][0] == weights.stat().st_size
    assert manifest["about"]["precision"] == "fp32" and "torch" in manifest["about"]["libraries"]
    scratch = there.parents[1] / ".scratch" / "gpu" / "runs"
    assert list(scratch.glob("*/*/final")) and not list(scratch.glob("*/*/checkpoint"))


def nothing(stage: str) -> str:
    return ""


def of(stage: str, *seeds: int) -> list[away.units.Unit]:
    return [away.units.Unit(stage, seed) for seed in seeds]


def test_a_deadline_begins_nothing_more_and_waits_for_what_runs(monkeypatch):
    todo, begun, done, free = {"runs@one": of("runs@one", 1, 2, 3)}, [], [], threading.Event()

    def work(unit):
        begun.append(unit)
        if len(begun) == 2:
            free.set()  # both run when the time is up: none of them ends before
        free.wait()
        done.append(unit.draw)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(away.TimeUp, match="3"):
            list(away.whole_stages(pool, 2, time.monotonic() - 1, done.append, nothing, todo))
        assert not done
        asked = itertools.count()
        with monkeypatch.context() as patch, pytest.raises(away.TimeUp, match="1"):
            patch.setattr(away.time, "monotonic", lambda: next(asked))  # asked before each one, and once more
            list(away.whole_stages(pool, 2, 3, work, nothing, todo))
        assert sorted(done) == [1, 2]
        with pytest.raises(away.TimeUp, match="1"):  # data: nothing of it has begun, and nothing does
            list(away.whole_stages(pool, 2, time.monotonic() - 1, work, begun.append, {"data@1": []}))
        assert "data@1" not in begun
        every = list(away.whole_stages(pool, 2, float("inf"), lambda unit: "", nothing, {"data@1": [], **todo}))
    assert {one for one, _ in every} == {"data@1", *todo["runs@one"], "runs@one"} and every[-1] == ("runs@one", "")


@pytest.mark.parametrize(("error", "written"), [("", [("runs@one", "")]), ("it broke", [])])
def test_stages_that_are_whole_when_the_time_is_up_are_written(error, written, monkeypatch):
    todo = {stage: of(stage, 1, 2) for stage in ("runs@one", "runs@two")}
    begun, found = [], []

    def work(unit):
        begun.append(unit)
        return error

    monkeypatch.setattr(away.time, "monotonic", lambda: len(begun))  # three begin
    with ThreadPoolExecutor(1) as pool, pytest.raises(away.TimeUp, match="1"):
        for one in away.whole_stages(pool, 1, 3, work, nothing, todo):
            found.append(one)  # noqa: PERF402 (what came before it raises)
    assert begun == [*todo["runs@one"], todo["runs@two"][0]]
    assert [one for one in found if isinstance(one[0], str)] == written


def test_a_stage_is_written_before_further_units_begin():
    todo, happened = {stage: of(stage, 1, 2) for stage in ("runs@one", "runs@two")}, []

    def note(one) -> str:
        happened.append(one)
        return ""

    with ThreadPoolExecutor(1) as pool:
        list(away.whole_stages(pool, 1, float("inf"), note, note, todo))
    assert happened == [*todo["runs@one"], "runs@one", *todo["runs@two"], "runs@two"]


def test_a_process_sees_one_of_the_gpus_that_were_given():
    code = "import os, queue; from workbook.stages import away; q = queue.SimpleQueue(); q.put('1'); away.slot(q); "
    for given, seen in (("4,7", "7"), ("", "1")):
        command = [sys.executable, "-c", code + "print(os.environ['CUDA_VISIBLE_DEVICES'])"]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": given, "PYTHONPATH": str(ROOT)}
        assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip() == seen


def test_more_gpus_than_are_there_are_refused(monkeypatch):
    monkeypatch.setattr(cards, "visible", lambda: ["4", "7"])
    params = types.SimpleNamespace(device="cuda")
    with pytest.raises(ConfigError, match="--gpus 3: expected at most 2, as many as"):
        away.run(params, 4, 3, 1.0)
    with pytest.raises(ConfigError, match="--gpus 4: expected 1, as the settings name one card, device cuda:1"):
        away.run(types.SimpleNamespace(device="cuda:1"), 4, 4, 1.0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_its_processes_end_with_it(tmp_path, sign):
    """Killed, and told to stop in the middle of a unit that would go on for long."""
    (tmp_path / "forever.py").write_text(FOREVER)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    begun = subprocess.Popen([sys.executable, "forever.py"], cwd=tmp_path, env=environment)
    until((tmp_path / "pid").exists)
    worker = psutil.Process(int((tmp_path / "pid").read_text()))
    begun.send_signal(sign)
    begun.wait(120)
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "the worker's end")


FOREVER = """
import os, sys, threading
from pathlib import Path
from types import SimpleNamespace
from workbook.stages import away
from workbook.stages.command import status

def about(*given):
    os.replace(Path("new").write_text(str(os.getpid())) and "new", "pid")
    threading.Event().wait()

if __name__ == "__main__":
    away.about, away.conditions.main = about, lambda given: 0
    params = SimpleNamespace(
        device="cpu", precision="fp32", folder=Path.cwd(), root=".", scratch=Path.cwd(), path=Path("params.yaml")
    )
    sys.exit(status(lambda: away.run(params, 1, 1, 1e9), False, "the same command goes on"))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")
def test_a_machine_without_a_gpu_is_one_message():
    with pytest.raises(ConfigError, match="device cuda: expected a GPU that torch .* can use, found none"):
        away.about("cuda", "fp32")


def test_another_machine_does_not_go_on(there):
    record, params = there / away.ABOUT, checks.load(there / "params.yaml")
    before = record.read_text()
    record.write_text(before.replace('"fp32"', '"bf16"'))
    try:
        with pytest.raises(ConfigError, match=r"gpu began on another machine \(precision differ\)"):
            away.run(params, 1, 1, 0)
    finally:
        record.write_text(before)


def test_what_was_computed_there_is_recorded_here_and_nothing_runs_again(there, home, capsys):
    subprocess.run(["git", "init", "-q", "."], cwd=home.parents[1], check=True)
    (home.parents[1] / ".dvc").mkdir()
    (home.parents[1] / ".dvc/config").write_text("[core]\n    analytics = false\n")
    assert adopt.main(["gpu", str(there.parents[1] / "packed")]) == 0, capsys.readouterr().err
    assert f"adopted {len(RUNS)} runs of gpu" in capsys.readouterr().out
    ask({"tidy": [*REPRO, "tidy"]}, home, home / "logs")  # the notebooks of runs are not here: none could be run
    out = home.parents[1] / "reports" / "gpu"
    rows, made = read_table(out / PER_SEED), read_table(there / "runs/ppo_kl_default" / PER_SEED)
    mine = [row for row in rows if row["condition"] == "ppo_kl_default"]
    assert [{k: v for k, v in row.items() if k != "machine"} for row in mine] == [
        {**dict.fromkeys(set(mine[0]) - {"machine"}), **row} for row in made
    ]
    about = read_json(there / away.ABOUT)
    assert {row["machine"] for row in rows} == {adopt.named(about)} and about["machine"] in adopt.named(about)
    adopted = read_json(out / CONDITIONS)["ppo_kl_default"]["adopted"]
    assert adopted["libraries"] == about["libraries"] and adopted["precision"] == "fp32"
    assert read_json(home / "models/draw1" / adopt.STAYED) and [
        path.parent for path in home.rglob("*.safetensors")
    ] == [home / "base"]


def test_an_archive_that_is_not_there_is_said_to_be_missing(home, tmp_path, capsys):
    (tmp_path / "full.tar.xz").touch()
    for folder, found in (
        (tmp_path / "none", "no such folder"),
        (tmp_path / "full.tar.xz", "a file"),
        (tmp_path, "in it 'full.tar.xz'"),
    ):
        assert adopt.main(["gpu", str(folder)]) == 2
        said = capsys.readouterr().err
        assert f"{folder}/gpu.tar.xz: no such file; expected" in said and "away pack gpu FOLDER" in said
        assert said.endswith(f"found {found}\n")


def test_a_file_that_is_not_what_was_packed_is_refused_and_nothing_is_written(there, home, capsys):
    before = sorted(path for path in home.rglob("*"))
    one = "runs/ppo_kl_default/per_seed.csv"
    cases = (
        ({one: b"condition,seed\n"}, f"{one}: not what was packed"),
        ({one: None}, f"{one}: not what was packed"),
        ({"runs/ppo_kl_default/more.csv": b""}, "runs/ppo_kl_default/more.csv: not in the manifest"),
        ({"../out.csv": b""}, "expected results of stages alone, found ../out.csv"),
        ({"manifest.json": None}, "no manifest.json"),
        ({"manifest.json": b"[]"}, "manifest.json: expected profile, stages, brought and about"),
        ({"manifest.json": b'{"profile": "gpu", "stages": {}}'}, "as `away pack` writes them; lacks brought"),
    )
    for i, (changes, said) in enumerate(cases):
        source = packed(there, home.parents[1] / f"packed{i}", **changes)
        assert adopt.main(["gpu", str(source)]) == 2
        assert said in capsys.readouterr().err
    assert sorted(path for path in home.rglob("*")) == before


def test_other_settings_or_code_are_refused_by_stage(there, home, capsys):
    params = home / "params.yaml"
    params.write_text(params.read_text().replace("kl_coef: 0.05", "kl_coef: 0.06"))
    assert adopt.main(["gpu", str(there.parents[1] / "packed")]) == 2
    said = capsys.readouterr().err
    assert "nothing was adopted" in said and "runs@ppo_kl_default: settings differ: learner" in said
    assert not (home / "runs").exists() and "data@1" not in said
    with tarfile.open(there.parents[1] / "packed" / "gpu.tar.xz") as archive:
        manifest = json.load(archive.extractfile("manifest.json"))
    manifest["brought"]["build/x.json"] = "0" * 64
    params.write_text((there / "params.yaml").read_text())
    source = packed(there, home.parents[1] / "more", **{"manifest.json": json.dumps(manifest).encode()})
    assert adopt.main(["gpu", str(source)]) == 2 and "build/x.json: not of the base model" in capsys.readouterr().err
    manifest["stages"]["models@1"]["code"] = "0" * 64
    del manifest["stages"]["variants@2"]
    source = packed(there, home.parents[1] / "other", **{"manifest.json": json.dumps(manifest).encode()})
    assert adopt.main(["gpu", str(source)]) == 2
    said = capsys.readouterr().err
    assert "models@1: its code is not that of here" in said and "variants@2: not in the archive" in said


def test_what_was_made_here_is_not_written_over(there, home, capsys):
    for place in ("runs/zero_shot", "models/draw1"):
        (home / place).mkdir(parents=True)
        (home / place / "config.json").write_text("{}")
    search = min(os.listdir(there / "tune"))
    (home / "tune").mkdir()
    (home / "tune" / search).write_text("{}")
    shutil.copytree(there / "base", home / "base")
    (home / "base/facts.json").write_text("{}")
    assert adopt.main(["gpu", str(there.parents[1] / "packed")]) == 2
    said = capsys.readouterr().err
    assert all(f"{stage}: it was made here" in said for stage in ("runs@zero_shot", "models@1", f"tune@{search[:-5]}"))
    assert "base/facts.json: another one lies here" in said
