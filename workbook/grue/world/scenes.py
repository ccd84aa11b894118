"""Scenes: who did what to what, where, when; what can happen at all; which part a scene belongs to."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from rlnlp.settings import nearest

from .words import ADJECTIVES, DAYS, GOES_WITH, NAMES, NOUNS, PEOPLE, VERBS, kind_of

PARTS = ("train", "validation", "test")
# Twentieths of all (agent, verb, object): 13 train, 3 validation, 4 test.
_SHARES = ("train",) * 13 + ("validation",) * 3 + ("test",) * 4
SPEAKERS = ("i", "you")
SLOTS = ("agent", "verb", "object", "place", "day", "adjective")
PERSONS = (*NAMES, *PEOPLE)  # who speaks, is asked for, and acts in articles and stories


@dataclass(frozen=True)
class Scene:
    """One thing that happened; "" = not said. agent may be "i" or "you", object "it". adjective: of the object."""

    agent: str
    verb: str
    object: str
    place: str = ""
    day: str = ""
    adjective: str = ""


@dataclass(frozen=True)
class Clause:
    """A scene as it is said.

    voice: past, progressive, passive. front: what stands first instead of the subject: "", "place" or (German) "day".
    articles: of agent and object, "the", "a", or "" where there is none. act: 1 inform, 2 question, 3 directive, 4
    commissive, as on the hub. asked: the slot that a question asks for, "" for yes or no.
    """

    scene: Scene
    voice: str = "past"
    front: str = ""
    articles: tuple[str, str] = ("the", "the")
    act: int = 1
    asked: str = ""


def sensible(scene: Scene) -> bool:
    """Whether it can happen: the verb's agents, objects and places, the adjective's nouns; nobody does it to himself.

    What is not said, "i", "you" and "it" hurt nothing.
    """
    verb = VERBS[scene.verb]
    known = scene.object not in ("", "it")
    return (
        (scene.agent in ("", *SPEAKERS) or kind_of(scene.agent) in verb.agents)
        and (not known or (kind_of(scene.object) in verb.objects and scene.object != scene.agent))
        and (not scene.place or scene.place in verb.places)
        and (not scene.adjective or not known or kind_of(scene.object) in GOES_WITH[scene.adjective])
    )


def part_of(*words: str) -> str:
    """The part to which words belong, by a hash: the same for every draw, so no draw trains on another one's test."""
    digest = hashlib.blake2b("|".join(words).encode(), digest_size=4).digest()
    return _SHARES[int.from_bytes(digest, "big") % len(_SHARES)]


def home(agent: str, verb: str, object_: str) -> str:
    """The part of all scenes in which the two and the verb go together, whoever does it to whom."""
    return part_of(verb, *sorted((agent, object_)))


def checked(part: str) -> str:
    """The part itself. Raises ``ValueError`` for an unknown one."""
    if part not in PARTS:
        raise ValueError(f"grue world: expected a part of {PARTS}, got {part!r}{nearest(part, PARTS)}")
    return part


def generator(*key: object) -> random.Random:
    """Random numbers that depend on the key alone: row i is the same however many rows are asked for."""
    return random.Random("/".join(map(str, key)))


@cache
def _index(part: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """agent -> verb -> objects of the sensible (agent, verb, object) of a part."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for agent in (*NAMES, *NOUNS):
        for verb in VERBS:
            objects = tuple(
                each
                for each in (*NOUNS, *NAMES)
                if sensible(Scene(agent, verb, each)) and home(agent, verb, each) == part
            )
            if objects:
                found.setdefault(agent, {})[verb] = objects
    return found


@cache
def about(part: str, object_: str) -> tuple[tuple[str, str], ...]:
    """(agent, verb) that a part has for an object."""
    index = _index(part)
    return tuple((agent, verb) for agent in index for verb, objects in index[agent].items() if object_ in objects)


def scene(
    rng: random.Random,
    part: str,
    agents: Collection[str] = PERSONS,
    place: float = 1.0,
    day: float = 0.5,
    adjective: float = 0.3,
) -> Scene:
    """A sensible scene of a part, its agent one of ``agents``; place, day, adjective: probability that each is said."""
    index = _index(checked(part))
    agent = rng.choice(sorted(agents))
    verb = rng.choice(sorted(index[agent]))
    object_ = rng.choice(index[agent][verb])
    fitting = [each for each in ADJECTIVES if kind_of(object_) in GOES_WITH[each] and object_ in NOUNS]
    return Scene(
        agent,
        verb,
        object_,
        rng.choice(sorted(VERBS[verb].places)) if rng.random() < place else "",
        rng.choice(tuple(DAYS)) if rng.random() < day else "",
        rng.choice(fitting) if fitting and rng.random() < adjective else "",
    )


def several(rng: random.Random, part: str, agents: Collection[str], **said: float) -> list[Scene]:
    """One scene for each agent in turn, no object twice. ``agents`` may name one agent again and again."""
    found: list[Scene] = []
    for agent in agents:
        new = scene(rng, part, (agent,), **said)
        while new.object in {each.object for each in found} or new.object in agents:
            new = scene(rng, part, (agent,), **said)
        found.append(new)
    return found


def styled(rng: random.Random, scene: Scene, voices: tuple[str, ...] = (), fronts: float = 0.25) -> Clause:
    """A way to say it: one of the voices (all three), the place first with probability ``fronts``, any articles."""
    voice = rng.choice(voices or ("past", "progressive", "passive"))
    front = "place" if scene.place and rng.random() < fronts else ""
    return Clause(scene, voice, front, articles(scene, rng.choice(("the", "a")), rng.choice(("the", "a"))))


def articles(scene: Scene, agent: str = "the", object_: str = "the") -> tuple[str, str]:
    """Articles of agent and object: none before a name or a pronoun."""
    return (agent if scene.agent in NOUNS else "", object_ if scene.object in NOUNS else "")
