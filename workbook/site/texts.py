"""What a claim's runs wrote: the first texts of every seed that is committed, none selected."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbook.results.files import TEXTS_OF_A_SEED
from workbook.results.tables import join
from workbook.site import charts
from workbook.site.blocks import UNSEARCHED, folded
from workbook.site.committed import DESIGN, DRAWN, SAME, Committed, folder, named_conditions

SHOWN = 4  # conditions of a profile whose texts are shown


def section(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The first texts of every seed that is committed, of the first conditions; none is selected. A run whose texts
    stand under the registered design is not shown again under the profile that keeps it."""
    parts, of_design = [], found.texts_of(DESIGN) if DESIGN in rows else {}
    seen: Collection[str] = ()
    for profile in sorted(rows, key=lambda name: name != DESIGN):  # the design's first
        kept, folds, seeds = found.texts_of(profile), [], set()
        skipped = seen if profile in (*SAME, DRAWN) else ()
        for name in [n for n in named_conditions(rows) if n in kept][:SHOWN]:
            for seed in dict.fromkeys(text.seed for text in kept[name] if name not in skipped):
                seeds.add(seed)
                of_seed = [text for text in kept[name] if text.seed == seed][:TEXTS_OF_A_SEED]
                numbered = "\n".join(f"{i}. {text.line}" for i, text in enumerate(of_seed, 1))
                called = charts.named(found, profile, name) + f", {charts.AGAIN}" * of_seed[0].again
                folds.append(folded(f"{called}; {profile}, seed {seed}", numbered))
        if folds:
            parts += [f"### Texts of `{profile}` {UNSEARCHED}", *whose(profile, folds, of_design)]
            parts += [*folds, *lacking(found, profile, seeds, rows)]
        seen = of_design
    if not parts:
        return "No text of these runs is committed; a run of them here writes `samples.jsonl` beside its numbers."
    said = (
        f"The first {TEXTS_OF_A_SEED} test prompts, plain decoding, nothing selected: the prompt, what the run wrote, "
        f"and the score that it was trained on. Of the first {SHOWN} runs of each profile, every seed whose texts are "
        "committed is here."
    )
    return "\n\n".join([said, *few(found, rows), *parts])


def whose(profile: str, folds: Sequence[str], of_design: Collection[str]) -> list[str]:
    """Whose the texts of the registered design are, and those of the profile that runs its draws again."""
    if profile != DESIGN:
        return [f"The draws of `{DESIGN}`, {charts.AGAIN}."] * (profile == DRAWN and bool(of_design))
    again = [charts.AGAIN in fold.partition("\n")[0] for fold in folds]
    kept = f"These are the design's own runs, which {join([f'`{name}`' for name in SAME])} hold digit for digit."
    other = (
        f"Where the title says *{charts.AGAIN}*, the run's own texts were not kept: these are of the same draw, in "
        f"`{DRAWN}`, whose numbers differ."
    )
    return [" ".join([kept] * (not all(again)) + [other] * any(again))]


def few(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """In a line, the profiles of which most seeds have no text."""
    said = []
    for profile in (p for p in rows if p != DESIGN):
        there = {text.seed for name in named_conditions(rows) for text in found.texts_of(profile).get(name, ())}
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
    if profile == DESIGN:
        return [f"Of its draws {gone[0]} to {gone[-1]} no text was kept, their numbers were."]
    run = "the command below" if profile == DRAWN else f"`dvc repro` of the run in `{folder(profile)}`"
    seeds = f"seed{'s' * (len(gone) > 1)} {join([str(seed) for seed in gone])}"
    return [f"Of {seeds} no text is committed, their numbers are; {run} writes them into `runs/`, in `samples.jsonl`."]
