"""What runs wrote: the first texts of every seed that is committed, none selected. A claim's page has those of its
runs, of the registered design the first draw's; every run of the design has a page with those of all its draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbook.ledger.claim import repetitions
from workbook.results.files import TEXTS_OF_A_SEED
from workbook.results.tables import join
from workbook.site import charts
from workbook.site.blocks import UNSEARCHED, folded
from workbook.site.committed import DESIGN, DRAWN, SAME, Committed, folder, named_conditions

INDEX = "texts/index.md"
SHOWN = 4  # conditions of a profile whose texts are shown


def section(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The first texts of every seed that is committed, of the first conditions; none is selected. A run of the
    registered design is not shown again under the profiles that run its draws too."""
    parts: list[str] = []
    of_design = found.texts.get(DESIGN, {}) if DESIGN in rows else {}
    for profile in sorted(rows, key=lambda name: name != DESIGN):  # the design's first
        kept, folds, seeds = found.texts[profile], [], set()
        skipped = of_design if profile in (*SAME, DRAWN) else ()
        for name in [n for n in named_conditions(rows) if n in kept][:SHOWN]:
            there = dict.fromkeys(text.seed for text in kept[name] if name not in skipped)
            for seed in list(there)[: 1 if profile == DESIGN else None]:
                seeds.add(seed)
                title = f"{charts.named(found, profile, name)}; {profile}, seed {seed}"
                folds.append(folded(title, numbered(found, profile, name, seed)))
        if folds:
            parts += [f"### Texts of `{profile}` {UNSEARCHED}"]
            parts += [every_draw(found, rows)] if profile == DESIGN else []
            parts += [*folds, *([] if profile == DESIGN else lacking(found, profile, seeds, rows))]
    if not parts:
        return "No text of these runs is committed; a run of them here writes `samples.jsonl` beside its numbers."
    said = (
        f"The first {TEXTS_OF_A_SEED} test prompts, plain decoding, nothing selected: the prompt, what the run wrote, "
        f"and the score that it was trained on. Of the first {SHOWN} runs of each profile, every seed whose texts are "
        "committed is here, or on the run's own page."
    )
    return "\n\n".join([said, *few(found, rows), *parts])


def numbered(found: Committed, profile: str, condition: str, seed: int) -> str:
    """A run's first texts, numbered."""
    of_seed = [text for text in found.texts[profile][condition] if text.seed == seed][:TEXTS_OF_A_SEED]
    return "\n".join(f"{i}. {text.line}" for i, text in enumerate(of_seed, 1))


def every_draw(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Links to the pages of the design's runs that a claim is about."""
    kept = found.texts[DESIGN]
    links = [
        f"[{charts.named(found, DESIGN, name)}](/{place(name)}) ({len({text.seed for text in kept[name]})} draws)"
        for name in named_conditions(rows)
        if name in of_pages(found)
    ]
    return f"**Of every draw**, a page a run: {join(links)}; [all runs](/{INDEX}). Here is the first draw."


def place(condition: str) -> str:
    """The page of a run of the design."""
    return f"texts/{condition}/index.md"


def of_pages(found: Committed) -> dict[str, list[str]]:
    """Run of the design of which texts are committed -> itself and its repetitions, which are on its page."""
    kept, runs = found.texts.get(DESIGN, {}), found.runs.get(DESIGN, {})
    parts = {name: [other for other in repetitions(runs, name) if other in kept] for name in kept}
    repeated = {other for name, others in parts.items() for other in others if other != name}
    return {name: others for name, others in parts.items() if name not in repeated}


def pages(found: Committed) -> dict[str, str]:
    """Page -> Markdown, of each run of the design of which texts are committed."""
    about: dict[str, list[str]] = {}
    for claim, row in found.ledgers.get(DESIGN, {}).items():
        for name in named_conditions({DESIGN: row}):
            about.setdefault(name, []).append(claim)
    made = {place(name): page(found, runs, about.get(name, ())) for name, runs in of_pages(found).items()}
    links = [f"- [{charts.named(found, DESIGN, name)}](/{place(name)})" for name in of_pages(found)]
    return {INDEX: "\n\n".join(["# What every run of the registered design wrote", "\n".join(links)]) + "\n", **made}


def page(found: Committed, runs: Sequence[str], claims: Collection[str]) -> str:
    """What a run of the design and its repetitions wrote in every draw. claims: those whose tests compare it."""
    seeds = {name: list(dict.fromkeys(text.seed for text in found.texts[DESIGN][name])) for name in runs}
    every = sorted({seed for of_run in seeds.values() for seed in of_run})
    links = [f"[{claim}](/claims/{claim}/index.md)" for claim in claims]
    said = (
        f"`{runs[0]}` of the registered design, draws {every[0]} to {every[-1]}: of each, the first {TEXTS_OF_A_SEED} "
        "test prompts, plain decoding, nothing selected; the prompt, what the run wrote, and the score that it was "
        "trained on. They are of the very runs whose numbers the tables have."
    )
    parts = [f"# What was written by {charts.named(found, DESIGN, runs[0])}", said]
    parts += ["*Again*: a repetition on the draw's models, with other random numbers in training."] * (len(runs) > 1)
    parts += [f"Claims that compare this run: {join(links)}."] if links else []
    parts += [f"[All runs](/{INDEX})."]
    for seed in every:
        for name in (name for name in runs if seed in seeds[name]):
            again = f", again ({runs.index(name) + 1})" * (name != runs[0])
            anchor = f"{{ #draw-{seed}{f'-{runs.index(name) + 1}' * (name != runs[0])} }}"
            parts += [f"**Draw {seed}{again}**{anchor}", numbered(found, DESIGN, name, seed)]
    return "\n\n".join(parts) + "\n"


def few(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """In a line, the profiles of which most seeds have no text."""
    said = []
    for profile in (p for p in rows if p != DESIGN):
        there = {text.seed for name in named_conditions(rows) for text in found.texts[profile].get(name, ())}
        every = {*found.measured[profile].seed}
        if there and len(there) < len(every) / 2:
            said.append(f"of `{profile}`, {len(there)} of {len(every)} seeds")
    return [f"**Not of every seed:** {'; '.join(said)}."] if said else []


def lacking(found: Committed, profile: str, there: Collection[int], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which seeds of the claim's runs were measured and have no text here, and what writes them."""
    table = found.measured[profile]
    gone = sorted({int(seed) for seed in table[table.condition.isin(named_conditions(rows))].seed} - {*there})
    if not gone:
        return []
    run = "the command below" if profile == DRAWN else f"`dvc repro` of the run in `{folder(profile)}`"
    seeds = f"seed{'s' * (len(gone) > 1)} {join([str(seed) for seed in gone])}"
    return [f"Of {seeds} no text is committed, their numbers are; {run} writes them into `runs/`, in `samples.jsonl`."]
