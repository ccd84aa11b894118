"""BERTScore (Zhang et al. 2020, arXiv:1904.09675) on an encoder of one's own: no idf weights, no rescaling."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from rlnlp import pretrained
from workbook.scores import family

# id on the hub -> (its language, "" = many; hidden layer), as bert-score 0.3 chooses them
MODELS = {"roberta-large": ("en", 17), "bert-base-multilingual-cased": ("", 9)}
BATCH = 64


@functools.lru_cache(2)
def _loaded(model: str, device: str):
    from transformers import AutoModel

    # a model trained on masked words has no pooler, and none is needed
    tokenizer, encoder = pretrained.read_tokenizer(model), pretrained.read_model(AutoModel, model, "pooler.")
    longest = min(tokenizer.model_max_length, encoder.config.max_position_embeddings - 2)  # RoBERTa's begin at 2
    return tokenizer, encoder.to(device), longest


@torch.no_grad()
def embedded(texts: list[str], model: str, layer: int, device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each text the unit vectors [n, D] of its tokens, special ones too, and which are no special ones [n]."""
    tokenizer, encoder, longest = _loaded(model, device)
    options = {"padding": True, "truncation": True, "max_length": longest, "return_special_tokens_mask": True}
    batch = tokenizer(texts, return_tensors="pt", **options).to(device)
    special, mask = batch.pop("special_tokens_mask").bool(), batch["attention_mask"].bool()
    hidden = encoder(**batch, output_hidden_states=True).hidden_states[layer]
    vectors = torch.nn.functional.normalize(hidden, dim=-1)
    return [(vectors[row][mask[row]], ~special[row][mask[row]]) for row in range(len(texts))]


def similarity(ours: tuple, theirs: tuple) -> float:
    """F of P and R: each token's best cosine in the other text, averaged. The marks of beginning and end may be matched
    but are not averaged (as in bert-score). 0.0 if one of the texts has no token."""
    (a, a_words), (b, b_words) = ours, theirs
    if not a_words.any() or not b_words.any():
        return 0.0
    cosine = (a @ b.T).clamp(-1, 1)
    precision, recall = cosine.amax(1)[a_words].mean().item(), cosine.amax(0)[b_words].mean().item()
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def bertscore(
    predictions: list[str],
    references: list[list[str]],
    model: str,
    language: str,
    layer: int | None = None,
    device: str = "cpu",
) -> list[float]:
    """Each response's best F over its references. layer: of the hidden states; None: the published one of a model of
    ``MODELS``, else the last; device: of the model. Texts longer than the model takes are cut."""
    layer = MODELS.get(Path(model).name, ("", -1))[1] if layer is None else layer
    out = []
    for start in range(0, len(predictions), BATCH):
        part = [*zip(predictions[start : start + BATCH], references[start : start + BATCH])]
        texts = sorted({text for ours, row in part for text in (ours, *row)}, key=lambda text: (len(text), text))
        vectors = {}
        for first in range(0, len(texts), BATCH):
            some = texts[first : first + BATCH]
            vectors |= zip(some, embedded(some, model, layer, device))
        out += [max(similarity(vectors[text], vectors[given]) for given in row) for text, row in part]
    return out


def _reads(model: str, language: str, layer: int | None = None, device: str = "cpu") -> None:
    known = MODELS.get(Path(model).name, ("",))[0]
    if known and known != language:
        many = [name for name, (of, _) in MODELS.items() if not of]
        raise family.ScoreError(
            f"score bertscore: {Path(model).name} reads {known!r}, the responses are {language!r}; expected a model of "
            f"that language, or of many ({', '.join(many)})"
        )


SCORES = (
    family.Score(
        "bertscore",
        "BERTScore F1",
        bertscore,
        range=(-1.0, 1.0),
        needs="models/<an encoder>, published: roberta-large for English, else bert-base-multilingual-cased",
        settings=("model", "language", "layer", "device"),
        required=("model", "language"),
        check=_reads,
        note="no idf weights, not rescaled",
    ),
)


class Bertscore(family.Family):
    """F1 of BERTScore, in [-1, 1]: of each response its best reference, averaged; settings model (folder or hub id),
    language of the responses, layer, device."""

    scores = SCORES
