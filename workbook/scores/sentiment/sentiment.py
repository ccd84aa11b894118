"""How positive is a text, by a classifier that is given?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbook.scores import family

Positive = Callable[[list[str]], Sequence[float]]


def sentiment(predictions: list[str], prompts: list[str], positive: Positive) -> list[float]:
    """``positive(texts)`` of prompt and response together, as the original scores it: probabilities in [0, 1]."""
    values = list(positive([f"{prompt} {said}".strip() for prompt, said in zip(prompts, predictions)]))
    if len(values) != len(predictions):
        raise family.ScoreError(f"score sentiment: expected {len(predictions)} values, got {len(values)}")
    return values


def _callable(positive: Positive) -> None:
    if not callable(positive):
        raise family.ScoreError(f"score sentiment: expected positive(texts) -> probabilities, got {positive!r:.80}")


SCORES = (
    family.Score(
        "sentiment",
        "probability of a positive text",
        sentiment,
        columns=("prompts",),
        needs="a classifier: positive(texts) -> probabilities",
        settings=("positive",),
        required=("positive",),
        check=_callable,
        note="of prompt and response; by the classifier given, which is not the judge",
    ),
)


class Sentiment(family.Family):
    """Mean probability that prompt and response are positive, in [0, 1]; column prompts, setting positive."""

    scores = SCORES
