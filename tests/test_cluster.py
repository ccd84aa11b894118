"""Units on workers: killed, other, doubled ones, ones without a shared folder; who can be reached, and from where."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
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
from workbook.stages import carry, cluster, parcels, reproduce, scheduler, units
from workbook.stages import sweep as sweeps
from workbook.stages.sweep import PLACES, Sweep
from workbook.stages.units import Unit
from workbook.store import states

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
