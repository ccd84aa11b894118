"""Run a profile's pipeline, several stages side by side, and say how far it is and how long it will take.

    python -m workbook.stages.reproduce mini --jobs 2

DVC decides what has to run; this file only decides when: a stage starts as soon as all it needs is done, as its own
`dvc repro -s` process; runs in the order in which params.yaml names them. Stop it at any time; the same command
continues where it stopped. In between, `--reports` makes the reports and the ledger from the runs that are finished.

A run that fails does not take the others with it: what only collects runs (digests, reports, ledger) is made from those
that are there, and says which are missing. A failure of anything else stops all that needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from workbook.stages import digests, forkserver
from workbook.stages.processes import ask, start, stop
from workbook.stages.progress import (
    Durations,
    clock,
    executed_notebook,
    in_words,
    kind,
    log_tail,
    plan,
    progress_of,
)
from workbook.store.files import atomic_write
from workbook.store.locks import LockError, die_with_parent, writer_lock

LIGHT = ("check", "nb", "code")  # shorter than the start of a process, and at the beginning: they share one
RUNS = ("runs", "continued")  # each writes runs/<condition>
COLLECT = ("digests", "tidy", "report", "claims")  # they also serve when runs are missing, and say so
NO_EVIDENCE = ("smoke",)  # profiles whose numbers mean nothing: no column of reports/claims.*
DVC = ["dvc", "--wait-for-lock"]  # without it, several at once on a slow machine give up after three seconds
REPRO = [*DVC, "repro"]
SKIPPED = "didn't change, skipping"


class Stopped(Exception):
    """A signal asked us to end."""


def read_graph(dot: str) -> dict[str, set[str]]:
    """Stage -> the stages it needs, from the text of `dvc dag --dot` (edges point from what is needed)."""
    needs: dict[str, set[str]] = {}
    for line in dot.splitlines():
        names = [name.rpartition("dvc.yaml:")[2] for name in re.findall(r'"([^"]+)"', line)]
        for name in names:
            needs.setdefault(name, set())
        if "->" in line and len(names) == 2:
            needs[names[1]].add(names[0])
    return needs


@dataclass
class Job:
    stage: str
    process: subprocess.Popen
    log: Path
    began: float


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
    ):
        """order: the runs, first ones first; what is not in it goes before them, the longest first."""
        self.folder, self.logs, self.needs, self.jobs, self.every = folder, scratch / "logs", needs, jobs, every
        self.dirty, self.done, self.lost = set(changed), set(), set()  # lost: cannot start, as what they need failed
        self.failed: dict[str, str] = {}  # stage -> its last words and where to look
        self.waiting, self.running, self.variables = dict(needs), [], variables
        self.durations, self.began = Durations(scratch / "durations.json"), time.monotonic()
        self.place = {stage: -i for i, stage in enumerate(order or [], 1)}

    def say(self, text: str) -> None:
        line = f"[{len(self.done):>{len(str(len(self.needs)))}}/{len(self.needs)}] {text}"
        running = {job.stage: time.monotonic() - job.began for job in self.running}
        likely = {s: n for s, n in self.waiting.items() if s in self.affected()}
        left = self.durations.left(likely, running, self.jobs)
        tail = f"; about {clock(left)} left" if self.running or likely else ""
        print(f"{line}  ({clock(time.monotonic() - self.began)} so far{tail})", flush=True)

    def affected(self, stages: set[str] | None = None) -> set[str]:
        """Stages (default: the changed ones) and all that come after them."""
        found = set(self.dirty if stages is None else stages)
        while more := {s for s, n in self.needs.items() if n & found} - found:
            found |= more
        return found

    def next_stage(self) -> str | None:
        """Of the stages that can start now the one to start, None if there is none."""
        while unchanged := [s for s, n in self.waiting.items() if n <= self.done and s not in self.dirty]:
            for stage in unchanged:  # neither it nor anything before it changed
                self.done.add(stage)
                del self.waiting[stage]
        ended = self.done | self.lost | self.failed.keys()
        ready = (s for s, n in self.waiting.items() if n <= (ended if kind(s) in COLLECT else self.done))
        return max(ready, key=lambda stage: (self.place.get(stage, 0), self.durations.guess(stage)), default=None)

    def run(self) -> bool:
        """Run everything that has to; whether all went well. Raises Stopped on a signal, after ending what runs."""
        told = time.monotonic()
        try:
            while True:
                while len(self.running) < self.jobs and (stage := self.next_stage()):
                    log = self.logs / f"{stage}.log"
                    process = start([*REPRO, "-s", stage], self.folder, log, self.variables)
                    self.running.append(Job(stage, process, log, time.monotonic()))
                    del self.waiting[stage]
                    self.say(f"{stage} started")
                    told = time.monotonic()
                if not self.running:
                    return not self.failed
                time.sleep(0.1)
                for job in [j for j in self.running if j.process.poll() is not None]:
                    self.finish(job)
                if time.monotonic() - told > self.every:
                    told = time.monotonic()
                    for job in self.running:
                        bar = progress_of(job.log)
                        self.say(f"{job.stage} running for {clock(told - job.began)}{': ' + bar if bar else ''}")
        finally:
            stop([job.process for job in self.running])

    def finish(self, job: Job) -> None:
        self.running.remove(job)
        seconds = time.monotonic() - job.began
        if job.process.returncode:
            self.fail(job, seconds)
            return
        keep_lock(self.folder, self.logs.parent)
        self.done.add(job.stage)
        if SKIPPED in job.log.read_text(encoding="utf-8", errors="replace"):
            self.say(f"{job.stage} unchanged")
            return
        self.dirty |= {s for s, n in self.needs.items() if job.stage in n}
        self.durations.record(job.stage, seconds)
        self.say(f"{job.stage} done in {clock(seconds)}")

    def fail(self, job: Job, seconds: float) -> None:
        """Say what failed, and give up what needs it; after a run, all but what only collects."""
        tail, log, notebook = log_tail(job.log), os.path.relpath(job.log), executed_notebook(job.log)
        where = f"log {log}"
        if notebook and (self.folder / notebook).exists():
            where = f"notebook {os.path.relpath(self.folder / notebook)}, {where}"
        self.failed[job.stage] = f"{last_words(tail)} ({where})"
        lost = self.waiting.keys() & self.affected({job.stage})
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
    for condition in (s.partition("@")[2] for s in stages if kind(s) in RUNS and "@" in s):
        shutil.rmtree(folder / "runs" / condition, ignore_errors=True)


def order(values: Mapping[str, Any]) -> list[str]:
    """The stages of the runs in the order in which params.yaml names them."""
    return [f"{section}@{name}" for section in RUNS for name in values.get(section) or {}]


def collecting(
    folder: Path, needs: dict[str, set[str]], affected: set[str], values: Mapping[str, Any] | None
) -> dict[str, set[str]] | None:
    """The stages, with what they need, that make reports of the runs that are there; None, with the reason printed, if
    there are none, or if what all runs were made from is out of date. Runs that are out of date are taken away.

    affected: stages that have to run. The ledger is among them only if every run of its claims is there: a claim
    without its runs is an error.
    """
    before = sorted(s for s in affected if kind(s) not in (*RUNS, *COLLECT))
    unfinished = {s for s in affected if kind(s) in RUNS}
    finished = {s for s in needs if kind(s) in RUNS} - unfinished
    if before or not finished:
        why = f"{', '.join(before)} has to run first" if before else "no run is finished yet"
        print(f"no reports made: {why}. Type make reproduce", flush=True)
        return None
    stages = {s for s in needs if kind(s) in COLLECT}
    names = {s.partition("@")[2] for s in unfinished}
    if values is not None and names & {*digests.lists(values, folder)[digests.LEDGER]}:
        stages.discard("claims")
        print("the ledger is left as it is: runs of its claims are missing")
    if unfinished:
        print(f"missing, as not finished or out of date: {', '.join(sorted(unfinished))}", flush=True)
    remove_runs(folder, unfinished)
    return {s: needs[s] & stages for s in stages}


def last_words(tail: list[str]) -> str:
    """The line of a log's end that says most: the one before what DVC adds."""
    own = [line.strip() for line in tail if not line.startswith(("ERROR: ", "Running stage", ">"))]
    return own[-1] if own else "no message"


