"""The benchmark's seventh task beside the other six: film reviews, as profile mini measured them.

They have a pipeline, a base model and draws of their own, so they are in no mean over tasks: a table of their own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from workbook.grue import board
from workbook.grue.arms import ARMS
from workbook.results.tables import between, markdown, number
from workbook.store.tables import read_table

CONDITIONS = {  # arm of the benchmark -> condition of the profile
    "zero_shot": "zero_shot",
    "ppo": "ppo_kl_default",
    "nlpo": "nlpo_kl_default",
    "supervised": "supervised",
    "sup_ppo": "sup_ppo",
    "sup_nlpo": "sup_nlpo",
    "ppo_kl_0": "ppo_kl_0",
}
SAID = """## IMDB: going on with a review (profile mini)

Generated film reviews, from a GPT-2-shaped base model of each draw. Reward: probability of a positive review by a
trained classifier, on prompt and continuation; judge: the mean over sentences, of which a positive one counts 1, a
neutral one a half, a negative or ungrammatical one 0. No trivial answer stands here. They are another pipeline's
numbers (`make reproduce`, {path}): in no mean, rank or figure of this page."""


def section(path: Path) -> list[str]:
    """A heading and a table, of the test prompts by plain sampling; [] where there is no such file."""
    if not path.is_file():
        return []
    rows = [row for row in read_table(path) if (row["split"], row["decoding"]) == ("test", "plain")]
    table = []
    for arm, condition in CONDITIONS.items():
        mine = [row for row in rows if row["condition"] == condition]
        if not mine:
            continue
        cells = {
            name: _cell([row[column] for row in mine]) for name, column in (("reward", "score"), ("judge", "judge"))
        }
        about = {"seeds": len(mine), "n": mine[0]["prompts"], "split": "test", "decoding": mine[0]["decoding_record"]}
        table.append({"answers of": ARMS[arm].label, **cells, **about, "checkpoint": "base model of the draw"})
    return [SAID.format(path="/".join(path.parts[-3:])), markdown(pd.DataFrame(table))]


def _cell(values: list[float]) -> str:
    cell = board.interval(np.array(values, dtype=float))
    return f"{number(cell.estimate)} {between(cell.low, cell.high)}".strip()
