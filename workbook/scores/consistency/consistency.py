"""Is a response entailed by its source? The zero-shot form of SummaC (Laban et al. 2022, arXiv:2111.09525)."""

from __future__ import annotations

import functools

import torch

from rlnlp import pretrained
from workbook.scores import family, tokens

SHORTEST = 10  # characters: sentences of so many or fewer are left out, as there
BATCH = 32


@functools.lru_cache(2)
def _loaded(model: str, device: str):
    """(tokenizer, classifier, column of entailment, column of contradiction)."""
    from transformers import AutoModelForSequenceClassification

    classifier = pretrained.read_model(AutoModelForSequenceClassification, model)
    columns = {str(label).lower(): int(place) for place, label in classifier.config.id2label.items()}
    if not {"entailment", "contradiction"} <= columns.keys():
        raise family.ScoreError(
            f"score consistency: {model}: expected a classifier with labels 'entailment' and 'contradiction', "
            f"got {sorted(columns)}"
        )
    return pretrained.read_tokenizer(model), classifier.to(device), columns["entailment"], columns["contradiction"]


@torch.no_grad()
def judged(pairs: list[tuple[str, str]], model: str, device: str) -> list[tuple[float, float]]:
    """P(entailment), P(contradiction) of each (premise, hypothesis)."""
    tokenizer, classifier, entails, contradicts = _loaded(model, device)
    longest = min(tokenizer.model_max_length, classifier.config.max_position_embeddings - 2)
    out = []
    for start in range(0, len(pairs), BATCH):
        premises, hypotheses = map(list, zip(*pairs[start : start + BATCH]))
        options = {"padding": True, "truncation": "only_first", "max_length": longest, "return_tensors": "pt"}
        chances = classifier(**tokenizer(premises, hypotheses, **options).to(device)).logits.softmax(-1)
        out += [(row[entails], row[contradicts]) for row in chances.tolist()]
    return out


def consistency(predictions: list[str], source: list[str], model: str, device: str = "cpu") -> list[float]:
    """Mean over a response's sentences of [max over the source's sentences of P(entailment) - max of P(contradiction)].

    ``source`` is the text itself, not a prompt with the task's words before it. 0.0 where a side has no sentence of
    more than ``SHORTEST`` characters, as SummaC gives it.
    """
    out = []
    for text, given in zip(predictions, source):
        said, known = ([s for s in tokens.sentences(side) if len(s) > SHORTEST] for side in (text, given))
        chances = iter(judged([(premise, claim) for claim in said for premise in known], model, device))
        values = []
        for _ in said if known else ():
            entailed, contradicted = zip(*(next(chances) for _ in known))
            values.append(max(entailed) - max(contradicted))
        out.append(sum(values) / len(values) if values else 0.0)
    return out


SCORES = (
    family.Score(
        "consistency",
        "consistency (SummaC-ZS form)",
        consistency,
        range=(-1.0, 1.0),
        columns=("source",),
        needs="models/<a classifier of natural language inference>",
        settings=("model", "device"),
        required=("model",),
        note="says of one NLI model what it says; sentences cut by a rule; not the SummaC package",
    ),
)


class Consistency(family.Family):
    """Entailment less contradiction, in [-1, 1], averaged; column source, settings model (folder or hub id), device."""

    scores = SCORES
