"""Small language models from scratch: GPT-2's shape, random weights, trained on texts, measured in bits per byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from rlnlp.types import stream
from workbook.draws.tokenizer import encode
from workbook.draws.training import TrainingError, fit, keep_memory


def new_language_model(tokenizer, settings, seed: int):
    """A GPT-2-shaped model with random weights. settings: layers, width, heads, context, dropout."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=settings.context,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        resid_pdrop=settings.dropout,
        embd_pdrop=settings.dropout,
        attn_pdrop=settings.dropout,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own formula, computed in one kernel
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "language model"))
        model = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(
        do_sample=True,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    return model


def train_language_model(
    texts: Sequence[str],
    tokenizer,
    settings,
    seed: int,
    checkpoint_folder: str | Path | None = None,
    progress: str = "",
    device: str = "cpu",
    save_every_s: float = 20.0,
):
    """Train a GPT2LMHeadModel from scratch on the texts; returns (model in eval mode, loss curve).

    The texts, each followed by <eos>, are one long row of tokens with <eos> in front. Epoch e cuts it from a random
    offset into rows of ``settings.context`` and shuffles them; a step takes the next ``batch_size`` rows, so batches
    depend on the step alone. AdamW (0.9, 0.99), decay on matrices only, linear warm-up, cosine to 2 %, fp32.
    settings: workbook.draws.shapes.LanguageModel. checkpoint_folder: a kill continues from the state there, digit for
    digit on one CPU thread. progress: label of the bar on stderr, "" for none. Loss curve: list of (step, mean nats
    per token since the entry before), 100 entries at most.
    Raises TrainingError for fewer tokens than one row, and for a loss or gradient that is not finite (names the step).
    """
    keep_memory()
    tokens = one_row(encode(tokenizer, texts), tokenizer.eos_token_id).to(device)
    rows = len(tokens) // settings.context - 1
    if rows < 1:
        raise TrainingError(
            f"language_model.context: {settings.context} tokens a row need at least {2 * settings.context} tokens of "
            f"text, got {len(tokens)}"
        )
    model = new_language_model(tokenizer, settings, seed).to(device).train()

    def loss_at(step: int) -> Tensor:
        batch = batch_of(tokens, rows, step, settings, seed)
        if settings.dropout:
            torch.manual_seed(stream(seed, "dropout", step))
        logits = model(batch[:, :-1], use_cache=False).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    curve = fit(
        "language model", model, settings, settings.steps, loss_at, 100, checkpoint_folder, progress, save_every_s
    )
    return model.eval(), curve


def one_row(documents: list[list[int]], end: int) -> Tensor:
    """All documents as one row of ids, <eos> in front of each and at the end."""
    return torch.tensor([end] + [token for document in documents for token in (*document, end)])


def batch_of(tokens: Tensor, rows: int, step: int, settings, seed: int) -> Tensor:
    """Rows [batch_size, context + 1] of a step: a function of step and seed only."""
    picked, size = [], settings.context
    for place in range(step * settings.batch_size, (step + 1) * settings.batch_size):
        epoch, index = divmod(place, rows)
        offset, order = _epoch(len(tokens), rows, size, seed, epoch)
        begin = offset + int(order[index]) * size
        picked.append(tokens[begin : begin + size + 1])
    return torch.stack(picked)


_epochs: dict[tuple, tuple[int, Tensor]] = {}


def _epoch(length: int, rows: int, size: int, seed: int, epoch: int) -> tuple[int, Tensor]:
    key = (length, rows, size, seed, epoch)
    if key not in _epochs:
        draw = torch.Generator().manual_seed(stream(seed, "epoch", epoch))
        offset = int(torch.randint(0, min(size, length - rows * size), (), generator=draw))
        if len(_epochs) > 4:
            _epochs.clear()
        _epochs[key] = offset, torch.randperm(rows, generator=draw)
    return _epochs[key]


@torch.no_grad()
def bits_per_byte(model, tokenizer, texts: Sequence[str], batch_size: int = 32) -> float:
    """Bits per byte of the texts under a causal model: -sum log2 p / utf-8 bytes.

    Each text is a document: it starts after <eos>, and all its tokens and its closing <eos> are predicted; <eos> has
    no bytes. Windows of the model's context move by half of it, so a token sees at least half a context where there is
    one. ``ngram.KneserNey.bits_per_byte`` keeps the same rule.
    """
    size, end, device = model.config.max_position_embeddings, tokenizer.eos_token_id, model.device
    windows = [w for ids in encode(tokenizer, texts) for w in windows_of([end, *ids, end], size)]
    windows.sort(key=lambda w: len(w[0]))
    total, was_training = 0.0, model.training
    model.eval()
    for begin in range(0, len(windows), batch_size):
        part = windows[begin : begin + batch_size]
        ids = torch.full((len(part), max(len(w) for w, _ in part)), end)
        targets = torch.full_like(ids, -100)
        for row, (window, skip) in enumerate(part):
            ids[row, : len(window)] = torch.tensor(window)
            targets[row, skip : len(window)] = ids[row, skip : len(window)]
        logits = model(ids[:, :-1].to(device), use_cache=False).logits
        total += float(
            nn.functional.cross_entropy(
                logits.flatten(0, 1).double(), targets[:, 1:].flatten().to(device), reduction="sum"
            )
        )
    model.train(was_training)
    return total / math.log(2) / sum(len(text.encode()) for text in texts)


def windows_of(ids: list[int], size: int) -> list[tuple[list[int], int]]:
    """(ids of at most size + 1 tokens, how many at its start are not predicted here) so that each is predicted once."""
    out, begin, done = [], 0, 1
    while True:
        window = ids[begin : begin + size + 1]
        out.append((window, done - begin))
        done = begin + len(window)
        if done >= len(ids):
            return out
        begin += max(1, size // 2)
