"""What is finished is used again while nothing that decides it has changed, and a stop loses nothing."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from rlnlp.learners.common import TrainingError
from tests.built import REPOSITORY, SMALL, change_data, change_weights, given, run, write_params
from tests.executed import change, copied, definitions, reached, recorded, run_notebook
from workbook.results import tidy
from workbook.runs import algorithms, checks, conditions, experiment, train
from workbook.stages import carry, depends
from workbook.stages.scheduler import Scheduler
from workbook.store import identity, locks, rekeyed, states, tables

from .waiting import DEADLINE_S


def test_a_finished_seed_is_reused(world, trainings):
    first = run(world)
    before = {p.name: p.read_bytes() for p in first.iterdir() if p.is_file()}
    assert run(world) == first and len(trainings) == 1
    assert before == {p.name: p.read_bytes() for p in first.iterdir() if p.is_file()}


def change_value(folder):
    write_params(folder, learner={**SMALL["learner"], "clip": 0.3})


@pytest.mark.parametrize(
    "change",
    [change_value, change_data, change_weights("policy"), change_weights("reward"), change_weights("evaluator")],
)
def test_whatever_decides_a_result_makes_it_run_again(world, trainings, change):
    first = run(world)
    change(world)
    assert run(world) != first and len(trainings) == 2


def test_changed_code_makes_it_run_again_and_a_comment_or_unused_code_does_not(world, trainings, monkeypatch):
    first, code = run(world), copied(world / "code")
    losses = code / "rlnlp" / "losses.py"
    losses.write_text(losses.read_text() + "\n# a comment\n")
    change(code / "rlnlp" / "learners" / "sac.py", "update")
    monkeypatch.setattr(identity, "here", lambda: identity.Code(code))
    assert run(world) == first and len(trainings) == 1
    change(losses, "ppo_clip")
    assert run(world) != first and len(trainings) == 2


@pytest.mark.parametrize("condition", ["ppo_kl_default", "numbers_ppo"])
def test_all_code_that_runs_is_in_the_fingerprint(world, condition):
    params = given(world, condition)
    tuned = experiment.chosen(params)
    with recorded() as called:
        experiment.run_seed(params, 1, tuned)
    used, known = definitions(called), reached(*experiment.code_of(params.run, getattr(params.task, "name", "")))
    # what a run is given is hashed as values, and brought files by content: the class that holds them is not looked at
    given_as = tuple(f"workbook.runs.{module}:" for module in ("conditions", "settings", "brought"))
    used = {each for each in used if not each.startswith(given_as)}
    assert len(used) > 100 and used <= known, sorted(used - known)


@pytest.mark.parametrize(
    "stage, notebook, parameters",
    [
        ("data", "data", {"draw": 1}),
        ("models", "models", {"draw": 1}),
        ("variants", "variants", {"draw": 1}),
        ("worlds", "worlds", {"draw": 1}),
        ("runs/ppo_kl_default", "run", {"condition": "ppo_kl_default"}),
        ("runs/numbers_ppo", "run", {"condition": "numbers_ppo"}),
    ],
)
def test_all_code_that_a_stage_runs_is_in_what_it_depends_on(world, monkeypatch, stage, notebook, parameters):
    monkeypatch.chdir(world)
    assert conditions.main(["params.yaml", "build"]) == 0
    used = definitions(run_notebook(REPOSITORY / "notebooks" / f"{notebook}.ipynb", **parameters))
    known = reached(*depends.stages(depends.read(world / "params.yaml"), identity.here())[stage])
    assert len(used) > 10 and used <= known, sorted(used - known)


def test_a_finished_seed_whose_files_changed_is_made_again(world, trainings):
    final = run(world)
    was = (final / "per_seed.csv").read_bytes()
    (final / "per_seed.csv").write_bytes(was.replace(b"ppo", b"pqo", 1))
    with pytest.warns(UserWarning, match="not as they were when it was finished"):
        again = run(world)
    assert (again / "per_seed.csv").read_bytes() == was and len(trainings) == 2
    run(world)
    assert len(trainings) == 2


def test_what_was_carried_to_another_machine_is_not_trained_again(world, trainings, tmp_path):
    """The tables are the same bytes; the policy's weights stay behind, and what follows a run is trained with it."""
    here, there = world / ".scratch" / "tests", tmp_path / "there"
    first, followed = "ppo_kl_default", "supervised"
    for name in (first, followed):
        run(world, name)
    whole = checks.load(world / "params.yaml")
    assert whole.scratch == here and {followed} == {entry.get("start") for entry in whole.all_runs.values()} - {None}
    out = carry.pack(whole)
    assert out.stat().st_size < 50_000 and carry.pack(whole) is None
    assert carry.unpack(world, there) == 1 and carry.unpack(world, there) == 0
    params, other = given(world, first), tmp_path / "out"
    experiment.run_condition(params.model_copy(update={"seeds": (1,)}), tmp_path / "whole")
    shutil.rmtree(here)
    shutil.move(there, here)
    done = len(trainings)
    experiment.run_condition(params.model_copy(update={"seeds": (1,)}), other)
    assert len(trainings) == done
    for name in ("per_seed.csv", "samples.jsonl", "episode.json", "config.json"):
        assert (other / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    kept, full = (tables.read_table(folder / "curves.csv") for folder in (other, tmp_path / "whole"))
    assert tidy.thinned(kept) == tidy.thinned(full) != full and list(kept[0]) == list(full[0])
    assert [path.name for path in (other / "policy_seed1").iterdir()] == ["README.md"]
    run(world, followed)
    assert len(trainings) == done + 1


def test_a_seed_finished_before_edits_that_changed_no_digit_counts(world, trainings, tmp_path, monkeypatch):
    """A scheduler makes it so before the run starts; the code is known by another name, nothing else may differ."""

    def edited(name: str) -> None:
        class Edited(identity.Code):
            def identity(self, roots, without=()):
                return name + super().identity(roots, without)

        monkeypatch.setattr(identity, "here", lambda: Edited(REPOSITORY))

    monkeypatch.setattr(rekeyed, "RECORD", tmp_path / "rekeyed.json")
    stage, condition = "runs@ppo_kl_default", "ppo_kl_default"
    first, params = run(world), given(world, condition)
    was = identity.here().identity(*experiment.code_of(params.run, params.task.name))
    rekeyed.add(tmp_path, {"code": {"seed": [[was, "b" + was]]}})
    rekeyed.add(tmp_path, {"code": {"seed": [["b" + was, "c" + was]]}})
    edited("d")
    assert conditions.main([str(world / "params.yaml"), str(world / "build")]) == 0
    assert carry.recount(world, condition) == 0  # no record is of this code
    edited("c")
    kept = (first / "per_seed.csv").read_bytes()
    (first / "per_seed.csv").write_bytes(kept[:-2])
    assert carry.recount(world, condition) == 0  # damaged
    (first / "per_seed.csv").write_bytes(kept)
    assert Scheduler(world, params.scratch, {stage: set()}, {stage}, 1).next_stage() == stage
    assert carry.recount(world, condition) == 0  # it counts already
    real, places = experiment.inputs, set()
    monkeypatch.setattr(experiment, "inputs", lambda *a: places.add(Path.cwd()) or real(*a))
    assert carry.recount(world, condition) == 0 and places == {world}  # a brought base model's place is relative to it
    monkeypatch.setattr(experiment, "inputs", real)
    found = run(world)
    assert found != first and found.resolve() == first and len(trainings) == 1
    out = carry.pack(checks.load(world / "params.yaml"))
    assert [name for name in carry.names(out) if name.endswith("per_seed.csv")] == [
        str((first / "per_seed.csv").relative_to(params.scratch))
    ]
    write_params(world, learner={**SMALL["learner"], "gamma": 0.5})
    assert conditions.main([str(world / "params.yaml"), str(world / "build")]) == 0
    assert carry.recount(world, condition) == 0  # other settings
    last = run(world)
    assert last != found and len(trainings) == 2
    shutil.rmtree(last)
    last.symlink_to(Path("..") / "removed" / "final", target_is_directory=True)  # as where the folder of old code went
    rekeyed.add(tmp_path, {"code": {"seed": [["c" + was, "e"]]}})
    assert carry.recount(world, condition) == 0 and not last.is_symlink()
    assert run(world) == last and len(trainings) == 3


def test_a_checkpoint_of_another_seed_is_refused(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    with monkeypatch.context() as patch:  # checkpoints that stay
        patch.setattr(experiment, "forget", lambda folder: None)
        folders = {seed: run(world, seed=seed).parent for seed in (1, 2)}
    shutil.rmtree(folders[2] / "final")
    shutil.rmtree(folders[2] / "checkpoint")
    shutil.copytree(folders[1] / "checkpoint", folders[2] / "checkpoint")
    with pytest.raises(TrainingError, match="checkpoint is of another run or seed"):
        run(world, seed=2)


def test_a_new_seed_trains_only_itself(world, trainings):
    out = world / "runs" / "ppo_kl_0"
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    old = (out / "per_seed.csv").read_text()
    write_params(world, seeds=[1, 2])
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    assert trainings == ["ppo_kl_0 seed 1", "ppo_kl_0 seed 2"]
    assert (out / "per_seed.csv").read_text().startswith(old.rstrip("\n"))


def test_of_a_finished_seed_no_checkpoint_is_left(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    kept = []
    monkeypatch.setattr(states, "sync", lambda folder: kept.append(len(list(folder.glob("state-*")))))
    folder = run(world).parent
    assert len(kept) == 12 and max(kept) == 2  # the newest, and for a moment the one before it
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["final"]
    (folder / "checkpoint").mkdir()  # a kill just before it would have been removed
    run(world)
    assert not (folder / "checkpoint").exists()


def test_policies_are_kept_where_the_settings_say_so_or_others_start_there(world, trainings):
    write_params(world, keep_policies=False)
    out = world / "runs" / "ppo_kl_0"
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    assert not list(world.glob("**/runs/ppo_kl_0/**/model.safetensors")) and (out / "per_seed.csv").is_file()
    assert given(world, "supervised").keep_policies  # others continue it
    write_params(world)
    assert "keep_policies" not in given(world, "ppo_kl_0").model_dump()  # nothing that is there depends on it
    tables = (out / "per_seed.csv").read_bytes()
    experiment.run_condition(given(world, "ppo_kl_0"), out)  # asked for now: made again
    assert (out / "policy_seed1" / "model.safetensors").is_file() and (out / "per_seed.csv").read_bytes() == tables
    assert trainings == ["ppo_kl_0 seed 1"] * 2


def run_in(folder: Path, condition: str, killed_at: int = 0) -> None:
    """A run's stage, in a process of its own, with a checkpoint at every fifth update, which kills itself as soon as
    it has done ``killed_at`` of them."""
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    locks.die_with_parent()
    p = conditions.condition(checks.load("params.yaml"), condition)
    train.setup(p)
    learner, done = algorithms.module(p.run.algorithm), []
    real = learner.train

    def updates(state, *given):
        for metrics in real(state, *given):
            done[:] = [state.update]
            if killed_at and state.update >= killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield metrics

    learner.train = updates
    states.Pace.due = lambda self, end=False: done[0] % 5 == 0
    experiment.run_condition(p, p.folder / "runs" / condition)


@pytest.fixture
def processes():
    """Processes forked from one that has done the imports: each starts in a moment."""
    method = multiprocessing.get_context("forkserver")
    method.set_forkserver_preload([__name__])
    return method


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["nlpo_target_low"])
def test_killed_at_any_moment_the_tables_are_the_same(world, condition, processes):
    """SIGKILL four times at chosen updates, with a checkpoint just before or four updates ago, then let it finish;
    compare with an uninterrupted run."""
    write_params(world, learner={**SMALL["learner"], "updates": 25})
    whole = world.parent / "whole"
    shutil.copytree(world, whole)

    def start(folder: Path, killed_at: int = 0) -> multiprocessing.Process:
        process = processes.Process(target=run_in, args=(folder, condition, killed_at))
        process.start()
        return process

    uninterrupted = start(whole)
    scratch = world / ".scratch" / "tests" / "runs" / condition
    for update, state in ((3, 0), (9, 1), (11, 2), (25, 4)):
        process = start(world, update)
        process.join(DEADLINE_S)
        assert process.exitcode == -signal.SIGKILL and not (world / "runs" / condition).exists()
        assert [int(re.search(r"state-0*(\d+)", p.name)[1]) for p in scratch.glob("*/checkpoint/state-*")] == [state][
            : state > 0
        ]
    last = start(world)
    for process in (last, uninterrupted):
        process.join(DEADLINE_S)
        assert process.exitcode == 0
    for name in ("per_seed.csv", "curves.csv", "samples.jsonl", "episode.json"):
        assert (world / "runs" / condition / name).read_bytes() == (whole / "runs" / condition / name).read_bytes(), (
            name
        )
