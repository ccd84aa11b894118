"""Who rates what, and raters that are no people: the corpus's judge with errors of its own. Their ids start with
"simulated-"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from workbook.study.ratings import SIDES, SIMULATED, Choice, Likert, Pair, PreferenceError, Text
from workbook.texts import corpus


def order(items: Sequence[Pair | Text], rater: str, seed: int = 0) -> list[tuple[Pair | Text, str]]:
    """(item, which response is on the left) in the order this rater sees them; equal seed and rater, equal order."""
    draw = Random(f"rlnlp order {seed} {rater}")
    return [(item, draw.choice(SIDES)) for item in draw.sample(list(items), len(items))]


def assign(items: Sequence[Pair | Text], raters: Sequence[str], each: int, seed: int = 0) -> dict[str, list]:
    """Which rater rates which items, so that every item has ``each`` raters and the raters about equally many items.

    Raises: PreferenceError for fewer raters than ``each``.
    """
    if not 1 <= each <= len(raters):
        raise PreferenceError(f"{each} raters for each item: expected 1 to {len(raters)}, as many as there are")
    given: dict[str, list] = {rater: [] for rater in raters}
    for number, item in enumerate(items):
        draw = Random(f"rlnlp assign {seed} {number}")
        for rater in sorted(raters, key=lambda r: (len(given[r]), draw.random()))[:each]:
            given[rater].append(item)
    return given


@dataclass(frozen=True)
class SimulatedRater:
    """Rates by the corpus's judge, with errors of its own; no person. All numbers in the judge's unit, 0 to 1.

        opinion(text) = judge(text) + per_word x words + noise x (sqrt(r) taste(text) + sqrt(1 - r) slip(text,
        occasion))

    r: repeatability, the share of the noise that comes back when it sees the text again (taste and slip are standard
    normal, an occasion is one look at one item); per_word: how it likes length; leftward: added to what stands on the
    left; severity: taken off Likert ratings;
    indifferent: opinions closer than this are a tie.
    Limits: all 0 chooses as the judge does; repeatability 1 and no other occasion gives the same answer twice.
    """

    number: int
    seed: int = 0
    noise: float = 0.2
    repeatability: float = 0.5
    per_word: float = 0.0
    leftward: float = 0.0
    severity: float = 0.0
    indifferent: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.repeatability <= 1 or self.noise < 0 or self.indifferent < 0:
            raise PreferenceError(
                f"simulated rater {self.number}: expected repeatability from 0 to 1, noise and indifferent >= 0, got "
                f"{self.repeatability}, {self.noise}, {self.indifferent}"
            )

    @property
    def name(self) -> str:
        return f"{SIMULATED}{self.number}"

    def opinion(self, text: str, judged: float, occasion: str = "") -> float:
        """What it thinks, on this occasion, of a text that the judge gave ``judged``."""
        taste = Random(f"taste {self.seed} {self.number} {text}").gauss()
        slip = Random(f"slip {self.seed} {self.number} {occasion} {text}").gauss()
        noise = self.repeatability**0.5 * taste + (1 - self.repeatability) ** 0.5 * slip
        return judged + self.per_word * len(text.split()) + self.noise * noise


def simulated_raters(n: int, seed: int = 0, noise: float = 0.2, repeatability: float = 0.5) -> list[SimulatedRater]:
    """n raters who differ in how they like length, the left side and in severity; the same seed gives the same ones."""
    draw = Random(f"rlnlp raters {seed}")
    return [
        SimulatedRater(
            number,
            seed,
            noise,
            repeatability,
            per_word=draw.gauss(0, 0.005),
            leftward=draw.gauss(0, 0.05),
            severity=draw.gauss(0, 0.1),
        )
        for number in range(1, n + 1)
    ]


Judge = Callable[[list[str], list[str]], np.ndarray]  # (responses, prompts) -> [B] in [0, 1]


def simulate_choices(
    pairs: Sequence[Pair],
    raters: Sequence[SimulatedRater],
    each: int = 3,
    seed: int = 0,
    occasion: int = 0,
    judge: Judge = corpus.judge,
) -> list[Choice]:
    """Each pair compared by ``each`` simulated raters, blind, in an order and with sides of their own.

    occasion: of the comparison; another one gives new slips. Raises: PreferenceError, as ``assign``.
    """
    prompts = [pair.prompt for pair in pairs]
    first, second = (np.asarray(judge([getattr(p, side) for p in pairs], prompts)) for side in SIDES)
    judged = {pair.id: scores for pair, *scores in zip(pairs, first.tolist(), second.tolist())}
    by_name, rows = {rater.name: rater for rater in raters}, []
    for name, items in assign(pairs, list(by_name), each, seed).items():
        rater = by_name[name]
        for place, (pair, left) in enumerate(order(items, name, seed)):
            texts = zip((pair.first, pair.second), judged[pair.id])
            one, other = (rater.opinion(text, score, f"{occasion} {pair.id}") for text, score in texts)
            gap = one - other + (rater.leftward if left == "first" else -rater.leftward)
            chosen = "tie" if abs(gap) < rater.indifferent else "first" if gap > 0 else "second"
            rows.append(Choice(pair.id, name, chosen, left, place))
    return rows


def simulate_likert(
    texts: Sequence[Text],
    raters: Sequence[SimulatedRater],
    each: int = 3,
    seed: int = 0,
    occasion: int = 0,
    question: str = "quality",
    judge: Judge = corpus.judge,
) -> list[Likert]:
    """Each text rated by ``each`` simulated raters: 1 + 4 (opinion - severity), rounded, within 1 to 5."""
    scores = np.asarray(judge([text.response for text in texts], [text.prompt for text in texts])).tolist()
    judged = {text.id: score for text, score in zip(texts, scores)}
    by_name, rows = {rater.name: rater for rater in raters}, []
    for name, items in assign(texts, list(by_name), each, seed).items():
        rater = by_name[name]
        for place, (text, _) in enumerate(order(items, name, seed)):
            opinion = rater.opinion(text.response, judged[text.id], f"{occasion} {text.id}") - rater.severity
            rows.append(Likert(text.id, name, question, int(min(5, max(1, round(1 + 4 * opinion)))), place))
    return rows
