"""A registered design's words beside the effects of a profile that runs its first draws: too few for its own words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbook.ledger.ruling import ELSEWHERE, TURNS, WORDS
from workbook.results.files import REGISTERED
from workbook.results.tables import counted, join
from workbook.statistics.power import fewest_seeds
from workbook.store.files import atomic_json

Rows = Sequence[Mapping[str, Any]]


def keep(profile: str, draws: Sequence[int], rows: Rows, reports: Path) -> None:
    """Write a design's words into reports/registered.json, beside those of other designs. rows: `looks.ledger`."""
    words = {
        row["id"]: {
            **{name: row[name] for name in ("word", "look", "settled", "turns")},
            "tests": {c["name"]: c["word"] for c in row["components"]},
        }
        for row in rows
    }
    atomic_json(reports / REGISTERED, {**_read(reports), profile: {"draws": list(draws), "claims": words}})


def words_for(reports: Path, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Claim -> its word in the registered design that begins with these draws, and the design's `profile`; nothing
    where there is none, or these seeds are many enough for words."""
    for profile, design in _read(reports).items() if len(seeds) < fewest_seeds() else ():
        if list(seeds) == design["draws"][: len(seeds)]:
            return {name: {**word, "profile": profile} for name, word in design["claims"].items()}
    return {}


def words_of(profile: str, reports: Path) -> dict[str, dict[str, Any]]:
    """Claim -> what `keep` wrote of it for this design; nothing where there is none."""
    return _read(reports).get(profile, {}).get("claims", {})


def put(rows: Rows, params) -> list[dict[str, Any]]:
    """The rows of a ledger, those that have effects and no word with the design's word as `registered`."""
    known = words_for(params.reports_folder.parent, params.seeds)
    effects = {row["id"] for row in rows if row["components"] and row["word"] == ELSEWHERE}
    return [{**row, "registered": known[row["id"]]} if row["id"] in effects & {*known} else {**row} for row in rows]


def elsewhere(rows: Rows, reports: Path) -> list[dict[str, Any]]:
    """The rows that have neither a word nor a design's of the same draws, with the word of a design of others as
    `registered`; of the first design that has one."""
    without = [row for row in rows if row["word"] == ELSEWHERE and not row.get("registered")]
    known = {}
    for profile, design in reversed(_read(reports).items()):
        known |= {name: {**word, "profile": profile} for name, word in design["claims"].items()}
    return [{**row, "registered": known[row["id"]]} for row in without if row["id"] in known]


def word(row: Mapping[str, Any]) -> str:
    """ "too small (settle, 8 draws)"; "" for a row that has no such word."""
    if not (found := row.get("registered")):
        return ""
    return f"{found['word']} ({found['profile']}, {found['look']} draws{doubts(found)})"


def doubts(row: Mapping[str, Any]) -> str:
    """What a word of a row, or of its `registered`, may not be said without: ", turns at half the budget", ", not
    settled"; "" where there is neither."""
    return f", {TURNS.strip(' ()')}" * bool(row.get("turns")) + unsettled(row)


def marks(row: Mapping[str, Any]) -> str:
    """The same after a word: " (turns at half the budget, not settled)"."""
    return f" ({said.removeprefix(', ')})" if (said := doubts(row)) else ""


def not_settled(rows: Rows, word: str) -> str:
    """ " (C11 not settled)": the claims with this word of which some part is open; "" for none."""
    found = [row["id"] for row in rows if row["word"] == word and unsettled(row)]
    return f" ({join(found)} not settled)" * bool(found)


def unsettled(row: Mapping[str, Any]) -> str:
    """ ", not settled" of a registered design's claim of which some part is open at its end."""
    return ", not settled" * (row.get("settled") is False)  # None: of no registered design


def word_of_test(row: Mapping[str, Any], test: str) -> str:
    """The design's word of one test, "too small (settle)": of its draws, not of the effect that it stands beside."""
    found = row.get("registered", {})
    said = found.get("tests", {}).get(test, "")
    return f"{said} ({found['profile']})" if said else ""


def said(rows: Rows) -> str:
    """Why the rows have no words, and what the design says of their claims; "" where none has a word of a design."""
    if not (found := [row for row in rows if row.get("registered")]):
        return ""
    first, words = found[0], Counter(row["registered"]["word"] for row in found)
    n, profile = first["seeds"], first["registered"]["profile"]
    counts = counted({name: words[name] for name in WORDS if words[name]})
    return (
        f"{n} draws give effects and no words ({fewest_seeds()} are the fewest). They are the first of the registered "
        f"design {profile}, which says, on {_looks(found)} draws, of the {len(found)} claims here: {counts}."
    )


def _looks(found: Rows) -> str:
    """ "8", or "8 to 32": after how many draws the design gave its words."""
    looks = sorted({row["registered"]["look"] for row in found})
    return f"{looks[0]}" if len(looks) == 1 else f"{looks[0]} to {looks[-1]}"


def _read(reports: Path) -> dict[str, Any]:
    path = reports / REGISTERED
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
