"""Units on workers: killed, other, doubled ones, ones without a shared folder; who can be reached, and from where."""

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
import subprocess
import sys
import tarfile
import time
import types
import warnings
from pathlib import Path

import dask
import dask_jobqueue  # noqa: F401 (it brings its defaults, which the tests change)
import psutil
import pytest
import torch
from distributed import Client, LocalCluster

from rlnlp.settings import ConfigError
from tests.built import REPOSITORY, SMALL, WITHOUT_VARIANTS, build, write_params
from tests.executed import change, copied
from workbook.draws import base
from workbook.runs import conditions, experiment
from workbook.stages import begun, carry, cluster, leaving, parcels, reproduce, scheduler, units
from workbook.stages import sweep as sweeps
from workbook.stages.command import status
from workbook.stages.processes import ONE_THREAD
from workbook.stages.sweep import PLACES, Sweep
from workbook.stages.units import Unit
from workbook.store import locks, states
from workbook.store.files import atomic_write, is_sealed, seal

from .waiting import until

pytestmark = pytest.mark.xdist_group("cluster")  # they share workers
NAME = "ppo_kl_0"
TABLES = ("per_seed.csv", "curves.csv", "samples.jsonl", "episode.json", "config.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A profile with models, and a folder `local` of what its runs are without workers."""
    folder = tmp_path_factory.mktemp("made")
    few = {
        **WITHOUT_VARIANTS,
        "runs": {NAME: {"algorithm": "ppo", "kl_coef": 0.0}},
        "reports": {"kl": {"conditions": [NAME]}},
    }
    few |= {"variants": {"label_fractions": [], "dropout": 0.0}}
    write_params(folder, draws=[1, 2], seeds=[1, 2], learner={**SMALL["learner"], "updates": 15}, **few)
    build(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert conditions.main(["params.yaml", "build"]) == 0
    experiment.run_condition(conditions.load_condition(NAME, folder), folder / "local")
    return folder


@pytest.fixture
def world(made, tmp_path) -> Path:
    """A copy of it in which nothing was trained."""
    shutil.copytree(made, tmp_path / "world", ignore=shutil.ignore_patterns(".scratch", "local"))
    return tmp_path / "world"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The client of two workers, processes on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(states.EVERY_UPDATE, "1")
        with cluster.connected("local:2", 2, tmp_path_factory.mktemp("two")) as client:
            yield client


def sweep(client, world: Path) -> tuple[Sweep, list[str]]:
    said: list[str] = []
    return Sweep(client, world, world / ".scratch" / "tests", said.append), said


def done(sweep: Sweep, stage: str = "data@1") -> bool:
    sweep.step()
    return sweep.ready(stage)


def collected(world: Path, monkeypatch) -> dict[str, bytes]:
    """The run's tables as its stage makes them, which must not train anything."""
    trained = []
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "train", lambda *a: trained.append(a[5]))
        experiment.run_condition(conditions.load_condition(NAME, world), world / "runs" / NAME)
    assert not trained
    return {table: (world / "runs" / NAME / table).read_bytes() for table in TABLES}


def without_workers(made: Path) -> dict[str, bytes]:
    return {table: (made / "local" / table).read_bytes() for table in TABLES}


def state(world: Path, number: int) -> list[Path]:
    """The checkpoint of a run that has that many; there is one after every update (fixture `two`)."""
    found = (world / ".scratch/tests/runs").glob("*/*/checkpoint/state-*")
    return [path for path in found if int(path.name.split("-")[1]) >= number]


# ------------------------------------------------------------------------------------------------------ what is asked
@pytest.mark.parametrize(
    "workers, said",
    [
        ("4", "expected one of local:4 .*tls://host:8786 .*tcp://host:8786 .*slurm:partition"),
        ("local:0", "expected one of local:4"),
        ("local:four", "expected one of local:4"),
        ("locale:4", "did you mean 'local'"),
        ("tls://host", "tls://host:8786"),
        ("slurm:", "slurm:partition"),
        ("slurm:a b", "slurm:partition"),
        ("tcp://host:8786", "can run any program in your name.*tls://.*INSECURE=1"),
    ],
)
def test_what_cannot_be_meant_or_is_not_safe_is_said_in_a_line(workers, said):
    with pytest.raises(ConfigError, match=said) as error:
        cluster.check(workers)
    assert str(error.value).startswith(f"WORKERS={workers}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize("workers", ["local:1", "tls://a.b:1", "slurm:gpu,cpu"])
def test_each_form_is_taken(workers):
    cluster.check(workers)
    cluster.check("tcp://host:8786", insecure=True)


def test_make_passes_on_what_is_asked():
    def said(*given: str) -> str:
        command = ["make", "-n", "reproduce", "PROFILE=smoke", *given]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    assert "--workers 'local:4'" in said("WORKERS=local:4") and "--insecure" not in said("WORKERS=local:4")
    assert "--insecure" in said("WORKERS=tcp://h:1", "INSECURE=1") and "--insecure" not in said("INSECURE=0")
    assert "--workers" not in said()


@pytest.mark.parametrize("more", [("--workers", "local:2"), ("--log", "tensorboard")])
def test_reports_alone_take_neither_workers_nor_trackers(more, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        reproduce.main(["mini", "--reports", *more, "--root", str(tmp_path)])
    assert ended.value.code == 2
    assert "--reports starts no run: expected it without --workers and --log" in capsys.readouterr().err


def test_no_scheduler_and_no_certificate_are_said_in_a_line(tmp_path):
    nobody = "no scheduler listens there"
    for workers, why in (("tls://127.0.0.1:9", "TLS needs a certificate"), ("tcp://127.0.0.1:9", nobody)):
        with pytest.raises(ConfigError, match=f"WORKERS={workers}: {why}"):
            with cluster.connected(workers, 1, tmp_path, timeout=1):
                pass
    with dask.config.set({"distributed.comm.tls.client.cert": "some.pem"}):
        for workers in ("tls://127.0.0.1:9", "tls://127.0.0.1:70000"):
            with pytest.raises(ConfigError, match=f"WORKERS={workers}: {nobody}"):
                with cluster.connected(workers, 1, tmp_path, timeout=1):
                    pass


def test_a_slurm_job_has_the_users_settings_one_thread_and_certificates(tmp_path):
    """The script alone: no Slurm is here to run it."""
    with dask.config.set({"jobqueue.slurm.cores": None, "jobqueue.slurm.memory": None}):
        with pytest.raises(ConfigError, match="WORKERS=slurm:gpu: .*cores.*jobqueue: slurm: in .*jobqueue.yaml"):
            cluster.slurm("gpu", 0, tmp_path)
    own = {"cores": 2, "memory": "4GB", "account": "me", "job-script-prologue": ["module load it"]}
    own |= {"walltime": "04:00:00", "job-extra-directives": ["--gres=gpu:1", "--signal=B:TERM@60"]}
    own |= {"worker-extra-args": ["--lifetime", "230m", "--memory-limit", "1GB"]}
    with dask.config.set({"jobqueue.slurm": {**dask.config.get("jobqueue.slurm"), **own}}):
        with cluster.slurm("gpu", 0, tmp_path, "cuda") as found:
            script = found.job_script()
    lines = ("#SBATCH -p gpu", "#SBATCH -A me", "#SBATCH -t 04:00:00", "#SBATCH --gres=gpu:1")
    exports = ("export OMP_NUM_THREADS=1", "export TOKENIZERS_PARALLELISM=true")
    for line in (*lines, "#SBATCH --signal=B:TERM@60", "module load it", *exports):
        assert line in script.splitlines()
    assert "CUDA_VISIBLE_DEVICES" not in script  # Slurm gives each job its card
    assert "--lifetime 230m" in script  # a worker leaves by itself before the time limit, if the user says so
    assert f"exec {sys.executable} -m distributed.cli.dask_worker tls://" in script
    assert "--no-dashboard --dashboard-address 127.0.0.1:0" in script  # its page would be open to all
    assert re.findall(r"--nthreads (\d+)", script)[-1] == "1"  # the last one counts; else as many as cores
    assert re.findall(r"--memory-limit (\S+)", script)[-1] == "0"  # at a limit Dask pauses it, and its unit hangs
    assert "--nworkers" not in script and f"--tls-key {tmp_path}/certificates/" in script  # one worker, of two cores
    assert f"#SBATCH -o {tmp_path}/slurm/dask-worker-%J.out" in script.splitlines()
    assert (tmp_path / "certificates").stat().st_mode & 0o77 == 0


def test_the_page_starts_a_worker_as_it_has_to_be():
    page = (REPOSITORY / "docs/use/machines.md").read_text()
    assert re.search(rf"^\.venv/bin/dask worker .* {' '.join(cluster.OF_WORKER)}$", page, re.M)


def test_a_path_that_a_job_script_cannot_say_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="WORKERS=slurm:gpu: .*a b: expected a path without blanks and %"):
        cluster.slurm("gpu", 0, tmp_path / "a b")


# ------------------------------------------------------------------------------------------------------- two of them
def test_nothing_here_can_be_reached_from_elsewhere(two):
    us = psutil.Process()
    workers = [psutil.Process(pid) for pid in two.run(os.getpid).values()]
    nannies = list(two.run(os.getpid, nanny=True).values())
    assert len(workers) == 2 and set(nannies) == {us.pid}  # the scheduler and the nannies are threads of ours
    ours = [c for p in (us, *us.children(recursive=True)) for c in p.net_connections() if c.status == "LISTEN"]
    assert len(ours) >= 6 and {c.laddr.ip for c in ours} == {"127.0.0.1"}
    assert two.scheduler.address.startswith("tls://127.0.0.1:")


def test_dasks_page_is_named_where_there_is_one(two, monkeypatch):
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    assert "none, it needs bokeh" in reproduce.dashboard(two, own=True)
    monkeypatch.setattr(reproduce, "find_spec", lambda name: name)
    said = reproduce.dashboard(two, own=True)
    assert re.fullmatch(r"Dask's dashboard: http://127.0.0.1:\d+/status", said), said


def test_a_killed_worker_goes_on_from_its_checkpoint_and_loses_no_digit(two, made, world, monkeypatch):
    work, said = sweep(two, world)
    stage = f"runs@{NAME}"
    until(lambda: done(work, stage) or state(world, 5), "update 5")
    folder = state(world, 5)[0].parents[1]
    unit = Unit(stage, int(re.match(r"seed(\d+)-", folder.name)[1]))
    address = next(address for address, (busy, _) in work.busy.items() if busy == unit)
    os.kill(two.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    until(lambda: done(work, stage), lambda: f"the end: {said}")
    assert any(f"{stage}, draw {unit.draw}, goes to another worker" in line for line in said), said
    assert sum(line.endswith(", done") for line in said) == 2
    assert collected(world, monkeypatch) == without_workers(made)
    log = (world / ".scratch/tests" / units.log_of(unit)).read_text()
    assert log.count(" 0/15 ") == 1 and re.search(r" ([5-9]|1[0-4])/15 \[00:00<\?", log)  # begun once, then continued
    assert set(json.loads((world / ".scratch/tests" / PLACES).read_text())) == {"1", "2"}


def test_a_unit_that_two_do_at_once_is_trained_and_published_once(two, world):
    sweep(two, world)
    given = (("runs@ppo_kl_0", 1), str(world), ".", ".scratch/tests")
    both = [two.submit(units.run, *given, workers=[address], pure=False) for address in two.run(os.getpid)]
    assert [future.result(timeout=240)[0] for future in both] == ["", ""]
    (final,) = (world / ".scratch/tests/runs/ppo_kl_0").glob("*/final")
    assert (world / ".scratch/tests/logs/units/runs@ppo_kl_0-1.log").read_text().count(" 0/15 ") == 1
    before = (final.stat().st_ino, (final / ".hash").stat().st_mtime_ns)
    assert two.submit(units.run, *given, pure=False).result(timeout=240)[0] == ""
    assert before == (final.stat().st_ino, (final / ".hash").stat().st_mtime_ns)


def there(client) -> dict[str, dict]:
    """Address -> what Dask knows of a worker."""
    return client.sync(client.scheduler.identity, n_workers=-1)["workers"]


def trees(client) -> dict[str, Path]:
    """Address -> the folder of its own where a worker lays what a unit reads."""
    return {address: Path(one["local_directory"]) / "rlnlp" / "tree" for address, one in there(client).items()}


def in_the_middle(work: Sweep, stage: str, own: dict[str, Path], said: list[str]) -> str:
    """The address of a worker with its own folder that has a checkpoint of update 5, and is not done. own: `trees`."""

    def far() -> list[str]:
        assert not done(work, stage), said
        return [address for address in work.busy if state(own[address], 5)]

    return until(far, lambda: f"update 5: {said}")[0]


def test_workers_without_our_folder_get_what_they_read_and_send_what_they_finish(two, made, world, monkeypatch):
    """One of them is killed in the middle of a seed: that seed is trained again by another, and nothing else is."""
    work, said = sweep(two, world)
    work.asking = (str(world / "not there"), *work.asking[1:])  # as where the head's folder is not mounted
    scratch = world / ".scratch/tests"
    shutil.rmtree(world / "models" / "draw2")
    until(lambda: done(work, "models@2"), lambda: f"the models: {said}")
    parts = {path: path.stat().st_ino for path in scratch.glob("models_draw2/*/*/finished")}
    assert len(parts) == 4, said
    base.build(conditions.load_stage("models", world), 2, world / "data/draw2", world / "models/draw2", scratch)
    assert parts == {path: path.stat().st_ino for path in scratch.glob("models_draw2/*/*/finished")}
    own, processes = trees(two), two.run(os.getpid)
    address = in_the_middle(work, f"runs@{NAME}", own, said)
    os.kill(processes[address], signal.SIGKILL)
    unit = work.busy[address][0]
    until(lambda: done(work, f"runs@{NAME}"), lambda: f"the runs: {said}")
    assert [f"draw {unit.draw}, goes to" in line for line in said if "goes to another worker" in line] == [True], said
    assert not list(scratch.glob("runs/*/*/checkpoint"))
    assert collected(world, monkeypatch) == without_workers(made)
    until(lambda: len(trees(two)) == 2, "another worker in its place")


ALONE = ("--nthreads", "1", "--memory-limit", "0")


def worker(client, folder: Path, first: Path, *more: str, within: tuple[str, ...] = ()) -> subprocess.Popen:
    """A worker of its own, that looks for packages in the folder `first` before others. more: of its command; within:
    a command that runs it."""
    command = [*within, sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--no-dashboard"]
    for name, text in client.security.get_tls_config_for_role("worker").items():
        if name in ("ca_file", "cert", "key"):
            (folder / name).write_text(text)
            command += [f"--tls-{name.replace('_', '-')}", str(folder / name)]
    path = os.pathsep.join([str(first), str(REPOSITORY)])
    with open(folder / "log", "w") as log:
        return subprocess.Popen(
            [*command, *ALONE, *(more or ["--no-nanny"]), "--local-directory", str(folder)],
            env={**os.environ, "PYTHONPATH": path, "NUMEXPR_NUM_THREADS": "1"},
            cwd=folder,
            stdout=log,
            stderr=log,
        )


# a process in here sees no other's number; it ends with the command
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def namespaces() -> bool:
    """Whether this system lets us make one."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not namespaces(), reason="process namespaces: not allowed here")
def test_workers_that_share_neither_folder_nor_process_numbers_and_one_is_killed(
    two, made, world, tmp_path, monkeypatch
):
    """As on two machines: both are number 1 of their namespace, and the locks that they write name that number."""
    work, said = sweep(two, world)
    work.asking = (str(world / "not there"), *work.asking[1:])
    known = {*there(two)}
    work.asked = dict.fromkeys(known)  # judged already: the two that share our namespace are given nothing
    jobs = {}
    try:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            jobs[name] = worker(two, tmp_path / name, tmp_path / name, within=NAMESPACE)
        until(lambda: done(work) and len(work.workers) == 2, lambda: f"both: {said}")
        assert {*two.run(os.getpid, workers=[*work.workers]).values()} == {1}
        stage, own = f"runs@{NAME}", trees(two)
        address = in_the_middle(work, stage, own, said)
        jobs[own[address].relative_to(tmp_path).parts[0]].kill()
        unit = work.busy[address][0]
        until(lambda: done(work, stage), lambda: f"the end: {said}")
    finally:
        for job in jobs.values():
            job.kill()
            job.wait()
    assert [line for line in said if f"{stage}, draw {unit.draw}, goes to another worker" in line], said
    assert collected(world, monkeypatch) == without_workers(made)
    until(lambda: done(work) and work.asked.keys() == known)


def test_a_worker_with_other_libraries_or_code_is_refused_and_told_why(two, world, tmp_path):
    other, code = tmp_path / "other", copied(tmp_path / "code")
    (other / "scipy-0.1.dist-info").mkdir(parents=True)
    (other / "scipy-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.1\n")
    change(code / "rlnlp" / "losses.py", "ppo_clip")
    work, said = sweep(two, world)
    processes = [worker(two, one.parent if one == code else one, one) for one in (other, code)]
    try:
        until(lambda: done(work) and len(said) == 2 and len(work.workers) == 2, lambda: f"a refusal: {said}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert any(re.search(r"is refused: scipy: [\d.]+ on the head, 0.1 there$", line) for line in said), said
    assert any(re.search(r"is refused: code: rlnlp.losses:ppo_clip changed$", line) for line in said), said
    until(lambda: done(work) and len(work.asked) == 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")
def test_seeds_of_a_gpu_are_not_looked_for_where_there_is_none(world):
    """Their key cannot be known; that there is no GPU, their stage says in a line."""
    settings = world / f"build/conditions/{NAME}.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "device": "cuda"}))
    (world / f".scratch/tests/runs/{NAME}/seed1-00ff/final").mkdir(parents=True)
    assert carry.recount(world, NAME) == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"memory_limit": 0}, "tasks at once: 1 on the head, 2 there; start it with --nthreads 1"),
        ({"threads_per_worker": 1}, "memory limit: none on the head, 1.5 GB there; start it with --memory-limit 0"),
    ],
)
def test_a_worker_of_several_threads_or_with_a_memory_limit_is_refused_and_told_how_to_start(given, why):
    """Two units in one process would change each other's folder, output and torch's modes; a worker that Dask pauses
    gets no unit, and one that is meant for it alone waits for ever."""
    here = {"n_workers": 1, "processes": False, "dashboard_address": cluster.HERE}
    with LocalCluster(**{"threads_per_worker": 2, "memory_limit": "1.5GB", **here, **given}) as started:
        with Client(started) as client:
            found = client.submit(units.about, "no file", "imdb", pure=False).result(timeout=240)
    assert units.differs(units.about("no file", "imdb"), found) == [why]


def test_a_worker_that_ends_after_its_work_and_before_it_is_fetched_is_gone(two, world, monkeypatch):
    """It is stopped, as a machine that lost its power: nobody is told, and nothing would ever come."""
    work, said = sweep(two, world)
    unit, (address, process) = Unit(f"runs@{NAME}", 1), next(iter(two.run(os.getpid).items()))
    future = two.submit(os.getpid, workers=[address], pure=False)
    until(future.done)
    assert future.status == "finished"
    os.kill(process, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sweeps, "FETCH_S", 0.5)
            work._end(unit, future, address)
    finally:
        os.kill(process, signal.SIGCONT)
    assert said == [f"{unit.stage}, draw 1, goes to another worker ({address}: it is gone)"] and work.queue == [unit]
    work.queue = []
    until(lambda: done(work) and len(work.workers) == 2, "that it is asked anew, as it is there after all")


def test_a_worker_that_does_not_answer_while_it_is_sent_something_is_gone(two, world, monkeypatch):
    """It is stopped: it takes nothing, and says nothing."""
    work, said = sweep(two, world)
    work.asking = (str(world / "not there"), *work.asking[1:])
    until(lambda: done(work) and len(work.workers) == 2)
    unit, (address, process) = Unit(f"runs@{NAME}", 1), next(iter(two.run(os.getpid).items()))
    work.queue = [unit]
    os.kill(process, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(parcels, "SEND_S", 0.5)
            work._give(address, unit)
    finally:
        os.kill(process, signal.SIGCONT)
    assert said == [f"{unit.stage}, draw 1, goes to another worker ({address}: it is gone)"] and work.queue == [unit]
    assert address not in work.workers and not work.busy
    work.queue = []
    until(lambda: done(work) and len(work.workers) == 2, "that it is asked anew, as it is there after all")


def test_no_worker_is_gone_because_dask_asked_for_something_else_meanwhile(two, world, monkeypatch):
    work, real = sweep(two, world)[0], two.sync

    def sync(job, *given, **more):
        found = real(job, *given, **more)
        real(two._update_scheduler_info)  # as it does every two seconds, of no worker
        return found

    monkeypatch.setattr(two, "sync", sync)
    assert len(work._seen()) == 2


def test_the_plan_counts_the_workers_and_the_head_its_cores(two, world, monkeypatch, capsys):
    work, _ = sweep(two, world)
    needs = {f"runs@{name}": set() for name in "abcd"}
    known = scheduler.Scheduler(world, world / ".scratch/tests", needs, {*needs}, 8, sweep=work)
    pipeline = types.SimpleNamespace(logs=world, updates={}, values=None)
    reproduce.announce(known, pipeline, "local:2")
    known.say("a stage")
    plan, ahead = capsys.readouterr().out.splitlines()[1:4:2]
    assert plan == "plan: 4 runs; about 3 minutes on 2 workers" and ahead.endswith("about 3:20 left)")


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


def test_a_job_at_its_time_limit_ends_and_its_seed_goes_on_elsewhere(two, made, world, tmp_path, monkeypatch):
    """As Slurm ends it: SIGTERM to the job's command, `dask worker` with its nanny. It was in the middle of a seed."""
    work, said = sweep(two, world)
    known = {*there(two)}
    job, stage = worker(two, tmp_path, tmp_path, "--nanny"), f"runs@{NAME}"
    try:
        until(lambda: done(work) and work.workers.keys() - known, lambda: f"the job's worker: {said}")
        (address,) = work.workers.keys() - known
        unit = Unit(stage, 1)
        work.open[stage], work.queue = {unit}, [unit]
        work._give(address, unit)
        until(lambda: done(work, stage) or state(world, 1), "update 5")
        assert work.busy[address][0] == unit
        job.terminate()
        until(lambda: done(work, stage), lambda: f"the end: {said}")
        assert job.wait(120) is not None
    finally:
        job.kill()
        job.wait()
    assert any(f"{stage}, draw 1, goes to another worker" in line for line in said), said
    assert (world / ".scratch/tests" / units.log_of(unit)).read_text().count(" 0/15 ") == 1  # begun once
    until(lambda: done(work) and len(work.asked) == 2)
    assert two.submit(units.run, (stage, 2), str(world), ".", ".scratch/tests", pure=False).result(timeout=240)[0] == ""
    assert collected(world, monkeypatch) == without_workers(made)


def test_a_worker_that_is_told_to_end_saves_the_seed_it_is_at_though_no_state_is_due(two, world, tmp_path, monkeypatch):
    file, text = world / f"build/conditions/{NAME}.json", '"updates": 15,'
    assert text in file.read_text()
    file.write_text(file.read_text().replace(text, '"updates": 1000000,'))  # no state is due in its first 20 s
    work, said = sweep(two, world)
    unit, known = Unit(f"runs@{NAME}", 1), {*there(two)}
    log = world / ".scratch/tests" / units.log_of(unit)
    with monkeypatch.context() as patch:
        patch.delenv(states.EVERY_UPDATE)  # the workers of `two` have it
        job = worker(two, tmp_path, tmp_path, "--nanny")
    try:
        until(lambda: done(work) and work.workers.keys() - known, lambda: f"the job's worker: {said}")
        (address,) = work.workers.keys() - known
        work.queue = [unit]
        work._give(address, unit)
        until(lambda: log.is_file() and re.search(r" [1-9]\d*/1000000 ", log.read_text()), "update 1")
        before = state(world, 1)
        job.terminate()
        assert job.wait(120) is not None
    finally:
        job.kill()
        job.wait()
    assert not before and state(world, 1), log.read_text()
    left = [int(number) for number in re.findall(r" (\d+)/1000000 ", log.read_text())][-1]
    (saved,) = (world / ".scratch/tests/runs" / NAME).glob("seed1-*/checkpoint")
    assert left - len(states.newest_meta(saved)["curve"]) <= 1  # it saved after each of its last updates
    work.busy[address][1].cancel()


def test_a_draw_stays_on_the_kind_of_machine_where_it_began(two, world):
    work, said = sweep(two, world)
    until(lambda: done(work) and len(work.workers) == 2)
    machine = work.head["machine"]
    work.places = {"1": "another", "2": machine}
    units_of = [Unit("runs@ppo_kl_0", draw) for draw in (1, 3, 2)]
    work.queue = units_of
    assert work._next(machine) == units_of[2]  # begun there, before the new one
    work.queue = units_of[:2]
    assert work._next(machine) == units_of[1]
    work.queue = units_of[:1]
    assert work._next(machine) is None
    work.progress()
    assert "draw 1 waits for a machine like that where it began, another" in said[-1]


def test_what_fails_on_workers_is_left_to_the_head_after_one_try(two, world):
    (world / "data" / "draw1" / "prompts_train.jsonl").write_text("")
    work, said = sweep(two, world)
    until(lambda: done(work, "runs@ppo_kl_0"), lambda: f"the end: {said}")
    assert sorted(line.partition(" (")[0] for line in said) == [
        "runs@ppo_kl_0, draw 1, failed",
        "runs@ppo_kl_0, draw 2, done",
    ]
    assert "Traceback" in (world / ".scratch/tests" / units.log_of(Unit("runs@ppo_kl_0", 1))).read_text()


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
