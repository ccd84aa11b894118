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
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlnlp.settings import ConfigError
from workbook.stages import carry, cluster, digests, follow, forkserver
from workbook.stages.command import status
from workbook.stages.pipeline import COLLECT, RUNS, Pipeline, key, kind, with_followers
from workbook.stages.progress import clock, in_words, to_do
from workbook.stages.scheduler import Scheduler, remove_runs
from workbook.stages.sweep import Sweep
from workbook.store.locks import writer_lock

OUTSIDE = {"data", "models"}  # stages that read what comes from outside first
TEXTS = "careful/verdict.md"  # in the profile's reports: what a careful reader sees, no stage of DVC


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
            return not ours or not collects(needs) or texts_are_there(folder, values)
        if reports_only:
            needs = collecting(folder, needs, with_followers(needs, changed), values)
            if needs is None:
                return False
            changed = set(needs)
        elif ours and OUTSIDE & {kind(stage) for stage in with_followers(needs, changed)}:
            from workbook.runs import checks  # they bring pydantic
            from workbook.stages import outside

            outside.check(checks.load(folder / "params.yaml"))
        sweep = None
        if workers and not reports_only:
            sweep = Sweep(held.enter_context(cluster.connected(workers, jobs, scratch)), folder, scratch)
        scheduler = Scheduler(
            folder, scratch, needs, changed, jobs, every, variables, [*order] or pipeline.order(), sweep
        )
        announce(scheduler, pipeline)
        good = scheduler.run()
        if good and not reports_only and pipeline.status():  # DVC has the last word
            pipeline.repro("all", "dvc.yaml")
        old = scheduler.failed.keys() | scheduler.lost
        if ours:
            read_together(scheduler, folder, values)
        tell_pages(folder, values, old)
        tell_end(scheduler, time.monotonic() - began)
        return not scheduler.failed


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


def announce(scheduler: Scheduler, pipeline: Pipeline) -> None:
    """Print what is to do and how long it may take."""
    todo, jobs = scheduler.affected(), scheduler.jobs
    logs = os.path.relpath(pipeline.logs)
    print(f"{len(todo)} of {len(scheduler.needs)} stages to look at, {jobs} side by side; logs in {logs}")
    left = scheduler.durations.left({s: n for s, n in scheduler.needs.items() if s in todo}, {}, jobs)
    words = to_do(todo, pipeline.updates, len(pipeline.values["seeds"]) if pipeline.values else 0) or "small things"
    print(f"plan: {words}; {in_words(left)} on {jobs} worker{'s' * (jobs > 1)}", flush=True)


def tell_end(scheduler: Scheduler, seconds: float) -> None:
    """Print that all is done, or what failed and what that kept from starting."""
    if not scheduler.failed:
        print(f"done in {clock(seconds)}", flush=True)
        return
    for stage, why in scheduler.failed.items():
        print(f"{stage}: {why}")
    if scheduler.lost:
        print(f"not started, as they need what failed: {', '.join(sorted(scheduler.lost))}")
    names = ", ".join(sorted(scheduler.failed))
    print(f"FAILED: {names}. Mend it and type the same command: finished work is kept.", flush=True)


def tell_pages(folder: Path, values: dict[str, Any] | None, old: set[str]) -> None:
    """Print the pages of the profile's reports, but those whose stage is in `old`, and what the ledger says in a
    line."""
    if values is None:
        return
    pages = reports_of(folder, values)
    stale = {key(stage) or stage for stage in old}
    for page in sorted(pages.glob("*/*.html")):
        if page.parent.name not in stale:
            print(f"{'ledger' if page.parent.name == 'claims' else 'report'}: {os.path.relpath(page)}")
    if "claims" not in stale and (ledger := pages / "claims" / "claims.json").exists():
        from workbook.ledger import beside  # they bring pandas
        from workbook.results.tables import counted

        found = json.loads(ledger.read_text(encoding="utf-8"))
        print(f"claims: {beside.said(found['rows']) or counted(found['summary'])}", flush=True)


def collects(stages: Iterable[str]) -> bool:
    return not {*COLLECT}.isdisjoint(map(kind, stages))


def texts_are_there(folder: Path, values: Mapping[str, Any]) -> bool:
    """Whether the page of `read_carefully` is there; made, where an earlier command could not."""
    why = "" if (reports_of(folder, values) / TEXTS).exists() else read_carefully(folder, values)
    if why:
        print(f"{TEXTS}: {why}\nFAILED: {TEXTS}. Mend it and type the same command.", flush=True)
    return not why


def reports_of(folder: Path, values: Mapping[str, Any]) -> Path:
    return (folder / values["root"] / "reports" / values["profile"]).resolve()


def read_carefully(folder: Path, values: Mapping[str, Any]) -> str:
    """Write what a careful reader sees, to which every report leads, from the profile's tables; what went wrong, empty
    if nothing did. A page of older tables is taken away then, and the next command tries again."""
    from workbook.ledger import careful  # it brings pandas
    from workbook.results.results import ReportError
    from workbook.runs import checks

    try:
        print(f"texts: {os.path.relpath(careful.make(checks.load(folder / 'params.yaml')))}", flush=True)
    except ReportError as error:
        (reports_of(folder, values) / TEXTS).unlink(missing_ok=True)
        return str(error)
    return ""


def read_together(scheduler: Scheduler, folder: Path, values: Mapping[str, Any]) -> None:
    """Make the pages that are no stage's, of what the stages made, and print how the numbers stand to committed ones;
    what went wrong is a failure of the scheduler's."""
    if collects(scheduler.done) and (why := read_carefully(folder, values)):
        scheduler.failed[TEXTS] = why
    if "claims" in scheduler.done:
        if why := side_by_side(folder, values):
            scheduler.failed["reports/claims.*"] = why
        tell_again(folder)


def tell_again(folder: Path) -> None:
    """Print how the profile's rows compare with the committed ones of the same draws, where there are any."""
    from workbook.synthesis import again  # it brings pandas

    if told := again.told(folder / "params.yaml"):
        print(told, flush=True)


def side_by_side(folder: Path, values: dict[str, Any]) -> str:
    """Put the ledgers of all profiles into reports/claims.* and reports/forest.*; what went wrong, empty if nothing
    did."""
    from workbook.ledger import forest  # it brings pandas, scipy and matplotlib
    from workbook.ledger.claim import ClaimError
    from workbook.ledger.combine import NO_EVIDENCE, combine, find_ledgers

    if values["profile"] in NO_EVIDENCE:
        return ""
    reports = (folder / values["root"] / "reports").resolve()
    paths = find_ledgers(reports)
    try:
        combine(paths, reports)
    except ClaimError as error:
        return str(error)
    rows = {profile: json.loads(path.read_text(encoding="utf-8"))["rows"] for profile, path in paths.items()}
    forest.keep(rows, reports)
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
    parser.add_argument("--workers", default="", help="local:4, tls://host:8786, tcp://host:8786 or slurm:partition")
    parser.add_argument("--insecure", action="store_true", help="allow tcp://, where anyone in the network is trusted")
    parser.add_argument(
        "--log", default="", help=f"curves of runs as they come, to some of {','.join(follow.PACKAGES)}"
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

    def work() -> bool:
        scratch, jobs = root / ".scratch" / args.profile, max(1, args.jobs)
        with follow.beside(args.profile, root, "" if args.reports else args.log):
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