def whole(text: str) -> bool:
    """Whether a dvc.lock says a path and a hash for all it names; DVC writes it in place, so a kill can cut it
    short."""
    try:
        stages = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"]
        entries = [e for stage in stages.values() for e in [*stage.get("deps", []), *stage.get("outs", [])]]
        return all("cmd" in stage for stage in stages.values()) and all(e["path"] and e[e["hash"]] for e in entries)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError):
        return False


def keep_lock(folder: Path, scratch: Path) -> None:
    """Copy dvc.lock to the scratch folder, if it is whole (another stage may be writing it right now)."""
    if (lock := folder / "dvc.lock").exists() and whole(text := lock.read_text(encoding="utf-8")):
        atomic_write(scratch / "dvc.lock", text)


def mend_lock(folder: Path, scratch: Path) -> None:
    """Put the kept copy back where dvc.lock was cut short; without one DVC finds finished work in its run cache."""
    lock, kept = folder / "dvc.lock", scratch / "dvc.lock"
    if lock.exists() and not whole(lock.read_text(encoding="utf-8")):
        print(f"{os.path.relpath(lock)} was cut short when DVC was killed; using the copy from before", flush=True)
        if kept.exists():
            atomic_write(lock, kept.read_text(encoding="utf-8"))
        else:
            lock.unlink()


