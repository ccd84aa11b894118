"""The benchmark's front to the scores: one by name, a reward made of several, penalties, and what is absent and why.

    score("rouge_2").corpus(responses, references)
    reward({"meteor_stem": 0.25, "intent": 0.75}, {"intent": {"classify": classify}})   # as rlnlp.scoring takes it

Columns beside responses, prompts and references are read from the examples' meta: ``source``, ``concepts`` (strings),
``cells`` and ``table`` ((value, header) pairs), ``act``; ``id`` names examples in messages.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlnlp import metrics
from rlnlp.scoring import Reward, name_of
from rlnlp.settings import nearest
from workbook.grue.example import Example
from workbook.scores import NAMES, tokens
from workbook.scores.family import Score, ScoreError
from workbook.texts import hub

__all__ = ["ABSENT", "Score", "ScoreError", "columns", "copying", "known", "penalised", "reward", "score"]

ABSENT = {
    "bleu": "two definitions go by this name: ask for 'sacrebleu' (13a tokens) or 'bleu_words' (split at blanks)",
    "rouge": "four scores go by this name: ask for 'rouge_1', 'rouge_2', 'rouge_l' or 'rouge_lsum'",
    "spice": "needs Stanford CoreNLP 3.6 models by download at run time; 'coverage' and the judges are here",
    "bleurt": "its PyTorch port does not import with transformers 5; the official package is TensorFlow, not on PyPI",
    "comet": "unbabel-comet 2.2 wants huggingface-hub < 1, numpy < 2 and transformers < 5",
    "mauve": "mauve-text is under GPLv3",
    "meteor_1_5": "a Java program of 104 MB without a stated licence; 'meteor' and 'meteor_stem' are nltk's",
    "summac": "the package wants huggingface-hub <= 0.17; 'consistency' is its zero-shot form on an NLI model given",
    "bartscore": "untested here: no BART that was trained for it is at hand",
    "pycocoevalcap": "no licence stated; 'cider' equals its CIDEr-D",
}


@functools.cache
def known() -> dict[str, Score]:
    """Every score of ``workbook.scores`` that has a record of itself, by name; settings not yet given."""
    families = [importlib.import_module(f"workbook.scores.{name}.{name}") for name in NAMES]
    return {each.name: each for module in families for each in getattr(module, "SCORES", ())}


def score(name: str, **settings) -> Score:
    """The score of that name at these settings; a ``model`` is found in the mirror, a folder or on the hub.

    Raises: ScoreError for a name that is absent (with the reason) or unknown, and for settings that are missing or
    cannot be used; hub.DataError for a model that is not there.
    """
    if name in ABSENT:
        raise ScoreError(f"score {name!r} is absent: {ABSENT[name]}")
    if name not in known():
        raise ScoreError(f"score {name!r}: expected one of {sorted(known())}{nearest(name, [*known(), *ABSENT])}")
    if "model" in settings:
        settings["model"] = str(hub.find("models", str(settings["model"])))
    return known()[name].at(**settings)


def columns(examples: Sequence[Example]) -> dict[str, list]:
    """What ``Score.each`` and ``corpus`` read beside the responses: B of each, and what every example's meta has."""
    shared = set.intersection(*(set(example.meta) for example in examples)) if examples else set()
    return {name: [example.meta[name] for example in examples] for name in sorted(shared)} | {
        "id": [example.id for example in examples],
        "prompts": [example.prompt for example in examples],
        "source": [example.source for example in examples],
        "references": [list(example.references) for example in examples],
    }


def reward(weights: Mapping[str, float], settings: Mapping[str, Mapping[str, Any]] | None = None) -> Reward:
    """A reward function: sum of weight x score, each in units of its scale; its parts are the scores' own rewards.

    weights: score -> weight; settings: score -> its settings. Of a score where less is better the reward is 1 - x, at
    least -1. Every example is scored by itself: nothing is kept from call to call.
    Raises: ScoreError for a name or settings as ``score`` does, and for a score that is degenerate for one example.
    """
    settings = dict(settings or {})
    for name in settings:
        if name not in weights:
            raise ScoreError(f"reward: settings of {name!r}, which has no weight{nearest(name, weights)}")
    if not weights:
        raise ScoreError("reward: expected one score or more, got none")
    chosen = {name: score(name, **settings.get(name, {})) for name in weights}
    for name, each in chosen.items():
        if not each.alone:
            cure = f"; expected the setting {each.alone_with!r}" if each.alone_with else ""
            raise ScoreError(f"reward: {name} is degenerate for one example ({each.note}){cure}")

    def pay(prompts: list[str], responses: list[str], references: list[list[str]], meta: list[dict]):
        read = _columns(prompts, meta)
        parts = {name: each.reward(each.each(responses, references, **read)) for name, each in chosen.items()}
        total = [sum(weights[name] * parts[name][row] for name in parts) for row in range(len(responses))]
        return total, parts

    pay.__name__ = "+".join(f"{weight:g}*{name}" for name, weight in weights.items())
    pay.__doc__ = "\n".join(f"{name}: {each.label}. {each.note}".rstrip(". ") for name, each in chosen.items())
    return pay


def _columns(prompts: Sequence[str], meta: Sequence[Mapping]) -> dict[str, list]:
    """Columns of what some example's meta has; where another one lacks it, None, which a score that reads it names."""
    names = {name for row in meta for name in row}
    return {name: [row.get(name) for row in meta] for name in sorted(names)} | {"prompts": list(prompts)}


Penalty = Callable[[Sequence[str], Sequence[str], Sequence[Sequence[str]], Sequence[Mapping]], Sequence[float]]


def penalised(fn: Reward, penalty: Penalty) -> Reward:
    """``fn`` plus what ``penalty``, of the same arguments, gives ([B], mostly 0 or less), also as a part of its own."""

    def pay(prompts, responses, references, meta):
        found = fn(prompts, responses, references, meta)
        total, parts = found if isinstance(found, tuple) else (found, {})
        extra = [float(value) for value in penalty(prompts, responses, references, meta)]
        return [float(value) + more for value, more in zip(total, extra, strict=True)], {
            **parts,
            name_of(penalty): extra,
        }

    pay.__name__ = f"{name_of(fn)}+{name_of(penalty)}"
    return pay


def copying(n: int = 0, amount: float = -1.0) -> Penalty:
    """A penalty: ``amount`` where a response has ``n`` words in a row that the prompt has, else 0.

    n = 0: where it has the whole list of concepts (``meta["concepts"]``) in a row, as the original's on CommonGen; the
    original pays it for the words "generate" and "sentence" too, and fails on a prompt of other words.
    """
    if n < 0:
        raise ScoreError(f"copying: expected n >= 1 words, or 0 for the list of concepts, got {n}")

    def copies(prompts, responses, references, meta) -> list[float]:
        given = [tokens.words(" ".join(row["concepts"]) if not n else text) for text, row in zip(prompts, meta)]
        said = [tokens.words(text) for text in responses]
        rows = zip(said, given, [n or len(words) for words in given])
        return [amount if set(metrics.ngrams(a, k)) & set(metrics.ngrams(b, k)) else 0.0 for a, b, k in rows]

    return copies
