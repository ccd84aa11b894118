"""The embedded corpus: seeded, generated film reviews with labels, and a judge that knows their grammar.

A review has a latent label (1 positive, 0 negative) and a genre. About 30 % of its sentences tell the plot; the others
hold an opinion whose polarity agrees with the label with probability 0.8 (0.95 for the verdict that ends half of the
reviews). About 15 % of opinions are stated by negation (``the plot is not dull``), some after a contrast (``the plot is
dull but the score is superb .``). Words are separated by one space; ``.`` is a word. A sentence is one clause of
`language`, or two joined by ``but``.

Draw k has its own word frequencies, genre shares and sentence shares (log-normal weights on a common Zipf base),
so that two draws are two corpora of one language. The same (draw, split) gives the same reviews on any machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from random import Random

import numpy as np

from workbook.texts.language import GENRES, KINDS, WORDS, slot_words

MIN_WORDS, MAX_WORDS = 25, 60  # a review's length in words, '.' included
OPINION_SHARE = 0.7  # of the sentences that are not the closing verdict
AGREE = 0.8  # an opinion agrees with the label
NEGATED = 0.15  # of the opinion clauses, by 'not' or 'never'
CONTRAST = 0.15  # of the opinion sentences
VERDICT = 0.5  # of the reviews end in a verdict ('i would rewatch it .')
VERDICT_AGREE = 0.95  # a verdict agrees with the label
ZIPF = 0.9  # exponent of the word frequencies in a slot
JITTER = 0.5  # standard deviation of the log of a draw's weights


@dataclass(frozen=True)
class Review:
    """text: words separated by one space; label: 1 positive, 0 negative."""

    text: str
    label: int


class _Urn:
    """Items drawn with fixed weights."""

    def __init__(self, items, weights):
        self.items = list(items)
        self.edges = list(accumulate(weights))

    def draw(self, rng: Random):
        return self.items[bisect_right(self.edges, rng.random() * self.edges[-1])]


def _urn(items, rng: Random, exponent: float) -> _Urn:
    return _Urn(items, [(rank + 2) ** -exponent * rng.lognormvariate(0, JITTER) for rank in range(len(items))])


class Corpus:
    """Draw ``draw`` of the language: its frequencies. The order of words by rank is common to all draws."""

    def __init__(self, draw: int):
        rng = Random(f"rlnlp corpus {draw}")
        self.genres = _urn(GENRES, rng, 0)
        self.kinds = {}
        for (kind, sign), templates in KINDS.items():
            self.kinds[kind, sign] = _urn(templates, rng, 0)
            if (kind, -sign) in self.kinds:  # both signs of a kind share their weights
                self.kinds[kind, sign].edges = self.kinds[kind, -sign].edges
        self.words = {}
        for slot in sorted(WORDS):
            self.words[slot] = _urn(_ranked(slot), rng, ZIPF)
        for genre, slots in GENRES.items():
            for slot, words in slots.items():
                self.words[genre, slot] = _urn(words.split(), rng, ZIPF)
        self.likes = {}  # the adjectives that go with an aspect
        for aspect in WORDS["ASPECT"].split():
            for side in ("GOOD", "BAD"):
                usual = Random(f"{aspect} {side}").sample(WORDS[side].split(), 6)
                self.likes[aspect, side] = _urn(usual, rng, ZIPF)

    def review(self, rng: Random, label: int) -> Review:
        """One review of the label."""
        genre = self.genres.draw(rng)
        film = dict(  # what this review keeps coming back to
            GENRE=genre,
            DIRECTOR=self.words["DIRECTOR"].draw(rng),
            FILM=self.words["FILM"].draw(rng),
            NAME=self.words["NAME"].draw(rng),
            **{slot: self.words[genre, slot].draw(rng) for slot in ("ROLE", "OBJECT", "PLACE")},
        )
        target = MIN_WORDS + int((MAX_WORDS - MIN_WORDS - 5) * rng.random() ** 1.5)
        words: list[str] = []
        while len(words) < target:
            sentence = self._sentence(rng, label, film)
            if len(words) + len(sentence) <= MAX_WORDS:
                words += sentence
        if rng.random() < VERDICT:
            kind = "not verdict" if rng.random() < NEGATED else "verdict"
            verdict = [*self._clause(rng, kind, self._sign(rng, label, VERDICT_AGREE), film), "."]
            if len(words) + len(verdict) <= MAX_WORDS:
                words += verdict
        return Review(" ".join(words), label)

    @staticmethod
    def _sign(rng: Random, label: int, agree: float = AGREE) -> int:
        return 2 * label - 1 if rng.random() < agree else 1 - 2 * label

    def _sentence(self, rng: Random, label: int, film: dict) -> list[str]:
        if rng.random() >= OPINION_SHARE:
            return [*self._clause(rng, "plot", 0, film), "."]
        sign = self._sign(rng, label)
        last = self._opinion(rng, sign, film)
        if rng.random() >= CONTRAST:
            return [*last, "."]
        first = self._opinion(rng, -sign, film) if rng.random() < 0.8 else self._clause(rng, "plot", 0, film)
        return [*first, "but", *last, "."]

    def _opinion(self, rng: Random, sign: int, film: dict) -> list[str]:
        return self._clause(rng, "negation" if rng.random() < NEGATED else "opinion", sign, film)

    def _clause(self, rng: Random, kind: str, sign: int, film: dict) -> list[str]:
        slots = self.kinds[kind, sign].draw(rng).slots
        words: list[str] = []
        aspect = None
        for slot in slots:
            word = self._word(rng, slot, film, aspect)
            while slot in ("NAME", "ASPECT") and word in words:
                word = self.words[slot].draw(rng)
            if slot == "ASPECT":
                aspect = word
            words.append(word)
        return words

    def _word(self, rng: Random, slot: str, film: dict, aspect: str | None) -> str:
        if slot in film and (slot in ("GENRE", "DIRECTOR") or rng.random() < 0.6):
            return film[slot]
        if aspect is not None and slot in ("GOOD", "BAD") and rng.random() < 0.5:
            return self.likes[aspect, slot].draw(rng)
        urn = self.words.get(slot) or self.words.get((film["GENRE"], slot))
        return slot if urn is None else urn.draw(rng)


def _ranked(slot: str) -> list[str]:
    """The slot's words from the most to the least usual, the same in every draw."""
    words = WORDS[slot].split()
    return Random(slot).sample(words, len(words))


