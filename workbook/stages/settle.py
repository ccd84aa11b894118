"""Run a registered design draw by draw, until its claims are settled or its last look is made.

    python -m workbook.stages.settle register PROFILE    # writes profiles/PROFILE/registered.yaml, once; commit it
    python -m workbook.stages.settle run PROFILE         # goes on where the committed rows end; stop it at any time
    python -m workbook.stages.settle status PROFILE      # what is settled, what is open, what one draw more costs

A draw is finished on one machine: its models, then the conditions that an open claim still needs. Its rows go into
reports/PROFILE/draws.csv with the key of what decided them (code, settings) and the machine's name; commit that file
after each sitting. A row whose key still holds counts as done, whoever ran it; the models of a draw are never mixed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError
from ruamel.yaml import YAML
from tqdm.auto import tqdm

from rlnlp.settings import ConfigError
from workbook.ledger import checks, looks, page
from workbook.ledger.claim import Claim, ClaimError, repetitions
from workbook.ledger.looks import Design
from workbook.ledger.ruling import rule_hash
from workbook.results.measures import yardstick_of
from workbook.results.results import NEEDED
from workbook.runs import checks as settings
from workbook.runs.params import Params
from workbook.stages.command import status as ended
from workbook.stages.one_draw import build, clear, keys, of_draw, train
from workbook.stages.progress import clock
from workbook.store.files import atomic_write
from workbook.store.locks import writer_lock
from workbook.store.tables import write_table

TABLE, REGISTERED = "draws.csv", "registered.yaml"
ABOUT = ("key", "machine")  # columns of the table that no metric is
DIGITS = 7  # of what is committed


def register(params: Params, claims: dict[str, Claim], draws: Sequence[int], at: Sequence[int]) -> Path:
    """Write the design: the profile's claims, the hash of the rule and tests, draws and looks.

    Raises: ClaimError where one is there, or where a draw was among those that anything was chosen on.
    """
    path = params.folder / REGISTERED
    if path.exists():
        raise ClaimError(
            f"{path}: is registered already; a new design is a new profile, with draws that no one has seen"
        )
    if seen := sorted({*params.draws, *params.seeds} & set(draws)):
        raise ClaimError(f"draws {seen} of the design were seen: they are in draws or seeds of {params.path}")
    values = {"rule": rule_hash(claims), "claims": params.claims, "draws": tuple(draws), "looks": tuple(at)}
    design = Design.model_validate(values)
    design.check(claims)
    text = "# A registered design: committed before its first draw, and not changed after it.\n"
    atomic_write(path, text + json.dumps(design.model_dump(mode="json"), indent=1) + "\n")  # JSON is YAML
    return path


def load_design(params: Params, claims: dict[str, Claim]) -> Design:
    """The profile's design, checked against today's rule. Raises ClaimError."""
    path = params.folder / REGISTERED
    try:
        design = Design.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError) as error:
        raise ClaimError(f"{path}: expected a registered design (settle register), found {error}") from None
    design.check(claims)
    return design


class Settling:
    """A design under way. table: the rows of all draws that are whole and still count."""

    def __init__(self, params: Params, claims: dict[str, Claim]):
        self.params, self.claims, self.design = params, claims, load_design(params, claims)
        self.path = params.reports_folder / TABLE
        self.keys = keys(params, looks.needed(self.design.claims, claims, params))
        rows = pd.read_csv(self.path, low_memory=False) if self.path.is_file() else pd.DataFrame()
        counts = rows.condition.map(self.keys) == rows.key if len(rows) else []
        self.stale = len(rows) - sum(counts)
        self.table = rows[counts] if len(rows) else rows

    def looked(self) -> list[looks.Look]:
        return looks.look(self.design, self.claims, self.table, self.params)

    def next(self) -> tuple[int, list[str]] | None:
        """The next draw, and what it has to run; None at the end."""
        wanted = looks.wanted(self.design, self.claims, self.params, self.looked())
        for draw in self.design.draws[: self.design.looks[-1]] if wanted else ():
            if not looks.whole(self.table, [draw], wanted):
                return draw, wanted  # all of them: rows of one draw are of one machine
        return None

    def add(self, draw: int, rows: list[dict[str, Any]]) -> None:
        """Put of a draw's rows what the registered claims read into the table that is committed."""
        machine = f"{platform.machine()} {_processor()}, torch threads {self.params.threads}"
        tests = [test for name in self.design.claims for test in self.claims[name].tests]
        read = {(c, d) for test in tests for c, d in test.cells} | {(row["condition"], "plain") for row in rows}
        read |= {(again, d) for c, d in read for again in repetitions(self.params.all_runs, c)}
        metrics = {yardstick_of(m) for t in tests for m in t.metrics} | {m for t in tests for m in t.metrics}
        shown = [*NEEDED, *sorted((metrics | {t.along for t in tests if t.along} | {"diverged"}) - set(NEEDED))]
        made = pd.DataFrame(
            {
                **{k: _short(row.get(k)) for k in shown},
                "key": self.keys[row["condition"]],
                "machine": machine,
            }
            for row in rows
            if (row["condition"], row["decoding"]) in read
        )
        if len(self.table):
            made = pd.concat([self.table[self.table.seed != draw], made], ignore_index=True)
        self.table = made
        order = {name: i for i, name in enumerate(self.params.all_runs)}
        self.table = self.table.sort_values(
            ["seed", "condition"], key=lambda c: c.map(order) if c.name == "condition" else c, kind="stable"
        )
        whole = self.table.astype(object).where(self.table.notna(), None)
        write_table(self.path, whole.to_dict("records"))

    def write(self) -> None:
        """The ledger of the looks made so far."""
        if rows := looks.ledger(self.design, self.claims, self.table, self.params):
            page.write(rows, self.params.reports_folder / "claims")

    def said(self) -> str:
        """What is settled and what is open, in a few lines."""
        lines = []
        for one in self.looked():
            words = [f"{name} ({one.verdicts[name].word})" for name in one.settled]
            lines.append(f"look at {one.n} draws, level {one.level:.4f}: settled {', '.join(words) or 'none'}")
        left, step = looks.open_claims(self.design, self.looked()), self.next()
        lines.append(f"open: {', '.join(left) or 'none'}")
        if self.stale:
            lines.append(f"{self.stale} committed rows are of other code or settings and do not count")
        lines.append("the design is at its end" if step is None else f"next: draw {step[0]}, {len(step[1])} conditions")
        return "\n".join(lines)


