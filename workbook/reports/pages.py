"""The page of an ablation: its file in this folder and the committed tables in; tables, claims, figures and texts out.

    page = load(params, "gamma")        # the runs that params.reports["gamma"] names
    write(page, folder)                 # verdict.md, verdict.json, metrics.json, samples.md and a SVG per figure

An ablation is one file beside this one: TITLE, QUESTION, TERMS (words that need explaining), DETAIL (metrics in its
table), DECODINGS (if not plain and own), READ (how to read its figures, by the beginning of their names), LIMITS (what
it does not show), figures(results) -> (name, title, picture), headline(results) and texts(results, world) -> the runs
whose texts are shown. It is found by listing the folder (`workbook.runs.ablations`). Words on claims are the ledger's.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from workbook.figures.parts import Shown, save, short
from workbook.ledger import beside, checks, judge
from workbook.ledger import page as ledger_page
from workbook.ledger.claim import conditions_of
from workbook.ledger.ruling import AWAITING, ELSEWHERE
from workbook.results import design, tables
from workbook.results import results as tables_of
from workbook.results.design import OF_TRAINING, QUALITY
from workbook.results.results import ReportError, Results
from workbook.results.tables import between, counted, join, markdown, number, signed
from workbook.store.files import atomic_json, atomic_write

GENERAL = (
    "The models are small and trained here; sizes of effects need not carry over. No human read the texts.",
    "*Open* is not “no effect”: with few seeds only large effects can be told from chance. "
    "*Too small* is: of the size that was claimed.",
)
PROMPTS = 20  # of each run's texts in samples.md


@dataclass(frozen=True)
class Page:
    """An ablation of a profile: its file and its results."""

    name: str
    ablation: ModuleType
    results: Results

    @cached_property
    def figures(self) -> list[Shown]:
        read = self.ablation.READ
        drawn = self.ablation.figures(self.results) if self.results.configs else ()
        return [Shown(*parts, _nearest(read, parts[0])) for parts in drawn]

    @cached_property
    def headline(self) -> list[design.Compared]:
        return self.ablation.headline(self.results) if self.results.configs else []

    @cached_property
    def judged(self) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
        """(the ledger's rows of this ablation's claims, claims that were not judged -> their runs that are missing).

        Judged on all the runs that they name, also those that only other pages show. Claims that the profile does not
        list have a row that says what they lack.
        """
        params = self.results.params
        known = checks.load(params.folder / params.root / "claims.yaml")
        if unknown := [i for i in params.claims if i not in known]:
            raise ReportError(f"{params.path}: claims: no entry of claims.yaml is called {unknown}")
        mine = [i for i in params.claims if known[i].report == self.name]
        compared = [c for c in params.all_runs if any(c in conditions_of(known[i]) for i in mine)]
        everything = tables_of.load(params, compared)
        lost = {i: sorted(conditions_of(known[i]) & set(everything.missing)) for i in mine}
        lost = {i: gone for i, gone in lost.items() if gone}
        rows = beside.put(judge.ledger(known, everything, [i for i in mine if i not in lost]), params)
        return [r for r in rows if r["report"] == self.name and r["id"] not in lost], lost


def load(params, name: str) -> Page:
    """The page of an ablation. Raises: ReportError if the profile has no such report, or none of its runs is there."""
    if name not in params.reports:
        raise ReportError(f"params.yaml: reports: no report is called {name!r} (reports: {', '.join(params.reports)})")
    results = tables_of.load(params, params.reports[name].conditions)
    if not results.conditions:
        raise ReportError("; ".join(results.missing.values()))
    return Page(name, importlib.import_module(f"workbook.reports.{name}"), results)


def _nearest(read: dict[str, str], name: str) -> str:
    """The text of the longest key that the name begins with."""
    return read.get(max((key for key in read if name.startswith(key)), key=len, default=""), "")


# the words -----------------------------------------------------------------------------------------------------------


def opening(page: Page) -> str:
    """The question, and the answer in two short sentences from a template; first, what is missing."""
    results, note = page.results, page.results.params.reports[page.name].note
    lost = [f"**MISSING RUNS: {join([f'`{c}`' for c in results.missing])}.**"] if results.missing else []
    lacking = [f"`{name}` ({what})" for name, what in results.lacking.items()]
    lost += [f"**Not shown, because the profile's folder lacks it: {join(lacking)}.**"] if lacking else []
    care = [f"**Read with care.** {note}"] if note else []
    return "\n\n".join(
        [f"# {page.ablation.TITLE}", page.ablation.QUESTION, *lost, answer(page), *care, page.ablation.TERMS]
    )


def answer(page: Page) -> str:
    """The first comparison of the headline, and how many claims the ledger decided."""
    rows, lost = page.judged
    judged = [r for r in rows if r["word"] not in (AWAITING, ELSEWHERE)]
    counts = counted(judge.summary(judged)) or "none decided in this profile"
    second = beside.said(rows) or f"Claims: {counts}{f'; {len(lost)} not judged' if lost else ''}."
    if not page.headline:
        return f"**Answer.** No two of its runs can be compared here. {second}"
    first = page.headline[0]
    d, n = first.difference, f"{first.difference.n} seed{'s' if first.difference.n > 1 else ''}"
    value = signed(d.difference, d.low, d.high)
    return f"**Answer.** {first.label}: {short(first.metric)} {value} ({n}, 95 % interval). {second}"


def claims_markdown(page: Page) -> str:
    """The claims: those not judged, then each one's word and every test, as the ledger writes them."""
    rows, lost = page.judged
    said = [f"**NOT JUDGED: {i}. Missing runs: {join([f'`{c}`' for c in gone])}.**" for i, gone in lost.items()]
    text = (
        ledger_page.markdown(rows).replace("# Claims", "## Claims", 1)
        if rows
        else "No claim of this report was judged."
    )
    return "\n\n".join([*said, text])


