"""Reward functions: from a response's text to one score, or to one score per token.

What a reward function is, ``rlnlp.scoring`` says. Those of texts here can be called by TRL too.
"""

# Absolute imports, so that this file itself can be named as "rlnlp/rewards.py:dates" in bring.reward.
from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path

import torch
from torch import Tensor

from rlnlp import pretrained
from rlnlp.scoring import Reward, RewardError, TokenReward, callable_by_trl, evaluate_reward, name_of
from rlnlp.settings import nearest
from rlnlp.types import Prompts, take


# ------------------------------------------------------------------------------------------------- reward functions
def classifier_reward(
    model,
    tokenizer=None,
    label: int | str = 1,
    include_prompt: bool = True,
    batch_size: int = 64,
    max_tokens: int | None = None,
    device: str | torch.device | None = None,
    separator: str | None = None,
) -> Reward:
    """Probability that a sequence classifier gives to one label; RL4LMs' ``learned_reward``.

        score = softmax(classifier(prompt + separator + response))[label]

    model           a ``save_pretrained`` folder or hub id, or a model already loaded (then ``tokenizer`` is needed)
    label           column of the softmax, or its name in the model's ``label2id``
    include_prompt  the original's choice; False scores the response alone
    batch_size      texts per forward pass; texts are sorted by length first, so that little is padding
    max_tokens      longer texts lose their beginning (truncation side left); None = what model and tokenizer allow
    device          where the model is moved; None = where it is
    separator       between prompt and response where neither has white space at the seam; None = nothing for a
                    tokenizer to which a leading space matters (byte-level BPE), else one space (word level, WordPiece)
    Returns         a reward function; its scores are [B] float32 in (0, 1), evaluation mode, no gradient
    Raises          RewardError  cannot be loaded, one output only, unknown label, more tokens than positions, no batch
    An empty text is scored as one end-of-text token. A saturated classifier (all scores near 0 or 1) is a flat reward.
    """
    if batch_size < 1:
        raise RewardError(f"classifier_reward: batch_size {batch_size}: expected 1 or more")
    if isinstance(model, (str, Path)):
        name = f"classifier_reward({Path(model).name})"
        model, tokenizer = _load_classifier(model, tokenizer)
    else:
        name = f"classifier_reward({type(model).__name__})"
        if tokenizer is None:
            raise RewardError(f"{name}: a loaded model needs its tokenizer")
    model = model.to(device).eval() if device is not None else model.eval()
    config = model.config
    index = _label_index(name, config, label)
    tokenizer = copy.deepcopy(tokenizer)  # the caller's keeps its own sides
    tokenizer.truncation_side = "left"
    end, pad = _end_and_pad(name, tokenizer)
    if not 0 <= (getattr(config, "pad_token_id", None) or 0) < config.vocab_size or config.pad_token_id is None:
        config.pad_token_id = pad
    pad = config.pad_token_id  # GPT-2-shaped classifiers read the last token that is not this one
    longest = _token_limit(name, model, tokenizer, max_tokens)
    separator = _default_separator(tokenizer) if separator is None else separator

    @callable_by_trl
    @torch.no_grad()
    def reward(prompts, responses, references=None, meta=None) -> Tensor:
        model.eval()
        texts = [join(p, r, separator) for p, r in zip(prompts, responses)] if include_prompt else list(responses)
        rows = [ids or [end] for ids in tokenizer(texts, truncation=True, max_length=longest)["input_ids"]]
        return _label_probabilities(model, rows, pad, index, batch_size)

    reward.__name__ = name
    return reward


