"""One raw model a draw, from which every task starts: T5's shape from scratch, as T5-base was for the paper.

It has seen text (span denoising) and a mix of whole tasks, and none of the benchmark's references. Denoising as in
Raffel et al. 2020 (arXiv:1910.10683): spans are replaced by sentinels, and the target says what each stood for, or (its
section 3.3.1, "BERT-style") the whole text, from which a small model learns to copy many steps earlier.
``causal`` is its GPT-2-shaped sister for the tasks that continue a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rlnlp.types import stream
from workbook.draws.language_model import train_language_model
from workbook.draws.shapes import MANY, STEPS, LanguageModel, Shape
from workbook.draws.tokenizer import encode
from workbook.draws.training import fit, keep_memory
from workbook.store.files import folder_hash
from workbook.texts import hub

PAD, END, UNKNOWN, SENTINELS = "<pad>", "</s>", "<unk>", 32
NAMED = [f"<extra_id_{i}>" for i in range(SENTINELS)]
PIECE = r"<[^<>\s]+>|[\w'-]+|[^\w\s]"  # a <name>, a word, a mark
ATTENTION = "eager"  # T5's own on a processor: it takes 7 % less of a training step than torch's fused one
MIXED = tuple[str, str]  # a prompt of the mix and its answer


def content(named: str) -> dict[str, str]:
    """A model of others: its name and, where it lies in a folder, the hash of its content."""
    place = hub.find("models", named)
    return {"model": named, "content": folder_hash(place) if isinstance(place, Path) else ""}


class Raw(Shape):
    """A T5-shaped model trained from scratch."""

    steps: int = Field(ge=1, le=STEPS, description="optimiser steps")
    batch_size: int = Field(64, ge=1, le=MANY, description="rows per optimiser step")
    mixed: float = Field(0.5, ge=0, le=1, description="share of the rows that are of the mix, not denoised text")
    vocabulary: int = Field(0, ge=0, le=MANY, description="tokens of a BPE of the texts; 0 = a token a word")
    texts: int = Field(4000, ge=1, le=MANY, description="texts of the draw to denoise")
    pairs: int = Field(4000, ge=1, le=MANY, description="prompts and answers of the mix")
    noise: float = Field(0.15, gt=0, lt=1, description="share of a text's tokens that is masked; T5 0.15")
    full: float = Field(
        0.5, ge=0, le=1, description="share of the denoised rows whose target is the whole text: they teach to copy"
    )
    span: float = Field(3.0, ge=1, le=100, description="mean length of a masked span, tokens; T5 3")
    learning_rate: float = Field(2e-3, gt=0, le=1, description="AdamW peak, cosine decay")
    warmup_fraction: float = Field(0.05, ge=0, lt=1, description="share of steps with linear warm-up")
    weight_decay: float = Field(0.01, ge=0, le=1e3, description="AdamW, on matrices only")
    max_grad_norm: float = Field(1.0, gt=0, le=1e6, description="L2 norm at which gradients are clipped")


def pieces(texts: Iterable[str]) -> list[str]:
    """The distinct words, marks and <names> of texts, sorted: what a word tokenizer must know."""
    return sorted({piece for text in texts for piece in re.findall(PIECE, text)})


def t5_tokenizer(words: Sequence[str] = (), texts: Sequence[str] = (), vocabulary: int = 0):
    """T5's conventions over our own words: <pad> 0, </s> 1, <unk> 2, the words, then 32 sentinels; </s> ends a prompt.

    One token for each of ``words`` (a mark is a word, wherever it stands), or byte-level BPE of ``vocabulary`` tokens
    learned from ``texts``.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    specials = [PAD, END, UNKNOWN]
    if vocabulary:
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary - SENTINELS, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
    else:
        inner = _of_words(specials, words)
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in NAMED])
    inner.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 1)])
    return _whole(inner, additional_special_tokens=NAMED)


def causal_tokenizer(words: Sequence[str]):
    """The same words for a decoder-only model: its </s> both ends a text and precedes it, and nothing is added."""
    return _whole(_of_words([PAD, END, UNKNOWN], words), bos_token=END)


def _of_words(specials: Sequence[str], words: Sequence[str]):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    table = {word: i for i, word in enumerate(dict.fromkeys([*specials, *words]))}
    inner = Tokenizer(models.WordLevel(table, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "removed", invert=True)
    return inner


def _whole(inner, **more):
    from transformers import PreTrainedTokenizerFast

    names = {"eos_token": END, "pad_token": PAD, "unk_token": UNKNOWN, **more}
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, padding_side="left", clean_up_tokenization_spaces=False, **names
    )


