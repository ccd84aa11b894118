"""Prompts from strings: what a policy's episodes start from."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch

from rlnlp.models import context_of
from rlnlp.rollout import sampling_from
from rlnlp.trainable import check_weights
from rlnlp.types import Prompts, to
from rlnlp.vocabulary import limited

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def prompts_for(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    max_prompt_tokens: int | None = None,
    references: Iterable[Iterable[str]] | None = None,
    meta: Iterable[dict] | None = None,
) -> Prompts:
    """Strings to ``Prompts`` on the model's device. max_prompt_tokens: None = half of the model's context. references,
    meta: of each prompt, a list of responses as people wrote them and a dict of whatever a reward wants to know.

    Warns of a model that can choose tokens which the tokenizer does not have, of one that ends its texts with another
    token than the tokenizer does, and of prompts that are cut. Raises: ``ValueError`` for weights of 16 bits, which a
    learner cannot train, for a token that the model has no embedding for, what is no model or no list of strings, and
    as ``encode_prompts``.
    """
    if isinstance(texts, str):
        raise ValueError("texts: expected a list of prompts, got one string; for a single prompt, put it into a list")
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) > 1:
        raise ValueError(
            f"texts: expected a list of prompts, got a {type(texts).__name__}: give one column of it, texts[...]"
        )
    if not hasattr(model, "get_output_embeddings"):
        raise ValueError(
            f"model: expected a language model of transformers, then its tokenizer; got {type(model).__name__}"
        )
    if not model.can_generate():
        raise ValueError(
            "model: expected one that writes text, as AutoModelForCausalLM or AutoModelForSeq2SeqLM load it; got "
            f"{type(model).__name__}"
        )
    check_tokenizer(tokenizer)
    texts = list(texts)  # a column of a data set, an array, a series
    if (wrong := next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)) is not None:
        raise ValueError(f"texts: expected strings, got {type(texts[wrong]).__name__} at place {wrong}")
    if max_prompt_tokens is not None and max_prompt_tokens < 1:
        raise ValueError(f"max_prompt_tokens: expected 1 or more, got {max_prompt_tokens}")
    references, meta = (None if given is None else list(given) for given in (references, meta))
    if any(isinstance(row, str) for row in references or ()):
        raise ValueError("references: expected a list of strings for each prompt, got a string; put each into a list")
    check_weights(model)
    _check_vocabulary(model, tokenizer)
    most = max_prompt_tokens or context_of(model) // 2
    prompts = encode_prompts(texts, tokenizer, most, None, references and [list(row) for row in references], meta)
    # Not by the tokenizer's size: some have a token more than their model, which no text of theirs needs.
    largest, size = int(prompts.ids.max()), model.get_input_embeddings().num_embeddings
    if largest >= size:
        raise ValueError(
            f"texts: they have the token {largest} ({tokenizer.convert_ids_to_tokens(largest)!r}) and the model has "
            f"embeddings for {size}, 0 to {size - 1}; model.resize_token_embeddings(len(tokenizer)) adds untrained ones"
        )
    if cut := [known["cut"] for known in prompts.meta if known["cut"]]:
        warnings.warn(
            f"{len(cut)} of {len(texts)} prompts are longer than {most} tokens and lose their beginning, up to "
            f"{max(cut)} tokens; max_prompt_tokens says how many are kept (default: half of the model's context)",
            stacklevel=2,
        )
    return to(prompts, model.device)


def check_tokenizer(tokenizer: object) -> None:
    """Raise ``ValueError`` for what is no tokenizer of transformers."""
    if not hasattr(tokenizer, "batch_decode"):
        raise ValueError(f"tokenizer: expected the model's, of transformers; got {type(tokenizer).__name__}")


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Warn of tokens that the model can choose and the tokenizer does not have, and of different end tokens."""
    known, size = len(tokenizer), model.get_output_embeddings().out_features
    if size > known and not limited(model):
        warnings.warn(
            f"the model can choose {size} tokens and the tokenizer has {known}: the others are no text, and a learner "
            "that explores at random (DQN) draws them; rlnlp.vocabulary.limit_vocabulary(model, list(range("
            f"{known}))) takes them away",
            stacklevel=3,
        )
    try:
        end = sampling_from(model, 1).eos_id
    except ValueError:  # none, several, or one it cannot choose: a learner says so, and prompts are prompts
        return
    if tokenizer.eos_token_id not in (None, end):
        warnings.warn(
            f"the model's texts end with token {end} and the tokenizer's with {tokenizer.eos_token_id} "
            f"({tokenizer.eos_token!r}): an episode ends with the model's, which is right where a chat's turns end so; "
            "if not, model.generation_config.eos_token_id says what does",
            stacklevel=3,
        )


def encode_prompts(
    texts: list[str],
    tokenizer,
    max_prompt_tokens: int,
    example_ids: list[str] | None = None,
    references: list[list[str]] | None = None,
    meta: list[dict] | None = None,
) -> Prompts:
    """Strings to ``Prompts``: left padded, cut on the left.

    tokenizer: of the policy; what it adds on its own (BOS) is kept; max_prompt_tokens: of longer ones the end, after
    their BOS.
    references, meta: as in ``Prompts``; ``meta`` gets "cut", the number of tokens cut off. Raises ``ValueError`` where
    there are no prompts, and for a prompt without any token, naming its id.
    """
    if not texts:
        raise ValueError("prompts: an empty data set")
    example_ids = example_ids or [str(i) for i in range(len(texts))]
    meta = meta or [{} for _ in texts]
    encoded = tokenizer(texts, verbose=False)["input_ids"]
    for example_id, ids in zip(example_ids, encoded):
        if not ids:
            raise ValueError(f"prompt {example_id}: no tokens (an empty text)")
    kept = [_cut(ids, max_prompt_tokens, tokenizer.bos_token_id) for ids in encoded]
    B, P = len(kept), max(map(len, kept))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ids, mask = torch.full((B, P), pad if pad is not None else 0), torch.zeros(B, P, dtype=torch.bool)
    for row, tokens in enumerate(kept):
        ids[row, P - len(tokens) :] = torch.tensor(tokens)
        mask[row, P - len(tokens) :] = True
    meta = [{**known, "cut": len(all_) - len(some)} for known, all_, some in zip(meta, encoded, kept)]
    return Prompts(ids, mask, list(texts), references or [[] for _ in texts], example_ids, meta)


def _cut(ids: list[int], most: int, bos: int | None) -> list[int]:
    """The last ``most`` ids; where the text began with BOS, that and the last ``most - 1``."""
    if len(ids) <= most or ids[0] != bos or most == 1:
        return ids[-most:]
    return [bos, *ids[1 - most :]]
