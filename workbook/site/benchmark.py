"""What the benchmark said of a claim, on the claim's page: its word and its tests, from reports/grue; what would turn
them, the arms and their settings, from grue/contrasts.yaml and grue/params.yaml; what the arms wrote; how
to make it all again."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from workbook.grue import claims
from workbook.grue.arms import ARMS, Arm, as_it_is
from workbook.grue.board import REWARD
from workbook.grue.contrasts import Contrasts, Test
from workbook.grue.pictures import label
from workbook.results.files import PER_SEED, packed
from workbook.results.tables import join, markdown, number, signed
from workbook.runs import algorithms
from workbook.site import benchmark_texts, effects, sums
from workbook.site.blocks import UNSEARCHED, shell
from workbook.statistics.paired import ALPHA
from workbook.statistics.rule import FOR, HOLDS

NAME = "grue"
ABOUT = "the benchmark's tasks, generated rows"  # of a column or row beside profiles
SEEDS = f"reports/grue/{packed(PER_SEED)}"
TABLE, PAGES = "reports/grue/claims.csv", ("reports/grue/leaderboard", "reports/grue/claims")
SCALE, COUNTED = "on the scale", {"metric/words": "words"}  # what a difference counts; of these columns something else
LONG = re.compile(r"make grue \[.*generated rows, ([^)]+)\)")  # in the Makefile's own words
READ = (
    "Each seed is a draw of rows and a raw model of its own; every deciding test is needed. Differences are of scores "
    "that run from 0 to 1, with 95 % intervals over seeds; p is that of *holds*, near 1 where numbers lie the other "
    "way; the contrasts were fixed before the runs. "
    "[All claims on the benchmark](/reports/grue/claims.md), [the leaderboard](/reports/grue/leaderboard.md), "
    "[what it is](/docs/findings/grue.md)."
)


class Plan(NamedTuple):
    """contrasts: claim -> what decides it; settings: grue/params.yaml; takes: how long `make grue` does."""

    contrasts: Mapping[str, Contrasts]
    settings: Mapping[str, Any]
    takes: str

    def tests(self, claim: str) -> dict[str, Test]:
        """Name of a row of claims.csv -> its test."""
        named = tuple(self.settings["tasks"])
        every = [one for test in self.contrasts[claim].tests for one in claims.expanded(test, named)]
        return {test.name: test for test in every}


@cache
def plan(root: Path) -> Plan:
    """Raises: OSError, ValueError for a file that is not there or is none, or a Makefile that no longer says how long
    it takes."""
    rules, settings = (
        yaml.safe_load((root / f"grue/{name}.yaml").read_text(encoding="utf-8")) for name in ("contrasts", "params")
    )
    if not (takes := LONG.search((root / "Makefile").read_text(encoding="utf-8"))):
        raise ValueError("Makefile: expected a line of help that says how long make grue takes")
    return Plan({name: Contrasts.model_validate(rule) for name, rule in rules.items()}, settings, takes[1])


def read(root: Path) -> dict[str, pd.DataFrame]:
    """Claim -> its tests, a row each, of those that have a word or lack it though something that decides was run; empty
    where the benchmark was not run."""
    if not (root / TABLE).is_file():
        return {}
    table = pd.read_csv(root / TABLE)
    decides = table[(table.role == "decides") & table.n.notna() & (table.n > 0)]
    return {claim: tests for claim, tests in table[table.id.isin(decides.id)].groupby("id")}


def word(told: Mapping[str, pd.DataFrame], claim: str) -> str:
    """The claim's word, or a dash."""
    return effects.verdict(told[claim].word.iloc[0]) if claim in told else "–"


def seeds(told: Mapping[str, pd.DataFrame], claim: str) -> int:
    return int(told[claim].n.max())


