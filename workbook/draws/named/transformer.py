"""A judge of the reward's own kind, a transformer classifier; its reviews, tokenizer and random numbers are others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rlnlp import pretrained
from rlnlp.types import stream
from workbook.draws import judging
from workbook.draws.classifier import positive_probability, train_classifier
from workbook.draws.maker import Maker
from workbook.draws.tokenizer import train_tokenizer
from workbook.draws.training import save
from workbook.store.files import atomic_json
from workbook.texts.data import load_labelled

READS = ("judge", "reward_validation")
SETTINGS = ("reward_model", "language_model.vocabulary")


def fit(make: Maker, fresh: Path, states: Path) -> tuple[dict, list]:
    settings, texts, labels = make.params.reward_model, *load_labelled(make.data, "judge")
    tokenizer = train_tokenizer(texts, "bpe", max(2048, make.params.language_model.vocabulary))
    seed, progress = stream(make.draw, "judge"), f"draw {make.draw} judge"
    model, curve = train_classifier(texts, labels, tokenizer, settings, seed, states, progress, make.params.device)
    card = "# rlnlp judge\n\nSentiment classifier of reviews that neither policy nor reward has seen; for evaluation.\n"
    save(fresh, model.cpu(), tokenizer, card)
    atomic_json(fresh / "judge.json", {"kind": "transformer", "max_tokens": settings.max_tokens})
    parameters = sum(w.numel() for w in model.parameters())
    return judging.facts(make, "transformer", load(fresh), training_reviews=len(texts), parameters=parameters), curve


def load(folder: Path) -> Callable:
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = (
        pretrained.read_model(AutoModelForSequenceClassification, folder),
        pretrained.read_tokenizer(folder),
    )
    most = json.loads((folder / "judge.json").read_text())["max_tokens"]

    def judge(responses: Sequence[str], prompts: Sequence[str] | None = None) -> np.ndarray:
        """responses: B texts, of which the last tokens are read; prompts are ignored."""
        return positive_probability(model, tokenizer, responses, most).double().numpy()

    return judge
