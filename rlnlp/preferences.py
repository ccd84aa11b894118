"""What raters prefer, in one place: items, ratings and their files (``ratings``), simulated raters (``simulated_raters``), and
here the preferences that a majority of raters, or a data set, gives a reward model to learn from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlnlp.data import DataError, find, nearest
from rlnlp.ratings import (  # noqa: F401  callers know them as preferences.load, preferences.Pair ...
    SIMULATED, Choice, Likert, Pair, Preference, PreferenceError, Text, append, assign, checked, load, order, save, table,
)
from rlnlp.simulated_raters import SimulatedRater, simulate_choices, simulate_likert, simulated_raters  # noqa: F401


def preferences(pairs: Sequence[Pair], choices: Sequence[Choice]) -> list[Preference]:
    """What more raters chose than chose the other; pairs where as many chose either, and unrated ones, are left out.

    A tie is a vote for neither, so that one vote and two ties make a preference ("1/3"). Raises: PreferenceError, as ``checked``.
    """
    votes: dict[str, Counter] = {}
    simulated: set[str] = set()
    for row in checked(choices, pairs):
        votes.setdefault(row.item, Counter())[row.chosen] += 1
        simulated |= {row.item} if row.rater.startswith(SIMULATED) else set()
    out = []
    for pair in pairs:
        counted = votes.get(pair.id, Counter())
        first, second = counted["first"], counted["second"]
        if first == second:
            continue
        chosen, rejected = (pair.first, pair.second) if first > second else (pair.second, pair.first)
        source = "simulated raters" if pair.id in simulated else "raters"
        out.append(Preference(pair.prompt, chosen, rejected, f"{max(first, second)}/{counted.total()}", source))
    return out


def load_preferences(hub_id: str, split: str = "train", mirror: str | Path = "") -> list[Preference]:
    """A data set with the columns prompt, chosen, rejected and, if there, votes and source; found by ``data.find``.

    Rows whose two responses are equal are left out. Raises: DataError for a source that was not found or cannot be read,
    a split or column that it has not (the nearest named), a cell that is no text (row named), no rows.
    """
    from rlnlp.tasks import _load_dataset

    source = find("datasets", hub_id, mirror)
    loaded = _load_dataset(source)
    if split not in loaded:
        raise DataError(f"{hub_id} at {source}: no split {split!r}{nearest(split, loaded)}; there: {', '.join(loaded)}")
    columns = loaded[split].column_names
    for name in ("prompt", "chosen", "rejected"):
        if name not in columns:
            raise DataError(f"{hub_id} at {source}: {split} has no column {name!r}{nearest(name, columns)}")
    cells = loaded[split].with_format(None)[:]
    known, rows = [name for name in [field.name for field in dataclasses.fields(Preference)] if name in columns], []
    for number, values in enumerate(zip(*(cells[name] for name in known))):
        row = dict(zip(known, values))
        wrong = [name for name in ("prompt", "chosen", "rejected") if not isinstance(row[name], str)]
        if wrong:
            raise DataError(f"{hub_id}, {split}, row {number}: {wrong[0]} is no text: {row[wrong[0]]!r}")
        row = {name: "" if value is None else str(value) for name, value in row.items()}
        if row["chosen"] != row["rejected"]:
            rows.append(Preference(**row))
    if not rows:
        raise DataError(f"{hub_id} at {source}: {split} has no pair of two different responses")
    return rows
