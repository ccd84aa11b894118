"""Texts that a language model writes on its own, from the end token that stands in front of every document."""

from __future__ import annotations

import torch

from rlnlp.rollout import sample
from rlnlp.types import Prompts, Sampling, generator

BATCH = 100


def write(model, tokenizer, number: int, seed: int) -> list[str]:
    """``number`` texts at temperature 1 from all tokens, each until its end or the model's context is full.

    Nothing is selected. A text that the context cuts loses its last run of letters, which may be a part of a word.
    The same model and seed give the same texts; fewer of them are the first ones of each batch of 100.
    """
    end, room = tokenizer.eos_token_id, model.config.max_position_embeddings - 1
    sampling = Sampling(eos_id=end, pad_id=tokenizer.pad_token_id, max_new_tokens=room)
    texts: list[str] = []
    for begin in range(0, number, BATCH):
        rows = min(BATCH, number - begin)
        ids = torch.full((rows, 1), end, device=model.device)
        names = [str(begin + row) for row in range(rows)]
        starts = Prompts(ids, torch.ones_like(ids, dtype=torch.bool), [""] * rows, [[]] * rows, names)
        made = sample(model, starts, sampling, generator(seed, "prose samples", begin))
        for response, mask, ended in zip(made.responses, made.mask, made.terminated):
            text = tokenizer.decode(response[mask], skip_special_tokens=True)
            texts.append(text.strip() if ended else without_last_word(text))
    return texts


def without_last_word(text: str) -> str:
    """The text up to its last run of letters: ``"a good fil"`` becomes ``"a good"``."""
    kept = text.rstrip()
    while kept and kept[-1].isalpha():
        kept = kept[:-1]
    return kept.strip()