def changes(said: str) -> set[str]:
    """Stages that `dvc status --json` names."""
    return set(json.loads(said[said.index("{") :]))


def reproduce(
    folder: Path, scratch: Path, jobs: int = 2, every: float = 30, ours: bool = True, reports_only: bool = False
) -> bool:
    """Bring the pipeline of a folder up to date; whether all went well. Raises LockError, Stopped, SystemExit.

    ours: the folder is a profile of this package: it has a params file to check, and notebooks to start kernels for.
    reports_only: start no run; make the reports and the ledger from the runs that are finished and up to date.
    """
    logs, began = scratch / "logs", time.monotonic()
    with contextlib.ExitStack() as held:
        held.enter_context(writer_lock(scratch / "reproduce", wait_s=0))
        mend_lock(folder, scratch)
        seen = scratch / "check" / "brought.json"
        checked = {"check": ["workbook.runs.conditions", "params.yaml", str(scratch / "check")]} if ours else {}
        status, dag = (
            {"status": [*DVC, "-q", "status", "--json", "dvc.yaml"]},
            {"dag": [*DVC, "dag", "--dot", "dvc.yaml"]},
        )
        said = ask({**checked, **status, **dag}, folder, logs)
        values = YAML(typ="safe", pure=True).load(folder / "params.yaml") if ours else None
        needs, changed = read_graph(said["dag"]), changes(said["status"])
        light = [s for s in needs if kind(s) in LIGHT]
        known = folder / "build" / seen.name
        if ours and known.exists() and known.read_text(encoding="utf-8") != seen.read_text(encoding="utf-8"):
            # a file of the user's was edited, which DVC cannot know: its name is a value, not a dependency
            ask({"brought": [*REPRO, "--force", "-s", "check"]}, folder, logs)
            changed = changes(ask(status, folder, logs)["status"])
        variables = held.enter_context(forkserver.running(folder, logs / "forkserver.log")) if ours and changed else {}
        if changed & set(light):
            ask({"light": [*REPRO, "-s", *light]}, folder, logs)
            heavy = set(needs) - set(light)
            changed = heavy if heavy <= changed else changes(ask(status, folder, logs)["status"])
        if not changed:
            print(
                f"nothing changed: all {len(needs)} stages are up to date ({clock(time.monotonic() - began)})",
                flush=True,
            )
            tell_pages(folder, values, set())
            return True
        scheduler = Scheduler(folder, scratch, needs, changed, jobs, every, variables, order(values or {}))
        if reports_only:
            if (needs := collecting(folder, needs, scheduler.affected(), values)) is None:
                return False
            scheduler = Scheduler(folder, scratch, needs, set(needs), jobs, every, variables)
        todo = scheduler.affected()
        print(f"{len(todo)} of {len(needs)} stages to look at, {jobs} side by side; logs in {os.path.relpath(logs)}")
        left = scheduler.durations.left({s: n for s, n in needs.items() if s in todo}, {}, jobs)
        workers = f"{jobs} worker{'s' * (jobs > 1)}"
        print(f"plan: {plan(todo, values) or 'small things'}; {in_words(left)} on {workers}", flush=True)
        good = scheduler.run()
        if good and not reports_only and changes(ask(status, folder, logs)["status"]):  # DVC has the last word
            ask({"all": [*REPRO, "dvc.yaml"]}, folder, logs)
        old = scheduler.failed.keys() | scheduler.lost
        if ours and "claims" in scheduler.done and (why := side_by_side(folder, values)):
            good = False
            scheduler.failed["reports/claims.*"] = why
        tell_pages(folder, values, old)
        if good:
            print(f"done in {clock(time.monotonic() - began)}", flush=True)
            return True
        for stage, why in scheduler.failed.items():
            print(f"{stage}: {why}")
        if scheduler.lost:
            print(f"not started, as they need what failed: {', '.join(sorted(scheduler.lost))}")
        names = ", ".join(sorted(scheduler.failed))
        print(f"FAILED: {names}. Mend it and type the same command: finished work is kept.", flush=True)
        return False