def section(root: Path, claim: str, measured: pd.DataFrame) -> str:
    """The claim's tests, those that decide first, and how to read them; what would turn them; the arms; what these
    wrote; the commands."""
    found = plan(root)
    asked, first = found.tests(claim), measured.sort_values("role", key=lambda role: role != "decides", kind="stable")
    rows = [told(row, asked[row["name"]]) for row in first.to_dict("records") if row["n"] > 0]
    said = [measured.said.iloc[0]] if isinstance(measured.said.iloc[0], str) else []
    if measured.word.iloc[0] in FOR:
        q = measured.q.iloc[0]
        none = ": with so many tests the word would not stand" * bool(q > ALPHA)
        said.insert(0, f"q = {number(q)}, corrected for all claims that the benchmark tested{none}.")
    parts = [tests(rows), *said, READ]
    parts += ["### What would change our mind", changes([row for row in rows if row["role"] == "decides"])]
    parts += ["### The figures", figures(root, asked)]
    parts += ["### The arms and their settings", arms(found.settings, asked)]
    wrote = benchmark_texts.section(root, claims.concerned(list(asked.values())), named(asked))
    parts += [f"### What the arms wrote {UNSEARCHED}", wrote]
    parts += ["### Run it again", shell("make env", "make grue")]
    parts += [f"All tasks, arms and seeds of the benchmark, and its pages: {found.takes}."]
    return "\n\n".join(parts)


def told(row: Mapping[str, Any], test: Test) -> dict[str, Any]:
    """A row of claims.csv as `effects` reads a test."""
    ends = {"effect": row["difference"], "effect_low": row["low"], "effect_high": row["high"], "published": None}
    return {**row, **ends, "word": row["test_word"], "unit": COUNTED.get(test.column, SCALE)}


