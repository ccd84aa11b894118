"""Run a registered design draw by draw, until its claims are settled or its last look is made.

    python -m workbook.stages.settle register PROFILE    # writes profiles/PROFILE/registered.yaml, once; commit it
    python -m workbook.stages.settle run PROFILE         # goes on where the committed rows end; stop it at any time
    python -m workbook.stages.settle status PROFILE      # what is settled, what is open, what decides it next
    python -m workbook.stages.settle judge PROFILE       # ledger and page of the committed draws again, without a run
    python -m workbook.stages.settle texts PROFILE       # their runs once more, for what they wrote

A draw is finished on one machine: its models, then the conditions that an open claim still needs. Its rows go into
reports/PROFILE/draws.csv.xz with the key of what decided them (code, libraries, settings), which is the registered one,
and the machine's name; commit the files of that folder after each sitting. A row counts as done, whoever ran it; the
models of a draw are never mixed.

A run that raises is tried once more. If it raises again, its draw is lost: it goes into lost.csv, and the first of the
registered replacements takes a place at the end of the order. A draw is lost only for an exception, never for a result:
nobody looks at its rows, and a run that diverged has rows like any other. What comes from outside is no exception of a
run: after a signal, a killed process, a full disk or a missing file the same command goes on with that draw.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from rlnlp.settings import ConfigError
from workbook.ledger import checks
from workbook.ledger.claim import ClaimError
from workbook.runs import checks as settings
from workbook.runs.params import Params
from workbook.stages.command import status as ended
from workbook.stages.one_draw import OF_THE_MACHINE, Failed, build, clear, of_draw, train, tried
from workbook.stages.progress import clock
from workbook.stages.registration import register
from workbook.stages.settled_texts import Texts
from workbook.stages.settling import Settling
from workbook.store.locks import writer_lock

REPLACEMENTS = 8  # draws after the last one, for those that are lost


def run(settling: Settling, jobs: int, draws: int | None = None) -> bool:
    """Draw after draw; at most `draws` in this sitting. Whether all went well.

    Two draws lost one after the other are not the draws' fault: then the second one is not written down, and it ends.
    Raises ClaimError, and keeps nothing of the draw, where settings, code or libraries are not the registered ones,
    before a draw or after it: processes that train import the files as they are then.
    """
    _unchanged(settling)
    done, fell = 0, False
    while (step := settling.next()) is not None and (draws is None or done < draws):
        draw, names = step
        began, params = time.monotonic(), of_draw(settling.params, draw)
        if (made := _unless_ended(settling, params, draw, names, jobs)) is None:
            return False
        if isinstance(made, Failed):
            print(f"draw {draw}: {made.condition} raised twice: {made.error}", file=sys.stderr)
            if fell:
                print("two draws in a row: look at the error before the same command goes on", file=sys.stderr)
                return False
            settling.lose(draw, made)
        else:
            settling.add(draw, made)
        fell = isinstance(made, Failed)
        settling.write()
        clear(params, draw)
        done += 1
        took = time.monotonic() - began
        print(f"draw {draw} {'lost' if fell else 'done'} in {clock(took)}", flush=True)
        print(settling.said(None if fell else took), flush=True)
    if not done:
        print(settling.said())
    return True


def texts(settling: Settling, jobs: int, draws: int | None = None) -> bool:
    """The texts of the committed rows' runs that are lacking, draw after draw; at most `draws` in this sitting. Whether
    all went well. Two draws in a row of which runs raise, or come out otherwise here, end it."""
    _unchanged(settling)
    found, well, in_a_row = Texts(settling.params, settling.table), True, 0
    for draw in [draw for draw in settling.design.draws if found.lacking(draw)][:draws]:
        began, params, names = time.monotonic(), of_draw(settling.params, draw), found.lacking(draw)
        if (made := _unless_ended(settling, params, draw, found.needed(names), jobs)) is None:
            return False
        if isinstance(made, Failed):
            why = f"{made.condition} raised twice: {made.error}"
        else:
            why = _otherwise(found.add(draw, names, made))
        clear(params, draw)
        kept = len(names) - len(found.lacking(draw))
        print(f"draw {draw}: texts of {kept} runs, in {clock(time.monotonic() - began)}", flush=True)
        if why:
            print(f"draw {draw}: {why}", file=sys.stderr)
        well, in_a_row = well and not why, in_a_row + 1 if why else 0
        if in_a_row == 2:
            print("two draws in a row: look at that before the same command goes on", file=sys.stderr)
            return False
    return well


def _otherwise(runs: Sequence[str]) -> str:
    """What is said of runs whose texts are not kept; "" for none."""
    if not runs:
        return ""
    numbers = f"{len(runs)} run{'s have' if len(runs) > 1 else ' has'} other numbers here than in the committed rows"
    return f"{numbers}, as on a processor that rounds otherwise; their texts are not kept: {', '.join(runs)}"


def _unchanged(settling: Settling) -> None:
    if changed := settling.changed():
        raise ClaimError(changed)


def _unless_ended(
    settling: Settling, params: Params, draw: int, names: Sequence[str], jobs: int
) -> list[dict[str, Any]] | Failed | None:
    """The rows of a draw, or what raised twice; None, and said, where it was stopped by what is no fault of a draw."""
    try:
        made = _made(params, draw, names, jobs)
    except BrokenProcessPool:
        print(f"draw {draw}: a process was ended from outside; the same command goes on", file=sys.stderr)
        return None
    except OF_THE_MACHINE as error:
        print(f"draw {draw}: {error}; once that is mended, the same command goes on", file=sys.stderr)
        return None
    try:
        _unchanged(settling)
    except ClaimError as error:
        clear(params, draw)
        raise ClaimError(f"draw {draw}: nothing of it is kept: while it ran, {error}") from None
    return made


def _made(params: Params, draw: int, names: Sequence[str], jobs: int) -> list[dict[str, Any]] | Failed:
    """The rows of a draw, or what raised twice."""
    starts = {params.all_runs[name].get("start") for name in names}
    first, then = ([name for name in names if (name in starts) == early] for early in (True, False))
    rows: list[dict[str, Any]] = []
    going: dict[Future, tuple] = {}
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(names), desc=f"draw {draw}", unit="run") as bar:
        try:
            for part in ([(build, names)], [(train, name) for name in first], [(train, name) for name in then]):
                going |= {pool.submit(_alone, job, params, draw, given): (job, given, True) for job, given in part}
                while going:
                    for future in wait(going, return_when=FIRST_COMPLETED).done:
                        job, given, again = going.pop(future)
                        if not isinstance(found := future.result(), Failed):
                            rows += found or ()  # `build` makes none
                            bar.update(job is train)
                        elif again:
                            print(f"draw {draw}: {found.condition}: {found.error}; once more", file=sys.stderr)
                            going[pool.submit(_alone, job, params, draw, given)] = (job, given, False)
                        else:
                            return found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in going):  # nothing of a draw goes on beside the next one
                for child in multiprocessing.active_children():
                    child.terminate()
                time.sleep(0.05)
    return rows


def _alone(*given: Any) -> Any:
    """What `tried` returns, in a process of its own. A pool whose processes end after a task may wait for ever (Python
    3.11, gh-115634), so each has its own."""
    method = multiprocessing.get_context("forkserver")
    method.set_forkserver_preload(["workbook.runs.experiment", "workbook.draws.variants"])
    with ProcessPoolExecutor(1, mp_context=method) as pool:
        return pool.submit(tried, *given).result()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.settle", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("register", "run", "status", "judge", "texts"))
    parser.add_argument("profile", help="the name of a folder in profiles/")
    several = "register: the draws, in order; run, texts: one number, at most so many"
    parser.add_argument("--draws", type=int, nargs="+", help=several)
    parser.add_argument(
        "--looks", type=int, nargs="+", default=[8, 16, 32], help="register: judged after so many draws"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    if args.what != "register" and len(args.draws or ()) > 1:
        found = " ".join(map(str, args.draws))
        parser.error(f"argument --draws: {args.what} takes one number, how many draws at most; found {found}")
    try:
        params = settings.load(Path("profiles") / args.profile / "params.yaml")
        claims = checks.load((params.folder / params.root).resolve() / "claims.yaml")
        if args.what == "register":
            draws = args.draws or range(101, 101 + args.looks[-1])
            after = range(max(draws) + 1, max(draws) + 1 + REPLACEMENTS)
            print(register(params, claims, draws, args.looks, after))
            return 0
        settling = Settling(params, claims)
        if args.what == "judge":
            settling.write()
        if args.what in ("status", "judge"):
            print(settling.said())
            return 0

        def work() -> bool:
            with writer_lock(params.scratch / "settle", wait_s=0):
                does = texts if args.what == "texts" else run
                return does(settling, args.jobs, args.draws[0] if args.draws else None)

        return ended(work, args.tied, "the same command goes on with the draw that was stopped")
    except (ConfigError, ClaimError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
