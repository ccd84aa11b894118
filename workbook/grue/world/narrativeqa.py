"""NarrativeQA, generated: a story of five facts and a question (who, what, where) -> an answer.

Each fact has its own person and its own object, so a question has one answer. Two answers are given, a short one
("emma") and a sentence ("emma cooked it .").
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from workbook.grue.example import Example

from . import english
from .judging import NOTHING, Verdict, judged, one_clause, supported, truths
from .phrases import Table, chunk, sentences
from .scenes import PERSONS, Clause, Scene, articles, checked, generator, sensible, several, styled
from .words import PLACES, kind_of

FACTS = 5
SLOTS = ("agent", "object", "place")


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: document (its summary the story, its text empty), question, answers; one question a story."""
    checked(part)
    return [_row(generator("narrativeqa", draw, part, i), part) for i in range(n)]


def _row(rng: random.Random, part: str) -> dict:
    scenes = several(rng, part, rng.sample(PERSONS, FACTS))
    story = " ".join(english.render(styled(rng, each)) for each in scenes)
    slots = [(each, slot) for each in scenes for slot in SLOTS if slot != "object" or kind_of(each.object) != "person"]
    asked, slot = rng.choice(slots)
    document = {
        "id": hashlib.sha1(story.encode()).hexdigest(),
        "kind": "gutenberg",
        "url": "",
        "file_size": 0,
        "word_count": 0,
        "start": "",
        "end": "",
        "summary": {"text": story, "tokens": story.split(), "url": "", "title": scenes[0].agent},
        "text": "",
    }
    return {
        "document": document,
        "question": _text(question(asked, slot)),
        "answers": [_text(answer) for answer in answers(asked, slot)],
    }


def _text(text: str) -> dict:
    return {"text": text, "tokens": text.split()}


def question(scene: Scene, slot: str) -> str:
    """The question for a slot of a scene; nothing beyond who, what and (unless asked) the verb's object is said."""
    bare = replace(scene, place="", day="", adjective="", **({} if slot == "place" else {slot: ""}))
    return english.render(Clause(bare, articles=articles(bare), act=2, asked=slot))


def answers(scene: Scene, slot: str) -> list[str]:
    """A short answer and a sentence."""
    short = {
        "agent": english.noun_phrase(scene.agent),
        "object": english.noun_phrase(scene.object),
        "place": english.at(scene.place) if scene.place else "",
    }[slot]
    object_ = scene.object if slot == "object" or kind_of(scene.object) == "person" else "it"
    told = replace(scene, object=object_, place=scene.place if slot == "place" else "", day="", adjective="")
    return [short, english.render(Clause(told, articles=articles(told)))]


def facts(row: Mapping) -> dict | None:
    """slot: what is asked for; scene: the fact of the story in which the answer stands; None where they are not of the
    world."""
    asked = one_clause(row["question"]["text"])
    if asked is None or asked.asked not in SLOTS or not (story := truths(row["document"]["summary"]["text"])):
        return None
    found = [scene for scene in story if supported(asked.scene, scene)]
    return {"slot": asked.asked, "scene": found[0]} if len(found) == 1 else None


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: one noun phrase, one place or one sentence. sense: it can happen; of a short answer, with the
    question's verb. coverage: the slot is filled as in the story. faithful: nothing else is said that the story's fact
    does not say. judge: the product."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    slot, fact = known["slot"], known["scene"]
    short = _short(response, slot)
    if short is not None:
        able = getattr(short, slot) != "" and sensible(replace(short, verb=fact["verb"]))
        return 1.0, float(able), *_agrees(short, slot, fact)
    clause = one_clause(response)
    if clause is None or clause.act != 1:
        return NOTHING
    said = clause.scene
    if said.object == "it":  # what the question named; where it asks for it, "it" says nothing
        said = replace(said, object="" if slot == "object" else fact["object"])
    return 1.0, float(sensible(said)), *_agrees(said, slot, fact)


def _agrees(said: Scene, slot: str, fact: Mapping[str, str]) -> tuple[float, float]:
    """(whether the slot is filled as in the fact, whether the rest agrees with the fact)."""
    rest = replace(said, **{slot: ""})
    return float(getattr(said, slot) == fact[slot]), float(supported(rest, fact))


@cache
def _table() -> Table:
    """Phrases of the world, and places without their preposition."""
    return english.table() | {f"the {place}": ("P", place) for place in PLACES}


def _short(response: str, slot: str) -> Scene | None:
    """What a short answer says: a noun phrase (with or without a mark) or a place, with or without its preposition."""
    found = sentences(response)
    words = [word for word in found[0] if word != "."] if len(found) == 1 else []
    pieces = chunk(words, _table()) if words else None
    if not pieces or len(pieces) > 1 or pieces[0][0] not in ("N", "P"):
        return None
    letter, value = pieces[0]
    empty = Scene("", "", "")
    if letter == "P":
        return replace(empty, place=value)
    _, adjective, word = value
    if slot == "agent":
        return None if adjective else replace(empty, agent=word)
    return replace(empty, object=word, adjective=adjective)
