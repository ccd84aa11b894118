"""Translation, generated: English of the world -> toy German, in the columns of wmt16 and iwslt2017.

What must be kept: agent, verb, object, adjective, place, day, the articles, active or passive. What is free: which of
subject, day and place stands first. In a target that is what stands first in the English (subject or place) three times
as often as each other one that is said: two good translations of one sentence often differ, and the likeliest order can
be learned.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbook.grue.example import Example

from . import english, german
from .judging import NOTHING, Verdict, judged, one_clause, sense_of
from .phrases import sentences
from .scenes import Clause, checked, generator, scene, styled

VOICES = ("past", "passive")
AS_IN_ENGLISH = 3  # times as often as another order


def pair(rng: random.Random, part: str, voices: tuple[str, ...] = VOICES) -> tuple[str, str]:
    """An English sentence of a part's scene, in one of the voices, and a German one."""
    clause = styled(rng, scene(rng, part, day=0.6, place=0.8), voices)
    return english.render(clause), german.render(_ordered(rng, clause))


def _ordered(rng: random.Random, clause: Clause) -> Clause:
    """The clause as German puts it: subject, day or place first."""
    fronts = ["", *(slot for slot in ("day", "place") if getattr(clause.scene, slot))]
    weights = [AS_IN_ENGLISH if front == clause.front else 1 for front in fronts]
    return replace(clause, front=rng.choices(fronts, weights)[0])


def another(source: str, seed: int) -> str:
    """A further good translation of a generated English sentence: another human's. seed: which."""
    clause = one_clause(source)
    if clause is None:
        raise ValueError(f"grue world: expected a generated sentence, got {source[:60]!r}")
    return german.render(_ordered(generator("translation again", seed, source), clause))


def rows(draw: int, part: str, n: int, collection: str = "wmt16") -> list[dict]:
    """n rows: translation {de, en}. collection: another name, other sentences of the same kind (iwslt2017)."""
    checked(part)
    found = []
    for i in range(n):
        source, target = pair(generator(collection, draw, part, i), part)
        found.append({"translation": {"de": target, "en": source}})
    return found


def facts(row: Mapping) -> dict | None:
    """What the English sentence says; None where it is not of the world."""
    clause = one_clause(row["translation"]["en"])
    return {"said": _said(clause)} if clause and clause.voice in VOICES else None


def _said(clause: Clause) -> dict[str, str]:
    """Everything that a translation must keep, by its name."""
    agent, object_ = clause.articles
    return {**vars(clause.scene), "agent's article": agent, "object's article": object_, "voice": clause.voice}


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: one sentence of toy German, every agreement right. sense: it can happen. coverage: share of what the
    English says that is in it; faithful: share of what it says that is in the English. judge: the product."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    found = sentences(response)
    clause = german.parse(found[0]) if len(found) == 1 else None
    if clause is None:
        return NOTHING
    asked, said = known["said"], _said(clause)
    same = sum(said[name] == value for name, value in asked.items() if value)
    wanted, given = (sum(bool(value) for value in each.values()) for each in (asked, said))
    return 1.0, sense_of(clause), same / wanted, same / given
