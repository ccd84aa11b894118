"""ToTTo, generated: a table of one person's years, two highlighted cells -> a sentence.

Columns: year, event, role, place. What a column holds differs from row to row, so a value of another row is a
hallucination that can be seen. The pair (role, place) is never highlighted in train: those rows of validation and test
are the non-overlap subset ("False"), as on the hub.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from workbook.grue.example import Example

from . import english
from .judging import NOTHING, Verdict, judged
from .phrases import Table, chunk, end_of, sentences
from .scenes import checked, generator, part_of
from .words import NAMES, PLACES

COLUMNS = ("year", "event", "role", "place")
PAIRS = (("year", "event"), ("year", "role"), ("event", "role"), ("event", "place"), ("year", "place"))
UNSEEN = ("role", "place")
UNSEEN_SHARE = 0.24
REFERENCES = {"train": 1, "validation": 2, "test": 2}
YEARS = tuple(str(year) for year in range(2001, 2011))
# event -> roles | places
_EVENTS = {
    "race": "judge doctor winner guest captain | park beach lake forest",
    "concert": "singer teacher guest judge | park school museum market",
    "contest": "baker painter farmer judge winner | market school library garden",
    "match": "captain doctor winner guest | park school beach station",
    "fair": "baker farmer painter singer | market garden station lake",
    "festival": "singer baker captain guest painter | forest garden library museum",
}
EVENTS = {event: tuple(frozenset(half.split()) for half in line.split("|")) for event, line in _EVENTS.items()}
ROLES = tuple(sorted({role for roles, _ in EVENTS.values() for role in roles}))
HELD = tuple(sorted({place for _, places in EVENTS.values() for place in places}))


@dataclass(frozen=True)
class Record:
    """What a sentence says of a person; "" = not said."""

    name: str
    year: str = ""
    event: str = ""
    role: str = ""
    place: str = ""


# Letters: n name, w was, Q "the judge", R "a judge", O "of the race", E "at the race", P place, Y year.
_TAIL = r"(?P<place>P?)(?P<year>Y?)\."
_PATTERNS = [
    re.compile(r"(?P<front>[PY]?)(?P<name>n)w(?:(?P<role>[QR])(?P<event>[OE]?)|(?P<only>E?))" + _TAIL),
    re.compile(r"(?P<role>Q)(?P<event>O)w(?P<name>n)" + _TAIL),
]


@cache
def _table() -> Table:
    found: Table = {name: ("n", name) for name in NAMES} | {"was": ("w", "")}
    for role in ROLES:
        found |= {f"the {role}": ("Q", role), f"{'an' if role[0] in 'aeiou' else 'a'} {role}": ("R", role)}
    found |= {f"of the {event}": ("O", event) for event in EVENTS} | {
        f"at the {event}": ("E", event) for event in EVENTS
    }
    return found | {english.at(place): ("P", place) for place in PLACES} | {f"in {year}": ("Y", year) for year in YEARS}


def vocabulary() -> set[str]:
    """Every word of these sentences."""
    return {word for phrase in _table() for word in phrase.split()} | {*COLUMNS, "career"}


def parse(words: Sequence[str]) -> Record | None:
    """What one sentence says; None = not of this grammar."""
    pieces = chunk(end_of(words)[0], _table())
    if pieces is None:
        return None
    letters = "".join(letter for letter, _ in pieces) + end_of(words)[1]
    for pattern in _PATTERNS:
        if match := pattern.fullmatch(letters):
            said = {slot: pieces[match.start(slot)][1] for slot, letter in match.groupdict().items() if letter}
            front = said.pop("front", "")
            slot = "year" if front in YEARS else "place"
            if front and slot in said:
                return None
            said |= {slot: front} if front else {}
            said |= {"event": said.pop("only")} if "only" in said else {}
            return Record(**said) if len(said) > 1 else None
    return None


def render(record: Record, way: int = 0) -> str:
    """A sentence. way 0: the name first; 1: the year, else the place, first; 2: role and event first, where it can."""
    place = english.at(record.place) if record.place else ""
    year = f"in {record.year}" if record.year else ""
    if way == 2 and record.role and record.event:
        words = [f"the {record.role} of the {record.event} was {record.name}", place, year]
    else:
        role = f"{'an' if record.role[0] in 'aeiou' else 'a'} {record.role}" if record.role else ""
        what = f"the {record.role} of the {record.event}" if record.role and record.event else role
        event = f"at the {record.event}" if record.event and not record.role else ""
        front = (year or place) if way == 1 else ""
        words = [front, f"{record.name} was", what, event, *(part for part in (place, year) if part != front)]
    return " ".join([*(word for word in words if word), "."])


def sensible(record: Record) -> bool:
    """Whether the event has such a role and is held in such a place."""
    roles, places = EVENTS.get(record.event, (frozenset(ROLES), frozenset(HELD)))
    return record.role in ("", *roles) and record.place in ("", *places)


def record(rng: random.Random, part: str) -> Record:
    """A statement of a part: a person and two columns."""
    _, name, cells = _told(rng, part)
    return Record(name, **cells)


def _told(rng: random.Random, part: str) -> tuple[list[dict[str, str]], str, dict[str, str]]:
    """The lines of a table, whose they are, and the two cells of its first line that are told."""
    unseen = part != "train" and rng.random() < UNSEEN_SHARE
    columns = UNSEEN if unseen else rng.choice(PAIRS)
    while True:
        name, lines = rng.choice(NAMES), _lines(rng)
        cells = {column: lines[0][column] for column in columns}
        if part_of("totto", name, *cells.values()) == part:
            return lines, name, cells


def _lines(rng: random.Random) -> list[dict[str, str]]:
    """Three or four lines, no value twice in a column."""
    count = rng.randint(3, 4)
    years, events = rng.sample(YEARS, count), rng.sample(tuple(EVENTS), count)
    while True:
        roles = [rng.choice(sorted(EVENTS[event][0])) for event in events]
        places = [rng.choice(sorted(EVENTS[event][1])) for event in events]
        if len(set(roles)) == len(set(places)) == count:
            return [dict(zip(COLUMNS, line)) for line in zip(years, events, roles, places)]


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: table_page_title (the person), table, highlighted_cells [[line, column], ...], sentence_annotations."""
    checked(part)
    return [_row(generator("totto", draw, part, i), part, i) for i in range(n)]


