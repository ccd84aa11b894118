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
import os
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
from workbook.ledger.claim import Claim, ClaimError
from workbook.ledger.looks import Design
from workbook.ledger.ruling import rule_hash
from workbook.runs import checks as settings
from workbook.runs import conditions
from workbook.runs.params import Params
from workbook.stages import depends
from workbook.stages.command import status as ended
from workbook.stages.progress import clock
from workbook.store.files import atomic_write
from workbook.store.fingerprint import digest, libraries
from workbook.store.identity import Code
from workbook.store.locks import writer_lock
from workbook.store.tables import read_table, write_table

TABLE, REGISTERED = "draws.csv", "registered.yaml"
ABOUT = ("key", "machine")  # columns of the table that no metric is
BUILT = ("data", "models", "variants", "worlds")


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


# one draw ------------------------------------------------------------------------------------------------------------


def of_draw(params: Params, draw: int) -> Params:
    """The profile's settings for one draw alone."""
    return params.model_copy(update={"seeds": (draw,), "draws": (draw,)})


def build(params: Params, draw: int) -> None:
    """Texts and models of a draw, as the pipeline's stages make them."""
    _into(params, draw, "models")
    from workbook.draws import base, variants, worlds
    from workbook.texts import data

    given = {name: conditions.stage(params, name) for name in BUILT}
    texts, trained, further, others = (params.folder / name / f"draw{draw}" for name in BUILT)
    data.build(given["data"], draw, texts)
    base.build(given["models"], draw, texts, trained, params.scratch)
    variants.build(given["variants"], draw, texts, trained, further, params.scratch)
    if params.worlds:
        worlds.build(given["worlds"], draw, others, params.scratch)


def train(params: Params, draw: int, condition: str) -> list[dict[str, Any]]:
    """The rows of one condition in one draw."""
    _into(params, draw, condition)
    from workbook.runs import experiment
    from workbook.runs.train import setup

    given = conditions.condition(params, condition)
    setup(given)
    return read_table(experiment.run_seed(given, draw, experiment.chosen(given)) / "per_seed.csv")


def _into(params: Params, draw: int, name: str) -> None:
    """What this process prints goes into a file of its own."""
    log = params.scratch / "logs" / str(draw) / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)


def keys(params: Params, names: Sequence[str]) -> dict[str, str]:
    """Condition -> the key of what decides its rows in any draw: code, libraries, settings; no model's bytes, which
    differ by rounding from machine to machine."""
    code, whole = Code(depends.ROOT), params.model_dump(mode="json")
    roots, files = depends.stages(whole, code), conditions.files(params)
    shared = {n: [code.identity(*roots[n]), files[f"settings/{n}.json"]] for n in BUILT}
    found = {}
    for name in names:
        own = {k: v for k, v in files[f"conditions/{name}.json"].items() if k not in ("seeds", "profile", "root")}
        said = {"shared": shared, "code": code.identity(*roots[f"runs/{name}"]), "settings": own}
        found[name] = digest({"all": json.dumps(said, sort_keys=True), **libraries()})[:16]
    return found


# the design ----------------------------------------------------------------------------------------------------------


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
        """Put a draw's rows into the table that is committed."""
        machine = f"{platform.machine()} {_processor()}, torch threads {self.params.threads}"
        made = pd.DataFrame([{**row, "key": self.keys[row["condition"]], "machine": machine} for row in rows])
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
        with ProcessPoolExecutor(jobs, mp_context=method, max_tasks_per_child=1) as pool:
            try:
                pool.submit(build, params, draw).result()
                running = [pool.submit(train, params, draw, name) for name in names]
                bar = tqdm(as_completed(running), total=len(running), desc=f"draw {draw}", unit="run")
                rows = [row for future in bar for row in future.result()]
            except BrokenProcessPool:
                print(f"draw {draw}: a process was ended from outside; the same command goes on", file=sys.stderr)
                return False
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        settling.add(draw, rows)
        settling.write()
        done += 1
        took = time.monotonic() - began
        print(f"draw {draw} done in {clock(took)}; an hour more buys {3600 / took:.0f} such draws", flush=True)
        print(settling.said(), flush=True)
    return True


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
