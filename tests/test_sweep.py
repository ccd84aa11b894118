"""What the head makes of its workers: parcels, refusals, kinds of machines, faults. No worker of Dask's runs here."""

# ruff: noqa: F811 (fixtures of another file)

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import time
import types
import warnings
from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from tests.test_cluster import NAME, collected, done, made, sweep, without_workers, world  # noqa: F401
from workbook.stages import begun, cluster, leaving, parcels, reproduce, units
from workbook.stages.command import status
from workbook.stages.processes import ONE_THREAD
from workbook.stages.units import Unit
from workbook.store import locks, states
from workbook.store.files import atomic_write, is_sealed, seal

from .waiting import until

pytestmark = pytest.mark.xdist_group("cluster")


def packed(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """What a worker sends, with one member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return out.getvalue()


def test_from_a_worker_comes_nothing_but_finished_units(tmp_path):
    good = "runs/ppo_kl_0/seed1-00ff/final/policy/model.safetensors"
    parcels.unpack(packed(good), tmp_path / "a")
    assert (tmp_path / "a" / good).is_file()
    for name in ("../x", "runs/a/b/final/../../../../x", "/x", "runs/a/b/checkpoint/x", "head/x", "placement.json"):
        with pytest.raises(ConfigError, match="expected finished units alone"):
            parcels.unpack(packed(name), tmp_path / "b")
    with pytest.raises(ConfigError, match="expected finished units alone"):
        parcels.unpack(packed(good, tarfile.SYMTYPE), tmp_path / "b")
    for name in ("../x", "tune/ppo/lr1/row.json", "runs/a b/c/final", "runs"):
        with pytest.raises(ConfigError, match="expected finished units alone"):
            parcels.unpack(packed(name, tarfile.DIRTYPE), tmp_path / "b")
    parcels.unpack(b"", tmp_path / "b")
    assert not [path for path in (tmp_path / "b").rglob("*") if path.is_file()]


def finals(folder: Path, **files: str) -> bytes:
    """What a worker sends of a seed whose finished files these are; they lie in the folder."""
    final = folder / "runs/ppo_kl_0/seed1-00ff/final"
    for name, text in files.items():
        atomic_write(final / name.replace("_", "/"), text)
    seal(final)
    return parcels.packed(folder)


def test_what_is_there_and_cannot_be_used_gives_way_to_what_a_worker_finished(tmp_path):
    """A seal that does not hold, or no policy where one came; what lacks nothing stays."""
    content = finals(tmp_path / "there", curves="new", policy_weights="new")
    scratch = tmp_path / "here"
    final = scratch / "runs/ppo_kl_0/seed1-00ff/final"
    kept = {"curves": "old", "policy_weights": "old", "more": "old"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a seal
        for files, spoilt, left in (({"curves": "old"}, "", "new"), (kept, "curves", "new"), (kept, "", "old")):
            shutil.rmtree(scratch, ignore_errors=True)
            finals(scratch, **files)
            if spoilt:
                (final / spoilt).write_text("cut")
            parcels.unpack(content, scratch)
            assert [(final / name).read_text() for name in ("curves", "policy/weights")] == [left, left], files
            assert is_sealed(final) and (final / "more").exists() == (left == "old")
    shutil.rmtree(scratch)  # what counts under another key leads to that: see `carry.recount`
    finals(scratch, curves="old")
    (final.parents[1] / "seed1-00ff").rename(final.parents[1] / "seed1-0000")
    final.parent.mkdir()
    final.symlink_to("../seed1-0000/final", target_is_directory=True)
    parcels.unpack(content, scratch)
    assert (final / "policy/weights").is_file() and not final.is_symlink()
    assert [path.name for path in final.parent.iterdir() if path.name.startswith(".f")] == []


def test_a_parcel_that_is_cut_short_goes_to_another_worker_and_ends_nothing(alone):
    work, said = alone()
    unit = Unit("runs@ppo_kl_0", 1)
    work.open[unit.stage] = {unit}
    for content in (packed("head/x"), packed("runs/ppo_kl_0/seed1-00ff/final/x")[:100]):
        work._end(unit, Done(lambda content=content: ("", False, content), ()), "tls://there")
    assert work.queue == [unit, unit] and all("goes to another worker (tls://there: " in line for line in said)


def test_a_seed_that_somebody_writes_while_it_comes_goes_back_into_the_queue(alone, monkeypatch):
    work, said = alone()
    unit = Unit("runs@ppo_kl_0", 1)
    work.open[unit.stage] = {unit}
    held = work.scratch / "runs/ppo_kl_0/seed1-00ff"
    real = locks.writer_lock
    monkeypatch.setattr(locks, "writer_lock", lambda folder: real(folder, wait_s=0))
    with real(held):
        work._end(unit, Done(lambda: ("", False, packed("runs/ppo_kl_0/seed1-00ff/final/x")), ()), "tls://there")
    assert work.queue == [unit] and "goes to another worker (tls://there: " in said[0] and "is writing here" in said[0]


def test_a_worker_with_its_own_folder_sends_its_log_and_what_it_finished_before_it_failed(alone, tmp_path, monkeypatch):
    work, said = alone()
    unit, own = Unit("runs@ppo_kl_0", 1), tmp_path / "own"
    work.open[unit.stage], work.queue = {unit}, []

    def working(unit: Unit, folder: Path) -> None:
        finals(own / ".scratch", curves="x")
        print("far" + "!" * 9000)
        raise ValueError("the end")

    monkeypatch.setattr(parcels, "laid", lambda manifest: own)
    monkeypatch.setattr(units, "work", working)
    outcome = units.run(unit, "not here", ".", ".scratch", {"a": "00ff"})
    assert len(outcome[3]) <= 8192
    log = work.scratch / units.log_of(unit)
    atomic_write(log, "before\n")
    work._end(unit, Done(lambda: outcome, ()), "tls://there")
    assert re.search(r"^before\n!+\nTraceback .*ValueError: the end\n$", log.read_text(), re.S), log.read_text()[-300:]
    assert is_sealed(work.scratch / "runs/ppo_kl_0/seed1-00ff/final")
    assert said == ["runs@ppo_kl_0, draw 1, failed (ValueError: the end); the head tries it itself"]
    assert units.run(unit, str(own), ".", ".scratch")[2:] == ()  # where the folder is shared nothing is sent


# ------------------------------------------------------------------------------------------------------------- faults
class Done:
    """A future of what was done at once."""

    def __init__(self, job, given):
        try:
            self.value, self.error, self.status = job(*given), None, "finished"
        except Exception as error:
            self.value, self.error, self.status = None, error, "error"

    def done(self) -> bool:
        return True

    def result(self, timeout: float):
        return self.value

    def exception(self):
        return self.error

    def cancel(self) -> None:
        pass


class Here:
    """A client whose one worker is this process, so that its disk and its clock can be spoilt."""

    cluster = None

    @property
    def scheduler(self) -> Here:
        return self

    def sync(self, job, callback_timeout: float, **given):
        return job(**given)

    def identity(self, n_workers: int) -> dict:
        return {"workers": {"here": {}}}

    def submit(self, job, *given, **where) -> Done:
        return Done(job, given)


@pytest.fixture
def alone(world, monkeypatch):
    """A way to begin a sweep in this process."""
    facts = {"same": dict(ONE_THREAD), "code": {}, "machine": "here", "shared": True}
    monkeypatch.setattr(units, "about", lambda *asked: facts)
    monkeypatch.setattr(leaving, "run", units.run)  # no worker of Dask's is told to leave
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    return lambda: sweep(Here(), world)


def test_a_scheduler_that_is_gone_is_said_in_a_line(alone):
    """As Dask 2026 has it: one question fails, and then there is nobody to ask."""

    def identity(n_workers: int) -> dict:
        raise OSError("Timed out trying to connect")

    work, _ = alone()
    for known in (types.SimpleNamespace(identity=identity), None):
        work.client = types.SimpleNamespace(scheduler=known, sync=Here().sync, cluster=None)
        with pytest.raises(ConfigError, match="Dask's scheduler is gone .*; the same command continues with another"):
            work.step()


def test_what_the_user_brings_refuses_a_worker_without_our_folder_and_no_other(world, alone):
    settings = world / "build/settings/models.json"
    given = json.loads(settings.read_text())
    settings.write_text(json.dumps({**given, "bring": {"model": "gpt2", "reward": "mine.py:score", "prompts": ""}}))
    work, said = alone()
    facts = units.about()

    class Both(Here):
        def identity(self, n_workers: int) -> dict:
            return {"workers": {"here": {}, "there": {}}}

        def submit(self, job, *given, workers: list[str], **where) -> Done:
            return Done(lambda: {**facts, "shared": workers == ["here"]}, ())

    work.client = Both()
    work.step()
    assert work.workers.keys() == {"here"}
    (line,) = said
    assert line.startswith("worker there is refused: bring.model: gpt2: its files are not sent, and a hub id may stand")
    assert "; bring.reward: mine.py:score: " in line and line.endswith(
        "start the worker where it sees the head's folder"
    )
    assert parcels.inputs("models@1", 1, world, world)  # what a unit reads is asked of the others alone


def without_room(number: int, where: str) -> None:
    """`os.fsync` on a disk that is full for files whose path has ``where``."""
    if where in os.readlink(f"/proc/self/fd/{number}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Jobs:
    """What Dask knows of jobs: those wanted, those there. scale: asked for again."""

    def __init__(self):
        self.worker_spec, self.workers, self.asked = {"a": 0, "b": 0}, {}, []

    def scale(self, n: int) -> None:
        self.asked.append(n)


@pytest.fixture
def jobs(alone, monkeypatch):
    """(a sweep whose workers are jobs, what it said, its jobs, a way to have some of them there). facts: of a job, by
    its name; the others are like the head."""
    work, said = alone()
    found, like = Jobs(), units.about()
    found.facts = {}

    class Named(Here):
        cluster = found

        def identity(self, n_workers: int) -> dict:
            return {"workers": {f"tls://{name}": {"name": name} for name in found.workers}}

        def submit(self, job, *given, workers: list[str], **where) -> Done:
            return Done(lambda: {**like, **found.facts.get(workers[0].removeprefix("tls://"), {})}, ())

    def there(*names: str) -> None:
        found.workers = dict.fromkeys(names)
        work._look()

    work.client = Named()
    return work, said, found, there


def test_jobs_that_ended_are_asked_for_again_once_and_only_while_units_wait(jobs):
    work, said, found, there = jobs
    work.queue = [Unit("runs@ppo_kl_0", 1)]
    for names, asked in ((), []), (("a",), []), (("a", "b"), []), (("b",), [2]), (("b",), [2]), (("a", "b"), [2]):
        there(*names)  # at first they are on their way, which is no end
        assert found.asked == asked, names
    assert said == ["workers ended: 1; others are asked for (units that wait: 1)"]
    work.queue = []
    there()
    assert found.asked == [2]
    work.queue = [Unit("runs@ppo_kl_0", 1)]
    there()
    assert found.asked == [2, 2]


def test_no_job_is_asked_for_in_place_of_one_that_could_do_nothing(jobs):
    """One is refused, the other is of another kind of processor than where the draw began: the next may be alike."""
    work, said, found, there = jobs
    work.queue, work.places = [Unit("runs@ppo_kl_0", 1)], {"1": "here"}
    found.facts = {"a": {"same": {**ONE_THREAD, "scipy": "0.1"}}, "b": {"machine": "another"}}
    for _ in range(2):
        there("a", "b")
        there()
    assert not found.asked and len(said) == 2 and all("a is refused: scipy" in line for line in said), said


def test_where_all_jobs_are_refused_the_command_ends_with_the_reason(jobs):
    work, said, found, there = jobs
    found.facts = dict.fromkeys("ab", {"same": {**ONE_THREAD, "scipy": "0.1"}})
    there("a", "b")  # no unit waits yet
    work.queue = [Unit("runs@ppo_kl_0", 1)]
    with pytest.raises(ConfigError, match=r"all workers .* are refused \(2\), .* scipy: none on the head, 0.1 there$"):
        there("a")  # as one of them has ended since
    found.facts, work.queue = {}, []  # the same ones, started otherwise
    there()
    there("a", "b")
    assert work.workers.keys() == {"tls://a", "tls://b"} and not work.refused


def checkpoints(scratch: Path) -> list[Path]:
    """One of each kind of unit of draw 1, and one of draw 2."""
    names = ("runs/ppo_kl_0/seed1-00/checkpoint/state-1", "tune/ppo/lr-00/checkpoint/state-1")
    names = (*names, "models_draw1/language_model/00/state-1", "runs/ppo_kl_0/seed2-00/checkpoint/state-1")
    for name in (*names, "runs/ppo_kl_0/seed1-00/half.json"):
        atomic_write(scratch / name, "x")
    return [scratch / name for name in names]


def test_a_checkpoint_of_another_kind_of_machine_is_not_resumed(alone):
    """As where its draw's line is taken out of the placement, or where the head does what workers failed at."""
    work, said = alone()
    stage = "runs@ppo_kl_0"
    work.client.submit = lambda job, *given, **where: Done(lambda: units.about() if job is units.about else (), ())
    mine, *others = checkpoints(work.scratch)
    work.step()
    for address, machine in (("here", "here"), ("there", "there"), ("there", "there")):
        work.workers[address] = {"machine": machine, "shared": True}
        work.queue, work.places = [Unit(stage, 1)], {}
        work._give(address, work.queue[0])
        assert mine.exists() == (machine == "here")  # what the head began goes on with one like it
    assert said == [f"{stage}, draw 1, begins anew: its checkpoint is of another kind of machine, here"]
    assert not (mine.parents[1] / "half.json").exists() and all(path.exists() for path in others)
    mine = checkpoints(work.scratch)[0]
    work.queue = [Unit(stage, 1)]
    work._give("there", work.queue[0])
    assert mine.exists()
    work.open[stage] = {Unit(stage, 1)}
    work._end(Unit(stage, 1), Done(lambda: ("no", False), ()), "there")
    assert not mine.exists() and "begins anew" in said[-2] and said[-1].endswith("the head tries it itself")


def test_a_head_without_workers_begins_anew_what_another_kind_of_machine_was_at(tmp_path):
    found = checkpoints(tmp_path)
    for stage in ("runs@ppo_kl_0", "tune@ppo", "models@1"):
        assert begun.by("there", stage, 1, tmp_path, "there") == ""
    with locks.writer_lock(found[1].parents[1]):  # somebody writes there: it stays, and stays theirs
        lines = begun.alone("here", tmp_path)
    assert sorted(line.partition(" begins anew")[0] for line in lines) == [
        "models@1, draw 1,",
        "runs@ppo_kl_0, draw 1,",
    ]
    assert [path.exists() for path in found] == [False, True, False, True]
    assert begun.alone("here", tmp_path) == [
        "tune@ppo, draw 1, begins anew: its checkpoint is of another kind of machine, there"
    ]
    assert begun.alone("here", tmp_path) == []


def test_a_unit_whose_workers_end_goes_on_as_long_as_it_gets_further(alone):
    """As where a seed takes longer than a job may."""
    work, said = alone()
    unit, gone = Unit("runs@ppo_kl_0", 1), Done(lambda: None, ())
    gone.status, work.open[unit.stage] = "lost", {unit}
    log = work.scratch / units.log_of(unit)
    log.parent.mkdir(parents=True)
    steps = [40, 80, 120, 160, 160, 120, 0]
    for step in steps:
        work.queue = []
        log.write_text(f"x: 10%|# | {step}/900 [00:10<00:20, 3.1update/s]")
        work._end(unit, gone, "tls://there")
    assert [" goes to another worker" in line for line in said] == [True] * 6 + [False]
    assert "the head tries it itself" in said[-1] and not work.open[unit.stage]
    work, said = alone()  # of a search the second candidate begins at nothing again
    for what, step in (("lr 1", 14), ("lr 2", 3), ("lr 2", 9), ("lr 3", 1), ("lr 3", 1), ("lr 3", 1)):
        log.write_text(f"{what}: 10%|# | {step}/15 [00:10<00:20, 3.1update/s]")
        work._end(unit, gone, "tls://there")
    assert len(said) == 6 and all(" goes to another worker" in line for line in said)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_full_disk_then_a_clock_that_jumps_back_lose_nothing_that_was_finished(made, world, alone, monkeypatch):
    work, said = alone()
    stage = f"runs@{NAME}"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: without_room(number, "/seed1-"))
        until(lambda: done(work, stage), lambda: f"the end: {said}")
    why = "OSError: [Errno 28] No space left on device"
    again = f"{stage}, draw 1, goes to another worker ({why})"
    failed = f"{stage}, draw 1, failed ({why}); the head tries it itself"
    assert said == [again, again, failed, f"{stage}, draw 2, done"]
    (kept,) = (world / ".scratch/tests/runs").glob("*/*/final")
    assert kept.parent.name.startswith("seed2-") and not list(kept.parents[1].rglob("*.tmp"))
    before = (kept.stat().st_ino, (kept / ".hash").stat().st_mtime_ns)

    clock = itertools.count(time.time(), -3600)  # an hour back at each look
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(clock))
        patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
        work, said = alone()
        until(lambda: done(work, stage), lambda: f"the end: {said}")
    assert said == [f"{stage}, draw 1, done"]  # draw 2 is finished: no worker gets it again
    assert before == (kept.stat().st_ino, (kept / ".hash").stat().st_mtime_ns)
    assert (world / ".scratch/tests" / units.log_of(Unit(stage, 2))).read_text().count(" 0/15 ") == 1
    assert collected(world, monkeypatch) == without_workers(made)


