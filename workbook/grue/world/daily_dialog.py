"""DailyDialog, generated: what two people say of one object, with an act a turn -> the next turn.

Acts are a Markov chain (1 inform, 2 question, 3 directive, 4 commissive, as on the hub; its 0 is a dummy and never
occurs), set so that "always inform" and "the likeliest after the previous act" are about as often right as in the real
data. A turn says its act by its form, and every turn names the object. Emotions are all 0.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from workbook.grue.example import Example

from . import english
from .judging import NOTHING, Verdict, judged, one_clause, sense_of
from .scenes import PERSONS, Clause, Scene, about, articles, checked, generator, home, scene
from .words import DAYS, NOUNS, VERBS

ACTS = (1, 2, 3, 4)
# Probability of the next act (columns) after each (rows).
CHAIN = np.array(
    [
        [0.57, 0.24, 0.14, 0.05],
        [0.78, 0.10, 0.08, 0.04],
        [0.20, 0.18, 0.12, 0.50],
        [0.48, 0.26, 0.20, 0.06],
    ]
)
TURNS = (6, 10)
_PLACE, _DAY = 0.5, 0.2  # how often they are said
_SPEAKER = 0.3  # how often "i" informs, and "you" is asked a yes or no


def start() -> np.ndarray:
    """The chain's stationary distribution [4], from which the first act comes: every turn has these shares."""
    values, vectors = np.linalg.eig(CHAIN.T)
    one = np.real(vectors[:, np.argmax(np.real(values))])
    return one / one.sum()


def shares() -> dict[str, float]:
    """How often two answers without a model have the right act: always inform; the likeliest after the previous act."""
    return {"always inform": float(start()[0]), "after the previous act": float(start() @ CHAIN.max(axis=1))}


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: dialog, act, emotion, lists of one length. Who did what to what is of the part, for every turn."""
    checked(part)
    return [_row(generator("daily_dialog", draw, part, i), part) for i in range(n)]


def _row(rng: random.Random, part: str) -> dict:
    object_ = topic(rng, part)
    acts = rng.choices(ACTS, start())
    dialog: list[str] = []
    for _ in range(rng.randint(*TURNS) - 1):
        acts += rng.choices(ACTS, CHAIN[acts[-1] - 1])
    for act in acts:
        turn = english.render(utterance(rng, part, object_, act))
        while turn in dialog:
            turn = english.render(utterance(rng, part, object_, act))
        dialog.append(turn)
    return {"dialog": dialog, "act": list(acts), "emotion": [0] * len(acts)}


def topic(rng: random.Random, part: str) -> str:
    """An object of which a part has at least four things to tell."""
    while True:
        object_ = scene(rng, part).object
        if object_ in NOUNS and len(_told(part, object_)) > 3:
            return object_


def _told(part: str, object_: str) -> list[tuple[str, str]]:
    return [pair for pair in about(part, object_) if pair[0] in PERSONS]


def utterance(rng: random.Random, part: str, object_: str, act: int) -> Clause:
    """A turn of an act about an object: a clause that can happen."""
    agent, verb = rng.choice(_told(part, object_))
    asked = rng.choice(("", "agent", "place")) if act == 2 else ""
    if act > 2 or asked == "agent":
        agent = ""
    elif not asked and home("i", verb, object_) == part and rng.random() < _SPEAKER:
        agent = "you" if act == 2 else "i"
    place = rng.choice(sorted(VERBS[verb].places)) if asked != "place" and rng.random() < _PLACE else ""
    day = rng.choice(tuple(DAYS)) if rng.random() < _DAY else ""
    said = Scene(agent, verb, object_, place, day)
    return Clause(said, articles=articles(said), act=act, asked=asked)


def facts(row: Mapping, turn: int) -> dict | None:
    """Of the turn that is to be written (0 is the first): the object that is spoken of, its act, and the turns before;
    None where these, or the turn itself, are not of the world."""
    said = [one_clause(each) for each in row["dialog"][: turn + 1]]
    if None in said:
        return None
    return {"object": said[0].scene.object, "act": int(row["act"][turn]), "earlier": list(row["dialog"][:turn])}


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: one sentence of an act. sense: it can happen. coverage: its act is the reference's, which the prompt
    does not tell: nobody reaches 1 (``shares``). faithful: it names the object that is spoken of, and no earlier turn
    said the same. judge: the product."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    clause = one_clause(response)
    if clause is None:
        return NOTHING
    new = all(one_clause(turn) != clause for turn in known["earlier"])
    faithful = clause.scene.object == known["object"] and new
    return 1.0, sense_of(clause), float(clause.act == known["act"]), float(faithful)
