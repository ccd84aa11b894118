"""What is said of a judge that has just been made."""

from __future__ import annotations

from collections.abc import Callable

from workbook.draws.judge import judge_accuracy
from workbook.draws.maker import Maker
from workbook.texts.data import load_labelled


def facts(make: Maker, kind: str, judge: Callable, **further) -> dict:
    """Its kind, and its accuracy on labelled reviews that nothing was trained on."""
    validation, truth = load_labelled(make.data, "reward_validation")
    accuracy = judge_accuracy(judge, validation, truth)
    return {"kind": kind, **further, "validation_reviews": len(validation), "validation_accuracy": accuracy}
