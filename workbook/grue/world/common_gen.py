"""CommonGen, generated: concepts (garden, carry, teacher, box) -> a sentence in which they go together.

A set has a person or an animal, a verb, an object and mostly a place and an adjective; roles follow only from what can
happen. The template "in the garden the teacher the box the carry ." has every concept and no verb form: overlap scores
pay for it, the grammar does not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from workbook.grue.example import Example

from . import english
from .judging import NOTHING, Verdict, judged, one_clause, sense_of
from .scenes import Clause, Scene, articles, checked, generator, scene
from .words import ACTORS, ADJECTIVES, DAYS, NOUNS, PLACES, VERBS

# Rows (= references) of a set: the hub's train has 1.5 on average, its test about 4.
REFERENCES = {"train": (1, 1, 2, 3), "validation": (4,), "test": (4,)}
_WAYS = (("past", ""), ("progressive", ""), ("passive", ""), ("past", "place"))
_ON_A_DAY = 0.2
TRIALS = 50  # for a new set, on average, before a part counts as used up


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: concept_set_idx, concepts, target. Rows of one set stand together; no set is in two parts."""
    found: list[dict] = []
    seen: set[tuple[str, ...]] = set()
    checked(part)
    for trial in count():
        if len(found) >= n:
            break
        if trial > TRIALS * (len(seen) + 1):
            raise ValueError(f"common_gen: expected at most {len(found)} rows of {part}, got {n}: all sets are used")
        rng = generator("common_gen", draw, part, trial)
        size = rng.choices((3, 4, 5), (15, 55, 30))[0]
        new = scene(rng, part, ACTORS, place=float(size > 3), day=0.0, adjective=float(size == 5))
        concepts = [each for each in (new.agent, new.verb, new.object, new.place, new.adjective) if each]
        if len(concepts) != size or new.object not in NOUNS or tuple(sorted(concepts)) in seen:
            continue
        seen.add(tuple(sorted(concepts)))
        rng.shuffle(concepts)
        for target in _targets(rng, new, rng.choice(REFERENCES[part])):
            found.append({"concept_set_idx": len(seen) - 1, "concepts": list(concepts), "target": target})
    return found[:n]


def _targets(rng: random.Random, scene: Scene, number: int) -> list[str]:
    """Different sentences of one scene; a place of common sense where the set has none and the way needs one."""
    found = []
    for voice, front in rng.sample(_WAYS, number):
        place = scene.place or (rng.choice(sorted(VERBS[scene.verb].places)) if front else "")
        day = rng.choice(tuple(DAYS)) if rng.random() < _ON_A_DAY else ""
        said = replace(scene, place=place, day=day)
        found.append(english.render(Clause(said, voice, front, articles(said, *rng.choices(("the", "a"), k=2)))))
    return found


def facts(row: Mapping) -> dict | None:
    """What a judge must know of a row: its concepts. None for a row whose target is not of the world."""
    return {"concepts": list(row["concepts"])} if one_clause(row["target"]) else None


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: one sentence of the world. sense: it can happen. coverage: share of the concepts in it. faithful: share
    of what it names, of the kinds that the concepts name, which are concepts. judge: the product. A day is free, and so
    are a place and an adjective where the set has none."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    clause = one_clause(response)
    if clause is None or clause.act != 1:
        return NOTHING
    concepts = set(known["concepts"])
    said = clause.scene
    named = [said.agent, said.verb, said.object]
    named += [said.place] if concepts & set(PLACES) and said.place else []
    named += [said.adjective] if concepts & set(ADJECTIVES) and said.adjective else []
    coverage = len(concepts & set(named)) / len(concepts)
    return 1.0, sense_of(clause), coverage, sum(each in concepts for each in named) / len(named)
