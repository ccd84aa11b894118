"""A report's answer: two sentences with at most three numbers, from its first comparison and from the ledger's words.

Intervals stand in the table below it; a number here is one of that table's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbook.figures.parts import short
from workbook.ledger.beside import doubts
from workbook.ledger.ruling import AWAITING, ELSEWHERE, WORDS
from workbook.ledger.told import only_unlisted
from workbook.results.design import Compared
from workbook.results.tables import join, number
from workbook.statistics.rule import AGAINST, FOR

MOST = 3  # numbers of an answer
NAMED = 6  # claims that it names whatever their word; of more, those that are decided
NUMBER = re.compile(r"(?<![\w.-])[−+]?\d+(?:\.\d+)?(?:e[−+]?\d+)?")  # none in "distinct-2", "P01", "top-5"
FEW, LEFT = (
    "This profile has too few runs or seeds for a word",
    "This profile does not judge the claims behind it",
)
NONE = "No claim of the papers is judged on them."
ALONE = "This profile has none of the pairs of runs that this report compares: its tables have the runs one by one."
UNNAMED = "This profile's ledger has no word for the claims behind it: for a test there are too few runs or seeds."


def numbers(text: str) -> list[str]:
    """The numbers of a text; digits of a name ("P01", "distinct-2") are none."""
    return NUMBER.findall(text)


Rows = Sequence[Mapping[str, Any]]
Groups = Sequence[tuple[str, str, int]]  # of `counted`


def answer(headline: Sequence[Compared], rows: Rows, elsewhere: Rows = (), alone: str = "", groups: Groups = ()) -> str:
    """Two sentences. headline: the report's comparisons, the first of which answers, or the groups of them (`counted`);
    alone: what answers without one; rows: of the ledger, its own; elsewhere: of `beside.elsewhere`, which speak where
    no row has a word."""
    return f"{counted(headline, groups) or compared(headline, alone)} {words(rows, elsewhere)}"


def counted(headline: Sequence[Compared], groups: Groups) -> str:
    """In how many comparisons of each group a metric is higher or lower, each by its own interval, as far as `MOST`
    allows; runs that are one under two names count once. A group: the metric, how what is subtracted begins, the side
    (1 higher, −1 lower). "" for no comparison with an interval."""
    parts, last, said = [], 0, ""
    for metric, of, side in groups:
        rows = [row for row in headline if row.metric == metric and row.label.rpartition(" − ")[2].startswith(of)]
        ends = {(d.difference, d.low, d.high) for d in (row.difference for row in rows) if d.low is not None}
        every = "as many" if len(ends) == last else f"{len(ends)} comparisons"
        many = f"{sum(min(side * low, side * high) > 0 for _, low, high in ends) or 'none'} of {every}"
        part = (
            f"the {short(metric)} is " * (metric != said) + f"{'higher' if side > 0 else 'lower'} than {of} in {many}"
        )
        if ends and len(numbers(" ".join([*parts, part]))) <= MOST:
            parts, last, said = [*parts, part], len(ends), metric
    return f"By each comparison's own interval, {join(parts)}." if parts else ""


def compared(headline: Sequence[Compared], alone: str = "") -> str:
    """The first comparison: its first two metrics, and over how many seeds, as far as `MOST` allows."""
    if not headline:
        return alone or ALONE
    first = headline[0].label
    room = MOST - len(numbers(first))
    own = [row for row in headline if row.label == first][: max(1, min(2, room))]
    n = own[0].difference.n
    seeds = f"{n} seed{'s' * (n != 1)}" if room > len(own) else "its seeds"
    moved = join([_moved(row, room > 0) for row in own])
    return f"{first.replace(' − ', ' minus ')}: {moved}, on average over {seeds}."


def _moved(row: Compared, sized: bool) -> str:
    """ "the score (reward model) is 0.299 higher"; where the label's numbers leave no room, without its size."""
    d = row.difference
    which = "higher" if d.difference >= 0 else "lower"
    told = d.low is not None and not d.low <= 0 <= d.high
    doubt = "" if told else " (within chance)" if d.low is not None else " (one seed, no interval)"
    return f"the {short(row.metric)} is {f'{number(abs(d.difference))} ' * sized}{which}{doubt}"


def words(rows: Rows, elsewhere: Rows = ()) -> str:
    """What the ledger, or the registered design whose words stand here, says of which claims, each with what its word
    may not be said without; where neither has a word, what a design of other draws says, and why it has to."""
    if own := _said(rows):
        return f"Of the claims behind it, {own}."
    if rows and (other := _said(elsewhere)):
        return f"{LEFT if only_unlisted(rows) else FEW}; {other}."
    return UNNAMED if rows else NONE


def _said(rows: Rows) -> str:
    """Who says which word of which claims; "" where no row has one."""
    found: dict[str, list[str]] = {}
    for row in [{**row, **row.get("registered", {})} for row in rows]:
        if row["word"] not in (AWAITING, ELSEWHERE):
            doubt = doubts(row).removeprefix(", ")
            found.setdefault(row["word"], []).append(row["id"] + f" ({doubt})" * bool(doubt))
    if not found:
        return ""
    designs = dict.fromkeys(row["registered"]["profile"] for row in rows if row.get("registered"))
    named = f"the registered design {join([f'`{d}`' for d in designs])}"
    source = f"{named}, on more draws and with runs repeated," if designs else "the ledger's rule"
    few = sum(map(len, found.values())) <= NAMED
    said = [w for w in WORDS if w in found and (few or w in (*FOR, *AGAINST))]
    rest = [claim for w, claims in found.items() if w not in said for claim in claims]
    parts = [f"*{w}* of {join(found[w])}" for w in said]
    parts += [f"*open* of {'the others' if said else 'all of them'}"] if rest else []
    return f"{source} says {join(parts)}"
