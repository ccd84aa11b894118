"""What the six judges share: reading answers, and the table of verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import prod

from workbook.grue.example import Example

from . import english
from .phrases import sentences
from .scenes import SLOTS, Clause, Scene, sensible

ASPECTS = ("grammar", "sense", "coverage", "faithful")
NOTHING = (0.0, 0.0, 0.0, 0.0)
Verdict = tuple[float, float, float, float]


def judged(
    one: Callable[[str, Mapping], Verdict], responses: Sequence[str], examples: Sequence[Example]
) -> dict[str, list[float]]:
    """A list [B] in [0, 1] for each aspect, and "judge", their product. one: (response, facts) -> the four aspects.

    Raises ``ValueError`` where an example has no facts: a real row, for which a task's ``facts`` gives None.
    """
    if len(responses) != len(examples):
        raise ValueError(f"judge: expected a response for each example, got {len(responses)} for {len(examples)}")
    without = [example.id for example in examples if "facts" not in example.meta]
    if without:
        raise ValueError(f"judge: expected generated examples, with meta['facts']; {without[0]!r} has none")
    verdicts = [one(response, example.meta["facts"]) for response, example in zip(responses, examples)]
    found = {"judge": [float(prod(verdict)) for verdict in verdicts]}
    return found | {name: [float(verdict[i]) for verdict in verdicts] for i, name in enumerate(ASPECTS)}


def one_clause(response: str) -> Clause | None:
    """What a response of exactly one English sentence says; None = not that."""
    found = sentences(response)
    return english.parse(found[0]) if len(found) == 1 else None


def clauses(text: str) -> list[Clause | None]:
    """What each English sentence says; None for one that is not of the grammar."""
    return [english.parse(words) for words in sentences(text)]


def truths(text: str) -> list[dict[str, str]] | None:
    """Scenes of a generated text, as dicts; None where a sentence is not of the grammar: a real text."""
    found = []
    for words in sentences(text):  # a real text is left at its first sentence
        if (clause := english.parse(words)) is None:
            return None
        found.append(asdict(clause.scene))
    return found


def supported(said: Scene, fact: Mapping[str, str]) -> bool:
    """Whether everything that is said is so in the fact; a fact may hold more."""
    return all(getattr(said, slot) in ("", fact[slot]) for slot in SLOTS)


def share(values: Sequence[bool]) -> float:
    """Share of true ones; 0 of none."""
    return sum(values) / len(values) if values else 0.0


def sense_of(clause: Clause) -> float:
    """1.0 where it can happen, else 0.0."""
    return float(sensible(clause.scene))
