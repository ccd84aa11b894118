"""Scenes in a toy German and back, declarative sentences only.

    past     das mädchen hat am sonntag eine rote tür in der bibliothek geöffnet .
             am sonntag hat das mädchen die tür geöffnet .     in der bibliothek hat das mädchen die tür geöffnet .
    passive  die tür wurde am sonntag in der bibliothek vom mädchen geöffnet .

The finite verb is second, the participle last; subject, day, object, place (passive: day, place, by whom) in this
order, but one of subject, day and place may stand first: that is all the freedom of order there is. Contractions are
forced (im garten, am see, vom lehrer). Articles and adjectives agree in gender and case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from .phrases import Table, chunk, end_of
from .scenes import Clause, Scene
from .words import ADJECTIVES, DAYS, NAMES, NOUNS, PLACES, VERBS

_ARTICLES = {
    ("the", "nominative"): {"m": "der", "f": "die", "n": "das"},
    ("the", "accusative"): {"m": "den", "f": "die", "n": "das"},
    ("the", "dative"): {"m": "dem", "f": "der", "n": "dem"},
    ("a", "nominative"): {"m": "ein", "f": "eine", "n": "ein"},
    ("a", "accusative"): {"m": "einen", "f": "eine", "n": "ein"},
    ("a", "dative"): {"m": "einem", "f": "einer", "n": "einem"},
}
_ENDINGS = {
    ("the", "nominative"): {"m": "e", "f": "e", "n": "e"},
    ("the", "accusative"): {"m": "en", "f": "e", "n": "e"},
    ("a", "nominative"): {"m": "er", "f": "e", "n": "es"},
    ("a", "accusative"): {"m": "en", "f": "e", "n": "es"},
}
_CONTRACTED = {"in dem": "im", "an dem": "am", "von dem": "vom"}
# Letters: N nominative, A accusative, X either, h "hat", w "wurde", D day, P place, B by whom, T participle.
_HAS = [
    ("", r"(?P<agent>[NX])h(?P<day>D?)(?P<object>[AX])(?P<place>P?)(?P<verb>T)\."),
    ("day", r"(?P<day>D)h(?P<agent>[NX])(?P<object>[AX])(?P<place>P?)(?P<verb>T)\."),
    ("place", r"(?P<place>P)h(?P<agent>[NX])(?P<day>D?)(?P<object>[AX])(?P<verb>T)\."),
]
_WAS = [
    ("", r"(?P<object>[NX])w(?P<day>D?)(?P<place>P?)(?P<agent>B)(?P<verb>T)\."),
    ("day", r"(?P<day>D)w(?P<object>[NX])(?P<place>P?)(?P<agent>B)(?P<verb>T)\."),
    ("place", r"(?P<place>P)w(?P<object>[NX])(?P<day>D?)(?P<agent>B)(?P<verb>T)\."),
]
_PATTERNS = [("past", front, re.compile(pattern)) for front, pattern in _HAS]
_PATTERNS += [("passive", front, re.compile(pattern)) for front, pattern in _WAS]


def noun_phrase(word: str, article: str, case: str, adjective: str = "") -> str:
    """A name as it is; a noun with article and adjective in gender and case (in the dative without adjective)."""
    if word in NAMES:
        return word
    noun = NOUNS[word]
    parts = [_ARTICLES[article, case][noun.gender], noun.german]
    if adjective:
        parts.insert(1, ADJECTIVES[adjective] + _ENDINGS[article, case][noun.gender])
    return " ".join(parts)


def _contracted(phrase: str) -> str:
    """Preposition and article as one word where German has one."""
    words = phrase.split()
    return " ".join([_CONTRACTED.get(" ".join(words[:2]), " ".join(words[:2])), *words[2:]])


def at(place: str) -> str:
    """The place with its preposition, in the dative: im garten, in der küche, auf dem markt."""
    here = PLACES[place]
    return _contracted(f"{here.preposition} {_ARTICLES['the', 'dative'][here.gender]} {here.german}")


def by(agent: str, article: str) -> str:
    """By whom, in the dative: vom lehrer, von einer frau, von emma."""
    return _contracted(f"von {noun_phrase(agent, article, 'dative')}")


@cache
def table() -> Table:
    """Every phrase -> its letter and what it says."""
    found: Table = {name: ("X", ("", "", name)) for name in NAMES}
    for noun in NOUNS:
        for article in ("the", "a"):
            for adjective in ("", *ADJECTIVES):
                subject, object_ = (
                    noun_phrase(noun, article, case, adjective) for case in ("nominative", "accusative")
                )
                said = (article, adjective, noun)
                found |= {subject: ("N", said), object_: ("A", said)} if subject != object_ else {subject: ("X", said)}
    found |= {by(agent, article): ("B", (article, "", agent)) for agent in NOUNS for article in ("the", "a")}
    found |= {by(name, ""): ("B", ("", "", name)) for name in NAMES}
    found |= {at(place): ("P", place) for place in PLACES} | {f"am {DAYS[day]}": ("D", day) for day in DAYS}
    return found | {verb.german: ("T", base) for base, verb in VERBS.items()} | {"hat": ("h", ""), "wurde": ("w", "")}


def parse(words: Sequence[str]) -> Clause | None:
    """What the words of one sentence, its mark included, say; None = not of this grammar."""
    pieces = chunk(end_of(words)[0], table())
    if pieces is None:
        return None
    letters = "".join(letter for letter, _ in pieces) + end_of(words)[1]
    for voice, front, pattern in _PATTERNS:
        if match := pattern.fullmatch(letters):
            said = {slot: pieces[match.start(slot)][1] for slot, letter in match.groupdict().items() if letter}
            agent, object_ = said["agent"], said["object"]
            if agent[1]:
                return None
            scene = Scene(agent[2], said["verb"], object_[2], said.get("place", ""), said.get("day", ""), object_[1])
            return Clause(scene, voice, front, (agent[0], object_[0]))
    return None


def render(clause: Clause) -> str:
    """The sentence. Raises ``KeyError`` for a voice that toy German lacks (the progressive)."""
    scene = clause.scene
    articles = clause.articles
    passive = {"past": False, "passive": True}[clause.voice]
    day, place = f"am {DAYS[scene.day]}" if scene.day else "", at(scene.place) if scene.place else ""
    if passive:
        subject = noun_phrase(scene.object, articles[1], "nominative", scene.adjective)
        order = [subject, day, place, by(scene.agent, articles[0])]
    else:
        subject = noun_phrase(scene.agent, articles[0], "nominative")
        order = [subject, day, noun_phrase(scene.object, articles[1], "accusative", scene.adjective), place]
    first = {"": subject, "day": day, "place": place}[clause.front]
    rest = [part for part in order if part and part != first]
    return " ".join([first, "wurde" if passive else "hat", *rest, VERBS[scene.verb].german, "."])


def vocabulary() -> set[str]:
    """Every German word of the grammar."""
    return {word for phrase in table() for word in phrase.split()} | {"."}
