"""Examples to ``rlnlp.types.Prompts``: of a prompt that is too long only the body is shortened.

The prompt is tokenised as one string. Where that is too many tokens, tokens of the body are taken away, from its right
or left end as the example says; all others stay, those that a tokenizer adds on its own (T5's EOS, a BOS) among them.
So where nothing is cut a prompt's tokens are the tokenizer's own for the whole string.

Which tokens are the body's is read from where each lies in the string. A tokenizer that does not say so (ByT5's, which
is no fast one) is asked for the three parts instead, and refused where its tokens of the parts are others than those of
the whole. They are others in GPT-2's and BART's (a blank belongs to the word after it), T5's and mT5's (a blank is put
before every text): these are fast, and never asked for parts. They are the same in ByT5's and in word-level ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlnlp.types import Prompts
from workbook.grue.example import Example
from workbook.texts.hub import DataError


def encode(examples: Sequence[Example], tokenizer, prompt_tokens: int) -> Prompts:
    """Prompts of at most ``prompt_tokens`` tokens each.

    tokenizer: a transformers tokenizer.
    Returns: ids [B, P] int64, left padded, P the longest row; texts: the whole prompts, also what was cut; references:
    all of them, [] where hidden; meta: the example's, with "source" (the text without instruction and question) and
    "cut", the number of tokens taken away.
    Raises: DataError where there is no example, a prompt has no token, or what is never shortened is alone too long,
    naming the example's id and the numbers; for a limit below 1.
    """
    if prompt_tokens < 1:
        raise DataError(f"prompt_tokens: expected >= 1, got {prompt_tokens}")
    if not examples:
        raise DataError("prompts: no examples")
    whole = tokenizer([example.prompt for example in examples], verbose=False)["input_ids"]
    kept = []
    for example, ids in zip(examples, whole):
        if not ids:
            raise DataError(f"prompt {example.id}: no tokens (an empty text)")
        kept.append(ids if len(ids) <= prompt_tokens else _shortened(example, ids, tokenizer, prompt_tokens))
    B, P = len(kept), max(map(len, kept))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ids, mask = torch.full((B, P), pad if pad is not None else 0), torch.zeros(B, P, dtype=torch.bool)
    for row, tokens in enumerate(kept):
        ids[row, P - len(tokens) :] = torch.tensor(tokens)
        mask[row, P - len(tokens) :] = True
    return Prompts(
        ids,
        mask,
        [example.prompt for example in examples],
        [list(example.references) for example in examples],
        [example.id for example in examples],
        [
            {**example.meta, "source": example.source, "cut": len(before) - len(after)}
            for example, before, after in zip(examples, whole, kept)
        ],
    )


def _shortened(example: Example, ids: list[int], tokenizer, limit: int) -> list[int]:
    """The tokens that are left of one prompt: ``limit`` of them, fewer only where a character would be cut in two."""
    first, last, joined = _body(example, ids, tokenizer)
    others = len(ids) - (last - first)
    if others > limit:
        raise DataError(
            f"prompt {example.id}: what is never shortened (all but the body) has {others} tokens, expected at most "
            f"{limit}; raise prompt_tokens"
        )
    drop = len(ids) - limit
    if example.shorten == "left":
        start = first + drop
        while start < last and start in joined:  # a token that goes on with the character before it
            start += 1
        return ids[:first] + ids[start:]
    stop = last - drop
    while stop > first and stop in joined:
        stop -= 1
    return ids[:stop] + ids[last:]


def _body(example: Example, ids: list[int], tokenizer) -> tuple[int, int, set[int]]:
    """(first token of the body, first one after it, places of tokens that go on with a character begun before them)."""
    if not getattr(tokenizer, "is_fast", False):
        return _by_parts(example, ids, tokenizer)
    text = example.prompt
    begin, end = len(example.before), len(example.before) + len(example.body)
    spans = tokenizer(text, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    joined = {n for n in range(1, len(spans)) if spans[n][0] < min(spans[n][1], spans[n - 1][1])}
    inside = []
    for place, (start, stop) in enumerate(spans):
        while start < stop - 1 and text[start].isspace():  # a blank that a token takes along does not say whose it is
            start += 1
        if start < stop and begin <= start and stop <= end:
            inside.append(place)
    if not inside:
        return len(ids), len(ids), joined
    return inside[0], inside[-1] + 1, joined


def _by_parts(example: Example, ids: list[int], tokenizer) -> tuple[int, int, set[int]]:
    parts = [tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"] for part in _parts(example)]
    joined = [token for part in parts for token in part]
    # what the tokenizer adds stands around the text's own tokens
    head = next((n for n in range(len(ids) - len(joined) + 1) if ids[n : n + len(joined)] == joined), None)
    if head is None:
        raise DataError(
            f"prompt {example.id}: the tokenizer gives other tokens for the prompt's parts than for the whole, and "
            f"does not say where a token lies; expected a fast tokenizer"
        )
    first = head + len(parts[0])
    return first, first + len(parts[1]), set()


def _parts(example: Example) -> tuple[str, str, str]:
    return example.before, example.body, example.after
