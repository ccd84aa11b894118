"""ROUGE-1, -2, -L and -Lsum of each response against its best reference, by rouge-score."""

from __future__ import annotations

import functools

from rouge_score import rouge_scorer, tokenizers

from workbook.scores import family, tokens


class Words:
    """rouge-score's tokens, without stemming; a text is cut once, however many kinds and references it meets."""

    tokenize = staticmethod(functools.lru_cache(2**14)(tokenizers.DefaultTokenizer(use_stemmer=False).tokenize))


def _each(kind: str):
    scorer = rouge_scorer.RougeScorer([kind], tokenizer=Words())
    return family.best_of(lambda text, reference: scorer.score(reference, text)[kind].fmeasure)


rouge_1, rouge_2, rouge_l, _lsum = map(_each, ("rouge1", "rouge2", "rougeL", "rougeLsum"))


def rouge_lsum(predictions: list[str], references: list[list[str]]) -> list[float]:
    """F1 of the union of the longest common subsequences over sentences (Lin 2004, 3.2).

    Sentences are cut by ``tokens.sentences``, a rule; rouge-score itself cuts at line ends only, so that on text
    without them its Lsum is its L (and many published columns are).
    """
    cut = lambda text: "\n".join(tokens.sentences(text))
    return _lsum([cut(text) for text in predictions], [[cut(text) for text in row] for row in references])


SCORES = (
    family.Score("rouge_1", "ROUGE-1", rouge_1),
    family.Score("rouge_2", "ROUGE-2", rouge_2),
    family.Score("rouge_l", "ROUGE-L", rouge_l),
    family.Score("rouge_lsum", "ROUGE-Lsum", rouge_lsum, note="sentences cut by a rule, not by punkt"),
)


class RougeAll(family.Family):
    """F1 of ROUGE in [0, 1], no stemming: of each response its best reference, averaged."""

    scores = SCORES
