"""What runs wrote: the first texts of every seed that is committed, none selected. A claim's page has those of its
runs, of the registered design and of what uses its draws the first draw's; those of all draws have pages of their own,
of the design a page a run, of the others a page a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbook.results.files import TEXTS_OF_A_SEED
from workbook.results.tables import join
from workbook.site import benchmark_texts, charts
from workbook.site.blocks import UNSEARCHED, folded
from workbook.site.committed import DESIGN, DRAWN, SAME, Committed, folder, named_conditions
from workbook.site.text_pages import OfReport, anchor, of_pages, of_reports, place

INDEX = "texts/index.md"
SHOWN = 4  # conditions of a profile whose texts are shown


def section(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The first texts of every seed that is committed, of the first conditions; none is selected. What stands under the
    registered design is not shown again under the profiles that hold its runs, or run its draws once more."""
    parts: list[str] = []
    kept = found.texts.get(DESIGN, {}) if DESIGN in rows else {}
    of_design = {(name, text.seed) for name, texts in kept.items() for text in texts}
    for profile in sorted(rows, key=lambda name: name != DESIGN):  # the design's first
        kept, folds, seeds = found.texts[profile], [], set()
        skipped = of_design if profile in (*SAME, DRAWN) else set()
        for name in [n for n in named_conditions(rows) if n in kept][:SHOWN]:
            there = dict.fromkeys(text.seed for text in kept[name] if (name, text.seed) not in skipped)
            seeds |= {*there}
            for seed in list(there)[: 1 if profile in (DESIGN, *SAME) else None]:
                title = f"{charts.named(found, profile, name)}; {profile}, seed {seed}"
                folds.append(folded(title, numbered(found, profile, name, seed)))
        if folds:
            parts += [f"### Texts of `{profile}` {UNSEARCHED}"]
            parts += [every_draw(found, rows)] if profile == DESIGN else []
            parts += elsewhere(found, profile, rows)
            parts += [*folds, *([] if profile == DESIGN else lacking(found, profile, seeds, rows))]
    if not parts:
        return "No text of these runs is committed; a run of them here writes `samples.jsonl` beside its numbers."
    said = (
        f"The first {TEXTS_OF_A_SEED} test prompts, plain decoding, nothing selected: the prompt, what the run wrote, "
        f"and the reward model's score of it. Of the first {SHOWN} runs of each profile, every seed whose texts are "
        "committed is here, or on the pages that are linked."
    )
    again = f" What `{DRAWN}` wrote, on the design's draws and another processor, is with its reports."
    return "\n\n".join([said + again * bool(of_design and DRAWN in rows), *parts])


def numbered(found: Committed, profile: str, condition: str, seed: int) -> str:
    """A run's first texts, numbered."""
    of_seed = [text for text in found.texts[profile][condition] if text.seed == seed][:TEXTS_OF_A_SEED]
    return "\n".join(f"{i}. {text.line}" for i, text in enumerate(of_seed, 1))


