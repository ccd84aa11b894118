"""Tests of a registered design's claims that it cannot make, or not with as many points, from profiles that can.

    python -m workbook.ledger further      # reports/further.csv.xz and .md, from the committed tables

The profiles are those that run the design's first draws and enough of them for words. What is here was looked at after
the design's words were known, each test at 5 %, whatever their number: no word of a claim is taken from it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from workbook.ledger import checks
from workbook.ledger.claim import Claim, Test, conditions_of
from workbook.ledger.contrast import measure, present
from workbook.ledger.made import Component
from workbook.ledger.page import raw
from workbook.results import results as tables
from workbook.results.files import FURTHER, REGISTERED
from workbook.results.tables import counted, effect, markdown, p_value
from workbook.statistics.power import fewest_seeds
from workbook.statistics.rule import decide
from workbook.store.files import atomic_write
from workbook.store.tables import read_table, write_table

PAGE = "further.md"
COLUMNS = ["claim", "profile", "in_design", *(field.name for field in fields(Component))]
HEAD = """# Tests that only other profiles can make

{count} tests of the claims of the registered design `{design}` have runs that the design has not, or more points along
their axis, in a profile that runs its first draws: {profiles}. They were looked at after the design's words were known,
each at 5 %, though they are many. So no claim's word is taken from them; a claim whose word would be another with more
points or runs is no firmer than that. Words of single tests: {words}.

Differences are in the metric's unit with their 95 % interval, effects in yardsticks.
[The table](further.csv.xz); made by `python -m workbook.ledger further`.
[The design's own tests]({design}/claims/claims.md)."""


def found(root: Path) -> list[dict[str, Any]]:
    """A row a test and profile, in the order of claims.yaml. root: of the repository."""
    registered = json.loads((root / "reports" / REGISTERED).read_text(encoding="utf-8"))
    known, every = checks.load(root / "claims.yaml"), {p.parent: v for p, v in checks.files(root).items()}
    rows = []
    for design, said in registered.items():
        runs = next(checks.runs_of(v) for v in every.values() if v["profile"] == design)
        others = [
            folder
            for folder, values in every.items()
            if values["profile"] != design
            and fewest_seeds() <= len(values["seeds"])
            and values["seeds"] == said["draws"][: len(values["seeds"])]
        ]
        for folder in others:
            rows += _of_profile(folder, {name: known[name] for name in said["claims"]}, said["claims"], runs)
    order = list(known)
    return sorted(rows, key=lambda row: order.index(row["claim"]))  # stable: tests and profiles stay in their order


def _of_profile(folder: Path, claims: Mapping[str, Claim], words: Mapping[str, Any], runs: Mapping[str, Any]):
    from workbook.runs import checks as params_checks  # brings torch

    params = params_checks.load(folder / "params.yaml")
    wanted = {name: [t for t in claim.tests if _more(t, params.all_runs, runs)] for name, claim in claims.items()}
    conditions = {c for name, some in wanted.items() if some for c in conditions_of(claims[name])}
    results = tables.load(params, [name for name in params.all_runs if name in conditions])
    for name, some in wanted.items():
        for test in some:
            component, evidence, _ = measure(test.model_copy(update={"role": "beside"}), claims[name], results, "test")
            if evidence is not None:
                component = replace(component, word=decide(evidence), role=test.role)
                made = {**asdict(component), "note": component.note or None}
                there = words[name]["tests"].get(test.name)
                yield {"claim": name, "profile": params.profile, "in_design": there, **made}


def _more(test: Test, here: Mapping[str, Any], design: Mapping[str, Any]) -> bool:
    """Whether a profile's runs can make a test that the design's cannot, or with more points."""
    mine, lacks = present(test, here)
    theirs, lacked = present(test, design)
    return not lacks and (bool(lacked) or sum(map(len, mine)) > sum(map(len, theirs)))


def write(root: Path) -> Path:
    """The table and its page; the page."""
    rows, reports = found(root), root / "reports"
    write_table(reports / FURTHER, rows, COLUMNS)
    design = next(iter(json.loads((reports / REGISTERED).read_text(encoding="utf-8"))))
    each = Counter(row["profile"] for row in rows)
    head = HEAD.format(
        count=len(rows),
        design=design,
        profiles=", ".join(f"`{profile}` ({count})" for profile, count in each.items()),
        words=counted(dict(Counter(row["word"] for row in rows).most_common())),
    )
    page = reports / PAGE
    atomic_write(page, f"{head}\n\n{markdown(table(rows))}\n")
    return page


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """For people; the claim on the first of its rows."""
    lines, before = [], ""
    for row in rows:
        lines.append(
            {
                "claim": row["claim"] * (row["claim"] != before),
                "test": row["name"] + " (beside)" * (row["role"] != "decides"),
                "profile": f"{row['profile']}, {row['n']} draws",
                "metric": row["metric"],
                "difference [95 %]": raw(row),
                **{of: effect(row[of], row[f"{of}_low"], row[f"{of}_high"]) for of in ("effect", "published")},
                "p (t)": p_value(row["p_t"]),
                "word of this test": row["word"] + (f" ({row['note']})" if row["note"] else ""),
                "in the design": row["in_design"] or "–",
            }
        )
        before = row["claim"]
    return pd.DataFrame(lines)


def read(reports: Path) -> Iterator[dict[str, Any]]:
    """The rows as `write` left them; none where there is no table."""
    yield from read_table(reports / FURTHER) if (reports / FURTHER).is_file() else ()
