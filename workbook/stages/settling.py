"""A registered design under way: the committed rows that count, what was set aside or lost, and what comes next.

Beside draws.csv.xz, with the rows that count, stand superseded.csv, with every row that once was in it and counts no
more, and lost.csv, with the draws in which a run raised twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger import beside, careful, combine, looks, page, profile, registered, sensitivity
from workbook.ledger.claim import Claim, ClaimError, Test, repetitions
from workbook.ledger.contrast import in_words, measure
from workbook.results.files import DRAWS, SAMPLES, lines_of, packed
from workbook.results.measures import yardstick_of
from workbook.results.pack import write_packed
from workbook.results.results import NEEDED, with_settings
from workbook.results.tables import join
from workbook.runs.params import Params
from workbook.stages import registration
from workbook.stages.one_draw import Failed
from workbook.stages.processes import machine
from workbook.stages.progress import in_words as how_long
from workbook.statistics.rule import settled
from workbook.store.files import atomic_write
from workbook.store.tables import read_table, write_table

SUPERSEDED, LOST, PAGE = "superseded.csv", "lost.csv", "looks.md"
DIGITS = 7  # of what is committed
Rows = Sequence[dict[str, Any]]


class Settling:
    """registered: as in the file; design: its draws without those that are lost, with their replacements; table: the
    rows that count, those with the registered keys."""

    def __init__(self, params: Params, claims: dict[str, Claim]):
        self.params, self.claims, self.registered = params, claims, registration.load_design(params, claims)
        self.path, self.superseded, self.lost = (params.reports_folder / name for name in (DRAWS, SUPERSEDED, LOST))
        self.read()

    def read(self) -> None:
        """Look at the files again."""
        self.rows, self._looked = _read(self.path), None
        self.gone = [row["draw"] for row in _read(self.lost)]
        self.design = self.registered.without(self.gone)
        self.table = pd.DataFrame([row for row in self.rows if self._counts(row)])

    def _counts(self, row: dict[str, Any]) -> bool:
        return row["key"] == self.registered.keys.get(row["condition"])

    def changed(self) -> str:
        return registration.changed(self.registered, self.claims, self.params)

    def looked(self) -> list[looks.Look]:
        """The looks made so far: computed once for what the files have."""
        if self._looked is None:
            self._looked = looks.look(self.design, self.claims, self.table, self.params)
        return self._looked

    def next(self) -> tuple[int, list[str]] | None:
        """The next draw, and what it has to run; None at the end, also where too many draws were lost to reach it."""
        cells, looked = self._cells(), self.looked()
        for draw in self.design.draws[: self.design.looks[-1]] if cells else ():
            if not looks.whole(self.table, [draw], cells):  # all of them: rows of one draw are of one machine
                return draw, looks.wanted(self.design, self.claims, self.params, looked)
        return None

    def _cells(self) -> set[tuple[str, str]]:
        """What a draw has to have for the claims that are open."""
        return looks.cells(looks.open_claims(self.design, self.looked()), self.claims, self.params)

    def add(self, draw: int, rows: Rows) -> None:
        """Put of a draw's rows what the registered claims read into the table that is committed; what then counts no
        more, of this draw or of other keys, goes into `superseded`.

        Raises ClaimError, and keeps nothing, where a row is missing that a registered test reads.
        """
        tests = [test for name in self.design.claims for test in self.claims[name].tests]
        read = {(c, d) for test in tests for c, d in test.cells} | {(row["condition"], "plain") for row in rows}
        read |= {(again, d) for c, d in read for again in repetitions(self.params.all_runs, c)}
        shown = columns(tests)
        made = [
            {
                **{k: rounded(row.get(k)) for k in shown},
                "key": self.registered.keys[row["condition"]],
                "machine": _machine(self.params),
            }
            for row in rows
            if (row["condition"], row["decoding"]) in read
        ]
        if lacking := looks.lacking(pd.DataFrame(made), [draw], self._cells()):
            cells = ", ".join(f"{condition} ({decoding})" for _, condition, decoding in lacking)
            raise ClaimError(f"draw {draw}: its runs left no rows that a registered test reads: {cells}")
        stays = [row for row in self.rows if self._counts(row) and row["seed"] != draw]
        if aside := [row for row in self.rows if not self._counts(row) or row["seed"] == draw]:
            once = {repr(row): row for row in [*_read(self.superseded), *aside]}  # a kill may have left some in both
            _write(self.superseded, list(once.values()))
            forget_texts(self.params.reports_folder, {(row["condition"], row["seed"]) for row in aside})
        order = {name: i for i, name in enumerate(self.params.all_runs)}
        _write(self.path, sorted([*stays, *made], key=lambda row: (row["seed"], order[row["condition"]])))
        self.read()

    def lose(self, draw: int, failed: Failed) -> None:
        """Write down that a draw is lost."""
        key = self.registered.keys.get(failed.condition)  # of the models there is none
        said = {"draw": draw, "condition": failed.condition, "error": failed.error}
        _write(self.lost, [*_read(self.lost), {**said, "machine": _machine(self.params), "key": key}])
        self.read()

    def write(self) -> None:
        """The ledger of the looks made so far, and the page about them."""
        if not (rows := looks.ledger(self.design, self.claims, self.table, self.params)):
            return
        now, folder = registration.judging(), self.params.reports_folder
        about = {"lost_draws": len(self.gone), "judging": now, "as_registered": now == self.registered.judging}
        rows = [rounded({**row, "assay": self._assay(row), **about}) for row in rows]
        profile.keep(rows, self.params.profile, folder / "claims")
        first = self.design.draws[: min(row["look"] for row in rows)]  # later draws lack the runs of settled claims
        careful.write(with_settings(looks.results_of(self.table, first, self.params)), folder)
        beside.keep(self.params.profile, self.registered.draws, rows, folder.parent)
        found = combine.find_ledgers(folder.parent, (*combine.NO_EVIDENCE, self.params.profile))
        others = {name: json.loads(path.read_text(encoding="utf-8"))["rows"] for name, path in found.items()}
        said = [page.lost(len(self.gone))] * bool(self.gone) + [f"{self._judged_by()}."] * (not about["as_registered"])
        text = registered.text(self.params.profile, self.registered, self.looked(), rows, others, said)
        atomic_write(folder / PAGE, text)

    def _assay(self, row: dict[str, Any]) -> dict[str, float] | None:
        """How sharp the whole design is for a claim: over all its looks, with the noise of the draws that judged it."""
        claim = self.claims[row["id"]]
        results = looks.results_of(self.table, self.design.draws[: row["look"]], self.params)
        made = [measure(test, claim, results, "test") for test in claim.deciding]
        found = sensitivity.assay(claim, made, self.design.looks, alpha=self.design.alpha)
        return found and dataclasses.asdict(found)

    def _judged_by(self) -> str:
        now, then = registration.judging(), self.registered.judging
        return f"judged by other code ({now[:12]}) than that of the registration ({then[:12]})"

    def said(self, seconds: float | None = None) -> str:
        """What is settled, what is open, and what comes next, in a few lines. seconds: that a draw takes, if known."""
        lines, looked = [], self.looked()
        for one in looked:
            words = [f"{name} ({one.verdicts[name].word})" for name in one.settled]
            lines.append(f"look at {one.n} draws, level {one.level:.4f}: settled {', '.join(words) or 'none'}")
        if registration.judging() != self.registered.judging:
            lines.append(self._judged_by())
        lines.append(f"open: {'; '.join(self._open()) or 'none'}")
        if self.gone:
            lines.append(f"lost to errors ({LOST}): draws {', '.join(map(str, self.gone))}")
        if stale := sum(not self._counts(row) for row in self.rows):
            lines.append(f"{stale} committed rows are of other code or settings and do not count")
        if changed := self.changed():
            lines.append(f"{changed}. What stands here is of the registered ones; no draw can be added")
        else:
            lines.append(self._ahead(seconds))
        return "\n".join(lines)

    def _open(self) -> list[str]:
        """Each claim that no look has settled, also after the last one, with its word and what is open of it."""
        looked, said = self.looked(), []
        gone = {name for one in looked for name in one.settled}
        for name in (name for name in self.design.claims if name not in gone):
            if not looked:
                said.append(name)
                continue
            last = looked[-1].verdicts[name]
            tests = join([c.name for c in last.deciding if not settled([c.word])])
            many = f", {in_words(last.n_needed, looked[-1].n)} draws would settle it" if last.n_needed else ""
            said.append(f"{name} ({last.word}; open: {tests}{many})")
        return said

    def _ahead(self, seconds: float | None) -> str:
        """The next draw, how many are left to the next look, and what an hour more buys; or that this is the end."""
        looked, step = self.looked(), self.next()
        if step is None:
            left = looks.open_claims(self.design, looked)
            return "no registered draw is left for the next look" if left else "the design is at its registered end"
        at, cells = self.design.looks[len(looked)], self._cells()
        left = sum(not looks.whole(self.table, [draw], cells) for draw in self.design.draws[:at])
        draws = f"{left} draw{'s' * (left > 1)}"
        said = f"next: draw {step[0]}, {len(step[1])} conditions; {draws} to the look at {at}, which decides next"
        if seconds:
            said += f", {how_long(left * seconds)} from here; an hour buys {3600 / seconds:.2g} draws like the last"
        return said


def forget_texts(reports: Path, runs: Collection[tuple[str, int]]) -> None:
    """Take the texts of runs, (condition, draw), out of the committed ones: their rows count no more."""
    if (file := reports / packed(SAMPLES)).is_file():
        texts = [(line, json.loads(line)) for line in lines_of(file)]
        stays = [f"{line}\n" for line, text in texts if (text["condition"], text["seed"]) not in runs]
        write_packed(file, "".join(stays).encode())


def columns(tests: Sequence[Test]) -> list[str]:
    """Of the table: what says which row it is, and each metric that a test or its yardstick reads."""
    metrics = {m for t in tests for m in (*t.metrics, t.along)} | {"diverged"}
    metrics |= {yardstick_of(t.metric) for t in tests if t.unit == "yardsticks"}
    return [*NEEDED, *sorted(metrics - set(NEEDED))]


def _read(path: Path) -> list[dict[str, Any]]:
    return read_table(path) if path.is_file() else []


def _write(path: Path, rows: Rows) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_table(path, [{name: row.get(name) for name in columns} for row in rows], columns)


def rounded(value: Any) -> Any:
    """A number, or what holds some, with so many digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _machine(params: Params) -> str:
    return f"{machine()}, torch threads {params.threads}"
