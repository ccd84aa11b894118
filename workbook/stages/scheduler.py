"""Run the stages of a pipeline, several side by side: each as soon as all it needs is done, as its own DVC process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from workbook.stages import carry
from workbook.stages.pipeline import COLLECT, REPRO, RUNS, keep_lock, key, kind, with_followers
from workbook.stages.processes import start, stop
from workbook.stages.progress import Durations, clock, executed_notebook, last_words, log_tail, progress_of
from workbook.stages.sweep import Sweep

SKIPPED = "didn't change, skipping"  # what DVC says of a stage that it need not run


@dataclass
class Job:
    stage: str
    process: psutil.Popen
    log: Path
    began: float
    slot: int  # its place among those side by side


class Scheduler:
    """Runs the stages of one dvc.yaml. needs: stage -> stages it needs; changed: those that DVC found changed."""

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        needs: dict[str, set[str]],
        changed: set[str],
        jobs: int,
        every: float = 30,
        variables: dict[str, str] | None = None,
        order: list[str] | None = None,
        sweep: Sweep | None = None,
        of_slot: Callable[[int], dict[str, str]] = lambda number: {},
    ):
        """order: the runs, first ones first; what is not in it goes before them, the longest first; sweep: workers,
        which do the units of a stage before it starts; of_slot: further variables of a stage by its place among those
        that run, such as its GPU."""
        self.folder, self.logs, self.needs, self.jobs, self.every = folder, scratch / "logs", needs, jobs, every
        self.dirty, self.done, self.lost = set(changed), set(), set()  # lost: cannot start, as what they need failed
        self.failed: dict[str, str] = {}  # stage -> its last words and where to look
        self.waiting, self.running, self.variables = dict(needs), [], variables
        self.durations, self.began = Durations(scratch / "durations.json"), time.monotonic()
        self.sweep, self.of_slot = sweep, of_slot
        self.counted: set[str] = set()  # runs whose seeds under earlier keys were looked for
        self.place = {stage: -i for i, stage in enumerate(order or [], 1)}

    def say(self, text: str) -> None:
        line = f"[{len(self.done):>{len(str(len(self.needs)))}}/{len(self.needs)}] {text}"
        running = {job.stage: time.monotonic() - job.began for job in self.running}
        affected = self.affected()
        likely = {s: n for s, n in self.waiting.items() if s in affected}
        left = self.durations.left(likely, running, self.hands())
        tail = f"; about {clock(left)} left" if self.running or likely else ""
        print(f"{line}  ({clock(time.monotonic() - self.began)} so far{tail})", flush=True)

    def hands(self) -> int:
        """What works side by side: the workers, if there are any; else the stages."""
        return max(1, self.sweep.count()) if self.sweep else self.jobs

    def affected(self) -> set[str]:
        """The changed stages and all that come after them."""
        return with_followers(self.needs, self.dirty)

    def next_stage(self) -> str | None:
        """Of the stages that can start now the one to start, None if there is none."""
        while unchanged := [s for s, n in self.waiting.items() if n <= self.done and s not in self.dirty]:
            for stage in unchanged:  # neither it nor anything before it changed
                self.done.add(stage)
                del self.waiting[stage]
        ended = self.done | self.lost | self.failed.keys()
        ready = (s for s, n in self.waiting.items() if n <= (ended if kind(s) in COLLECT else self.done))
        first = sorted(ready, key=lambda stage: (self.place.get(stage, 0), self.durations.guess(stage)), reverse=True)
        able = (stage for stage in first if self.ready(stage))
        return next(iter([*able] if self.sweep else able), None)  # all are asked where workers wait for units

    def ready(self, stage: str) -> bool:
        """Whether a stage can start whose needs are done; asked first, seeds of a run that are finished under the key
        of earlier code are made to count."""
        if kind(stage) in RUNS and stage not in self.counted:
            self.counted.add(stage)
            if put := carry.recount(self.folder, key(stage)):
                self.say(f"{put} finished seeds of {key(stage)} count: no digit changed since")
        return self.sweep is None or self.sweep.ready(stage)

    def run(self) -> bool:
        """Run everything that has to; whether all went well. Raises Stopped on a signal, after ending what runs."""
        told = time.monotonic()
        try:
            while True:
                while len(self.running) < self.jobs and (stage := self.next_stage()):
                    log = self.logs / f"{stage}.log"
                    place = min({*range(self.jobs)} - {job.slot for job in self.running})
                    more = {**(self.sweep.variables(stage) if self.sweep else {}), **self.of_slot(place)}
                    process = start([*REPRO, "-s", stage], self.folder, log, {**(self.variables or {}), **more})
                    self.running.append(Job(stage, process, log, time.monotonic(), place))
                    del self.waiting[stage]
                    self.say(f"{stage} started")
                    told = time.monotonic()
                if self.sweep and len(self.running) >= self.jobs:  # the head's hands are full, not the workers'
                    self.next_stage()
                if not self.running and not (self.sweep and any(self.sweep.open.values())):
                    return not self.failed
                time.sleep(0.1)
                if self.sweep:
                    self.sweep.step()
                for job in [j for j in self.running if j.process.poll() is not None]:
                    self.finish(job)
                if time.monotonic() - told > self.every:
                    told = time.monotonic()
                    for job in self.running:
                        bar = progress_of(job.log)
                        self.say(f"{job.stage} running for {clock(told - job.began)}{': ' + bar if bar else ''}")
                    if self.sweep:
                        self.sweep.progress()
        finally:
            stop([job.process for job in self.running])

    def finish(self, job: Job) -> None:
        self.running.remove(job)
        seconds = time.monotonic() - job.began
        if job.process.returncode:
            if self.sweep and self.sweep.takes(job.stage, job.log.read_text(encoding="utf-8", errors="replace")):
                self.waiting[job.stage] = self.needs[job.stage]
            else:
                self.fail(job, seconds)
            return
        keep_lock(self.folder, self.logs.parent)
        self.done.add(job.stage)
        if SKIPPED in job.log.read_text(encoding="utf-8", errors="replace"):
            self.say(f"{job.stage} unchanged")
            return
        self.dirty |= {s for s, n in self.needs.items() if job.stage in n}
        if not (self.sweep and job.stage in self.sweep.open):  # its time is not that of the stage
            self.durations.record(job.stage, seconds)
        self.say(f"{job.stage} done in {clock(seconds)}")

    def fail(self, job: Job, seconds: float) -> None:
        """Say what failed, and give up what needs it; after a run, all but what only collects."""
        tail, log, notebook = log_tail(job.log), os.path.relpath(job.log), executed_notebook(job.log)
        where = f"log {log}"
        if notebook and (self.folder / notebook).exists():
            where = f"notebook {os.path.relpath(self.folder / notebook)}, {where}"
        self.failed[job.stage] = f"{last_words(tail)} ({where})"
        lost = self.waiting.keys() & with_followers(self.needs, {job.stage})
        if kind(job.stage) in RUNS:
            lost = {s for s in lost if kind(s) not in COLLECT}
            remove_runs(self.folder, {job.stage, *lost})
        self.lost |= lost
        self.waiting = {s: n for s, n in self.waiting.items() if s not in lost}
        self.say(f"{job.stage} FAILED after {clock(seconds)}: {where}; the end of the log:")
        print("".join(f"    {line}\n" for line in tail), end="", flush=True)
        if lost:
            print(f"    not started, as they need it: {', '.join(sorted(lost))}", flush=True)


def remove_runs(folder: Path, stages: set[str]) -> None:
    """Take results that are out of date away from where reports look for them; DVC's cache still has them."""
    for stage in stages:
        if kind(stage) in RUNS and key(stage):
            shutil.rmtree(folder / "runs" / key(stage), ignore_errors=True)
