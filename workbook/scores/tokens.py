"""Words, stems and sentences as several families take them; all by rule, nothing is looked for in nltk's data."""

from __future__ import annotations

import functools
import re

from nltk.stem.porter import PorterStemmer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

stemmer = PorterStemmer()
by_13a = Tokenizer13a()


@functools.lru_cache(2**16)
def stem(word: str) -> str:
    """Porter's stem, by nltk."""
    return stemmer.stem(word)


def words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and apostrophes within a word."""
    return re.findall(r"\w+(?:'\w+)*", text.lower())


def split_13a(text: str) -> list[str]:
    """The tokens of mteval-v13a (sacrebleu's default), case kept."""
    return by_13a(text).split()


def sentences(text: str) -> list[str]:
    """Cut at line ends and after . ! ? (with closing quotes or brackets) where a blank follows; no list of
    abbreviations, so "Dr. Who" is cut. Empty ones are left out."""
    pieces = re.split(r"\n+|(?<=[.!?])\s+|(?<=[.!?][\"')\]])\s+", text)
    return [piece.strip() for piece in pieces if piece.strip()]
