"""What a registered design's runs wrote, of which its table has the numbers alone: the runs of its committed rows once
more, on the machine that made them or on one that rounds as it does, and of each the first texts.

    python -m workbook.stages.settle texts PROFILE      # draw by draw, into reports/PROFILE/samples.jsonl.bz2; stop it
                                                        # at any time, the same command goes on

A run's texts are kept where every number of its committed row comes out again, to the digits that are committed: then
they are those that the row was measured on. On a processor that rounds otherwise a run parts from its row within a few
updates; what it writes there is another run's text, and is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from workbook.results.files import SAMPLES, TEXTS_OF_A_SEED, packed, read_rows
from workbook.results.pack import write_packed
from workbook.results.tables import short
from workbook.runs import conditions, experiment
from workbook.runs.params import Params
from workbook.stages.one_draw import of_draw
from workbook.stages.settling import rounded

Text = dict[str, Any]  # condition, seed, prompt (its last words), response, score
WHICH = ("condition", "seed", "split", "decoding")  # of a row
DIGITS = 2  # of a text's score, behind the point


class Texts:
    """What of a design's texts is kept, and what is lacking.

    table: the design's rows that count; path: the packed file of texts, in the order of draws and of runs.
    """

    def __init__(self, params: Params, table: pd.DataFrame):
        self.params, self.table, self.path = params, table, params.reports_folder / packed(SAMPLES)
        self.kept = read_rows(self.path) if self.path.is_file() else []

    def lacking(self, draw: int) -> list[str]:
        """The runs of a draw that have rows and no texts, in the order of the settings; one that broke down has none
        to keep, and rows without a score."""
        rows = self.table[(self.table.seed == draw) & (self.table.split == "test") & (self.table.decoding == "plain")]
        measured = {*rows[rows.score.notna()].condition}
        there = {text["condition"] for text in self.kept if text["seed"] == draw}
        return [name for name in self.params.all_runs if name in measured - there]

    def needed(self, names: Sequence[str]) -> list[str]:
        """Runs and what they start from, which has to be trained before them."""
        starts = {self.params.all_runs[name].get("start") for name in names}
        return [name for name in self.params.all_runs if name in {*names, *starts}]

    def add(self, draw: int, names: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Keep the texts of a draw's runs, which still lie in the scratch, where their rows are the committed ones;
        returns the runs that came out otherwise."""
        made: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            made.setdefault(row["condition"], []).append(row)
        other = [name for name in names if not self.same(draw, name, made[name])]
        for name in (n for n in names if n not in other):
            self.kept += of_run(self.params, draw, name)
        order = {name: i for i, name in enumerate(self.params.all_runs)}
        self.kept.sort(key=lambda text: (text["seed"], order[text["condition"]]))
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in self.kept)
        write_packed(self.path, lines.encode())
        return other

    def same(self, draw: int, name: str, made: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a run's rows are those that are committed, in every number that is."""
        found = {tuple(row[key] for key in WHICH): row for row in made}
        rows = self.table[(self.table.seed == draw) & (self.table.condition == name)]
        numbers = [c for c in rows.select_dtypes("number") if c not in WHICH]
        return all(
            _equal(row[number], rounded(found[tuple(row[key] for key in WHICH)].get(number)))
            for row in rows.to_dict("records")
            for number in numbers
        )


def of_run(params: Params, draw: int, name: str) -> list[Text]:
    """The first texts of a run that is finished and lies in the scratch."""
    given = conditions.condition(of_draw(params, draw), name)
    final = experiment.place(given, draw, experiment.chosen(given))[1] / "final"
    return [_shown(s) for s in json.loads((final / "samples.json").read_text(encoding="utf-8"))[:TEXTS_OF_A_SEED]]


def _equal(committed: Any, made: Any) -> bool:
    return bool(pd.isna(committed) and pd.isna(made)) or committed == made


def _shown(sample: Mapping[str, Any]) -> Text:
    said = {"prompt": short(sample["prompt"]), "response": sample["response"], "score": round(sample["score"], DIGITS)}
    return {"condition": sample["condition"], "seed": sample["seed"], **said}
