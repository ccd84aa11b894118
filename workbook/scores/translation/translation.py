"""BLEU, chrF and TER, by sacrebleu, in points of 100."""

from __future__ import annotations

from sacrebleu.metrics import BLEU, CHRF, TER

from workbook.scores import family


def _padded(references: list[list[str]]) -> list[list[str | None]]:
    """As sacrebleu wants them: a list a position; None where an example has fewer references than another."""
    most = max(map(len, references))
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


def _pair(of_one, of_all):
    """(function, total) of sacrebleu's objects, kept from call to call."""

    def each(predictions: list[str], references: list[list[str]]) -> list[float]:
        return [of_one.sentence_score(text, list(row)).score for text, row in zip(predictions, references)]

    def corpus(predictions: list[str], references: list[list[str]]) -> float:
        return of_all.corpus_score(predictions, _padded(references)).score

    return each, corpus


def _bleu(tokens: str):
    """Of one response: effective order (no order beyond its length) and exponential smoothing (Chen & Cherry 2014)."""
    options = {"tokenize": tokens, "smooth_method": "exp"}
    return _pair(BLEU(effective_order=True, **options), BLEU(**options))


sacrebleu, sacrebleu_corpus = _bleu("13a")
bleu_words, bleu_words_corpus = _bleu("none")
chrf, chrf_corpus = _pair(CHRF(), CHRF())
ter, ter_corpus = _pair(TER(), TER())

POINTS = {"unit": "points", "range": (0.0, 100.0), "scale": 100.0}
ALONE = "a reward pays sentence BLEU, whose mean is not the corpus value"
SCORES = (
    family.Score("sacrebleu", "SacreBLEU", sacrebleu, sacrebleu_corpus, note=ALONE, **POINTS),
    family.Score("bleu_words", "BLEU (split at blanks)", bleu_words, bleu_words_corpus, note=ALONE, **POINTS),
    family.Score("chrf", "chrF", chrf, chrf_corpus, note="a reward pays sentence chrF", **POINTS),
    family.Score(
        "ter",
        "TER",
        ter,
        ter_corpus,
        unit="points",
        range=(0.0, float("inf")),
        scale=100.0,
        higher_is_better=False,
        note="edits per reference word, without a bound; a reward pays 1 - TER, at least -1",
    ),
)


class Translation(family.Family):
    """Corpus BLEU (tokens 13a, or split at blanks), chrF2 and TER, in points; several references, also of unequal
    number. Of one response with four tokens or more the corpus value is the response's own."""

    scores = SCORES
