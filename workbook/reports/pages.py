"""The page of an ablation: its file in this folder and the committed tables in; tables, claims, figures and texts out.

    page = load(params, "gamma")        # the runs that params.reports["gamma"] names
    write(page, folder)                 # verdict.md, verdict.json, metrics.json, samples.md and a SVG per figure

An ablation is one file beside this one: TITLE, QUESTION, TERMS (words that need explaining), DETAIL (metrics in its
table), DECODINGS (if not plain and own), READ (how to read its figures, by the beginning of their names), LIMITS (what
it does not show), figures(results) -> (name, title, picture), headline(results), alone(results) (the answer without a
headline, where there may be none), COUNTED (groups of the headline that answer together: `ledger.answer.counted`) and
texts(results, world) -> the runs whose texts are shown. It is found by listing the folder. Words are the ledger's.
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

from workbook.figures import about
from workbook.figures.names import decoded_how, everywhere, names
from workbook.figures.parts import Shown, save, short
from workbook.ledger import answer as answering
from workbook.ledger import beside, careful, checks, judge, listed, told
from workbook.ledger import page as ledger_page
from workbook.ledger.claim import conditions_of
from workbook.results import design, tables
from workbook.results import results as tables_of
from workbook.results.design import OF_TRAINING, QUALITY
from workbook.results.files import CONDITIONS, CURVES, EPISODES, SAMPLES
from workbook.results.results import ReportError, Results
from workbook.results.tables import between, join, markdown, number, signed
from workbook.store.files import atomic_json, atomic_write

GENERAL = (
    "The models are small and trained here; sizes of effects need not carry over. No human read the texts.",
    "*Open* is not “no effect”: with few seeds only large effects can be told from chance. "
    "*Too small* is: of the size that was claimed.",
)
PROMPTS = 20  # of each run's texts in samples.md
CLAIMS = (
    "Intervals are 95 % over seeds. A yardstick: how far PPO without its penalty moves that metric from the untrained "
    "model; what was published is in the paper's. *Alone*: the word of that test; with a profile's name, its word "
    "there, on that design's draws and not of the interval beside it. [Every test](../claims/claims.md), with its p "
    "values and those that stand beside. {}"
)
CAREFUL = "[More of it, and of every run of the profile](../careful/verdict.md)."


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
        lost = {i: sorted(gone) for i in mine if (gone := conditions_of(known[i]) & set(everything.missing))}
        rows = judge.ledger(known, everything, [i for i in mine if i not in lost])
        rows = beside.put(listed.told(rows, listed.lacking(known, params.all_runs)), params)
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
    """The question, and the answer in two sentences; before it what is missing."""
    results = page.results
    lost = [f"**MISSING RUNS: {join([f'`{c}`' for c in results.missing])}.**"] if results.missing else []
    return "\n\n".join([f"# {page.ablation.TITLE}", page.ablation.QUESTION, *lost, f"**Answer.** {answer(page)}"])


def answer(page: Page) -> str:
    """Two sentences with at most three numbers: of the headline its first row or groups, and the ledger's words."""
    elsewhere = beside.elsewhere(rows := page.judged[0], page.results.params.reports_folder.parent)
    bare = page.results.configs and not page.headline and hasattr(page.ablation, "alone")
    alone, groups = page.ablation.alone(page.results) if bare else "", getattr(page.ablation, "COUNTED", ())
    return answering.answer(page.headline, rows, elsewhere, alone, groups)


def picture(shown: Shown) -> str:
    """A figure as Markdown, and how to read it."""
    read = f"\n\n*How to read this.* {shown.read}" if shown.read else ""  # else its caption says all
    return f"![{shown.figure.get_label()}]({shown.name}.svg){read}"


def notes(page: Page) -> str:
    """The words that need explaining, where the settings are from, and what the folder lacks."""
    results, note = page.results, page.results.params.reports[page.name].note
    lacking = [f"`{name}` ({what})" for name, what in results.lacking.items()]
    lost = [f"The folder of the profile has no {join(lacking)}."] if lacking else []
    return "\n\n".join([page.ablation.TERMS, *([f"**Read with care.** {note}"] if note else []), *lost])


def claims_markdown(page: Page) -> str:
    """The claims: those not judged, then each deciding test, its raw number first; the rest is linked."""
    rows, lost = page.judged
    said = [f"**NOT JUDGED: {i}. Missing runs: {join([f'`{c}`' for c in gone])}.**" for i, gone in lost.items()]
    if not rows:
        return "\n\n".join(["## Claims", *said, "No claim of this report was judged."])
    words = beside.said(rows) or f"{ledger_page.counts(rows)}."
    table = markdown(told.in_words(ledger_page.tested(rows, everywhere(page.results.params))))
    return "\n\n".join(["## Claims", *said, words, table, CLAIMS.format(ledger_page.linked(rows[0]["rule"]))])


