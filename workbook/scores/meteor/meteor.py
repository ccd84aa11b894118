"""METEOR with WordNet's synonyms, by nltk, where WordNet is found."""

from __future__ import annotations

from nltk.corpus import wordnet

from workbook.scores import family
from workbook.scores.meteor_stem import meteor_stem


def found() -> None:
    """Raises ScoreError if there is no WordNet where nltk looks. Nothing is downloaded."""
    try:
        wordnet.ensure_loaded()
    except LookupError as error:
        raise family.ScoreError(
            "score meteor: needs WordNet, which is not where nltk looks; expected corpora/wordnet in a folder of "
            "$NLTK_DATA. 'meteor_stem' does without, under its own name"
        ) from error


def meteor(predictions: list[str], references: list[list[str]]) -> list[float]:
    found()
    return meteor_stem.with_synonyms(predictions, references, wordnet)


SCORES = (family.Score("meteor", "METEOR", meteor, needs="wordnet", check=found),)


class Meteor(family.Family):
    """METEOR in [0, 1]: exact words, stems, WordNet's synonyms; of each response its best reference, averaged."""

    scores = SCORES