def every_draw(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Links to the pages of the design's runs that a claim is about; a repetition is on the page of its run."""
    pages = {name: page for page, names in of_pages(found).items() for name in names}
    links = [
        f"[{charts.named(found, DESIGN, name)}](/{place(pages[name])}) ({how_many(found, name)})"
        for name in named_conditions(rows)
        if name in pages
    ]
    return f"**Draw by draw**, a page a run: {join(links)}; [all runs](/{INDEX}). Here is the first draw."


def elsewhere(found: Committed, profile: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Links to all draws of the claim's runs in a profile that uses the design's draws: on the page of a report, or on
    the design's pages, unless these are linked already."""
    if profile not in SAME:
        return []
    pages = {
        name: f"{page}#{name}" for page, of in of_reports(found).items() if of.profile == profile for name in of.runs
    }
    if DESIGN not in rows:
        pages |= {name: place(page) for page, names in of_pages(found).items() for name in names}
    runs = [name for name in named_conditions(rows) if name in pages and name in found.texts[profile]]
    links = [f"[{charts.named(found, profile, name)}](/{pages[name]})" for name in runs]
    which = "the runs that the design lacks" if DESIGN in rows else "every run"
    return [f"**Draw by draw**, {which}: {join(links)}. Here is the first draw."] if links else []


def how_many(found: Committed, condition: str) -> str:
    """Of how many of its draws a run of the design has texts."""
    table = found.measured[DESIGN]
    there = {text.seed for text in found.texts[DESIGN][condition]}
    every = {*table[table.condition == condition].seed}
    return f"{len(there)} draws" if there == every else f"{len(there)} of its {len(every)} draws"


def pages(found: Committed) -> dict[str, str]:
    """Page -> Markdown, of each run of the design of which texts are committed, and of the reports' other runs."""
    about: dict[str, list[str]] = {}
    for claim, row in found.ledgers.get(DESIGN, {}).items():
        for name in named_conditions({DESIGN: row}):
            about.setdefault(name, []).append(claim)
    made = {
        place(name): page(found, runs, list(dict.fromkeys(claim for run in runs for claim in about.get(run, ()))))
        for name, runs in of_pages(found).items()
    }
    links = [
        f"- [{charts.named(found, DESIGN, name)}](/{place(name)}) (`{name}`, {how_many(found, name)})"
        for name in of_pages(found)
    ]
    reports = of_reports(found)
    made |= {name: page_of_a_report(found, of) for name, of in reports.items()}
    index = ["# What the runs of the registered design wrote", OWN, "\n".join(links)]
    if reports:
        index += ["## What other runs on its draws wrote"]
        index += ["\n".join(f"- [{titled(of)}](/{name})" for name, of in reports.items())]
    index += benchmark_texts.links(found.root)
    return {INDEX: "\n\n".join(index) + "\n", **made} if made else {}


def page_of_a_report(found: Committed, of: OfReport) -> str:
    """What these runs wrote: a heading a run, its draws below it."""
    parts = [
        f"# {titled(of)}",
        f"Runs that the registered design does not have, on its draws: of each draw the first {TEXTS_OF_A_SEED} test "
        f"prompts, plain decoding, nothing selected; the prompt, what the run wrote, and the reward model's score of "
        f"it. [All runs](/{INDEX}).",
    ]
    for name in of.runs:
        parts += [f"## {charts.named(found, of.profile, name)} {{ #{name} }}"]
        for seed in dict.fromkeys(text.seed for text in found.texts[of.profile][name]):
            parts += [f"**Draw {seed}**", numbered(found, of.profile, name, seed)]
    return "\n\n".join(parts) + "\n"


def titled(of: OfReport) -> str:
    return f"Texts, draw by draw: {of.report} of {of.profile}"


def page(found: Committed, runs: Sequence[str], claims: Collection[str]) -> str:
    """What a run of the design and its repetitions wrote, draw by draw. claims: whose tests compare one of these."""
    seeds = {name: list(dict.fromkeys(text.seed for text in found.texts[DESIGN][name])) for name in runs}
    every = sorted({seed for of_run in seeds.values() for seed in of_run})
    links = [f"[{claim}](/claims/{claim}/index.md)" for claim in claims]
    said = (
        f"`{runs[0]}` of the registered design, {how_many(found, runs[0])}: of each, the first {TEXTS_OF_A_SEED} test "
        "prompts, plain decoding, nothing selected; the prompt, what the run wrote, and the reward model's score of it."
    )
    parts = [f"# Texts, draw by draw: {charts.named(found, DESIGN, runs[0])}", f"{said} {OWN}"]
    parts += ["*Again*: a repetition on the draw's models, with other random numbers in training."] * (len(runs) > 1)
    parts += [f"Claims that compare this run: {join(links)}."] if links else []
    parts += [f"[All runs](/{INDEX})."]
    for seed in every:
        for i, name in enumerate(runs):
            if seed in seeds[name]:
                title = f"[Draw {seed}{f', again ({i + 1})' * bool(i)}](#{anchor(seed, i)})"
                parts += [f"**{title}**{{ #{anchor(seed, i)} }}", numbered(found, DESIGN, name, seed)]
    return "\n\n".join(parts) + "\n"


OWN = (
    "These texts are of the very runs whose numbers the tables have: made again for their texts, and kept where every "
    f"number came out again, or those of {join([f'`{name}`' for name in SAME])}, which hold some of the design's runs "
    "digit for digit."
)


def lacking(found: Committed, profile: str, there: Collection[int], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which seeds of the claim's runs were measured and have no text here, and what writes them."""
    table = found.measured[profile]
    gone = sorted({int(seed) for seed in table[table.condition.isin(named_conditions(rows))].seed} - {*there})
    if not gone:
        return []
    run = "the command below" if profile == DRAWN else f"`dvc repro` of the run in `{folder(profile)}`"
    seeds = f"seed{'s' * (len(gone) > 1)} {join([str(seed) for seed in gone])}"
    return [f"Of {seeds} no text is committed, their numbers are; {run} writes them into `runs/`, in `samples.jsonl`."]
