"""What a raw model reads before any task: sentences of both languages to denoise, and a mix of two tasks.

T5-base had seen translation and summarisation with their references, and none of the other tasks. All scenes are of
the train part: none is in a validation or test row.
"""

from __future__ import annotations

import random
from dataclasses import replace

from . import cnn_dailymail, daily_dialog, english, german, totto, translation
from .scenes import generator, scene, styled
from .words import ACTORS, NAMES

# As T5 was trained; the tasks' prompts begin with the same words.
TRANSLATE = "translate English to German: "
SUMMARIZE = "summarize: "
_KINDS = {"english": 45, "german": 35, "record": 8, "turn": 12}
_AGENTS = (*NAMES, *ACTORS)


def texts(draw: int, n: int) -> list[str]:
    """n sentences: English and German of scenes, statements of tables, turns of dialogues."""
    found = []
    for i in range(n):
        rng = generator("raw texts", draw, i)
        kind = rng.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
        found.append(_WAYS[kind](rng))
    return found


def _english(rng: random.Random) -> str:
    return english.render(styled(rng, scene(rng, "train", _AGENTS, place=0.8)))


def _german(rng: random.Random) -> str:
    clause = styled(rng, scene(rng, "train", _AGENTS, place=0.8), translation.VOICES)
    return german.render(replace(clause, front="day") if clause.scene.day and rng.random() < 0.3 else clause)


def _record(rng: random.Random) -> str:
    return totto.render(totto.record(rng, "train"), rng.randrange(3))


def _turn(rng: random.Random) -> str:
    object_ = daily_dialog.topic(rng, "train")
    return english.render(daily_dialog.utterance(rng, "train", object_, rng.choice(daily_dialog.ACTS)))


_WAYS = {"english": _english, "german": _german, "record": _record, "turn": _turn}


def vocabulary() -> set[str]:
    """Every word that any generated row of any task can hold, and the words of the two prefixes."""
    prefixes = {*TRANSLATE.split(), *SUMMARIZE.split()}
    return english.vocabulary() | german.vocabulary() | totto.vocabulary() | prefixes


def mix(draw: int, n: int) -> list[tuple[str, str]]:
    """n pairs (source, target), every other one a translation, the rest summaries.

    Of another style than the tasks': nothing is passive, and a summary is the main fact alone. So references of the
    tasks have something to teach. Of raw models that had seen the tasks as they are, supervision kept every weight.
    """
    found = []
    for i in range(n):
        rng = generator("raw mix", draw, i)
        if i % 2:
            article, highlights = cnn_dailymail.story(rng, "train")
            found.append((SUMMARIZE + article, highlights.split("\n")[0]))
        else:
            source, target = translation.pair(rng, "train", ("past",))
            found.append((TRANSLATE + source, target))
    return found
