"""Units in jobs of a real Slurm; skipped where none of this machine alone answers (docs/use/machines.md)."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess

import dask
import dask_jobqueue  # noqa: F401 (it brings its defaults, which the test changes)
import psutil
import pytest

from tests.test_cluster import NAME, collected, done, made, state, sweep, without_workers, world  # noqa: F401
from workbook.stages import cluster, units
from workbook.store import states

from .waiting import until


def partition() -> str | None:
    """The first that is up; None without Slurm, or where it has other machines, which do not see our folders."""
    if shutil.which("sinfo") is None:
        return None
    command = ["sinfo", "--noheader", "--Node", "--format=%n %R %a"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
    found = [line.split() for line in lines if line.strip()]
    alone = {node for node, _, _ in found} == {socket.gethostname().partition(".")[0]}
    return next((name for _, name, state in found if state == "up"), None) if alone else None


pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(partition() is None, reason="Slurm: none of this machine alone answers"),
]


def opened(client) -> set[int]:
    """Ports of ours and of the workers' processes that others can reach."""
    workers = client.run(os.getpid)
    found = [psutil.Process(), *map(psutil.Process, workers.values())]
    found += [process.parent() for process in found[1:]]  # the nannies
    listening = [c for process in found for c in process.net_connections() if c.status == "LISTEN"]
    return {c.laddr.port for c in listening if not c.laddr.ip.startswith("127.")}


def talking(client) -> set[int]:
    """Ports at which scheduler, workers and nannies are spoken to, in TLS."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    places = [client.scheduler.address, *known, *(worker["nanny"] for worker in known.values())]
    assert all(place.startswith("tls://") for place in places)
    return {int(re.search(r":(\d+)$", place)[1]) for place in places}


def test_a_job_that_ends_early_is_asked_for_again_and_its_seed_goes_on(made, world, tmp_path, monkeypatch):  # noqa: F811
    """One job only, so that nobody else can take what it was doing; it gets the signal that comes before a limit."""
    own = {"cores": 2, "memory": "1GB", "walltime": "00:30:00"}  # of several cores a job has one worker all the same
    own["job-script-prologue"] = [f"export {states.EVERY_UPDATE}=1"]
    slurm = {"jobqueue.slurm": {**dask.config.get("jobqueue.slurm"), **own}}
    monkeypatch.chdir(tmp_path)
    with dask.config.set(slurm | {"distributed.deploy.lost-worker-timeout": "1s"}):
        with cluster.connected(f"slurm:{partition()}", 1, tmp_path / "scratch") as client:
            work, said = sweep(client, world)
            stage = f"runs@{NAME}"
            until(lambda: done(work, stage) or state(world, 5), lambda: f"update 5: {said}")
            ((unit, _),) = work.busy.values()
            assert opened(client) == talking(client)  # all else listens on 127.0.0.1, or not at all
            (job,) = (worker.job_id for worker in client.cluster.workers.values())
            process = psutil.Process(*client.run(os.getpid).values())
            subprocess.run(["scancel", "--signal=TERM", "--batch", job], check=True)  # as of --signal=B:TERM@60
            until(lambda: not process.is_running(), "the end of the worker")
            until(lambda: done(work, stage), lambda: f"the end: {said}")
            (again,) = (worker.job_id for worker in client.cluster.workers.values())
    assert again != job
    assert any(f"{stage}, draw {unit.draw}, goes to another worker" in line for line in said), said
    log = (world / ".scratch/tests" / units.log_of(unit)).read_text()
    assert log.count(" 0/15 ") == 1  # begun once, then continued
    assert collected(world, monkeypatch) == without_workers(made)
    left = ["squeue", "--noheader", "--me", "--states=RUNNING,PENDING", "--format=%i"]
    assert again not in subprocess.run(left, capture_output=True, text=True, check=True).stdout.split()
    assert list((tmp_path / "scratch/slurm").glob("*.err")) and not list(tmp_path.glob("*.out"))  # what jobs say


def test_a_job_that_is_told_to_end_saves_its_seed_which_the_next_job_goes_on_with(world, tmp_path, monkeypatch):  # noqa: F811
    """No state is due in the few seconds of the first job: it is written because of the signal."""
    file, text = world / f"build/conditions/{NAME}.json", '"updates": 15,'
    file.write_text(file.read_text().replace(text, '"updates": 1000000,'))
    slurm = {"cores": 2, "memory": "1GB", "walltime": "00:30:00"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(states.EVERY_UPDATE, raising=False)
    given = {"jobqueue.slurm": {**dask.config.get("jobqueue.slurm"), **slurm}}
    with dask.config.set(given | {"distributed.deploy.lost-worker-timeout": "1s"}):
        with cluster.connected(f"slurm:{partition()}", 1, tmp_path / "scratch") as client:
            work, said = sweep(client, world)
            unit = units.Unit(f"runs@{NAME}", 1)
            work.open[unit.stage], work.queue = {unit}, [unit]
            log = world / ".scratch/tests" / units.log_of(unit)
            far = lambda: [int(n) for n in re.findall(r" (\d+)/1000000 ", log.read_text() if log.is_file() else "")]
            until(lambda: done(work, unit.stage) or max(far(), default=0), lambda: f"update 1: {said}")
            assert not state(world, 1)
            (job,) = (worker.job_id for worker in client.cluster.workers.values())
            process = psutil.Process(*client.run(os.getpid).values())
            subprocess.run(["scancel", "--signal=TERM", "--batch", job], check=True)
            until(lambda: not process.is_running(), "the end of the worker")
            before, saved = max(far()), state(world, 1)
            assert saved
            until(lambda: done(work, unit.stage) or max(far()) > before, lambda: f"the next job: {said}")
    assert any(f"{unit.stage}, draw 1, goes to another worker" in line for line in said), said
    assert log.read_text().count(" 0/1000000 ") == 1  # begun once
