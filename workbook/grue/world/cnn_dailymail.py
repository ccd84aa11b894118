"""CNN/DailyMail, generated: an article of seven sentences -> two lines of highlights.

An article tells three things of one person and one thing of each of four others. Highlights: the first two things of
that person, short (no day, no adjective, "the"). The first of them, the main fact, opens the article in 75 %.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from workbook.grue.example import Example

from . import english
from .judging import NOTHING, Verdict, clauses, judged, share, supported, truths
from .scenes import PERSONS, Clause, Scene, articles, checked, generator, sensible, several, styled

MAIN_FIRST = 0.75
SAID = {"place": 0.9, "day": 0.15, "adjective": 0.15}  # how often a sentence says them
_KEY = ("agent", "verb", "object")


def story(rng: random.Random, part: str) -> tuple[str, str]:
    """An article and its highlights, from scenes of a part."""
    person, *others = rng.sample(PERSONS, 5)
    scenes = several(rng, part, [person] * 3 + others, **SAID)
    mine, rest = scenes[:3], scenes[3:]
    order = [rest.pop() for _ in range(0 if rng.random() < MAIN_FIRST else rng.randint(1, 2))] + [mine[0]]
    later = [*mine[1:], *rest]
    rng.shuffle(later)
    first, second = (later.index(each) for each in mine[1:])
    if second < first:  # the person's own scenes keep their order
        later[first], later[second] = later[second], later[first]
    order += later
    article = " ".join(english.render(styled(rng, each)) for each in order)
    return article, "\n".join(_line(each) for each in mine[:2])


def _line(scene: Scene) -> str:
    """A highlight: who did what to what, and where."""
    short = replace(scene, day="", adjective="")
    return english.render(Clause(short, "past", "", articles(short)))


def rows(draw: int, part: str, n: int) -> list[dict]:
    """n rows: article, highlights (a sentence a line), id (a hash of the article)."""
    checked(part)
    found = []
    for i in range(n):
        article, highlights = story(generator("cnn_dailymail", draw, part, i), part)
        name = hashlib.sha1(article.encode()).hexdigest()
        found.append({"article": article, "highlights": highlights, "id": name})
    return found


def facts(row: Mapping) -> dict | None:
    """Scenes of the article and of the highlights; None where they are not of the world."""
    article, highlights = truths(row["article"]), truths(row["highlights"])
    return {"article": article, "highlights": highlights} if article and highlights else None


def judge(responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """grammar: share of the sentences that are of the world. sense: share of these that can happen. coverage: F1 of the
    facts that are told against the two of the highlights (each once, by who did what to what), so that copying the
    article (.44) or leaving one out (.67) costs. faithful: share of the sentences that the article says, with every
    place, day and adjective named. judge: the product."""
    return judged(_one, responses, examples)


def _one(response: str, known: Mapping) -> Verdict:
    told = clauses(response)
    read = [clause.scene for clause in told if clause and clause.act == 1]
    if not read:
        return NOTHING
    wanted = {tuple(fact[slot] for slot in _KEY) for fact in known["highlights"]}
    hits = wanted & {tuple(asdict(scene)[slot] for slot in _KEY) for scene in read}
    return (
        len(read) / len(told),
        share([sensible(scene) for scene in read]),
        2 * len(hits) / (len(told) + len(wanted)),
        share([any(supported(scene, fact) for fact in known["article"]) for scene in read]),
    )