def new_t5(tokenizer, shape: Shape, seed: int):
    """T5 1.1's shape (gated GELU) with random weights, input and output embedding tied, no dropout."""
    from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration

    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=shape.width,
        d_kv=shape.width // shape.heads,
        d_ff=2 * shape.width,
        num_layers=shape.layers,
        num_heads=shape.heads,
        feed_forward_proj="gated-gelu_pytorch_tanh",  # T5's tanh approximation of GELU, as one operation of torch
        attn_implementation=ATTENTION,
        tie_word_embeddings=True,
        dropout_rate=0.0,
        decoder_start_token_id=tokenizer.pad_token_id,
        **ids,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "raw"))
        model = T5ForConditionalGeneration(config)
    model.generation_config = GenerationConfig(decoder_start_token_id=tokenizer.pad_token_id, **ids)
    return model


def parts(total: int, count: int, draw: np.random.Generator) -> np.ndarray:
    """``total`` as a sum of ``count`` whole numbers >= 1, each way equally likely."""
    cuts = np.sort(draw.choice(total - 1, count - 1, replace=False)) + 1 if count > 1 else np.array([], int)
    return np.diff([0, *cuts, total])


def denoise(
    ids: Sequence[int], sentinels: Sequence[int], end: int, noise: float, span: float, draw: np.random.Generator
) -> tuple[list[int], list[int]]:
    """(input, target): spans of ``ids`` become sentinels, and the target is each sentinel with what it stood for.

    A share ``noise`` of the tokens, at least one and never all, in spans of ``span`` tokens on average. Kept and masked
    stretches alternate, a kept one first; both sides end in ``end``. Raises ``ValueError`` for fewer than two tokens.
    """
    if len(ids) < 2:
        raise ValueError(f"denoise: expected a text of at least 2 tokens, got {len(ids)}")
    masked = min(max(1, round(noise * len(ids))), len(ids) - 1)
    spans = min(max(1, round(masked / span)), masked, len(ids) - masked, len(sentinels))
    kept, hidden = parts(len(ids) - masked, spans, draw), parts(masked, spans, draw)
    source, target, at = [], [], 0
    for sentinel, keep, hide in zip(sentinels, kept, hidden, strict=False):
        source += [*ids[at : at + keep], sentinel]
        target += [sentinel, *ids[at + keep : at + keep + hide]]
        at += keep + hide
    return [*source, end], [*target, end]


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Rows of ids as one tensor [B, longest], right padded."""
    out = torch.full((len(rows), max(map(len, rows))), fill)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


def mean_loss(model, rows: Sequence[tuple[Sequence[int], Sequence[int]]], pad: int) -> Tensor:
    """Mean nats per target token of (input, target) rows. Short inputs are not padded to the length of long ones."""
    ordered = sorted(rows, key=lambda row: len(row[0]))
    groups = [ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]]
    losses, tokens = [], sum(len(target) for _, target in rows)
    for group in filter(None, groups):
        ids, labels = padded([source for source, _ in group], pad), padded([target for _, target in group], -100)
        loss = model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss
        losses.append(loss * (sum(len(target) for _, target in group) / tokens))
    return torch.stack(losses).sum()


def train_t5(
    texts: Sequence[str],
    mix: Sequence[MIXED],
    tokenizer,
    settings: Raw,
    seed: int,
    states: str | Path | None = None,
    progress: str = "",
    save_every_s: float = 20.0,
):
    """(T5 in evaluation mode, loss curve: (step, mean nats per target token since the entry before)).

    A step's rows are drawn with replacement from the texts and the mix, by seed and step alone. states: a kill
    continues from there. Raises ``TrainingError`` as ``fit``; ``ValueError`` for a text of one token.
    """
    keep_memory()
    documents, end = encode(tokenizer, texts), tokenizer.eos_token_id
    asked, answered = (encode(tokenizer, [pair[side] for pair in mix]) for side in (0, 1))
    sentinels = tokenizer.convert_tokens_to_ids(NAMED)
    model = new_t5(tokenizer, settings, seed).train()
    mixed = round(settings.mixed * settings.batch_size)
    full = round(settings.full * (settings.batch_size - mixed))

    def loss_at(step: int) -> Tensor:
        draw = np.random.default_rng(stream(seed, "raw", step))
        rows = []
        for place, i in enumerate(draw.integers(len(documents), size=settings.batch_size - mixed)):
            source, target = denoise(documents[i], sentinels, end, settings.noise, settings.span, draw)
            rows.append((source, [*documents[i], end] if place < full else target))
        chosen = draw.integers(len(asked), size=mixed) if mixed else ()
        rows += [([*asked[i], end], [*answered[i], end]) for i in chosen]
        return mean_loss(model, rows, tokenizer.pad_token_id)

    curve = fit("raw model", model, settings, settings.steps, loss_at, 50, states, progress, save_every_s)
    return model.eval(), curve


def train_causal(
    texts: Sequence[str],
    tokenizer,
    settings: LanguageModel,
    seed: int,
    states: str | Path | None = None,
    progress: str = "",
):
    """(GPT-2-shaped model, loss curve) of the same texts, for tasks that continue a text."""
    return train_language_model(texts, tokenizer, settings, seed, states, progress)