def _row(rng: random.Random, part: str, i: int) -> dict:
    lines, name, cells = _told(rng, part)
    told = lines[0]
    lines.sort(key=lambda line: line["year"])
    # the role and the event of a person: nothing that could stand first but these
    ways = rng.sample((0, 2) if {"role", "event"} == set(cells) else (0, 1), REFERENCES[part])
    targets = [render(Record(name, **cells), way) for way in ways]
    overlap = "none" if part == "train" else str(set(cells) != set(UNSEEN))
    return {
        "id": i,
        "table_page_title": name,
        "table_webpage_url": "",
        "table_section_title": "career",
        "table_section_text": "",
        "table": [_cells(COLUMNS, True), *(_cells([line[c] for c in COLUMNS], False) for line in lines)],
        "highlighted_cells": [[1 + lines.index(told), COLUMNS.index(column)] for column in COLUMNS if column in cells],
        "example_id": f"{part}-{i}",
        "sentence_annotations": {
            "original_sentence": list(targets),
            "sentence_after_deletion": list(targets),
            "sentence_after_ambiguity": list(targets),
            "final_sentence": list(targets),
        },
        "overlap_subset": overlap,
    }


def _cells(values: Sequence[str], header: bool) -> list[dict]:
    return [{"column_span": 1, "is_header": header, "row_span": 1, "value": value} for value in values]


def facts(row: Mapping) -> dict | None:
    """The person and the highlighted cells, column -> value; None where the target is not of these sentences."""
    targets = [parse(sentences(target)[0]) for target in row["sentence_annotations"]["final_sentence"]]
    if not targets or None in targets or not row["highlighted_cells"]:
        return None
    header = [cell["value"] for cell in row["table"][0]]
    cells = {header[column]: row["table"][line][column]["value"] for line, column in row["highlighted_cells"]}
    return {"name": row["table_page_title"], "cells": cells}


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: one sentence of these. sense: the event has such a role and place. coverage: share of the highlighted
    cells that are told. faithful: share of what is told, the person among it, that is highlighted. judge: the
    product."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    found = sentences(response)
    said = parse(found[0]) if len(found) == 1 else None
    if said is None:
        return NOTHING
    truth = {"name": known["name"], **known["cells"]}
    told = {slot: value for slot, value in asdict(said).items() if value}
    right = {slot for slot, value in told.items() if truth.get(slot) == value}
    coverage = len(right & set(known["cells"])) / len(known["cells"])
    return 1.0, float(sensible(said)), coverage, len(right) / len(told)