def careful_markdown(page: Page) -> str:
    """What the texts show that no score says, of this page's runs; "" where no table has it."""
    said = careful.said(page.results) if page.results.configs else ""
    return f"## What a careful reader sees\n\n{said} {CAREFUL}" if said else ""


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
            for metric in dict.fromkeys((*QUALITY, *page.ablation.DETAIL)):
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
            wide = wide[[m for m in dict.fromkeys((*QUALITY, *page.ablation.DETAIL)) if m in wide]].rename(
                columns=short
            )
            for condition in set(here) & set(results.missing):
                wide.loc[condition] = "MISSING"
            wide = wide[(wide.fillna("") != "").any(axis=1)]  # not those that were not decoded so
            yield (
                (f"On {world}: " if world else "") + decoded_how(decoding),
                wide.fillna("").rename(index=names(results)).rename_axis(index=None, columns=None),
            )


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
    called = names(page.results)
    named = [{called.get(k, k): v for k, v in row.items()} for row in rows]
    return tables.side_by_side(named, ["prompt", *(called[c] for c in chosen)])


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
            parts += [f"## {names(page.results)[condition]} ({condition})", "\n".join(lines)]
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


def older(page: Page, folder: Path) -> dict[str, str]:
    """Name -> alt text of the pictures in the folder that its tables cannot draw again: of curves or episodes that are
    not kept, drawn when the runs were made."""
    known = folder / "alt.json"
    if not known.is_file() or not {CURVES, EPISODES} & set(page.results.lacking):
        return {}
    drawn = {shown.name for shown in page.figures if not empty(shown)}
    alts = json.loads(known.read_text(encoding="utf-8"))
    return {n: alt for n, alt in alts.items() if n in page.ablation.READ and not any(d.startswith(n) for d in drawn)}


def empty(shown: Shown) -> bool:
    """Whether a figure says only that there is nothing to show."""
    return shown.figure.get_label().startswith("No picture")


def text(page: Page, before: dict[str, str] | None = None) -> str:
    """The page as Markdown: question, answer, one figure, the rest. before: of `older`."""
    before = before or {}
    figures = sorted((s for s in page.figures if s.name not in before), key=empty)  # stable: the first that shows
    parts = [opening(page), *map(picture, figures[:1])]
    if page.headline:
        parts += ["## In numbers", "Paired by seed; in brackets 95 % intervals.", markdown(headline_table(page))]
    parts += [notes(page), claims_markdown(page), *filter(None, [careful_markdown(page)])]
    for shown in figures[1:]:
        parts += [f"## {shown.title}", picture(shown)]
    if before:
        parts.append("## Drawn when the runs were made")
        parts += [f"![{alt}]({n}.svg)\n\n*How to read this.* {page.ablation.READ[n]}" for n, alt in before.items()]
    for title, table in every_condition(page):
        parts += [f"## Every condition, {title}", markdown(table)] if len(table) else []
    differ, same = about.settings(page.results)
    parts += ["## What each run is", *filter(None, [about.broken(page.results), markdown(differ), same])]
    parts += ["## What this does not show", limits(page)]
    return "\n\n".join(parts) + "\n"


def write(page: Page, folder: str | Path) -> list[str]:
    """Write every file of the page, without those of figures that it no longer has; their names. Same tables, same
    bytes. What the tables cannot make again stays: older pictures, and texts where the folder has no table of them."""
    folder = Path(folder)
    before = older(page, folder)
    words = text(page, before)
    (folder / "alt.json").unlink(missing_ok=True)
    kept = [save(s.figure, folder, s.name).name for s in page.figures if s.name not in before]
    atomic_json(folder / "alt.json", {**_alts(folder), **before})
    kept += [f"{name}.svg" for name in before]
    for old in folder.glob("*.svg"):
        if old.name not in kept:
            old.unlink()
    files = {"metrics.json": metrics(page), "verdict.json": facts(page)}
    for name, values in files.items() if CONDITIONS not in page.results.lacking else ():
        atomic_json(folder / name, values)
        kept.append(name)
    atomic_write(folder / "verdict.md", words)
    if SAMPLES not in page.results.lacking or not (folder / "samples.md").is_file():
        atomic_write(folder / "samples.md", samples_markdown(page))
    return sorted([*kept, "verdict.md", "samples.md"])


def facts(page: Page) -> dict[str, Any]:
    """What verdict.json says: the answer and the words, for programs."""
    rows, lost = page.judged
    return {
        "profile": page.results.params.profile,
        "report": page.name,
        "seeds": page.results.seeds,
        "answer": answer(page),
        "missing": list(page.results.missing),
        "lacking": sorted(page.results.lacking),
        "not_judged": lost,
        "words": {r["id"]: r["word"] for r in rows},
    }


def _alts(folder: Path) -> dict[str, str]:
    path = folder / "alt.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
