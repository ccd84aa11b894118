"""METEOR with exact words and Porter stems, by nltk, and no synonyms: needs no data.

A text is tokenised as one line, so that a full stop inside it stays with the word before it, and that word matches
only another one before a full stop. On 200 real articles of CNN/DailyMail the first three sentences have .307 so, and
.332 where sentences are parted first, which needs nltk's data.
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


# a line is one sentence: nltk's sentence cutter would need its data
cut = functools.lru_cache(2**14)(functools.partial(word_tokenize, preserve_line=True))


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
