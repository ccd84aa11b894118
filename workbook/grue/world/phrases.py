"""Text into sentences, sentences into phrases: what both grammars share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Table = dict[str, tuple[str, Any]]  # phrase -> (its letter, what it says)
LONGEST = 3  # words of a phrase
MOST_WORDS = 300  # a longer text is no answer to any of the tasks
MARKS = (".", "?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # line ends and tabs are none


def sentences(text: str) -> list[list[str]]:
    """Sentences as lists of words, the mark last; an unfinished one has none. A mark may stand against its word.

    Nothing is read of a text with control characters (line ends and tabs apart) or of more than ``MOST_WORDS`` words:
    one sentence without a word.
    """
    if _CONTROL.search(text):
        return [[]]
    words = re.sub(r"([.?])", r" \1 ", text).split()
    if len(words) > MOST_WORDS:
        return [[]]
    found: list[list[str]] = [[]]
    for word in words:
        found[-1].append(word)
        if word in MARKS:
            found.append([])
    return found[:-1] if len(found) > 1 and not found[-1] else found


def end_of(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without the mark, and the mark ("" where there is none)."""
    return (list(words[:-1]), words[-1]) if words and words[-1] in MARKS else (list(words), "")


def chunk(words: Sequence[str], table: Mapping[str, tuple[str, Any]]) -> list[tuple[str, Any]] | None:
    """The words as phrases of the table, from the left, the longest first; None where a word begins no phrase."""
    found, i = [], 0
    while i < len(words):
        for length in range(min(LONGEST, len(words) - i), 0, -1):
            piece = table.get(" ".join(words[i : i + length]))
            if piece:
                found.append(piece)
                i += length
                break
        else:
            return None
    return found
