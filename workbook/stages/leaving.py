"""A unit on a Dask worker that may be told to leave in the middle of it, as a Slurm job is before its time limit."""

from __future__ import annotations

from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from workbook.stages import units
from workbook.store import states

NAME = "rlnlp: leaving"


class Leaving(WorkerPlugin):
    """Told to end, a worker waits for what it is doing, eight seconds as its nanny has it; states are saved in them."""

    def teardown(self, worker: Worker) -> None:
        states.leave()


def run(*given: Any) -> tuple:
    """`units.run` on a worker, whose training saves its state after the next update when the worker is told to end."""
    worker = get_worker()
    if NAME not in worker.plugins:  # a second one would put the first one out, as at the end
        worker.loop.add_callback(worker.plugin_add, Leaving(), name=NAME)
    return units.run(*given)
