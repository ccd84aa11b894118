"""METEOR with exact words and Porter stems, by nltk, and no synonyms: needs no data.

A text is tokenised sentence by sentence, as `evaluate`'s METEOR does: nltk parts a full stop from its word at the end
of what it is given alone. Where a sentence ends is the rule of `tokens.sentences`, not nltk's model, which is data.
"""

from __future__ import annotations

import functools

from nltk.tokenize import word_tokenize
from nltk.translate.meteor_score import meteor_score

from workbook.scores import family, tokens


class Stems:
    """A stemmer as nltk wants one, which remembers."""

    stem = staticmethod(tokens.stem)


class NoSynonyms:
    """A WordNet that knows no word."""

    @staticmethod
    def synsets(word: str) -> tuple:
        return ()


@functools.lru_cache(2**14)
def cut(text: str) -> list[str]:
    """The tokens of each sentence, one after the other."""
    return [token for sentence in tokens.sentences(text) for token in word_tokenize(sentence, preserve_line=True)]


def with_synonyms(predictions: list[str], references: list[list[str]], wordnet) -> list[float]:
    """METEOR (Banerjee & Lavie 2005; alpha .9, beta 3, gamma .5) of each response against its best reference."""
    return [
        meteor_score([cut(given) for given in row], cut(text), stemmer=Stems(), wordnet=wordnet)
        for text, row in zip(predictions, references)
    ]


def meteor_stem(predictions: list[str], references: list[list[str]]) -> list[float]:
    return with_synonyms(predictions, references, NoSynonyms())


SCORES = (
    family.Score(
        "meteor_stem", "METEOR (no WordNet)", meteor_stem, note="without synonyms: .000 to .012 below METEOR with them"
    ),
)


class MeteorStem(family.Family):
    """METEOR in [0, 1] without synonyms: of each response its best reference, averaged. A response equal to its
    reference of n words has 1 - .5 / n^3."""

    scores = SCORES
