"""Runs of TRL's trainers as the table that `python -m workbook.ledger submit` judges.

    python -m workbook.ledger.trl runs.csv --score reward_sentiment --out mine.csv
    python -m workbook.ledger submit mine.csv

runs.csv: a row per run, with columns `condition` (a name of params.yaml: ppo_kl_0, grpo, ...), `seed`, `folder` (the
trainer's `output_dir`), `texts` (its responses to held-out prompts, the same for all runs: parquet, CSV or JSONL with
columns `completion` or `response` and one number a response for each reward, as TRL's completion logs have them), and
what else was measured, by its name in docs/reference/metrics.md (human_log_perplexity, judge, ...), which is copied as
it is.

What a trainer writes of its own, and what is made of it (TRL 0.16 to 1.x; nothing of TRL is imported; files of real
runs of 1.12.0's PPOTrainer and GRPOTrainer were converted, see bench/trl_runs.py):
- `trainer_state.json` (in output_dir or its last `checkpoint-<step>`): `log_history`, of which `rewards/<score>/mean`
  or, where that is not logged, `reward`, the weighted sum of all (GRPO, RLOO, online DPO), or `objective/scores` (PPO)
  gives `rollout_score`, the mean of the last three that were logged;
- `completions/completions_<step>.parquet` with `log_completions=True`: step, prompt, completion (text, or messages in a
  conversation), a column per reward function, advantage. These answer *training* prompts: without `texts`, those of the
  last step are taken and it is said.
Its KL is an estimate from sampled tokens (per token in GRPO, per response in PPO), not the exact one of that page,
and is not converted. `length` takes a tokenizer and is not either; `words` and diversity are of the texts.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlnlp import metrics
from rlnlp.settings import nearest
from workbook.ledger.claim import METRICS, ClaimError
from workbook.results.tables import join

NEEDED, TEXT = ("condition", "seed", "folder"), ("completion", "response")
NOT_A_REWARD = ("step", "prompt", "advantage", *TEXT)
LOGGED = ("reward", "objective/scores")  # of log_history: what a trainer's episodes scored
LAST = 3  # logged scores


def converted(runs: Path, score: str = "") -> tuple[pd.DataFrame, list[str]]:
    """The table, a row per run, and what a reader of it should know.

    score: the reward's column; may be left out where there is one only. Raises: ClaimError naming run and file.
    """
    listed = _read(runs)
    if gone := [name for name in NEEDED if name not in listed]:
        raise ClaimError(f"{runs}: no column {join(gone)} (expected {', '.join(NEEDED)}[, texts][, metrics])")
    if not len(listed):
        raise ClaimError(f"{runs}: no rows; expected one for each run")
    about = {*NEEDED, "texts"}
    if unknown := [c for c in listed if c not in about and c not in METRICS]:
        hints = "; ".join(f"{c!r}{nearest(c, METRICS)}" for c in unknown)
        raise ClaimError(f"{runs}: no metric is called {hints}")
    rows, notes = [], []
    for _, run in listed.iterrows():
        folder = runs.parent / str(run.folder)
        given = str(run.texts) if "texts" in listed and pd.notna(run.texts) else ""
        path = runs.parent / given if given else last_completions(folder)
        if not given:
            notes.append(f"{run.condition}, seed {run.seed}: responses to training prompts ({path.name})")
        row = {"condition": run.condition, "seed": run.seed, "split": "test", "decoding": "plain"}
        measured = {c: run[c] for c in listed if c in METRICS and pd.notna(run[c])}
        means, named = of_texts(path, score)
        rows.append({**row, **means, **of_training(folder, named), **measured})
    return pd.DataFrame(rows), notes


def of_texts(path: Path, score: str = "") -> tuple[dict[str, float], str]:
    """Mean score and diversity of a file of responses, and the column that is the score."""
    table = _read(path)
    column = next((name for name in TEXT if name in table), None)
    if column is None or not len(table):
        raise ClaimError(f"{path}: expected rows with a column {' or '.join(TEXT)}, found {list(table)}")
    rewards = [c for c in table if c not in NOT_A_REWARD and pd.api.types.is_numeric_dtype(table[c])]
    if score not in rewards if score else len(rewards) != 1:
        raise ClaimError(f"{path}: which column is the score? expected --score with one of {rewards or 'none there'}")
    values = table[score := score or rewards[0]].to_numpy(dtype=float)
    if not np.isfinite(values).all():
        raise ClaimError(f"{path}: {score} of response {int(np.flatnonzero(~np.isfinite(values))[0])}")
    texts = [written(value) for value in table[column]]
    found = {"score": float(values.mean()), **metrics.diversity(texts)}
    return {name: value for name, value in found.items() if name in METRICS}, score


def of_training(folder: Path, score: str = "") -> dict[str, float]:
    """rollout_score, from the trainer's log, of that reward where it is logged apart; nothing where it kept none."""
    states = [folder / "trainer_state.json", *sorted(folder.glob("checkpoint-*/trainer_state.json"), key=_step)[::-1]]
    path = next((p for p in states if p.is_file()), None)
    if path is None:
        return {}
    history = _history(path)
    apart = f"rewards/{score}/mean"
    names = (apart,) if any(apart in entry for entry in history) else LOGGED
    logged = [entry[name] for entry in history for name in names if name in entry]
    if wrong := [value for value in logged[-LAST:] if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise ClaimError(f"{path}: log_history: {' or '.join(names)}: expected numbers, found {wrong[0]!r}")
    return {"rollout_score": float(np.mean(logged[-LAST:]))} if logged else {}


def _history(path: Path) -> list[dict[str, Any]]:
    """The entries of a trainer's log. Raises: ClaimError for a file that is none."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ClaimError(f"{path}: expected the JSON that a trainer writes, found {error}") from None
    history = state.get("log_history", []) if isinstance(state, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        found = type(state).__name__ if history is None else "other entries in it"
        raise ClaimError(f"{path}: expected an object with a list of objects `log_history`, found {found}")
    return history


def last_completions(folder: Path) -> Path:
    """The completion log of the last step. Raises: ClaimError where there is none."""
    found = sorted(folder.glob("completions/completions_*"), key=_step)
    if not found:
        raise ClaimError(f"{folder}: no responses: expected a column `texts`, or completions/completions_*.parquet")
    return found[-1]


def written(value: Any) -> str:
    """A completion as text: of a conversation, what the messages say."""
    if isinstance(value, str):
        return value
    return " ".join(str(message.get("content") or "") for message in value)


def _step(path: Path) -> int:
    return int(
        (re.findall(r"\d+", f"{path.parent.name if path.name == 'trainer_state.json' else path.stem}") or [0])[-1]
    )


def _read(path: Path) -> pd.DataFrame:
    """A table, read by the name's ending."""
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix in (".jsonl", ".json"):
            return pd.read_json(path, lines=True, dtype=False)
        table, said = pd.read_csv(path), pd.read_csv(path, dtype=str, keep_default_na=False)
        return table.assign(**{c: said[c] for c in TEXT if c in said})  # a response may be empty, "NA" or a number
    except (OSError, ValueError) as error:
        raise ClaimError(f"{path}: expected a table (parquet, CSV, JSONL), found {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.ledger.trl", description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="CSV: condition, seed, folder[, texts][, metrics measured elsewhere]")
    parser.add_argument("--score", default="", help="the column of the reward that is the score")
    parser.add_argument("--out", type=Path, required=True, help="the table that is written")
    args = parser.parse_args(argv)
    try:
        table, notes = converted(args.runs, args.score)
    except ClaimError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        table.to_csv(args.out, index=False, lineterminator="\n")
    except OSError as error:
        print(f"{args.out}: expected a place for a CSV file, in a folder that is there, found {error}", file=sys.stderr)
        return 1
    print("\n".join([*notes, f"{args.out}: {len(table)} runs of {table.condition.nunique()} conditions"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
