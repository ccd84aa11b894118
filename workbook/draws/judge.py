"""Judges: scorers of another kind than the reward, for evaluation only. A task names its two (``draws.named``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from workbook.draws import named


def load_judge(folder: str | Path) -> Callable[..., np.ndarray]:
    """The judge of a models folder, ``judge(responses, prompts=None) -> [B]`` in [0, 1], float64.

    Raises ValueError for a folder that holds no judge.
    """
    folder = Path(folder)
    try:
        kind = json.loads((folder / "judge.json").read_text())["kind"]
        return named.module(kind).load(folder)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder}: no judge here ({error})") from error


def judge_accuracy(judge: Callable[..., np.ndarray], texts: Sequence[str], labels: Sequence[int]) -> float:
    """Share of texts with judge > .5 exactly where the label is 1; a score of exactly .5 counts half."""
    scores, truth = judge(list(texts)), np.asarray(labels)
    return float(np.where(scores == 0.5, 0.5, (scores > 0.5) == (truth == 1)).mean())