def _label_probabilities(model, rows: list[list[int]], pad: int, index: int, batch_size: int) -> Tensor:
    """softmax(model(row))[index] of each of ``rows``, token ids of any lengths: [B] float32 on the CPU."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    scores = torch.zeros(len(rows))
    for start in range(0, len(order), batch_size):
        chunk = order[start : start + batch_size]
        width = len(rows[chunk[-1]])
        ids = torch.tensor([rows[i] + [pad] * (width - len(rows[i])) for i in chunk], device=model.device)
        mask = torch.tensor([[1] * len(rows[i]) + [0] * (width - len(rows[i])) for i in chunk], device=model.device)
        logits = model(input_ids=ids, attention_mask=mask).logits
        scores[chunk] = logits.float().softmax(-1)[:, index].cpu()
    return scores


def _load_classifier(folder: str | Path, tokenizer):
    from transformers import AutoModelForSequenceClassification

    try:
        model = pretrained.read_model(AutoModelForSequenceClassification, folder)
        tokenizer = tokenizer or pretrained.read_tokenizer(folder)
        pretrained.check_tokens(model, tokenizer, folder)
        return model, tokenizer
    except ValueError as error:
        raise RewardError(f"classifier_reward({folder}): cannot be loaded: {error}") from error


def _label_index(name: str, config, label: int | str) -> int:
    if config.num_labels < 2:
        raise RewardError(f"{name}: the model has {config.num_labels} output; a softmax needs two labels or more")
    if isinstance(label, str):
        if label not in config.label2id:
            names = list(config.label2id)
            raise RewardError(f"{name}: no label {label!r} among {', '.join(names[:8])}{nearest(label, names, 0.5)}")
        return int(config.label2id[label])
    if not 0 <= label < config.num_labels:
        raise RewardError(f"{name}: label: expected 0 to {config.num_labels - 1}, got {label}")
    return label


def _end_and_pad(name: str, tokenizer) -> tuple[int, int]:
    """Ids of the token that stands for an empty text, and of the one that pads."""
    special = [tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id, tokenizer.pad_token_id]
    end = next((token for token in special if token is not None), None)
    if end is None:
        raise RewardError(f"{name}: the tokenizer has no eos, sep, cls or pad token, so that nothing can be padded")
    return end, tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end


def _token_limit(name: str, model, tokenizer, max_tokens: int | None) -> int:
    """``max_tokens`` if model and tokenizer allow it; None = the most that they allow."""
    positions = getattr(model.config, "max_position_embeddings", None)
    for place, layer in model.named_modules():  # RoBERTa: 514, of which 512 come after the one that padding has
        if place.endswith("position_embeddings") and getattr(layer, "padding_idx", None) is not None:
            positions = layer.num_embeddings - layer.padding_idx - 1
    limit = min(size for size in (positions, tokenizer.model_max_length, 10**6) if size)
    longest = limit if max_tokens is None else max_tokens
    if not 1 <= longest <= limit:
        raise RewardError(f"{name}: max_tokens: expected 1 to {limit}, what model and tokenizer allow, got {longest}")
    return longest


def _default_separator(tokenizer) -> str:
    """Nothing for a tokenizer to which a leading space matters, else one space."""
    bare, spaced = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", " a"))
    return " " if bare == spaced else ""


def join(prompt: str, response: str, separator: str) -> str:
    seam = not prompt or not response or prompt[-1].isspace() or response[0].isspace()
    return prompt + response if seam else prompt + separator + response


@callable_by_trl
def increasing_numbers(prompts, responses, references=None, meta=None, min_tokens: int = 20) -> list[float]:
    """RL4LMs' toy task: how much of the text is a strictly increasing run of numbers.

        score = (length of the strictly increasing beginning of the number tokens) / max(tokens, min_tokens / 2)

    Tokens are split at white space; a number is what Python's ``float`` reads ("nan" and "inf" too, "1," not).
    Returns B floats in [0, 1]. "" gives 0; min_tokens / 2 numbers in order already give 1. Values as in the original.
    """
    return [_increasing(text.split(), min_tokens) for text in responses]


def _increasing(tokens: list[str], min_tokens: int) -> float:
    numbers = _numbers_in(tokens)
    later = (i for i, (a, b) in enumerate(itertools.pairwise(numbers), 1) if not b > a)
    length = next(later, len(numbers))
    return length / max(len(tokens), min_tokens / 2, 1)


@callable_by_trl
def ascending_pairs(prompts, responses, references=None, meta=None, length: int = 20) -> list[float]:
    """Share of neighbouring numbers of which the second is larger: the numbers task as the report on samplers words it.

        score = (pairs of neighbouring numbers that ascend) / (max(numbers, length) - 1)

    Numbers as in ``increasing_numbers``; what is none is passed over. length: numbers of a whole text, >= 2, so that a
    short text cannot score high. Returns B floats in [0, 1]. Ascending throughout gives 1, equal or falling pairs give
    0, numbers without order about 0.5. Unlike ``increasing_numbers`` one violation costs one pair, not the rest of the
    text.
    """
    if length < 2:
        raise ValueError(f"length: expected >= 2, the numbers of one pair, got {length}")
    return [_ascending(_numbers_in(text.split()), length) for text in responses]


def _ascending(numbers: list[float], length: int) -> float:
    return sum(b > a for a, b in itertools.pairwise(numbers)) / (max(len(numbers), length) - 1)


def _numbers_in(tokens: list[str]) -> list[float]:
    found = []
    for token in tokens:
        try:
            found.append(float(token))
        except ValueError:
            continue
    return found


@callable_by_trl
def dates(prompts, responses, references=None, meta=None) -> list[float]:
    """RL4LMs' ``sentences_with_dates``: 1 if the text contains four digits, two and two, joined by hyphens; else 0.

    Returns B floats. Not a calendar: 9999-99-99 is one, and so are digits inside a longer string; 2020-01-2 is none.
    """
    return [float(bool(re.search(r"\d{4}-\d{2}-\d{2}", text))) for text in responses]


def repeated_ngrams(n: int = 3, penalty: float = 1.0) -> TokenReward:
    """A token-level reward: -``penalty`` at each token that completes an n-gram of tokens this response already had.

    [B, T] float32, zero elsewhere. A response of fewer than n + 1 tokens, or of no token twice, gets 0 everywhere.
    Raises ValueError if n < 1.
    """
    if n < 1:
        raise ValueError(f"n: expected >= 1, got {n}")

    def repeats(prompts: Prompts, responses: Tensor, mask: Tensor) -> Tensor:
        out = torch.zeros(mask.shape)
        for row, (tokens, length) in enumerate(zip(responses.tolist(), mask.sum(1).tolist())):
            seen = set()
            for t in range(n - 1, length):
                gram = tuple(tokens[t - n + 1 : t + 1])
                out[row, t] = -penalty if gram in seen else 0.0
                seen.add(gram)
        return out

    repeats.__name__ = f"repeated_ngrams({n})"
    return repeats


def increments(reward: Reward, tokenizer) -> TokenReward:
    """A reward of whole texts, paid token by token: at each token what the text so far has gained by it.

        r_t = f(text of tokens 0..t) - f(text of tokens 0..t-1),   f(nothing) = 0

    tokenizer: decodes the tokens so far, special tokens left out. A row sums to f of the response (in float32: to about
    1e-7), so both payments mean the same task; only where credit goes differs. A token that lowers f is paid a negative
    reward, one that f does not notice gets 0. Costs a call of ``reward`` on one text for each token.
    Raises RewardError as ``evaluate_reward``.
    """

    def paid(prompts: Prompts, responses: Tensor, mask: Tensor) -> Tensor:
        real = mask.cpu()
        rows, columns = real.nonzero(as_tuple=True)
        tokens = responses.tolist()
        texts = [tokens[row][: column + 1] for row, column in zip(rows.tolist(), columns.tolist())]
        so_far, _ = evaluate_reward(
            reward, take(prompts, rows), tokenizer.batch_decode(texts, skip_special_tokens=True)
        )
        running = torch.zeros(real.shape, dtype=torch.float64)
        running[rows, columns] = so_far.double()
        gained = torch.diff(running, dim=1, prepend=running.new_zeros(len(real), 1))
        return gained.masked_fill(~real, 0.0)

    paid.__name__ = f"increments({name_of(reward)})"
    return paid
