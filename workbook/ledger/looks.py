"""A registered design: looks at growing data, at each of which the claims that are settled leave.

    design = Design.model_validate(values)                    # committed before the first run
    looks = look(design, claims, table, params)               # of as many draws as the table has whole
    wanted(design, claims, params, looks)                     # the conditions that the open claims still need

A claim is settled when each of its deciding tests is: for it, against it, or of the other kind. Its word is that of the
look at which it left, with the level of that look; it is not judged again, and what only it needs runs no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic import Field, model_validator

from rlnlp.settings import Settings
from workbook.ledger.claim import Claim, ClaimError, conditions_of, repetitions
from workbook.ledger.judge import Verdict, judge, over_the_ledger, row_of
from workbook.ledger.ruling import rule_hash
from workbook.results.files import DRAWS
from workbook.results.results import Results, read_per_seed
from workbook.statistics.rule import settled
from workbook.statistics.sequential import levels, stage_wise


class Design(Settings):
    """What is fixed before the first counted run."""

    rule: str = Field(min_length=64, max_length=64, description="`fixed_by` its claims")
    claims: tuple[str, ...] = Field(min_length=1, description="ids of the claims that are put to the test")
    keys: dict[str, str] = Field(min_length=1, description="condition: key of the settings, code and libraries")
    judging: str = Field("", description="identity of the code that judges, when it was registered")
    draws: tuple[int, ...] = Field(
        min_length=1, description="draws in the order in which they are run; none seen before"
    )
    replacements: tuple[int, ...] = Field((), description="draws that come after them, one for each that is lost")
    looks: tuple[int, ...] = Field(min_length=1, description="numbers of draws after which the claims are judged")
    alpha: float = Field(0.05, gt=0, lt=1, description="over all looks together, for each claim and kind of error")

    @model_validator(mode="after")
    def _fits(self):
        if len({*self.draws, *self.replacements}) < len(self.draws) + len(self.replacements):
            raise ValueError("draws, replacements: expected different ones")
        if list(self.looks) != sorted(set(self.looks)) or self.looks[-1] > len(self.draws):
            raise ValueError(f"looks: expected growing numbers up to {len(self.draws)}, the number of draws")
        return self

    def check(self, claims: Mapping[str, Claim]) -> None:
        """Raises ClaimError where the rule, a test or a claim is not the registered one."""
        if gone := [name for name in self.claims if name not in claims or not claims[name].tests]:
            raise ClaimError(f"registered claims without tests: {', '.join(gone)}")
        if (now := fixed_by(self.claims, claims)) != self.rule:
            raise ClaimError(
                f"the rule or a test is not the registered one: expected {self.rule[:12]}, found {now[:12]}; "
                "a change takes a new registration, and draws that no one has seen"
            )

    def without(self, lost: Collection[int]) -> Design:
        """The design whose draws are those that are not lost, in order, with as many replacements at the end."""
        whole = [draw for draw in (*self.draws, *self.replacements) if draw not in lost]
        return self.model_copy(update={"draws": tuple(whole[: len(self.draws)]), "replacements": ()})


def fixed_by(names: Sequence[str], claims: Mapping[str, Claim]) -> str:
    """`ruling.rule_hash` of these claims alone: what is written of others later changes nothing registered."""
    return rule_hash({name: claims[name] for name in names if name in claims})


@dataclass(frozen=True)
class Look:
    """n: draws; level: of its tests; verdicts: of every claim that was still open; settled: those that left."""

    n: int
    level: float
    verdicts: dict[str, Verdict]
    settled: tuple[str, ...]


def look(design: Design, claims: Mapping[str, Claim], table: pd.DataFrame, params) -> list[Look]:
    """The looks for which the table has whole draws, in order. table: as per_seed.csv, its seeds are draws."""
    found, going = [], list(design.claims)
    for n, level in zip(design.looks, levels(design.looks, design.alpha)):
        if not going or len(design.draws) < n or not whole(table, design.draws[:n], cells(going, claims, params)):
            break
        results = results_of(table, design.draws[:n], params)
        verdicts = {name: judge(claims[name], results, alpha=level) for name in going}
        left = tuple(name for name, verdict in verdicts.items() if settled(c.word for c in verdict.deciding))
        found.append(Look(n, level, verdicts, left))
        going = [name for name in going if name not in left]
    return found


def open_claims(design: Design, looks: Sequence[Look]) -> list[str]:
    """Those that no look has settled, in the design's order; none after the last look."""
    if looks and looks[-1].n == design.looks[-1]:
        return []
    gone = {name for one in looks for name in one.settled}
    return [name for name in design.claims if name not in gone]


