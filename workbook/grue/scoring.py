"""A task's scores, made ready on its training examples: what a reward pays, and what a table reports.

Some scores read something of their own: CIDEr the document frequencies of the training references, intent accuracy a
classifier of acts, sentiment one of moods, both learned from the training texts and neither the judge. A score whose
model is not at hand is left out of the table and named, never replaced.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlnlp import metrics
from rlnlp.scoring import Reward
from rlnlp.settings import nearest
from workbook.grue import scores
from workbook.grue.example import Example, Task
from workbook.scores import NAMES as FAMILIES
from workbook.scores.cider.cider import document_frequencies
from workbook.scores.family import Score, ScoreError


def frequencies(examples: Sequence[Example]) -> dict[str, Any]:
    """CIDEr's document frequencies: every training example's references are one document."""
    return {"frequencies": document_frequencies([list(e.references) for e in examples if e.references])}


def acts(examples: Sequence[Example]) -> dict[str, Any]:
    """A classifier of acts, learned from the references: logistic regression on the words and word pairs of the
    response (TF-IDF). The prompt is not read."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    shown = [(text, e.meta["act"]) for e in examples for text in e.references]
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"[\w']+|[^\w\s]", sublinear_tf=True),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit([text for text, _ in shown], [act for _, act in shown])
    return {"classify": lambda prompts, responses: model.predict(list(responses)).tolist()}


def moods(examples: Sequence[Example]) -> dict[str, Any]:
    """A classifier of sentiment, learned from prompts with their references: logistic regression on words and
    word pairs (TF-IDF)."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    said = [e for e in examples if e.meta["label"] in (0, 1)]
    shown = [(f"{e.prompt} {text}", e.meta["label"]) for e in said for text in e.references]
    if {label for _, label in shown} != {0, 1}:
        raise ScoreError(f"sentiment: expected training reviews of both labels, got {len(shown)} of at most one")
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=10.0, max_iter=1000))
    model.fit([text for text, _ in shown], [label for _, label in shown])
    return {"positive": lambda texts: model.predict_proba(list(texts))[:, 1].tolist()}


READY: Mapping[str, Callable[[Sequence[Example]], dict[str, Any]]] = {
    "cider": frequencies,
    "intent": acts,
    "sentiment": moods,
}

PLAIN: Mapping[str, Callable[[list[str]], float]] = {  # of the responses alone, all of them together
    "msttr": metrics.msttr,
    "words": metrics.words,
    "distinct1": functools.partial(metrics.distinct, n=1),
    "distinct2": functools.partial(metrics.distinct, n=2),
    "entropy1": functools.partial(metrics.entropy, n=1),
    "unique1": functools.partial(metrics.unique, n=1),
}


@dataclass(frozen=True)
class Scoring:
    """reward: as a learner's scorer takes it; metrics: name -> score of the table; plain: name -> function of all
    responses; absent: name -> why it is not there."""

    reward: Reward
    metrics: Mapping[str, Score]
    plain: Mapping[str, Callable[[list[str]], float]]
    absent: Mapping[str, str]

    def measure(
        self, responses: Sequence[str], examples: Sequence[Example]
    ) -> tuple[dict[str, list[float]], dict[str, float]]:
        """(metric -> [B] values, metric -> value of the corpus). Raises ``ScoreError`` for hidden references."""
        columns = scores.columns(examples)
        each = {name: score.each(responses, **columns) for name, score in self.metrics.items()}
        corpus = {name: score.corpus(responses, **columns) for name, score in self.metrics.items()}
        return each, corpus | {name: float(function(list(responses))) for name, function in self.plain.items()}


def reading(score: str, model: str, task: Task, device: str) -> dict[str, Any]:
    """The settings of a score that reads a model. Raises ``ScoreError`` for another score, and for a model of another
    language than the task's."""
    known = [name for name, each in scores.known().items() if "model" in each.settings]
    if score not in known:
        raise ScoreError(f"{score}: expected one of {known}, the scores that read a model{nearest(score, known)}")
    found, more = {"model": model}, {"language": task.language, "device": device}
    found |= {name: value for name, value in more.items() if name in scores.known()[score].settings}
    scores.known()[score].at(**found)
    return found


def ready(
    task: Task,
    weights: Mapping[str, float],
    examples: Sequence[Example],
    models: Mapping[str, str] = {},
    device: str = "cpu",
) -> Scoring:
    """A task's scores. weights: of its reward; examples: of training; models: score -> the model it reads, on device.
    Raises ``ScoreError`` for an unknown name, and for a reward that cannot be had."""
    known = {name: READY[name](examples) for name in {*weights, *task.metrics} & {*READY}}
    known |= {name: reading(name, model, task, device) for name, model in models.items()}
    found, absent = {}, {}
    for name in (name for name in dict.fromkeys([*task.metrics, *models]) if name not in PLAIN):
        if name not in scores.known():
            scores.score(name)  # says what is wrong with the name
        missing = [each for each in scores.known()[name].required if each not in known.get(name, {})]
        if missing:
            absent[name] = scores.known()[name].needs
        else:
            found[name] = scores.score(name, **known.get(name, {}))
    plain = {name: PLAIN[name] for name in task.metrics if name in PLAIN}
    settings = {name: known[name] for name in weights if name in known}
    return Scoring(scores.reward(weights, settings), found, plain, absent)


def families(names: Collection[str]) -> list[str]:
    """The files of these scores as roots of the code that decides a number: ``scores`` finds them by name."""
    modules = [f"workbook.scores.{name}.{name}" for name in FAMILIES]
    named = {module: getattr(importlib.import_module(module), "SCORES", ()) for module in modules}
    return [f"{module}:SCORES" for module, found in named.items() if {score.name for score in found} & {*names}]
