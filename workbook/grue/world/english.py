"""Scenes as English sentences and back: ``parse(render(clause)) == clause``.

    past         the teacher carried a red box in the garden on monday .
    progressive  the teacher was carrying a box .
    passive      the box was carried by a teacher .          each of the three may have its place first
    question     did emma open the door ?  who opened the door ?  what did emma open ?  where did emma open the door ?
    directive    please open the door on monday .
    commissive   i will open the door on monday .

A sentence is cut into phrases, longest first, one letter each; a sentence is grammatical if its letters are one of the
patterns below. Nouns may stand in any role there, so that a wrong role is grammatical and not sensible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from .phrases import Table, chunk, end_of
from .scenes import SPEAKERS, Clause, Scene
from .words import ADJECTIVES, DAYS, NAMES, NOUNS, PLACES, VERBS

FUNCTION = {
    "by": "y",
    "did": "d",
    "who": "w",
    "what": "h",
    "where": "r",
    "please": "p",
    "i": "I",
    "you": "I",
    "i will": "l",
    "it": "t",
}
# Letters: N noun phrase, V past, G "was" + -ing, S "was" + participle, B base form, P place, D day, and the above.
_TAIL = "(?P<place>P?)(?P<day>D?)"
PATTERNS = [
    ("past", 1, "", r"(?P<front>P?)(?P<agent>[NI])(?P<verb>V)(?P<object>[Nt])" + _TAIL + r"\."),
    ("progressive", 1, "", r"(?P<front>P?)(?P<agent>[NI])(?P<verb>G)(?P<object>[Nt])" + _TAIL + r"\."),
    ("passive", 1, "", r"(?P<front>P?)(?P<object>[Nt])(?P<verb>S)y(?P<agent>N)" + _TAIL + r"\."),
    ("past", 2, "", r"d(?P<agent>[NI])(?P<verb>B)(?P<object>[Nt])" + _TAIL + r"\?"),
    ("past", 2, "agent", r"w(?P<verb>V)(?P<object>[Nt])" + _TAIL + r"\?"),
    ("past", 2, "object", r"hd(?P<agent>[NI])(?P<verb>B)" + _TAIL + r"\?"),
    ("past", 2, "place", r"rd(?P<agent>[NI])(?P<verb>B)(?P<object>[Nt])(?P<day>D?)\?"),
    ("past", 3, "", r"p(?P<verb>B)(?P<object>[Nt])" + _TAIL + r"\."),
    ("past", 4, "", r"l(?P<verb>B)(?P<object>[Nt])" + _TAIL + r"\."),
]
_PATTERNS = [(voice, act, asked, re.compile(pattern)) for voice, act, asked, pattern in PATTERNS]


def noun_phrase(word: str, article: str = "the", adjective: str = "") -> str:
    """A name or a pronoun as it is; a noun with its article ("a" or "an" by the next letter) and adjective."""
    if word not in NOUNS:
        return word
    rest = f"{adjective} {word}".strip()
    return f"{'an' if article == 'a' and rest[0] in 'aeiou' else article} {rest}"


def at(place: str) -> str:
    """The place with its preposition: in the garden, at the lake."""
    return f"{PLACES[place].english} the {place}"


@cache
def table() -> Table:
    """Every phrase -> its letter and what it says."""
    found: Table = {word: (letter, word) for word, letter in FUNCTION.items()}
    found |= {name: ("N", ("", "", name)) for name in NAMES}
    for noun in NOUNS:
        for article in ("the", "a"):
            for adjective in ("", *ADJECTIVES):
                found[noun_phrase(noun, article, adjective)] = ("N", (article, adjective, noun))
    for base, verb in VERBS.items():
        found |= {base: ("B", base), verb.past: ("V", base)}
        found |= {f"was {verb.ing}": ("G", base), f"was {verb.participle}": ("S", base)}
    found |= {at(place): ("P", place) for place in PLACES}
    return found | {f"on {day}": ("D", day) for day in DAYS}


def parse(words: Sequence[str]) -> Clause | None:
    """What the words of one sentence, its mark included, say; None = not of this grammar."""
    pieces = chunk(end_of(words)[0], table())
    if pieces is None:
        return None
    letters = "".join(letter for letter, _ in pieces) + end_of(words)[1]
    for voice, act, asked, pattern in _PATTERNS:
        if match := pattern.fullmatch(letters):
            said = {slot: pieces[match.start(slot)][1] for slot, letter in match.groupdict().items() if letter}
            return _clause(said, voice, act, asked)
    return None


def _clause(said: dict, voice: str, act: int, asked: str) -> Clause | None:
    """The clause of what stands in each slot; None where an agent has an adjective, or a place is said twice."""
    agent, object_ = (_as_phrase(said.get(slot, "")) for slot in ("agent", "object"))
    if agent[1] or ("front" in said and "place" in said):
        return None
    place = said.get("front") or said.get("place", "")
    scene = Scene(agent[2], said["verb"], object_[2], place, said.get("day", ""), object_[1])
    return Clause(scene, voice, "place" if "front" in said else "", (agent[0], object_[0]), act, asked)


def _as_phrase(value: str | tuple[str, str, str]) -> tuple[str, str, str]:
    """(article, adjective, word), of a pronoun too."""
    return ("", "", value) if isinstance(value, str) else value


def render(clause: Clause) -> str:
    """The sentence, its words and its mark apart by one blank."""
    scene, verb = clause.scene, VERBS[clause.scene.verb]
    agent = noun_phrase(scene.agent, clause.articles[0])
    object_ = noun_phrase(scene.object, clause.articles[1], scene.adjective)
    place, day = at(scene.place) if scene.place else "", f"on {scene.day}" if scene.day else ""
    if clause.act == 1:
        middle = {
            "past": f"{agent} {verb.past} {object_}",
            "progressive": f"{agent} was {verb.ing} {object_}",
            "passive": f"{object_} was {verb.participle} by {agent}",
        }[clause.voice]
        return _joined(place, middle, day, ".") if clause.front else _joined(middle, place, day, ".")
    if clause.act == 2:
        question = {
            "": f"did {agent} {verb.base} {object_}",
            "agent": f"who {verb.past} {object_}",
            "object": f"what did {agent} {verb.base}",
            "place": f"where did {agent} {verb.base} {object_}",
        }[clause.asked]
        return _joined(question, place, day, "?")
    return _joined("please" if clause.act == 3 else "i will", verb.base, object_, place, day, ".")


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def vocabulary() -> set[str]:
    """Every English word of the grammar."""
    return {word for phrase in table() for word in phrase.split()} | set(SPEAKERS) | {".", "?"}