def limits(page: Page) -> str:
    """What the page does not show."""
    return "\n".join(f"- {text}" for text in (*page.ablation.LIMITS, *GENERAL))


# tables --------------------------------------------------------------------------------------------------------------


def headline_table(page: Page) -> pd.DataFrame:
    """A row per comparison, a column per metric: difference and its 95 % interval, paired by seed."""
    rows: dict[str, dict[str, str]] = {}
    for row in page.headline:
        d = row.difference
        rows.setdefault(row.label, {})[short(row.metric)] = signed(d.difference, d.low, d.high)
    return pd.DataFrame.from_dict(rows, orient="index").fillna("")


def summary(page: Page) -> pd.DataFrame:
    """Mean and 95 % interval over seeds (`design.estimate`): a row per condition, decoding and metric, test split
    (tidy)."""
    results, rows = page.results, []
    if not results.configs:
        return pd.DataFrame(columns=["condition", "decoding", "metric", "n", "mean", "low", "high"])
    for condition in results.conditions:
        for decoding in dict.fromkeys(results.per_seed.decoding[results.per_seed.split == "test"]):
            for metric in (*QUALITY, *page.ablation.DETAIL):
                once = decoding != "plain" and metric in OF_TRAINING  # the same whatever the decoding
                values = None if once else design.measure(results, condition, metric, decoding)
                if values is not None:
                    found = design.estimate(values, metric)
                    numbers = {"n": found.n, "mean": found.estimate, "low": found.low, "high": found.high}
                    rows.append({"condition": condition, "decoding": decoding, "metric": metric, **numbers})
    return pd.DataFrame(rows)


def every_condition(page: Page) -> Iterator[tuple[str, pd.DataFrame]]:
    """(heading, table) per world and decoding: every condition in its order, "mean [low, high]"; missing runs too."""
    results, tidy = page.results, summary(page)
    tidy = tidy.assign(text=[f"{number(r.mean)} {between(r.low, r.high)}".strip() for r in tidy.itertuples()])
    for world in design.worlds(results):
        here = [c for c in results.params.reports[page.name].conditions if design.world_of(results, c) == world]
        for decoding in getattr(page.ablation, "DECODINGS", ("plain", "own")):
            own = tidy[(tidy.decoding == decoding) & tidy.condition.isin(here)]
            wide = own.pivot(index="condition", columns="metric", values="text").reindex(here)
            wide = wide[[m for m in (*QUALITY, *page.ablation.DETAIL) if m in wide]].rename(columns=short)
            for condition in set(here) & set(results.missing):
                wide.loc[condition] = "MISSING"
            yield (
                (f"On {world}: " if world else "") + f"decoded {decoding}",
                wide.fillna("").rename_axis(index=None, columns=None),
            )


def settings(page: Page) -> tuple[pd.DataFrame, str]:
    """(the settings that differ between the runs, a row per condition; those that all of them share, in a line)."""
    rows = {c: {**f["run"], **f["learner"]} for c, f in page.results.configs.items()}
    keys = [k for k in dict.fromkeys(k for row in rows.values() for k in row) if k != "decodings"]
    values = {k: {c: json.dumps(design.plain(row.get(k))) for c, row in rows.items()} for k in keys}
    same = [k for k in keys if len(set(values[k].values())) == 1]
    table = pd.DataFrame({k: {c: design.said(rows[c].get(k)) for c in rows} for k in keys if k not in same})
    shared = ", ".join(f"{k} {design.said(next(iter(rows.values()))[k]) or '(none)'}" for k in sorted(same))
    return table, f"The same in all of them: {shared}." if rows else ""


def broken(page: Page) -> str:
    """Which invariant each run breaks on purpose; a Markdown list, empty if none does."""
    found = {c: f["learner"].get("breaks") for c, f in page.results.configs.items()}
    return "\n".join(f"- `{c}` breaks on purpose: {', '.join(b)}" for c, b in found.items() if b)


