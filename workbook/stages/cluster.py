"""Workers of Dask distributed for the units of a pipeline's stages: started here, met elsewhere, or asked of Slurm.

    make reproduce WORKERS=local:4

What is started here talks in TLS, with certificates of its own, and listens on 127.0.0.1 where it is all on this
machine: whoever reaches an open Dask port can run any program in our name.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError, nearest
from workbook.stages import cards
from workbook.stages.processes import ONE_THREAD, environment

FORMS = {  # how WORKERS may look
    "local": (r"local:[1-9]\d{0,3}", "local:4 (so many on this machine)"),
    "tls": (r"tls://.+:\d+", "tls://host:8786 (a Dask scheduler, by the certificates of Dask's configuration)"),
    "tcp": (r"tcp://.+:\d+", "tcp://host:8786 (the same, open to all: with INSECURE=1)"),
    "slurm": (r"slurm:[\w.,-]+", "slurm:partition (JOBS jobs there)"),
}
HERE = "127.0.0.1:0"
# one task at a time, no memory limit to be paused or killed at, and no page, which would be plain HTTP and open to all
OF_WORKER = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--dashboard-address", HERE)


def check(workers: str, insecure: bool = False) -> None:
    """Raises ConfigError for a value of WORKERS that cannot be meant, or that is not safe."""
    form = workers.partition(":")[0]
    if form not in FORMS or not re.fullmatch(FORMS[form][0], workers):
        said = ", ".join(text for _, text in FORMS.values())
        raise ConfigError(f"WORKERS={workers}: expected one of {said}{nearest(form, FORMS)}")
    if workers.startswith("tcp:") and not insecure:
        why = "whoever reaches this port can run any program in your name, and nothing is encrypted"
        raise ConfigError(f"WORKERS={workers}: {why}. Use tls://, or say INSECURE=1 in a network that is yours alone")


@contextlib.contextmanager
def connected(workers: str, jobs: int, scratch: Path, timeout: float = 20, device: str = "cpu") -> Iterator[Any]:
    """The client of what WORKERS names; what was started for it ends with the block. device: of the settings."""
    from distributed import Client

    form, _, rest = workers.partition(":")
    with contextlib.ExitStack() as held:
        if form in ("local", "slurm"):
            started = local(int(rest), device) if form == "local" else slurm(rest, jobs, scratch, device)
            workers = held.enter_context(started)
        else:
            reach(workers, timeout)
        try:
            client = held.enter_context(Client(workers, timeout=timeout))
        except OSError as error:
            raise ConfigError(f"WORKERS={workers}: {' '.join(str(error).split())}") from error
        yield client


def reach(workers: str, timeout: float) -> None:
    """Raises ConfigError where no scheduler listens, or no certificate is named to talk to it with.

    Asked before there is a client: one that fails keeps a thread, and is closed by the garbage collector under a lock
    that the next client's start may hold (distributed 2026: LoopRunner), which then waits for itself.
    """
    import dask

    form, _, place = workers.partition("://")
    certificates = "distributed.comm.tls.client.cert"
    if form == "tls" and not dask.config.get(certificates, None):
        raise ConfigError(
            f"WORKERS={workers}: TLS needs a certificate; Dask's configuration names none ({certificates})"
        )
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except (OSError, OverflowError) as error:  # OverflowError: a port above 65,535
        raise ConfigError(f"WORKERS={workers}: no scheduler listens there ({error})") from error


def local(count: int, device: str) -> Any:
    """A cluster of processes on this machine, which nobody else can reach."""
    only_here = {"host": "127.0.0.1", "dashboard_address": HERE, "security": True}
    quiet = {"silence_logs": 50, "memory_limit": 0, "threads_per_worker": 1}
    return cards.cluster(count, device, environment(), **only_here, **quiet)


def slurm(partition: str, jobs: int, scratch: Path, device: str = "cpu") -> Any:
    """A cluster of Slurm jobs; account, time, memory and GPUs are those of Dask's jobqueue file."""
    try:
        import dask
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise ConfigError(f"WORKERS=slurm:{partition}: {error}; requirements.lock has dask-jobqueue") from error
    if re.search(r"[\s%]", str(scratch)):  # the job script's lines cannot quote it
        raise ConfigError(f"WORKERS=slurm:{partition}: {scratch}: expected a path without blanks and %")
    (certificates := scratch / "certificates").mkdir(parents=True, exist_ok=True, mode=0o700)
    names = ("job-script-prologue", "worker-extra-args", "log-directory", "scheduler-options")
    prologue, arguments, logs, scheduler = (dask.config.get(f"jobqueue.slurm.{n}", None) for n in names)  # the user's
    variables = {**ONE_THREAD, **cards.of_slot(device, 0, [])}  # which card a job has, Slurm says
    own = {
        "queue": partition,
        "processes": 1,  # workers of a job; by its cores there would be several, and `scale` counts them
        "python": f"exec {shlex.quote(sys.executable)}",  # what Slurm tells the batch shell is told to the worker
        "job_script_prologue": [*(prologue or ()), *(f"export {n}={v}" for n, v in variables.items())],
        "worker_extra_args": [*(arguments or ()), *OF_WORKER],
        "log_directory": logs or str(scratch / "slurm"),
        "scheduler_options": {**(scheduler or {}), "dashboard_address": HERE},
    }
    try:
        cluster = SLURMCluster(**own, security=True, shared_temp_directory=str(certificates))
    except ValueError as error:
        why = f"{' '.join(str(error).split())} (say it under jobqueue: slurm: in ~/.config/dask/jobqueue.yaml)"
        raise ConfigError(f"WORKERS=slurm:{partition}: {why}") from error
    cluster.scale(jobs=jobs)
    return cluster
