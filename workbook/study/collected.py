"""Ratings of a round: simulated, or what people have left in the folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rlnlp.types import stream
from workbook.study.raters import simulate_choices, simulated_raters
from workbook.study.ratings import SIMULATED, Choice, Pair, PreferenceError, checked, load, save


class Waiting(RuntimeError):
    """People have to rate before the study can go on; the message says what and how."""


def rated(folder: Path, name: str, config, seed: int, raters: str) -> tuple[list[Pair], list[Choice]]:
    """The items ``<name>.jsonl`` of a folder and their ratings: simulated, or what people have left in
    ``<name>_*.jsonl``.

    Raises: Waiting where people have not rated all of it; PreferenceError for files that cannot be used.
    """
    pairs, file = load(folder / f"{name}.jsonl", Pair), folder / f"{name}_simulated.jsonl"
    if raters == "simulated":
        people = simulated_raters(config.simulated, stream(seed, "raters") % 10**6, config.noise, config.repeatability)
        choices = simulate_choices(pairs, people, config.each, seed)
        save(file, choices)
        return pairs, choices
    files = sorted(path for path in folder.glob(f"{name}_*.jsonl") if path != file)
    choices = [row for path in files for row in load(path, Choice)]
    if made_up := sorted({row.rater for row in choices if row.rater.startswith(SIMULATED)}):
        raise PreferenceError(f"{folder}: {name}: expected ratings by people, found some by {', '.join(made_up)}")
    counted = pd.Series([row.item for row in checked(choices, pairs)], dtype=str).value_counts()
    missing = sum(max(0, config.each - counted.get(pair.id, 0)) for pair in pairs)
    if missing:
        raise Waiting(
            f"{missing} of {config.each * len(pairs)} ratings of {folder / name}.jsonl are missing. For each rater:\n"
            f"    from workbook.study import ratings; from workbook.lab import annotate\n"
            f"    items = ratings.load({str(folder / f'{name}.jsonl')!r}, ratings.Pair)\n"
            f"    annotate.pairs(items, {str(folder / f'{name}_NAME.jsonl')!r}, rater='NAME')\n"
            f"Then give this command again."
        )
    return pairs, choices
