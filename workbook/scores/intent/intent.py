"""Does a response do what it was to do, by a classifier that is given?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbook.scores import family

Classify = Callable[[list[str], list[str]], Sequence]


def intent(predictions: list[str], prompts: list[str], act: list, classify: Classify) -> list[float]:
    """1.0 where ``classify(prompts, responses)`` gives the example's ``act``, else 0.0.

    The classifier gets both texts apart and joins them as it was trained. Each example counts for itself, whatever was
    scored before it. "Always the same act" has that act's share: put that row into the table.
    """
    labels = list(classify(list(prompts), list(predictions)))
    if len(labels) != len(predictions):
        raise family.ScoreError(f"score intent: expected {len(predictions)} labels of classify, got {len(labels)}")
    return [float(label == wanted) for label, wanted in zip(labels, act)]


def _callable(classify: Classify) -> None:
    if not callable(classify):
        raise family.ScoreError(f"score intent: expected classify(prompts, responses) -> labels, got {classify!r:.80}")


SCORES = (
    family.Score(
        "intent",
        "intent accuracy",
        intent,
        columns=("prompts", "act"),
        needs="a classifier: classify(prompts, responses) -> labels",
        settings=("classify",),
        required=("classify",),
        check=_callable,
        note="by the classifier given, which is not the judge",
    ),
)


class Intent(family.Family):
    """Share of responses with the act that was asked for, in [0, 1]; columns prompts and act, setting classify."""

    scores = SCORES
