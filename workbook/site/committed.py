"""What the site shows, read from committed files alone: ledgers, settings of every run, unselected texts.

found = read(Path("."))
found.ledgers["settle"]["P20"]["word"]
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from workbook.figures.names import called
from workbook.ledger.combine import find_ledgers
from workbook.ledger.ruling import AWAITING, ELSEWHERE
from workbook.results.files import SAMPLES, read_rows, standing, table_of
from workbook.results.tables import safe, short
from workbook.site import benchmark

ABOUT = {  # profile: what its numbers are of; in the order in which pages show them
    "settle": "the registered design: generated reviews, every text of the same length",
    "reviews": "real reviews, one base model that writes words; seeds of reinforcement learning alone",
    "imdb": "real reviews, a model trained on them from scratch",
    "full": "the first paper's ablations at every value: eight of the registered design's draws",
    "follow_up": "the second paper's questions at every value: eight of the registered design's draws",
    "mini": "the registered design's first draws, run again on another processor: effects, too few for words",
}
DESIGN, DRAWN = "settle", "mini"  # the registered design; the profile that runs its first draws again
SAME = ("full", "follow_up")  # profiles that hold runs of the design itself: same draws, same numbers to every digit
FIRST_PAPER, SECOND_PAPER = "arXiv:2210.01241", "CS224N report"


class Settings(yaml.SafeLoader):
    """YAML in which 1e-7 is a number, as it is where settings are used."""


Settings.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+e[-+]?\d+$"), [*"-+0123456789"])


class Text(NamedTuple):
    """What one run wrote: seed, and prompt, response and score as a line of Markdown."""

    seed: int
    line: str

    @property
    def plain(self) -> str:
        """The line without Markdown."""
        marked = re.sub(r"(?<!\\)\*", "", self.line)
        return html.unescape(re.sub(r"\\(.)", r"\1", marked))


@dataclass(frozen=True)
class Committed:
    """ledgers: profile -> claim -> row of claims.json; claims: claims.yaml; runs: profile -> condition -> what its
    settings say beside the profile's sections; texts: profile -> condition
    -> texts, as they came, none selected; measured: profile -> a row per run, draw and decoding, on test prompts;
    names: profile -> condition -> what figures and pages call it; shown: profile -> report -> its runs;
    benchmark: claim -> its tests on the benchmark."""

    root: Path
    ledgers: Mapping[str, Mapping[str, Mapping[str, Any]]]
    claims: Mapping[str, Mapping[str, Any]]
    runs: Mapping[str, Mapping[str, Mapping[str, Any]]]
    texts: Mapping[str, Mapping[str, list[Text]]]
    measured: Mapping[str, pd.DataFrame]
    shown: Mapping[str, Mapping[str, list[str]]]
    names: Mapping[str, Mapping[str, str]]
    benchmark: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def profiles(self) -> list[str]:
        """Those with a ledger, in the order of pages."""
        return [*(p for p in ABOUT if p in self.ledgers), *sorted(self.ledgers.keys() - ABOUT)]

    def rows(self, claim: str) -> dict[str, Mapping[str, Any]]:
        """Profile -> the claim's row, of the profiles that have an effect or a word for it."""
        known = {p: self.ledgers[p][claim] for p in self.profiles if claim in self.ledgers[p]}
        return {
            p: row for p, row in known.items() if tested(row) or any(c["effect"] is not None for c in deciding(row))
        }


def read(root: Path) -> Committed:
    """Everything that pages are made from. Raises: OSError, ValueError for a file that is not there or is none."""
    ledgers = {}
    for profile, path in find_ledgers(root / "reports").items():
        rows = {row["id"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
        if any(tested(row) or deciding(row) for row in rows.values()):
            ledgers[profile] = rows
    claims = yaml.safe_load((root / "claims.yaml").read_text(encoding="utf-8"))
    params = {profile: read_params(root, profile) for profile in ledgers}
    measured = {profile: measures(root / "reports" / profile) for profile in ledgers}
    runs = {
        profile: {**values.get("runs", {}), **(values.get("continued") or {})} for profile, values in params.items()
    }
    shown = {
        profile: {name: report["conditions"] for name, report in values.get("reports", {}).items()}
        for profile, values in params.items()
    }
    texts = {profile: read_texts(root / "reports" / profile) for profile in ledgers}
    names = {profile: called(entries) for profile, entries in runs.items()}
    return Committed(root, ledgers, claims, runs, texts, measured, shown, names, benchmark.read(root))


def measures(reports: Path) -> pd.DataFrame:
    """The profile's table of draws, of whole runs on test prompts."""
    file = table_of(reports)
    table = pd.DataFrame(columns=["condition", "split", "decoding", "seed"]) if file is None else pd.read_csv(file)
    return table[table.split == "test"]


def deciding(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A ledger row's tests that take part in its word."""
    return [c for c in row["components"] if c["role"] == "decides"]


def named_conditions(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The conditions of the claim's measured tests, deciding ones first."""
    measured = [c for row in rows.values() for c in deciding(row) if c["effect"] is not None]
    measured += [c for row in rows.values() for c in row["components"] if c["effect"] is not None]
    return list(dict.fromkeys(name.split("@")[0] for test in measured for name in test["conditions"].split()))


def tested(row: Mapping[str, Any]) -> bool:
    """Whether the row has a word of its own."""
    return row["word"] not in (AWAITING, ELSEWHERE)


def folder(profile: str) -> str:
    """Where a profile's settings lie, relative to the root."""
    return "." if profile == "mini" else f"profiles/{profile}"


def read_params(root: Path, profile: str) -> dict[str, Any]:
    """The settings that the profile's tables are of; empty where they are not there."""
    file = root / folder(profile) / "params.yaml"
    return yaml.load(file.read_text("utf-8"), Settings) if file.is_file() else {}


def read_texts(reports: Path) -> dict[str, list[Text]]:
    """Condition -> its texts, of every seed in samples.jsonl."""
    file, found = standing(reports, SAMPLES), {}
    for line in read_rows(file) if file.is_file() else ():
        response = safe(" ".join(line["response"].split()))
        text = f"*{safe(short(line['prompt']))}* → {response} ({line['score']:.2f})"
        found.setdefault(line["condition"], []).append(Text(line["seed"], text))
    return found