def search(page: Page) -> pd.DataFrame:
    """What was searched for on validation prompts, of the learners whose runs are shown: every candidate, and the
    chosen."""
    shown = {f["run"]["algorithm"] for f in page.results.configs.values()}
    rows = [
        {
            "algorithm": algorithm,
            **{k: number(v) if isinstance(v, float) else v for k, v in c.items()},
            "chosen": "chosen" if all(c[k] == found[k] for k in ("learning_rate", "kl_coef")) else "",
        }
        for algorithm, found in page.results.tune.items()
        if algorithm in shown
        for c in found["candidates"]
    ]
    return pd.DataFrame(rows, index=[""] * len(rows))


# texts ---------------------------------------------------------------------------------------------------------------


def samples(page: Page, world: str = "", count: int = PROMPTS) -> tuple[list[str], list[dict[str, str]]]:
    """(conditions, the first `count` test prompts of the first seed, unselected, with each one's response and
    score)."""
    results, shown = page.results, {}
    wanted = dict.fromkeys(page.ablation.texts(results, world) if results.configs else ())
    chosen = [c for c in wanted if c in results.conditions][:4]
    for condition in chosen:
        for line in [s for s in results.samples.get(condition, ()) if s["seed"] == results.seeds[0]][:count]:
            row = shown.setdefault(str(line["example_id"]), {"prompt": tables.short(line["prompt"])})
            row[condition] = f"{' '.join(line['response'].split())} ({line['score']:.2f})"
    return chosen, list(shown.values())[:count]


def samples_html(page: Page, world: str = "", count: int = 6) -> str:
    """`samples` as an HTML table, columns side by side."""
    chosen, rows = samples(page, world, count)
    return tables.side_by_side(rows, ["prompt", *chosen])


def samples_markdown(page: Page) -> str:
    """`samples` as Markdown: a section per condition, the worlds one after the other."""
    parts = ["# Samples"]
    for world in design.worlds(page.results):
        chosen, rows = samples(page, world)
        if rows:
            parts.append(
                f"Seed {page.results.seeds[0]}, the first {len(rows)} test prompts, plain decoding; nothing was "
                f"selected. At most {tables.PROMPT_WORDS} words of a prompt are shown. In brackets: the score."
            )
        for condition in chosen if rows else ():
            here = [(i, r) for i, r in enumerate(rows, 1) if condition in r]
            lines = [f"{i}. *{tables.safe(r['prompt'])}* → {tables.safe(r[condition])}" for i, r in here]
            parts += [f"## {condition}", "\n".join(lines)]
    if len(parts) == 1:
        parts.append("No texts: the profile's folder has none of these runs.")
    return "\n\n".join(parts) + "\n"


# files ---------------------------------------------------------------------------------------------------------------


def metrics(page: Page) -> dict[str, float]:
    """Flat numbers: <condition>.<metric>.mean|low|high, plain decoding, and seeds."""
    flat: dict[str, float] = {"seeds": len(page.results.seeds), "runs_missing": len(page.results.missing)}
    tidy = summary(page)
    for row in tidy[tidy.decoding == "plain"].itertuples():
        for part in ("mean", "low", "high"):
            value = getattr(row, part)
            if value is not None and math.isfinite(value):
                flat[f"{row.condition}.{row.metric}.{part}"] = float(f"{value:.6g}")
    return flat


def text(page: Page) -> str:
    """The page as Markdown, figures linked."""
    parts = [opening(page)]
    if page.headline:
        parts += ["## In numbers", "Paired by seed; in brackets 95 % intervals.", markdown(headline_table(page))]
    for shown in page.figures:
        parts += [
            f"## {shown.title}",
            f"![{shown.figure.get_label()}]({shown.name}.svg)",
            f"*How to read this.* {shown.read}",
        ]
    parts.append(claims_markdown(page))
    for title, table in every_condition(page):
        parts += [f"## Every condition, {title}", markdown(table)]
    differ, same = settings(page)
    parts += ["## What each run is", *filter(None, [broken(page), markdown(differ) if len(differ) else "", same])]
    parts += ["## What this does not show", limits(page)]
    return "\n\n".join(parts) + "\n"


def write(page: Page, folder: str | Path) -> list[str]:
    """Write every file of the page, without those of figures that it no longer has; their names. Same tables, same
    bytes."""
    folder = Path(folder)
    rows, lost = page.judged
    facts = {
        "profile": page.results.params.profile,
        "report": page.name,
        "seeds": page.results.seeds,
        "answer": answer(page),
        "missing": list(page.results.missing),
        "lacking": sorted(page.results.lacking),
        "not_judged": lost,
        "words": {r["id"]: r["word"] for r in rows},
    }
    (folder / "alt.json").unlink(missing_ok=True)
    kept = [save(shown.figure, folder, shown.name).name for shown in page.figures]
    for old in folder.glob("*.svg"):
        if old.name not in kept:
            old.unlink()
    atomic_json(folder / "metrics.json", metrics(page))
    atomic_json(folder / "verdict.json", facts)
    atomic_write(folder / "verdict.md", text(page))
    atomic_write(folder / "samples.md", samples_markdown(page))
    return sorted([*kept, "metrics.json", "verdict.json", "verdict.md", "samples.md"])