@lru_cache(maxsize=8)
def _corpus(draw: int) -> Corpus:
    return Corpus(draw)


def generate(draw: int, split: str, n: int) -> list[Review]:
    """The first ``n`` reviews of a stream.

    draw: which corpus (>= 0); split: any name; each (draw, split) is a stream of its own, and a longer request only
    appends to a shorter one. Labels are 0 or 1 with probability 1/2 each.

    Raises: ValueError if draw or n is negative.
    Limiting cases: n = 0 gives []; two draws share no stream, even for the same split.
    """
    if draw < 0 or n < 0:
        raise ValueError(f"corpus.generate: expected draw >= 0 and n >= 0, got draw = {draw} and n = {n}")
    return list(islice(stream(draw, split), n))


def stream(draw: int, split: str) -> Iterator[Review]:
    """The reviews of (draw, split), without end; see ``generate``."""
    corpus, rng = _corpus(draw), Random(f"rlnlp reviews {draw} {split}")
    while True:
        yield corpus.review(rng, rng.randrange(2))


# --------------------------------------------------------------------------------------------------------- judge
@dataclass(frozen=True)
class _Grammar:
    """Templates as bits: words[i][word] = templates whose position i takes the word; of length i; of a polarity."""

    words: tuple[dict[str, int], ...]
    length: tuple[int, ...]
    positive: int
    negative: int
    everything: int

    def viable(self, clause: list[str]) -> int:
        """The templates that begin with these words."""
        if len(clause) > len(self.words):
            return 0
        templates = self.everything
        for position, word in enumerate(clause):
            templates &= self.words[position].get(word, 0)
        return templates

    def complete(self, clause: list[str]) -> int:
        """The templates that are exactly these words."""
        return self.viable(clause) & self.length[len(clause)] if len(clause) < len(self.length) else 0

    def value(self, clause: list[str]) -> float | None:
        """1 positive, 0.5 plot, 0 negative, None ungrammatical."""
        templates = self.complete(clause)
        if not templates:
            return None
        return 1.0 if templates & self.positive else 0.0 if templates & self.negative else 0.5