def test_a_folder_that_is_read_only_is_said_and_left_to_the_head(world, alone, monkeypatch):
    work, said = alone()

    def mkdir(self: Path, *given, real=Path.mkdir, **more) -> None:
        if self.name == "units":  # of the logs
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        real(self, *given, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    until(lambda: done(work, f"runs@{NAME}"), lambda: f"the end: {said}")
    assert len(said) == 6 and all("Read-only file system" in line and "\n" not in line for line in said), said
    assert sum(line.endswith("; the head tries it itself") for line in said) == 2


def test_what_a_worker_had_no_room_for_is_named(tmp_path, monkeypatch):
    (tmp_path / "worker").mkdir()
    monkeypatch.setattr("distributed.get_worker", lambda: type("", (), {"local_directory": str(tmp_path / "worker")}))
    with pytest.raises(OSError, match=r"data/draw1/a.jsonl was sent and could not be kept in .*worker.* MB free"):
        parcels.laid({"data/draw1/a.jsonl": "00ff"})


def test_a_head_without_room_says_it_in_a_line_and_keeps_what_is_whole(tmp_path, monkeypatch, capsys):
    scratch, name = tmp_path / "scratch", "runs/ppo_kl_0/seed{}-00ff/final/curves.csv"
    parcels.unpack(packed(name.format(2)), scratch)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for fault in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
        with monkeypatch.context() as patch:
            words = OSError(fault, os.strerror(fault), "scratch")
            patch.setattr(os, "fsync", lambda number, words=words: (_ for _ in ()).throw(words))
            assert status(lambda: parcels.unpack(packed(name.format(1)), scratch), False, "the same goes on") == 1
        said = capsys.readouterr().err
        assert said == f"error: {words}; finished work is kept. With room to write, the same goes on\n"
        assert [path.parent.name for path in scratch.glob("runs/*/*/final")] == ["seed2-00ff"]
        assert [path.name for path in scratch.iterdir()] == ["runs"]  # nothing half done
    with pytest.raises(FileNotFoundError):  # an error of the program stays one
        status(lambda: open(tmp_path / "none"), False, "")
    parcels.unpack(packed(name.format(1)), scratch)
    assert (scratch / name.format(1)).is_file() and (scratch / name.format(2)).is_file()


# ----------------------------------------------------------------------------------------------------- the head alone
@pytest.fixture
def head(monkeypatch):
    """The arguments of each scheduler that a head makes, which then ends."""
    begun, needs = [], {"runs@a": set()}
    left = {"needs": needs, "changed": {*needs}, "values": None, "run_light": lambda: None, "order": list}
    monkeypatch.setattr(reproduce, "Pipeline", lambda *given: types.SimpleNamespace(**left))
    monkeypatch.setattr(cluster, "connected", lambda *given, **more: contextlib.nullcontext(Here()))
    monkeypatch.setattr(reproduce, "Scheduler", lambda *given: begun.append(given))
    monkeypatch.setattr(reproduce, "announce", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    return begun


def test_the_head_runs_no_more_stages_than_it_has_cores_whatever_slurm_is_asked_for(world, head, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {0, 1, 2}, raising=False)
    for workers in ("slurm:gpu", ""):
        with pytest.raises(KeyboardInterrupt):
            reproduce.reproduce(world, world / ".scratch/tests", 64, ours=False, workers=workers)
    assert [given[4] for given in head] == [3, 64]  # what the user says of this machine alone is meant so


def test_a_head_alone_begins_anew_what_workers_of_another_kind_were_at(world, head, capsys):
    scratch = world / ".scratch/tests"
    begun.by("another kind", "runs@ppo_kl_0", 1, scratch, "another kind")
    mine, *others = checkpoints(scratch)
    for workers in ("local:1", ""):
        with pytest.raises(KeyboardInterrupt):
            reproduce.reproduce(world, scratch, ours=False, workers=workers)
        assert mine.exists() == bool(workers) and all(path.exists() for path in others)
    said = "runs@ppo_kl_0, draw 1, begins anew: its checkpoint is of another kind of machine, another kind\n"
    assert capsys.readouterr().out == said
