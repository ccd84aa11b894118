"""The transformer that pays the reward: a small sentiment classifier, trained on labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rlnlp.types import stream
from workbook.draws.tokenizer import encode
from workbook.draws.training import TrainingError, fit, keep_memory

LABELS = {0: "negative", 1: "positive"}


def new_classifier(tokenizer, settings, seed: int):
    """A small ModernBERT with random weights: rotary positions, mean of the tokens' states, so padding changes nothing.

    settings: layers, width, heads, max_tokens, dropout.
    """
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    end, drop = tokenizer.eos_token_id, settings.dropout
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=2 * settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        classifier_pooling="mean",
        max_position_embeddings=settings.max_tokens,
        global_attn_every_n_layers=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=end,
        eos_token_id=end,
        cls_token_id=end,
        sep_token_id=end,
        embedding_dropout=drop,
        mlp_dropout=drop,
        classifier_dropout=drop,
        id2label=LABELS,
        label2id={v: k for k, v in LABELS.items()},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "classifier"))
        return ModernBertForSequenceClassification(config)


def train_classifier(
    texts: Sequence[str],
    labels: Sequence[int],
    tokenizer,
    settings,
    seed: int,
    checkpoint_folder: str | Path | None = None,
    progress: str = "",
    device: str = "cpu",
    save_every_s: float = 20.0,
):
    """Train a sentiment classifier from scratch; returns (model in eval mode, loss curve).

    Each epoch shows every text once, as a random stretch of at most ``max_tokens`` of its tokens: the reward reads the
    beginnings of reviews, and a model that has seen only their last lines misreads those. Batches hold texts of
    similar length and depend on the step alone. AdamW as for language models, cross-entropy, fp32.
    settings: workbook.draws.shapes.RewardModel; labels: 0 negative, 1 positive. Resumes as ``train_language_model``.
    Raises TrainingError for labels of one class only, and for a loss or gradient that is not finite.
    """
    if set(labels) != set(LABELS):
        raise TrainingError(f"classifier: expected labels 0 and 1, both of them, got {sorted(set(labels))}")
    keep_memory()
    ids, truth = encode(tokenizer, texts), torch.tensor(labels)
    steps_per_epoch = math.ceil(len(ids) / settings.batch_size)
    model = new_classifier(tokenizer, settings, seed).to(device).train()
    random_state, order = torch.get_rng_state(), (-1, [], [])

    def loss_at(step: int) -> Tensor:
        nonlocal order
        epoch, index = divmod(step, steps_per_epoch)
        if order[0] != epoch:
            order = (epoch, *epoch_of(ids, settings, seed, epoch))
        rows = order[1][index]
        torch.manual_seed(stream(seed, "dropout", step))
        inputs, mask = padded([order[2][row] for row in rows], tokenizer.pad_token_id, device)
        logits = model(input_ids=inputs, attention_mask=mask).logits
        return nn.functional.cross_entropy(logits, truth[rows].to(device))

    steps = steps_per_epoch * settings.epochs
    curve = fit("classifier", model, settings, steps, loss_at, 50, checkpoint_folder, progress, save_every_s)
    torch.set_rng_state(random_state)
    return model.eval(), curve


def epoch_of(ids: list[list[int]], settings, seed: int, epoch: int) -> tuple[list[list[int]], list[list[int]]]:
    """(batches of row numbers, the stretch of each text) of an epoch."""
    rng = np.random.default_rng(stream(seed, "epoch", epoch))
    most = settings.max_tokens
    begins = rng.random(len(ids))
    stretches = [x[(b := int(f * (max(0, len(x) - most) + 1))) : b + most] for x, f in zip(ids, begins)]
    shuffled, batches, pool = rng.permutation(len(ids)), [], 16 * settings.batch_size
    for begin in range(0, len(ids), pool):
        near = sorted(shuffled[begin : begin + pool].tolist(), key=lambda row: len(stretches[row]))
        batches += [near[i : i + settings.batch_size] for i in range(0, len(near), settings.batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))], stretches


def padded(rows: list[list[int]], pad: int, device: str) -> tuple[Tensor, Tensor]:
    """(ids, mask) [B, T] of rows, padded on the right; an empty row is one pad token."""
    lengths = torch.tensor([max(1, len(row)) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return ids.to(device), mask.to(device)


@torch.no_grad()
def positive_probability(model, tokenizer, texts: Sequence[str], max_tokens: int, batch_size: int = 64) -> Tensor:
    """P(positive) [B] float32 of each text's last ``max_tokens`` tokens, in [0, 1]; an empty text is one pad token."""
    was_training = model.training
    model.eval()
    ids = [row[-max_tokens:] for row in encode(tokenizer, texts)]
    order, out = sorted(range(len(ids)), key=lambda i: len(ids[i])), torch.empty(len(ids))
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        inputs, mask = padded([ids[i] for i in rows], tokenizer.pad_token_id, model.device)
        out[rows] = model(input_ids=inputs, attention_mask=mask).logits.softmax(-1)[:, 1].cpu()
    model.train(was_training)
    return out


def accuracy(model, tokenizer, texts: Sequence[str], labels: Sequence[int], max_tokens: int) -> float:
    """Share of texts whose label the classifier gives, threshold .5."""
    scores = positive_probability(model, tokenizer, texts, max_tokens)
    return float(((scores > 0.5).long() == torch.tensor(labels)).double().mean())
