"""The evaluator beside a brought model: a language model with its tokenizer, trained on the task's evaluator texts.

A score for every token needs one tokenizer for both.
"""

from __future__ import annotations

from pathlib import Path

from rlnlp import pretrained
from workbook.draws.maker import Maker
from workbook.draws.models import trained

READS = ("evaluator", "language_model_validation")
SETTINGS = ("language_model",)


def fit(make: Maker, fresh: Path, states: Path, brought: Path | str) -> tuple[dict, list]:
    """brought: folder or hub id of the model whose tokenizer it is."""
    return trained(make, fresh, states, "evaluator", "evaluator", pretrained.read_tokenizer(brought))
