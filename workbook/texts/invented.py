"""Invented words: those of a text that no training text has, beside the same of people's texts.

A model of parts of words can write what is no word ("spectaclarly"). People do too, and use names and rare words that
no training text has; so a share says something only beside that of unseen human text of the same length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

LETTERS = re.compile(r"[^\W\d_]+")
RESAMPLES = 2000


def words_of(text: str) -> list[str]:
    """The runs of letters of a text, in lower case: ``"It's 7/10"`` has ``it`` and ``s``."""
    return LETTERS.findall(text.lower())


def known_words(texts: Iterable[str]) -> frozenset[str]:
    """Every word of the training texts."""
    return frozenset(word for text in texts for word in words_of(text))


def as_long_as(texts: Sequence[str], models: Sequence[str]) -> list[str]:
    """The beginning of each text, with as many words as the one of ``models`` at its place (or all that it has).

    Raises: ValueError for fewer texts than models.
    """
    if len(texts) < len(models):
        raise ValueError(f"expected a human text for each of {len(models)} samples, found {len(texts)}")
    return [_first(text, len(words_of(model))) for text, model in zip(texts, models)]


def _first(text: str, words: int) -> str:
    if words == 0:
        return ""
    for number, found in enumerate(LETTERS.finditer(text), 1):
        if number == words:
            return text[: found.end()]
    return text


def counts(texts: Sequence[str], known: frozenset[str]) -> np.ndarray:
    """[N, 2] int64: the invented words and the words of each text."""
    rows = [words_of(text) for text in texts]
    return np.array([[sum(word not in known for word in row), len(row)] for row in rows], dtype=np.int64).reshape(-1, 2)


def beside(samples: Sequence[str], human: Sequence[str], known: frozenset[str], seed: int = 0) -> dict:
    """Shares of invented words in samples and in human text that is cut to their length, and how many times as large.

    times: share of the samples / share of the human text; low, high: its 95 % interval, a percentile bootstrap over
    texts (words of one text depend on each other). human: at least as many texts as samples, unseen in training.
    None in ``times``, ``low``, ``high`` where the human text has no invented word (in too many resamples).
    Raises: ValueError for samples without a word, or too few human texts.
    """
    ours, theirs = counts(samples, known), counts(as_long_as(human, samples), known)
    if not ours[:, 1].sum() or not theirs[:, 1].sum():
        raise ValueError("invented words: there is not a word in the samples, or in the human texts")
    pick = np.random.default_rng(seed).integers(len(ours), size=(2, RESAMPLES, len(ours)))
    share = lambda table: table[..., 0].sum(-1) / np.maximum(table[..., 1].sum(-1), 1)
    above, below = share(ours[pick[0]]), share(theirs[pick[1]])
    whole = below.min() > 0
    low, high = np.percentile(above / below, [2.5, 97.5]) if whole else (None, None)
    mine, beside_it = float(share(ours)), float(share(theirs))
    return {
        "samples": len(ours),
        "words": int(ours[:, 1].sum()),
        "share": mine,
        "human_words": int(theirs[:, 1].sum()),
        "human_share": beside_it,
        "times": mine / beside_it if beside_it else None,
        "low": None if low is None else float(low),
        "high": None if high is None else float(high),
    }
