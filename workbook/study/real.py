"""The study's reward model on what people really preferred: is it better than choosing the longer answer?

One scorer per seed learns from a data set's training pairs, with random weights and a tokenizer of its own texts; all
are tested on the same test pairs. Two spreads are kept apart: that of training (over seeds) and that of the test pairs
(over prompts). No text of the data set is kept, numbers only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from rlnlp.settings import nearest
from workbook.draws.shapes import RewardModel
from workbook.draws.tokenizer import train_tokenizer
from workbook.results.tables import number, signed
from workbook.study import agreement, preference_model
from workbook.study.ratings import Preference
from workbook.study.results import mean_said
from workbook.texts.hub import DataError, find, load_dataset

SHAPE = {"layers": 1, "width": 64, "heads": 2, "batch_size": 16, "learning_rate": 1e-3, "max_tokens": 256}


def load_preferences(hub_id: str, split: str = "train", mirror: str | Path = "") -> list[Preference]:
    """A data set with the columns prompt, chosen, rejected and, if there, votes and source; found by ``hub.find``.

    Rows whose two responses are equal are left out. Raises: DataError for a source that was not found or cannot be
    read, a split or column that it has not (the nearest named), a cell that is no text (row named), no rows.
    """
    source = find("datasets", hub_id, mirror)
    loaded = load_dataset(source)
    if split not in loaded:
        raise DataError(f"{hub_id} at {source}: no split {split!r}{nearest(split, loaded)}; there: {', '.join(loaded)}")
    columns = loaded[split].column_names
    for name in ("prompt", "chosen", "rejected"):
        if name not in columns:
            raise DataError(f"{hub_id} at {source}: {split} has no column {name!r}{nearest(name, columns)}")
    cells = loaded[split].with_format(None)[:]
    known, rows = [name for name in [field.name for field in dataclasses.fields(Preference)] if name in columns], []
    for place, values in enumerate(zip(*(cells[name] for name in known))):
        row = dict(zip(known, values))
        wrong = [name for name in ("prompt", "chosen", "rejected") if not isinstance(row[name], str)]
        if wrong:
            raise DataError(f"{hub_id}, {split}, row {place}: {wrong[0]} is no text: {row[wrong[0]]!r}")
        row = {name: "" if value is None else str(value) for name, value in row.items()}
        if row["chosen"] != row["rejected"]:
            rows.append(Preference(**row))
    if not rows:
        raise DataError(f"{hub_id} at {source}: {split} has no pair of two different responses")
    return rows


def measure(hub_id: str, seeds: Sequence[int], epochs: int, kind: str, tokens: int, mirror: str = "") -> dict:
    """Numbers for the report, JSON-able; {"given": False, "why": ...} where the data set is not found.

    hub_id: a data set of ``load_preferences`` with splits train and test; kind: of loss; tokens: size of the BPE
    vocabulary.
    Raises: DataError for a data set that is there and cannot be used.
    """
    try:
        train, test = (load_preferences(hub_id, split, mirror) for split in ("train", "test"))
    except DataError as error:
        if "was not found" not in str(error):
            raise
        return {"given": False, "data set": hub_id}
    both = {p.prompt for p in train} & {p.prompt for p in test}
    test = [p for p in test if p.prompt not in both]
    tokenizer = train_tokenizer([text for p in train for text in (p.prompt, p.chosen, p.rejected)], "bpe", tokens)
    found = []
    for seed in seeds:
        learned = preference_model.train(train, tokenizer, RewardModel(**SHAPE, epochs=epochs), seed, kind)
        found.append(
            _right(*(preference_model.scores(learned, *_texts(test, side)) for side in ("chosen", "rejected")))
        )
        print(f"seed {seed}: accuracy {sum(found[-1]) / len(test):.3f}", flush=True)
    lengths = (torch.tensor([len(text.split()) for text in _texts(test, side)[1]]) for side in ("chosen", "rejected"))
    longer, mean = _right(*lengths), [sum(rights) / len(found) for rights in zip(*found)]
    prompts = [p.prompt for p in test]
    said = {"learned, mean of seeds": mean, "longer": longer, "difference": [a - b for a, b in zip(mean, longer)]}
    return {
        "given": True,
        "data set": hub_id,
        "train": len(train),
        "test": len(test),
        "prompts in both, left out": len(both),
        "accuracy by seed": {str(seed): sum(rights) / len(test) for seed, rights in zip(seeds, found)},
        "over prompts": {name: _over_prompts(values, prompts) for name, values in said.items()},
    }


def _texts(rows: Sequence[Preference], side: str) -> tuple[list[str], list[str]]:
    return [p.prompt for p in rows], [getattr(p, side) for p in rows]


def _right(chosen: torch.Tensor, rejected: torch.Tensor) -> list[float]:
    """1 where the chosen one has the higher score, 0.5 at a tie, else 0."""
    return ((chosen > rejected).double() + (chosen == rejected).double() / 2).tolist()


def _over_prompts(values: Sequence[float], prompts: Sequence[str]) -> dict[str, float]:
    found = agreement.clustered(pd.DataFrame({"value": values, "item": prompts}), clusters=("item",))
    return {"estimate": found.estimate, "low": found.low, "high": found.high}


def said(found: dict) -> str:
    """The numbers in words, as Markdown."""
    if not found["given"]:
        return (
            f"Not measured: the data set `{found['data set']}` was not given. Put it at "
            f"`$RLNLP_MIRROR/datasets/{found['data set']}` "
            "(parquet files `train` and `test` with the columns prompt, chosen, rejected), set `RLNLP_MIRROR` and "
            "give the same command."
        )
    gap, longer = found["over prompts"]["difference"], found["over prompts"]["longer"]
    seeds = list(found["accuracy by seed"].values())
    better = "better than" if gap["low"] > 0 else "worse than" if gap["high"] < 0 else "not shown to differ from"
    return (
        f"People's choices (`{found['data set']}`, {found['train']} pairs to learn from, {found['test']} test pairs "
        f"of other prompts): "
        f"the same kind of scorer, trained from scratch, orders {mean_said(seeds)} of the test pairs as people did "
        f"(seeds: "
        f"{len(seeds)} [95 % over seeds]; {', '.join(map(number, seeds))}); *choose the longer one* orders "
        f"{number(longer['estimate'])} "
        f"[{number(longer['low'])}, {number(longer['high'])}] (over prompts). Difference, over prompts: "
        f"{signed(gap['estimate'], gap['low'], gap['high'])}, so it is **{better}** choosing the longer one."
    )
