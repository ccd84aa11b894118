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
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError
from workbook.stages import afterwards, begun, cards, carry, cluster, digests, follow, forkserver
from workbook.stages.command import status
from workbook.stages.pipeline import COLLECT, RUNS, Pipeline, key, kind, with_followers
from workbook.stages.progress import clock, in_words, to_do
from workbook.stages.scheduler import Scheduler, remove_runs
from workbook.stages.sweep import Sweep
from workbook.store.locks import writer_lock

OUTSIDE = {"data", "models"}  # stages that read what comes from outside first


def reproduce(
    folder: Path,
    scratch: Path,
    jobs: int = 2,
    every: float = 30,
    ours: bool = True,
    reports_only: bool = False,
    workers: str = "",
    order: Sequence[str] = (),
) -> bool:
    """Bring the pipeline of a folder up to date; whether all went well. Raises LockError, Stopped, SystemExit.

    ours: the folder is a profile of this package: it has a params file to check, and notebooks to start kernels for.
    reports_only: start no run; make the reports and the ledger from the runs that are finished and up to date.
    workers: where the units of stages are done, as `cluster.check` knows it; none: in the stages.
    order: stages, first ones first; none: the runs as params.yaml names them.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        held.enter_context(writer_lock(scratch / "reproduce", wait_s=0))
        if put := carry.unpack(folder, scratch):
            print(f"{put} finished seeds and candidates unpacked from {os.path.relpath(folder)}/finished", flush=True)
        pipeline, variables = Pipeline(folder, scratch, ours), {}
        if ours and pipeline.changed:  # its imports go on while the light stages run
            variables = held.enter_context(forkserver.running(folder, pipeline.logs / "forkserver.log"))
        pipeline.run_light()
        needs, changed, values = pipeline.needs, pipeline.changed, pipeline.values
        if not changed:
            took = clock(time.monotonic() - began)
            print(f"nothing changed: all {len(needs)} stages are up to date ({took})", flush=True)
            tell_pages(folder, values, set())
            return not ours or tell_wrong(afterwards.make(folder, values, needs, missing=True))
        if reports_only:
            needs = collecting(folder, needs, with_followers(needs, changed), values)
            if needs is None:
                return False
            changed = set(needs)
        elif ours:
            check(folder, {kind(stage) for stage in with_followers(needs, changed)})
        sweep, device = None, (values or {}).get("device", "cpu")
        if workers and not reports_only:
            sweep, jobs = staffed(held, workers, jobs, folder, scratch, device)
        elif not reports_only and (scratch / begun.KEPT).is_file() and cards.there(device):
            print("".join(f"{line}\n" for line in begun.alone(cards.machine(device), scratch)), end="", flush=True)
        first, slots = [*order] or pipeline.order(), cards.slots(device)
        scheduler = Scheduler(folder, scratch, needs, changed, jobs, every, variables, first, sweep, slots)
        announce(scheduler, pipeline, workers)
        good = scheduler.run()
        if good and not reports_only and pipeline.status():  # DVC has the last word
            pipeline.repro("all", "dvc.yaml")
        old = scheduler.failed.keys() | scheduler.lost
        if ours:
            scheduler.failed.update(afterwards.make(folder, values, scheduler.done))
            if "claims" in scheduler.done:
                afterwards.tell_again(folder)
        tell_pages(folder, values, old)
        tell_end(scheduler, time.monotonic() - began)
        return not scheduler.failed


def staffed(
    held: contextlib.ExitStack, workers: str, jobs: int, folder: Path, scratch: Path, device: str
) -> tuple[Sweep, int]:
    """(the workers, until ``held`` ends; stages of the head side by side): ``jobs`` is also how many jobs Slurm is
    asked for, and a login node has fewer cores. Raises: ConfigError."""
    cards.of_head(device)
    client = held.enter_context(cluster.connected(workers, jobs, scratch, device=device))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Sweep(client, folder, scratch), min(jobs, cores)


def check(folder: Path, kinds: Collection[str]) -> None:
    """What stages of these kinds would refuse, before the first begins: what comes from outside; claims, after all
    runs, that these cannot decide. Raises: ConfigError."""
    from workbook.ledger import claim, profile  # they bring pydantic and pandas
    from workbook.runs import checks
    from workbook.stages import outside

    params = checks.load(folder / "params.yaml")
    if OUTSIDE & {*kinds}:
        outside.check(params)
    if "claims" in kinds:
        try:
            profile.check(params)
        except claim.ClaimError as error:
            raise ConfigError(f"{params.path}: {error}") from None


def dashboard(client: Any, own: bool) -> str:
    """Where Dask shows what its workers do. own: its scheduler was started here, with this Python's packages, and shows
    the page to this machine alone."""
    if own and not find_spec("bokeh"):
        return "Dask's dashboard: none, it needs bokeh (.venv/bin/python -m pip install bokeh)"
    try:
        link = client.dashboard_link or "none"
    except KeyError:  # a scheduler that was started without one
        link = "none"
    return f"Dask's dashboard: {re.sub('//[^/:]+', '//127.0.0.1', link) if own else link}"


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
    names = {key(s) for s in unfinished}
    if values is not None and names & {*digests.lists(values, folder)[digests.LEDGER]}:
        stages.discard("claims")
        print("the ledger is left as it is: runs of its claims are missing")
    if unfinished:
        print(f"missing, as not finished or out of date: {', '.join(sorted(unfinished))}", flush=True)
    remove_runs(folder, unfinished)
    return {s: needs[s] & stages for s in stages}


def announce(scheduler: Scheduler, pipeline: Pipeline, workers: str = "") -> None:
    """Print what is to do and how long it may take; of workers, where Dask shows them."""
    todo, hands = scheduler.affected(), scheduler.hands()
    logs = os.path.relpath(pipeline.logs)
    print(f"{len(todo)} of {len(scheduler.needs)} stages to look at, {scheduler.jobs} side by side; logs in {logs}")
    left = scheduler.durations.left({s: n for s, n in scheduler.needs.items() if s in todo}, {}, hands)
    words = to_do(todo, pipeline.updates, len(pipeline.values["seeds"]) if pipeline.values else 0) or "small things"
    print(f"plan: {words}; {in_words(left)} on {hands} worker{'s' * (hands > 1)}", flush=True)
    if scheduler.sweep:
        print(dashboard(scheduler.sweep.client, not workers.startswith(("tls:", "tcp:"))), flush=True)


def tell_end(scheduler: Scheduler, seconds: float) -> None:
    """Print that all is done, or what failed and what that kept from starting."""
    if tell_wrong(scheduler.failed, scheduler.lost):
        print(f"done in {clock(seconds)}", flush=True)


def tell_wrong(failed: Mapping[str, str], lost: Collection[str] = ()) -> bool:
    """Print what failed, a stage or a page, and why, and the stages that it kept from starting; whether nothing did."""
    for name, why in failed.items():
        print(f"{name}: {why}")
    if lost:
        print(f"not started, as they need what failed: {', '.join(sorted(lost))}")
    if failed:
        names = ", ".join(sorted(failed))
        print(f"FAILED: {names}. Mend it and type the same command: finished work is kept.", flush=True)
    return not failed


def tell_pages(folder: Path, values: dict[str, Any] | None, old: set[str]) -> None:
    """Print the pages of the profile's reports, but those whose stage is in `old`, and what the ledger says in a
    line."""
    if values is None:
        return
    pages = afterwards.reports_of(folder, values)
    stale = {key(stage) or stage for stage in old}
    for page in sorted(pages.glob("*/*.html")):
        if page.parent.name not in stale:
            print(f"{'ledger' if page.parent.name == 'claims' else 'report'}: {os.path.relpath(page)}")
    if "claims" not in stale and (ledger := pages / "claims" / "claims.json").exists():
        from workbook.ledger import beside  # they bring pandas
        from workbook.results.tables import counted

        found = json.loads(ledger.read_text(encoding="utf-8"))
        print(f"claims: {beside.said(found['rows']) or counted(found['summary'])}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.reproduce", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "profile", nargs="?", default="mini", help="mini (top level) or the name of a folder in profiles/"
    )
    parser.add_argument("--jobs", type=int, default=2, help="stages side by side, one thread each")
    parser.add_argument(
        "--reports", action="store_true", help="start no run; reports and ledger from those that are finished"
    )
    parser.add_argument("--workers", default="", help="local:4, tls://host:8786, tcp://host:8786 or slurm:partition")
    parser.add_argument("--insecure", action="store_true", help="allow tcp://, where anyone in the network is trusted")
    parser.add_argument(
        "--log", default="", help=f"curves of runs as they come, to some of {','.join(follow.PACKAGES)}"
    )
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the repository")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    if args.reports and (args.workers or args.log):
        parser.error("--reports starts no run: expected it without --workers and --log")
    root = args.root.resolve()
    folder = root if args.profile == "mini" else root / "profiles" / args.profile
    if not (folder / "dvc.yaml").is_file():
        names = ", ".join(["mini", *sorted(p.parent.name for p in root.glob("profiles/*/params.yaml"))])
        print(f"error: no profile {args.profile!r} in {root} (profiles: {names})", file=sys.stderr)
        return 2

    def work() -> bool:
        scratch, jobs = root / ".scratch" / args.profile, max(1, args.jobs)
        with follow.beside(args.profile, root, args.log):
            return reproduce(folder, scratch, jobs, reports_only=args.reports, workers=args.workers)

    try:
        if args.workers:
            cluster.check(args.workers, args.insecure)
        follow.check(args.log)
        return status(work, args.tied, "the same command continues from the last checkpoints")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