def needed(names: Sequence[str], claims: Mapping[str, Claim], params) -> list[str]:
    """The conditions that the deciding tests of these claims compare, repeated ones with all their repetitions, and
    what they start from, in the order of the profile's runs."""
    compared = {condition for name in names for condition in conditions_of(claims[name], beside=False)}
    wanted = {repeated for condition in compared for repeated in repetitions(params.all_runs, condition)}
    wanted |= {start for condition in wanted if (start := params.all_runs.get(condition, {}).get("start"))}
    return [condition for condition in params.all_runs if condition in wanted]


def wanted(design: Design, claims: Mapping[str, Claim], params, looks: Sequence[Look]) -> list[str]:
    """The conditions that the next draw has to run; none where the design is at its end."""
    return needed(open_claims(design, looks), claims, params)


def cells(names: Sequence[str], claims: Mapping[str, Claim], params) -> set[tuple[str, str]]:
    """The rows that a draw has to have for these claims: (condition, decoding) of each condition in plain decoding, and
    in every other in which a deciding test reads it; its repetitions in those in which they are measured."""
    conditions, runs = needed(names, claims, params), params.all_runs
    read = {cell for name in names for test in claims[name].deciding for cell in test.cells if cell[0] in conditions}
    again = {(c, d) for condition, d in read for c in repetitions(runs, condition)}
    everywhere = ("own", *params.evaluation.everywhere)
    measured = {(c, d) for c, d in again if d in (*everywhere, *runs[c].get("decodings", ()))}
    return {(condition, "plain") for condition in conditions} | read | measured


def lacking(table: pd.DataFrame, draws: Sequence[int], cells: Collection[tuple[str, str]]) -> list[tuple]:
    """(draw, condition, decoding) of the test rows that are not there."""
    rows = table[table.split == "test"] if len(table) else pd.DataFrame(columns=["seed", "condition", "decoding"])
    there = set(zip(rows.seed, rows.condition, rows.decoding))
    return sorted({(draw, *cell) for draw in draws for cell in cells} - there)


def whole(table: pd.DataFrame, draws: Sequence[int], cells: Collection[tuple[str, str]]) -> bool:
    """Whether every draw has its test row of every cell."""
    return not lacking(table, draws, cells)


def results_of(table: pd.DataFrame, draws: Sequence[int], params) -> Results:
    """The conditions that have all these draws, as results of a profile whose seeds they are."""
    rows = table[table.seed.isin(draws)]
    counts = rows[(rows.split == "test") & (rows.decoding == "plain")].groupby("condition").seed.nunique()
    there = [c for c in params.all_runs if counts.get(c, 0) == len(draws)]
    update = {
        "seeds": tuple(sorted(draws)),
        "runs": {c: params.all_runs[c] for c in there},
        "continued": {},
    }
    kept = rows[rows.condition.isin(there)].reset_index(drop=True)
    return Results(params.model_copy(update=update), kept, pd.DataFrame(), {}, {}, {}, {}, {}, {})


def results(params) -> Results:
    """The committed draws of a registered design that have every condition (one that is settled takes its own away)."""
    table = read_per_seed(params.reports_folder / DRAWS)
    every = table[table.decoding == "plain"].groupby("seed").condition.nunique()
    whole = every.index[every == table.condition.nunique()]
    return results_of(table, [int(seed) for seed in whole], params)


def ledger(design: Design, claims: Mapping[str, Claim], table: pd.DataFrame, params) -> list[dict[str, Any]]:
    """A row per registered claim as of `judge.ledger`, each at the look at which it left, else at the last one made.

    p, and q with it: stage-wise, over all looks (`sequential.stage_wise`); p_look: what its tests gave at that look, to
    be held against `level`.
    """
    rows = []
    looks = look(design, claims, table, params)
    for name in design.claims:
        if not (own := [one for one in looks if name in one.verdicts]):
            continue
        last = own[-1]
        results = results_of(table, design.draws[: last.n], params)
        half = judge(claims[name], results, "half", last.level)
        row = row_of(claims[name], last.verdicts[name], half, results, design.rule)
        at = {"look": last.n, "level": last.level, "p_look": row["p"], "settled": name in last.settled}
        if row["p"] is not None:
            row["p"] = stage_wise(row["p"], design.looks, design.looks.index(last.n), design.alpha)
        rows.append({**row, **at})
    over_the_ledger(rows)
    return rows
