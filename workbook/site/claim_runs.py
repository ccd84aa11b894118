"""The runs of a claim's tests: what each sets, and how to run just these again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbook.ledger.claim import repetitions
from workbook.results.tables import join, markdown
from workbook.site.blocks import shell
from workbook.site.committed import DESIGN, Committed, deciding, folder, named_conditions

JUDGE, DRAW = (f".venv/bin/python -m workbook.stages.settle {what} {DESIGN}" for what in ("judge", "run"))
NOT_SETTINGS = ("decodings", "test_prompts")  # of a run's entry: what is measured, not how it is made
START = "start"  # the setting whose value is another run


def conditions(found: Committed, claim: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A row per condition and settings: what it sets beside its profile's sections, and the profiles where it sets
    that."""
    lines = []
    for name in named_conditions(rows):
        same: dict[tuple[str, str], list[str]] = {}
        for profile in (p for p in rows if name in found.runs[p]):
            entry = {k: v for k, v in found.runs[profile][name].items() if k not in NOT_SETTINGS}
            called = found.names[profile]
            same.setdefault((called[name], shown(entry, called)), []).append(f"`{profile}`")
        lines += [{"run": run, "sets": sets, "in": join(where)} for (run, sets), where in same.items()]
    files = [f"{folder(p)}/params.yaml".removeprefix("./") for p in rows if found.runs[p]]
    links = join([f"[{file}](/{file})" for file in files])
    report = found.claims[claim].get("report", "none")
    also = f" The report that shows these runs is [{report}](/reports/mini/{report}/verdict.md)."
    there = (found.root / f"reports/mini/{report}/verdict.md").is_file()
    said = f"{markdown(pd.DataFrame(lines))}\n\nEverything else, so β and γ where a run does not set them, is as in "
    return said + f"{links}." + also * there + repeated(found, rows)


def repeated(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """That a profile trains some of these runs several times on a draw and counts their mean, where another does so
    less often: why the same draws have other effects there. "" where all do the same."""
    wanted, counts = named_conditions(rows), {}
    for profile in rows:
        runs = found.runs[profile]
        counts[profile] = {name: len(repetitions(runs, name)) for name in wanted if name in runs}
    most = max(counts, key=lambda profile: sum(counts[profile].values()) - len(counts[profile]))
    often = {name: n for name, n in counts[most].items() if n > 1}
    if not any(of.get(name, n) < n for of in counts.values() for name, n in often.items()):
        return ""
    which = join([f"{found.names[most][name]} ({n} times)" for name, n in often.items()])
    return (
        f"\n\n`{most}` trains some of these runs again on each draw's models and counts their mean: {which}. Other "
        "profiles' reports show them trained less often: on the same draws their effects differ by what training again "
        "changes."
    )


def shown(entry: Mapping[str, Any], called: Mapping[str, str]) -> str:
    """ "algorithm `ppo`, gamma `1.0`"; another run, where this one starts, by its name (called: by id)."""
    said = {name: called.get(value, f"`{value}`") if name == START else f"`{value}`" for name, value in entry.items()}
    return ", ".join(f"{name} {value}" for name, value in said.items())


def again(found: Committed, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The commands that make the claim's deciding runs in the first profile that has them all, and those that judge
    from committed tables."""
    parts = []
    for profile in sorted(rows.keys() - {DESIGN}, key=["mini", *rows].index):
        runs, needed = found.runs[profile], named_conditions({profile: {"components": deciding(rows[profile])}})
        if needed and all(name in runs for name in needed):
            stages = " ".join(f"{'continued' if START in runs[name] else 'runs'}@{name}" for name in needed)
            at = "" if profile == "mini" else f"(cd {folder(profile)} && "
            run = f"{at}../../.venv/bin/dvc repro {stages})" if at else f".venv/bin/dvc repro {stages}"
            lines = ["make env pipelines", run, f"make reports PROFILE={profile}"]
            parts += [
                f"In `{profile}`, with the models and data that they need, and the pages from them:",
                shell(*lines),
                only_these(profile, len(needed), len(runs)),
                f"Here {'; '.join(f'`{name}` is {found.names[profile][name]}' for name in needed)}.",
            ]
            break
    if DESIGN in rows:
        parts += ["The registered design's words again, from its committed table:", shell(JUDGE)]
        parts += ["All draws of the design, which is finished: the command says so and runs nothing.", shell(DRAW)]
    elif not parts:
        parts = ["From the committed tables:", shell(*(f"make reports PROFILE={profile}" for profile in rows))]
    return "\n\n".join(parts)


def only_these(profile: str, runs: int, every: int) -> str:
    """What the commands leave behind, and how long they take."""
    all_of_it = " All of them, with their models and data, take about an hour on two cores." * (profile == "mini")
    return (
        f"These are {runs} of the profile's {every} runs.{all_of_it} With only these done, the pages are made of them "
        f"alone: the tables in `reports/{profile}` lose all others, and the ledger is not judged again. "
        f"`git checkout reports/{profile}` brings the committed ones back."
    )