def tests(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row per test, all that run from 0 to 1 on one axis."""
    far = effects.reach([row for row in rows if row["unit"] == SCALE])
    lines = [
        {
            "test": row["name"] + ("" if row["role"] == "decides" else " (beside)"),
            "claimed": row["direction"] + (f", {row['stated']:g}" if row["stated"] else ""),
            "difference": signed(row["effect"], row["effect_low"], row["effect_high"]),
            "forest row": effects.row(row, far) if row["unit"] == SCALE else "–",
            "p": number(row["p"]),
            "word": effects.verdict(row["word"]),
        }
        for row in rows
    ]
    return markdown(pd.DataFrame(lines))


def compared(test: Test) -> str:
    """ "NLPO − PPO, mean over `common_gen` and `totto`": a test's sum, and the tasks that it is over."""
    parts = []
    for arm, column, weight in test.columns():
        of = "" if column == test.column else f" of `{column}`"
        parts.append((weight, sums.bracketed(label(arm)) + of))
    by = "" if test.column == REWARD else f", by `{test.column}`"
    less = f", less that over {join([f'`{task}`' for task in test.minus])}" if test.minus else ""
    over = f"{'mean over ' if len(test.tasks) > 1 else 'on '}{join([f'`{task}`' for task in test.tasks])}"
    return f"{sums.written(parts)}{by}, {over}{less}"


def changes(rows: Sequence[Mapping[str, Any]]) -> str:
    """What would turn each deciding test."""
    lines = [{"test": row["name"], "word": effects.verdict(row["word"]), "would turn it": turning(row)} for row in rows]
    return (
        f"By the rule, where all of these together decide:\n\n{markdown(pd.DataFrame(lines))}\n\nAnd the same arms of "
        "a larger model, on real rows: these are of models that a laptop trains, on generated ones. `make grue-plan "
        "PROFILE=paper` says what the published ones would take."
    )


def turning(row: Mapping[str, Any]) -> str:
    """What new seeds would have to show for another word of a test."""
    if row["word"] == claims.NO_START:
        return "a supervised start: one that beats the raw model on validation references"
    if not row["stated"] and row["word"] != HOLDS:  # of a threshold no size is stated
        return "an interval on the other side of 0" if row["high"] < 0 else "more seeds: an interval on one side of 0"
    return effects.turning(row)


def named(asked: Mapping[str, Test]) -> list[str]:
    """The arms of a claim's tests, in the order of their records, trivial answers behind."""
    there = dict.fromkeys(arm for test in asked.values() for arm, _, _ in test.columns())
    return [*(name for name in ARMS if name in there), *(name for name in there if name not in ARMS)]


def arms(settings: Mapping[str, Any], asked: Mapping[str, Test]) -> str:
    """A row per test: which arms it compares; a row per arm: what it begins with, what is done with that, and by which
    settings."""
    sums = pd.DataFrame([{"test": name, "compared": compared(test)} for name, test in asked.items()])
    lines = []
    for name in named(asked):
        arm = ARMS.get(name)
        lines.append(
            {
                "arm": label(name) if arm else f"the answer “{name}”",
                "begins with": begins(arm) if arm else "–",
                "then": trained(arm) if arm else "no model: every prompt gets the same answer",
                "sets": sets(settings, arm) if arm else "–",
            }
        )
    rows = ", ".join(f"{size} for {name}" for name, size in settings["rows"].items())
    return (
        f"{markdown(sums)}\n\nIt is the reward that is compared where no [score](/grue/metrics.md) is named.\n\n"
        f"{markdown(pd.DataFrame(lines))}\n\nRows of a task: {rows}. What a task has otherwise, the raw model and all "
        "else: [grue/params.yaml](/grue/params.yaml); the tests: [grue/contrasts.yaml](/grue/contrasts.yaml)."
    )


def begins(arm: Arm) -> str:
    """The model that an arm begins with."""
    return label(arm.start) if arm.start else "the raw model"


def trained(arm: Arm) -> str:
    """What is done with the model that an arm begins with."""
    if arm.imitates:
        return "imitation of references" + ", as many steps more as PPO would take" * bool(arm.start)
    if not arm.learner:
        return "nothing"
    paid = f"paid {join(list(arm.reward))}" if arm.reward else "paid the task's reward"
    return f"{algorithms.label(arm.learner)}, {paid if arm.pay is as_it_is else 'paid what another answer earned'}"


def sets(settings: Mapping[str, Any], arm: Arm) -> str:
    """The settings of an arm's learner or imitation, as on every task that has none of its own."""
    sections = algorithms.module(arm.learner).ABOUT.sections if arm.learner else ()
    values = {name: value for part in sections for name, value in settings.get(part, {}).items()} | {**arm.settings}
    values = settings["supervised"] if arm.imitates else values
    return ", ".join(f"{name} `{value}`" for name, value in values.items()) or "–"


def figures(root: Path, asked: Mapping[str, Test]) -> str:
    """What the leaderboard draws of all arms: reward against judge; and, of a claim about all tasks, the ranks."""
    alt = json.loads((root / "reports/grue/alt.json").read_text(encoding="utf-8"))
    whole = len(claims.concerned(list(asked.values()))) == len(plan(root).settings["tasks"])
    drawn = [f"![{alt[name]}](/reports/grue/{name}.svg)" for name in ("hacking", *["ranks"] * whole)]
    how = "All arms, from [the leaderboard](/reports/grue/leaderboard.md): up and right is better, right only hacked."
    if (root / SEEDS).is_file():  # `board_charts` draws it
        first = claims.concerned(list(asked.values()))[0]
        how += " Below the picture the same seed by seed: choose a task, and point at a mark for its first answer."
        how += f'<span data-task="{first}"></span>'  # docs/assets/charts.js begins with it
    return "\n\n".join([how, *drawn])


def pages(root: Path, told: Collection[str]) -> dict[str, str]:
    """Page -> Markdown, of what was written on each task, with the claims that have a word there."""
    asked = {claim: claims.concerned(list(plan(root).tests(claim).values())) for claim in told}
    named = dict.fromkeys(task for concerned in asked.values() for task in concerned)
    return benchmark_texts.pages(root, {task: [c for c, over in asked.items() if task in over] for task in named})
