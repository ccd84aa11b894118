"""The runs of a claim's tests: what each sets, and how to run just these again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbook.ledger import one_model
from workbook.ledger.claim import repetitions
from workbook.results.tables import join, markdown
from workbook.site.blocks import shell
from workbook.site.committed import DESIGN, DRAWN, Committed, folder, named_conditions, tested

JUDGE, DRAW = (f".venv/bin/python -m workbook.stages.settle {what} {DESIGN}" for what in ("judge", "run"))
LEDGER = ".venv/bin/python -m workbook.ledger judge"
WORDS = "The words again, from the committed tables; on another processor a last digit may differ:"
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
    there = [p for p in rows if (found.root / f"reports/{p}/{report}/verdict.md").is_file()]
    shown_in = join([f"[`{p}`](/reports/{p}/{report}/verdict.md)" for p in there])
    also = f" The report that shows these runs is *{report}*: {shown_in}." * bool(there)
    said = f"{markdown(pd.DataFrame(lines))}\n\nEverything else, so β and γ where a run does not set them, is as in "
    return said + f"{links}." + also + repeated(found, rows)


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
    """The commands that make the runs of all the claim's tests, in every profile that the page shows, each with what it
    gives; then those that judge from committed tables."""
    parts = []
    for profile in sorted(rows.keys() - {DESIGN}, key=[DRAWN, *rows].index):
        runs, called = found.runs[profile], found.names[profile]
        needed, where = listed(runs, rows[profile]), folder(profile)
        stages = " ".join(f"{'continued' if START in runs[name] else 'runs'}@{name}" for name in needed)
        run = f".venv/bin/dvc repro {stages}" if where == "." else f"(cd {where} && ../../.venv/bin/dvc repro {stages})"
        parts += [
            gives(profile, rows[profile]),
            shell("make env pipelines", run, f"make reports PROFILE={profile}"),
            f"Here {'; '.join(f'`{name}` is {called[name]}' for name in needed)}.",
            only_these(profile, len(needed), len(runs)),
        ]
    words = [p for p, row in rows.items() if tested(row)]
    judged = [JUDGE if p == DESIGN else f"{LEDGER} {folder(p)}/params.yaml" for p in words]
    parts += [WORDS, shell(*judged)] if judged else []
    if DESIGN in rows:
        parts += ["All draws of the design, which is finished: the command says so and runs nothing.", shell(DRAW)]
    return "\n\n".join(parts)


def listed(runs: Mapping[str, Mapping[str, Any]], row: Mapping[str, Any]) -> list[str]:
    """The runs of all a row's tests, deciding ones first, that the profile has: also of tests without a number, and
    with the repetitions that are counted into a run's mean."""
    ordered = sorted(row["components"], key=lambda test: test["role"] != "decides")
    named = [term.split("@")[0] for test in ordered for term in test["conditions"].split()]
    return list(dict.fromkeys(run for name in named if name in runs for run in repetitions(runs, name)))


def gives(profile: str, row: Mapping[str, Any]) -> str:
    """What a profile's commands end in."""
    effects = f"**In `{profile}`**: effects of {row['seeds']} {one_model.units([row])}"
    if tested(row):
        return f"{effects}, on the report's pages; the word is of the profile's whole table, below."
    if design := row.get("registered"):
        return f"{effects}, no words: those are of `{design['profile']}`, after {design['look']} of its draws."
    return f"{effects}, too few for a word."


def only_these(profile: str, runs: int, every: int) -> str:
    """What the commands leave behind, and how long they take."""
    all_of_it = " All of them take about an hour on two cores." * (profile == DRAWN)
    return (
        f"These are {runs} of the profile's {every} runs.{all_of_it} [What each profile takes](/docs/use/install.md). "
        f"With only these done, the pages are made of them alone: the tables in `reports/{profile}` lose all others, "
        f"and the ledger is not judged again. `git checkout reports/{profile}` brings the committed ones back."
    )