@lru_cache(maxsize=1)
def _grammar() -> _Grammar:
    templates = list(dict.fromkeys(template for block in KINDS.values() for template in block))
    longest = max(len(template.slots) for template in templates)
    words: list[dict[str, int]] = [{} for _ in range(longest)]
    length = [0] * (longest + 1)
    polarity = {1: 0, 0: 0, -1: 0}
    for bit, template in enumerate(templates):
        length[len(template.slots)] |= 1 << bit
        polarity[template.polarity] |= 1 << bit
        for position, slot in enumerate(template.slots):
            for word in slot_words(slot):
                words[position][word] = words[position].get(word, 0) | 1 << bit
    return _Grammar(tuple(words), tuple(length), polarity[1], polarity[-1], (1 << len(templates)) - 1)


def _split(words: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _sentence_value(grammar: _Grammar, sentence: list[str]) -> float | None:
    clauses = _split(sentence, "but")
    values = [grammar.value(clause) for clause in clauses]
    return None if len(clauses) > 2 or None in values else values[-1]


def _can_continue(grammar: _Grammar, words: list[str]) -> bool:
    """Could these words be the beginning of a sentence?"""
    *done, last = _split(words, "but")
    if len(done) > 1 or any(grammar.value(clause) is None for clause in done):
        return False
    return bool(grammar.viable(last))


def judge_parts(responses: list[str], prompts: list[str] | None = None) -> dict[str, np.ndarray]:
    """What the grammar says about each text; for evaluation only, never a reward.

    A sentence counts 1 if it is grammatical and positive, 0.5 if it tells the plot, 0 if it is negative or
    ungrammatical. Negation flips; a sentence with ``but`` is worth its last clause, and is ungrammatical if either
    clause is, or if it has more than two. The score is the mean over sentences.

    responses, prompts: B strings of words separated by blanks. With ``prompts``, the words after the prompt's last '.'
    are read as the beginning of the response's first sentence; that sentence counts if one of its words, not only its
    '.', is in the response. Without ``prompts`` a response must begin with a sentence.

    Returns: float64 arrays [B]: ``score`` in [0, 1], ``sentences`` (count), and the shares of them that are
    ``grammatical``, ``positive``, ``plot``, ``negative``.

    Edge cases. The unfinished last sentence is left out where some sentence begins like that, and counts as an
    ungrammatical one otherwise. No sentence to count (an empty response, or only an unfinished good one): score 0 and
    all shares 0. An empty sentence ('. .') is ungrammatical, as is any word outside ``language.vocabulary()``.

    Limiting cases: words in random order score about 0; one positive sentence over and over scores 1, so read
    distinct-n beside it.

    Raises: ValueError if the two lists differ in length.
    """
    if prompts is None:
        prompts = [""] * len(responses)
    if len(prompts) != len(responses):
        raise ValueError(f"corpus.judge: expected as many prompts as responses, got {len(prompts)}, {len(responses)}")
    grammar, rows = _grammar(), []
    for prompt, response in zip(prompts, responses):
        begun = _split(prompt.split(), ".")[-1]
        *finished, rest = _split(begun + response.split(), ".")
        if begun and finished and finished[0] == begun:  # the prompt's own words: nothing was said
            finished = finished[1:]
        values = [_sentence_value(grammar, sentence) for sentence in finished]
        if not _can_continue(grammar, rest):
            values.append(None)
        rows.append((len(values), values.count(1.0), values.count(0.5), values.count(0.0), values.count(None)))
    count, positive, plot, negative, _ = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    share = 1 / np.maximum(count, 1)
    return {
        "score": (positive + 0.5 * plot) * share,
        "sentences": count,
        "grammatical": (positive + plot + negative) * share,
        "positive": positive * share,
        "plot": plot * share,
        "negative": negative * share,
    }


def judge(responses: list[str], prompts: list[str] | None = None) -> np.ndarray:
    """The judge's scores [B] in [0, 1], float64; see ``judge_parts``."""
    return judge_parts(responses, prompts)["score"]
