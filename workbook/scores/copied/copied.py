"""How much of a response is one run of words of its prompt."""

from __future__ import annotations

from difflib import SequenceMatcher

from workbook.scores import family, tokens


def copied(predictions: list[str], prompts: list[str]) -> list[float]:
    """Length of the longest run of words that prompt and response share, as a share of the response's; 0.0 if it is
    empty."""
    out = []
    for text, prompt in zip(predictions, prompts):
        said, given = tokens.words(text), tokens.words(prompt)
        run = SequenceMatcher(None, given, said, autojunk=False).find_longest_match().size
        out.append(run / len(said) if said else 0.0)
    return out


SCORES = (
    family.Score("copied", "longest run copied of the prompt", copied, columns=("prompts",), higher_is_better=False),
)


class Copied(family.Family):
    """Share of a response that is its longest run of words of the prompt, in [0, 1], averaged; column prompts."""

    scores = SCORES
