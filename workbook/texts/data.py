"""From a task to files to ``Prompts``: where data sets and models are found, what a data folder holds, how it is read.

A data folder (``data/draw<k>``) holds one JSON object a line, UTF-8, in
    language_model.jsonl, language_model_validation.jsonl, evaluator.jsonl, human_reviews.jsonl    {id, text[, label]}
    reward.jsonl, reward_validation.jsonl, judge.jsonl                                             {id, text, label}
    prompts_train.jsonl, prompts_validation.jsonl, prompts_test.jsonl          {id, prompt[, reference][, label]}
(``references``, a list, instead of ``reference`` where a prompt has several)
and ``facts.json``: where it came from and how much there is. label: 1 positive, 0 negative. The same parameters and
draw give the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from rlnlp.settings import nearest
from workbook.texts import tasks
from workbook.texts.hub import DataError

BROUGHT = "csv"  # the task whose prompts `bring.prompts` names
PARTS = (  # no text is in two of them
    "language_model",
    "language_model_validation",
    "evaluator",
    "reward",
    "reward_validation",
    "judge",
    "prompts_train",
    "prompts_validation",
    "prompts_test",
    "human_reviews",
)


# ------------------------------------------------------------------------------------------------------ writing
def build(params, draw: int, out: str | Path) -> dict:
    """Write the data folder of one draw and return its facts.

    params: workbook.runs.params.Params; draw: which draw (>= 0); out: the folder, replaced as a whole when everything
    is written (a run that is killed leaves ``.<name>.building`` beside it, which the next one removes).

    Raises: DataError (missing source, too few examples, unusable CSV), before anything is replaced.
    """

    if draw < 0:
        raise DataError(f"draw: expected >= 0, got {draw}")
    name = params.task.name
    task = tasks.task(name)
    parts = task.load(params, task.draw(draw))
    facts = {"task": name, "draw": draw, "source": task.source, "licence": task.licence}
    if params.bring.prompts and name != BROUGHT:
        brought = tasks.task(BROUGHT).load(params, draw)
        brought.pop("human_reviews", None)
        parts.update(brought)
    if params.bring.prompts:
        facts["prompts"] = params.bring.prompts
    for name, rows in parts.items():
        if not rows:
            raise DataError(f"task {name}, draw {draw}: no example for {name}.jsonl")
    facts["parts"] = {name: _facts(parts[name]) for name in PARTS if name in parts}
    out = Path(out)
    building = out.with_name(f".{out.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for name in facts["parts"]:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in parts[name])
        _write(building / f"{name}.jsonl", "".join(lines))
    _write(building / "facts.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    building.rename(out)
    return facts


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _facts(rows: list[dict]) -> dict:
    """examples: count; words: total; mean_words; positive: share of the labelled ones (null: none is labelled)."""
    words = sum(len((row.get("text") or row.get("prompt")).split()) for row in rows)
    labels = [row["label"] for row in rows if "label" in row]
    return {
        "examples": len(rows),
        "words": words,
        "mean_words": round(words / len(rows), 2),
        "labelled": len(labels),
        "positive": round(sum(labels) / len(labels), 4) if labels else None,
    }


# ------------------------------------------------------------------------------------------------------ reading
def load_rows(folder: str | Path, part: str, n: int | None = None) -> list[dict]:
    """The first ``n`` (None: all) rows of ``<part>.jsonl``.

    Raises: DataError for a missing file (with the nearest name), a line that is not a JSON object, or no rows.
    """
    path = Path(folder) / f"{part}.jsonl"
    if not path.is_file():
        there = sorted(p.stem for p in path.parent.glob("*.jsonl"))
        if not there:
            raise DataError(f"{path}: no such file, and no data in {path.parent}; the data stage writes it")
        raise DataError(f"{path}: no such file{nearest(part, there)} (there: {', '.join(there)})")
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if n is not None and len(rows) == n:
                break
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
            rows.append(row)
    if not rows:
        raise DataError(f"{path}: an empty data set" if n != 0 else f"{path}: 0 examples were asked for")
    return rows


def _field(rows: list[dict], key: str, folder: str | Path, part: str) -> list:
    for number, row in enumerate(rows, 1):
        if key not in row:
            raise DataError(f"{Path(folder) / part}.jsonl, line {number}: no {key!r}{nearest(key, row)}")
    return [row[key] for row in rows]


def load_texts(folder: str | Path, part: str, n: int | None = None) -> list[str]:
    """The texts of a part, e.g. ``load_texts("data/draw1", "language_model")``. Raises: as ``load_rows``."""
    return _field(load_rows(folder, part, n), "text", folder, part)


def load_labelled(folder: str | Path, part: str, n: int | None = None) -> tuple[list[str], list[int]]:
    """Texts and labels (1 positive, 0 negative) of a part. Raises: as ``load_rows``; a row without a label."""
    rows = load_rows(folder, part, n)
    return _field(rows, "text", folder, part), _field(rows, "label", folder, part)


def load_prompts(folder: str | Path, split: str, tokenizer, max_prompt_tokens: int, n: int | None = None):
    """The prompts of a split as ``rlnlp.types.Prompts``.

    split: "train", "validation" or "test"; tokenizer: a transformers tokenizer; max_prompt_tokens: of a longer prompt
    the last ones are kept (as in the original); n: the first n prompts (None: all).

    Returns: ids [B, P] int64, left padded, P the longest row kept; texts: the whole prompts, also what was cut off;
    references: of each row its ``references``, [reference] or []; meta: {"label": 0 or 1, where known; "cut": tokens
    cut off}.

    Raises: DataError as ``load_rows``, and for a prompt without any token, naming its id.
    """
    if max_prompt_tokens < 1:
        raise DataError(f"max_prompt_tokens: expected >= 1, got {max_prompt_tokens}")
    part = split if split.startswith("prompts_") else f"prompts_{split}"
    rows = load_rows(folder, part, n)
    from rlnlp import encoding

    try:
        return encoding.encode_prompts(
            _field(rows, "prompt", folder, part),
            tokenizer,
            max_prompt_tokens,
            example_ids=[str(i) for i in _field(rows, "id", folder, part)],
            references=[row.get("references") or ([row["reference"]] if row.get("reference") else []) for row in rows],
            meta=[{"label": row["label"]} if "label" in row else {} for row in rows],
        )
    except ValueError as error:
        raise DataError(str(error)) from error
