"""What a family of scores says of each of its scores, and the ``evaluate.Metric`` that all families share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import datasets
import evaluate

from rlnlp.settings import nearest
from workbook.scores.text import BASE

PLACEHOLDERS = {"", "empty reference", "<null>"}  # what data sets and evaluation scripts write for a hidden reference


class ScoreError(ValueError):
    """A score that cannot be taken; the message names the score, what it lacks, and the examples."""


@dataclass(frozen=True)
class Score:
    """One score: what a table and a reward must know of it, and its functions.

    function: (predictions [B], then each of ``columns`` by name, and settings) -> [B] numbers in ``unit``.
    total: the same arguments -> the corpus value; None = the mean of ``function`` over the examples.
    range: of ``function``, (lowest, highest). scale: a reward is paid in units of it, so that 100 points are 1.
    columns: what is read beside the predictions: "references" (B lists of strings), "prompts", "source", "concepts"
    (B lists of strings), "cells", "table" (B lists of (value, header)), "act"; ``optional``: those that may be missing.
    alone: False = degenerate for one example by itself, so no reward, unless the setting ``alone_with`` is given.
    needs: "" = nothing beside the locked packages, "wordnet", or what model; note: what a reader of a table must know.
    settings: names that ``at`` takes; ``required``: those without which there is no value; check: raises ScoreError
    where settings (given by name) cannot be used.
    """

    name: str
    label: str
    function: Callable[..., Sequence[float]]
    total: Callable[..., float] | None = None
    unit: str = "share"
    range: tuple[float, float] = (0.0, 1.0)
    higher_is_better: bool = True
    scale: float = 1.0
    columns: tuple[str, ...] = ("references",)
    optional: tuple[str, ...] = ()
    alone: bool = True
    alone_with: str = ""
    needs: str = ""
    note: str = ""
    settings: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    check: Callable[..., None] | None = None
    given: dict[str, Any] = field(default_factory=dict)

    def at(self, **settings) -> Score:
        """The score at these settings. Raises: ScoreError for an unknown, missing or unusable one."""
        for name in settings:
            if name not in self.settings:
                takes = f"one of {list(self.settings)}" if self.settings else "no setting"
                raise ScoreError(f"score {self.name}: expected {takes}, got {name!r}{nearest(name, self.settings)}")
        given = {**self.given, **settings}
        lacking = [name for name in self.required if name not in given]
        if lacking:
            needs = f" ({self.needs})" if self.needs else ""
            raise ScoreError(f"score {self.name}: expected the setting {', '.join(lacking)}{needs}, got none")
        if self.check:
            self.check(**given)
        return replace(self, given=given, alone=self.alone or self.alone_with in given)

    def each(self, predictions: Sequence[str], references=None, **columns) -> list[float]:
        """[B] values, one a prediction, each of its own example only (but for a score with ``alone`` False).

        references: B lists of strings; columns: lists of B, what is not read is ignored; ``id`` names the examples in
        messages. Raises: ScoreError for a column that is missing or of another length, and for a hidden or placeholder
        reference.
        """
        read = self._read(predictions, references, columns)
        return [float(value) for value in self.function(list(predictions), **read)] if len(predictions) else []

    def corpus(self, predictions: Sequence[str], references=None, **columns) -> float:
        """One value of all; arguments and errors as of ``each``, and ScoreError if there is no prediction."""
        if not len(predictions):
            raise ScoreError(f"score {self.name}: expected one prediction or more, got none")
        if self.total is None:
            values = self.each(predictions, references, **columns)
            return sum(values) / len(values)
        return float(self.total(list(predictions), **self._read(predictions, references, columns)))

    def reward(self, values: Sequence[float]) -> list[float]:
        """Values as a reward pays them: in units of ``scale``; of one where less is better 1 - x, at least -1."""
        paid = [value / self.scale for value in values]
        return paid if self.higher_is_better else [max(-1.0, 1.0 - value) for value in paid]

    def _read(self, predictions, references, columns) -> dict[str, Any]:
        ids = list(columns.get("id") or [f"row {row}" for row in range(len(predictions))])
        columns = {**columns, **({} if references is None else {"references": references})}
        read = dict(self.given)
        for row, text in enumerate(predictions):
            if not isinstance(text, str):
                raise ScoreError(f"score {self.name}: expected a string, got {text!r} ({ids[row]})")
        for name in self.columns + self.optional:
            if columns.get(name) is None:
                if name in self.optional:
                    continue
                raise ScoreError(
                    f"score {self.name}: reads {name!r}, got only {sorted(columns)}{nearest(name, columns)}"
                )
            if len(columns[name]) != len(predictions):
                found = f"{len(columns[name])} {name} for {len(predictions)} predictions"
                raise ScoreError(f"score {self.name}: expected as many of each, got {found}")
            empty = [str(ids[row]) for row, value in enumerate(columns[name]) if _hidden(name, value)]
            if empty:
                what = "a hidden or placeholder reference" if name == "references" else f"no {name}"
                more = f" and {len(empty) - 8} more" if len(empty) > 8 else ""
                raise ScoreError(f"score {self.name}: {what} in {', '.join(empty[:8])}{more}; nothing to score against")
            read[name] = columns[name]
        return read


def _hidden(column: str, value: Any) -> bool:
    if column == "references":
        texts = [value] if isinstance(value, str) else list(value or [])
        return not texts or any(text is None or text.strip().lower() in PLACEHOLDERS for text in texts)
    return value is None or (not isinstance(value, str) and hasattr(value, "__len__") and not len(value))


class Family(evaluate.Metric):
    """The scores of a family as one ``evaluate.Metric``: {name: corpus value}; ``scores`` is all that a subclass says.

    ``scores.load(family, only=["chrf"], setting=...)``; columns other than predictions and references are given to
    ``compute`` by name (``concepts=[...]``), and those that no score reads are ignored, so that families combine.
    """

    scores: tuple[Score, ...]

    def __init__(self, *args, only: Sequence[str] = (), **options):
        base = {name: options.pop(name) for name in list(options) if name in BASE}
        known = {score.name: score for score in self.scores}
        for name in only:
            if name not in known:
                raise ScoreError(f"score {name!r}: expected one of {list(known)}{nearest(name, known)}")
        taken = {setting for score in self.scores for setting in score.settings}
        for name in options:
            if name not in taken:
                raise TypeError(f"{type(self).__name__}: expected settings {sorted(taken)}, got {name!r}")
        chosen = [known[name] for name in only or known]
        self.chosen = [score.at(**{k: v for k, v in options.items() if k in score.settings}) for score in chosen]
        super().__init__(*args, **base)

    def _info(self) -> evaluate.MetricInfo:
        features = {"predictions": datasets.Value("string")}
        if any("references" in score.columns for score in self.chosen):
            features["references"] = datasets.Sequence(datasets.Value("string"))
        reads = "; ".join(f"{score.name} reads {', '.join(score.columns) or 'nothing else'}" for score in self.chosen)
        return evaluate.MetricInfo(
            description=type(self).__doc__ or "",
            citation="",
            inputs_description=f"predictions: B strings; references: B lists of strings. {reads}",
            features=datasets.Features(features),
        )

    def _compute(self, predictions, references=None, **columns) -> dict[str, float]:
        return {score.name: score.corpus(list(predictions), references, **columns) for score in self.chosen}


def best_of(function: Callable[[str, str], float]) -> Callable[..., list[float]]:
    """(prediction, reference) -> number, as a function of columns: of each prediction its best reference."""

    @functools.wraps(function)
    def scores(predictions: list[str], references: list[list[str]]) -> list[float]:
        return [max(function(text, given) for given in row) for text, row in zip(predictions, references)]

    return scores
