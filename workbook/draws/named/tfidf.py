"""A linear judge of words and pairs of neighbouring words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from workbook.draws import judging, linear
from workbook.draws.maker import Maker
from workbook.texts.data import load_labelled

READS = ("judge", "reward_validation")
SETTINGS = ()
FEATURES = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}


def train(texts: Sequence[str], labels: Sequence[int]) -> linear.LinearJudge:
    return linear.train(texts, labels, "tfidf", FEATURES)


def fit(make: Maker, fresh: Path, states: Path) -> tuple[dict, None]:
    texts, labels = load_labelled(make.data, "judge")
    train(texts, labels).save(fresh)
    return judging.facts(make, "tfidf", load(fresh), training_reviews=len(texts)), None


def load(folder: Path) -> Callable:
    return linear.read(folder, FEATURES)