def run(settling: Settling, jobs: int, draws: int | None = None) -> bool:
    """Draw after draw; at most `draws` in this sitting. Whether all went well."""
    method = multiprocessing.get_context("forkserver")
    method.set_forkserver_preload(["workbook.runs.experiment", "workbook.draws.variants"])
    done = 0
    while (step := settling.next()) is not None and (draws is None or done < draws):
        draw, names = step
        began, params = time.monotonic(), of_draw(settling.params, draw)
        starts = [name for name in names if name in {params.all_runs[n].get("start") for n in names}]
        parts = [starts, [name for name in names if name not in starts]]  # what others start from first
        with ProcessPoolExecutor(jobs, mp_context=method, max_tasks_per_child=1) as pool:
            try:
                pool.submit(build, params, draw, names).result()
                rows, bar = [], tqdm(total=len(names), desc=f"draw {draw}", unit="run")
                for part in parts:
                    for future in as_completed([pool.submit(train, params, draw, name) for name in part]):
                        rows += future.result()
                        bar.update()
                bar.close()
            except BrokenProcessPool:
                print(f"draw {draw}: a process was ended from outside; the same command goes on", file=sys.stderr)
                return False
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        settling.add(draw, rows)
        settling.write()
        clear(params, draw)
        done += 1
        took = time.monotonic() - began
        print(f"draw {draw} done in {clock(took)}; an hour more buys {3600 / took:.0f} such draws", flush=True)
        print(settling.said(), flush=True)
    return True


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.settle", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("register", "run", "status"))
    parser.add_argument("profile", help="the name of a folder in profiles/")
    parser.add_argument("--draws", type=int, nargs="+", help="register: the draws, in order; run: at most so many")
    parser.add_argument(
        "--looks", type=int, nargs="+", default=[8, 16, 32], help="register: judged after so many draws"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--tied", action="store_true", help="end when the process that started this one ends (make)")
    args = parser.parse_args(argv)
    try:
        params = settings.load(Path("profiles") / args.profile / "params.yaml")
        claims = checks.load((params.folder / params.root).resolve() / "claims.yaml")
        if args.what == "register":
            print(register(params, claims, args.draws or range(101, 101 + args.looks[-1]), args.looks))
            return 0
        settling = Settling(params, claims)
    except (ConfigError, ClaimError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.what == "status":
        print(settling.said())
        return 0

    def work() -> bool:
        with writer_lock(params.scratch / "settle", wait_s=0):
            return run(settling, args.jobs, args.draws[0] if args.draws else None)

    return ended(work, args.tied, "the same command goes on with the draw that was stopped")


if __name__ == "__main__":
    sys.exit(main())
