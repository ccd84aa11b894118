"""How many of the concepts that were asked for a response names."""

from __future__ import annotations

from collections.abc import Callable

from workbook.scores import family, tokens


def _share(form: Callable[[str], str]):
    def each(predictions: list[str], concepts: list[list[str]]) -> list[float]:
        """Of each response the share of its concepts whose words all occur in it."""
        out = []
        for text, asked in zip(predictions, concepts):
            said = {form(word) for word in tokens.words(text)}
            out.append(sum({form(word) for word in tokens.words(concept)} <= said for concept in asked) / len(asked))
        return out

    return each


SCORES = (
    family.Score("coverage", "concepts named, exact words", _share(str), columns=("concepts",)),
    family.Score("coverage_stem", "concepts named, Porter stems", _share(tokens.stem), columns=("concepts",)),
)


class Coverage(family.Family):
    """Share of the concepts that a response names, in [0, 1], averaged; lower-cased exact words, and Porter stems;
    column concepts: B lists of strings. Order and role of the concepts do not matter: "a X the Y" covers X and Y."""

    scores = SCORES