def tell_pages(folder: Path, values: dict[str, Any] | None, old: set[str]) -> None:
    """Print the pages of the profile's reports, but those whose stage is in `old`, and what the ledger says in a
    line."""
    if values is None:
        return
    pages = (folder / values["root"] / "reports" / values["profile"]).resolve()
    stale = {stage.partition("@")[2] or stage for stage in old}
    for page in sorted(pages.glob("*/*.html")):
        if page.parent.name not in stale:
            print(f"{'ledger' if page.parent.name == 'claims' else 'report'}: {os.path.relpath(page)}")
    if "claims" not in stale and (ledger := pages / "claims" / "claims.json").exists():
        from workbook.results.tables import counted  # brings pandas

        print(f"claims: {counted(json.loads(ledger.read_text(encoding='utf-8'))['summary'])}", flush=True)


def side_by_side(folder: Path, values: dict[str, Any]) -> str:
    """Put the ledgers of all profiles into reports/claims.* and reports/forest.*; what went wrong, empty if nothing
    did."""
    if values["profile"] in NO_EVIDENCE:
        return ""
    reports = (folder / values["root"] / "reports").resolve()
    paths = {path.parent.parent.name: path for path in sorted(reports.glob("*/claims/claims.json"))}
    paths = {profile: path for profile, path in paths.items() if profile not in NO_EVIDENCE}
    from workbook.figures.parts import save
    from workbook.ledger import forest  # they bring pandas, scipy and matplotlib
    from workbook.ledger.claim import ClaimError
    from workbook.ledger.combine import combine

    try:
        combine(paths, reports)
    except ClaimError as error:
        return str(error)
    ledgers = {profile: json.loads(path.read_text(encoding="utf-8"))["rows"] for profile, path in paths.items()}
    if forest.contrasts(ledgers):
        save(forest.forest(ledgers), reports, "forest")
    print(f"all profiles: {os.path.relpath(reports / 'claims.md')}", flush=True)
    return ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.reproduce", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "profile", nargs="?", default="mini", help="mini (top level) or the name of a folder in profiles/"
    )
    parser.add_argument("--jobs", type=int, default=2, help="stages side by side, one thread each")
    parser.add_argument(
        "--reports", action="store_true", help="start no run; reports and ledger from those that are finished"
    )
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    root = args.root.resolve()
    folder = root if args.profile == "mini" else root / "profiles" / args.profile
    if not (folder / "dvc.yaml").is_file():
        names = ", ".join(["mini", *sorted(p.parent.name for p in root.glob("profiles/*/params.yaml"))])
        print(f"error: no profile {args.profile!r} in {root} (profiles: {names})", file=sys.stderr)
        return 2
    if args.tied:
        die_with_parent()

    def stopping(number: int, frame: object) -> None:
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopping)
    try:
        good = reproduce(folder, root / ".scratch" / args.profile, max(1, args.jobs), reports_only=args.reports)
    except Stopped as stopped:
        print("\nstopped; the same command continues from the last checkpoints", file=sys.stderr)
        return 128 + int(stopped.args[0])
    except LockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
