"""A test's numbers as text and picture: in the metric's unit first, in yardsticks second, beside what was published."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from workbook.ledger.published import published_yardstick
from workbook.results.measure import LOG_RATIO
from workbook.results.measures import MEASURES
from workbook.results.tables import number, signed
from workbook.statistics.rule import AGAINST, FOR, HOLDS, HOLDS_SMALLER, OPENS, OPPOSITE, TOO_SMALL

YARDSTICKS, OWN = "yardsticks", "own unit"
WIDE, HIGH, EDGE, DIAMOND = 200, 18, 8, 7  # of a row of the forest, in the picture's own units; half a diamond


def unit(test: Mapping[str, Any]) -> str:
    """What `raw` counts in: the metric's unit, or that of a log ratio, a rank, a share."""
    if test["unit"] in (YARDSTICKS, OWN):
        return MEASURES[test["metric"]].unit.replace("–", "")
    return "log ratio" if test["unit"] == LOG_RATIO else test["unit"]


def raw(test: Mapping[str, Any]) -> str:
    """ "+0.283 [0.268, 0.299]": the difference as measured, in `unit`; empty where there is none."""
    return "" if test["difference"] is None else signed(test["difference"], test["low"], test["high"])


def raw_published(test: Mapping[str, Any]) -> str:
    """The published effect in `unit`, with the interval that its spreads allow; empty where none was published."""
    if test["published"] is None:
        return ""
    size = published_yardstick(test["metric"]) if test["unit"] == YARDSTICKS else 1.0
    ends = [None if test[f"published_{end}"] is None else size * test[f"published_{end}"] for end in ("low", "high")]
    return signed(size * test["published"], *ends)


def another_margin(test: Mapping[str, Any]) -> str:
    """Why a word says that an effect is smaller than stated while its interval includes the published one: by what size
    it went; "" where that is not so."""
    if test["word"] not in (TOO_SMALL, HOLDS_SMALLER) or test["unit"] != YARDSTICKS or test["published"] is None:
        return ""
    here, there = test["yardstick"], published_yardstick(test["metric"])
    if not test["low"] <= there * test["published"] <= test["high"]:
        return ""
    return (
        f"includes the published {signed(there * test['published'], None, None)}; *{test['word']}* goes by the size "
        f"stated in yardsticks, {stated(test)} here, where one is {number(here)}, in the paper {number(there)}."
    )


def smaller_by_its_yardstick(test: Mapping[str, Any]) -> str:
    """In what an effect is smaller than the published one, where it is not so in the metric's unit; else ""."""
    if test["word"] not in (TOO_SMALL, HOLDS_SMALLER) or test["unit"] != YARDSTICKS or test["published"] is None:
        return ""
    if abs(test["difference"]) < abs(published_yardstick(test["metric"]) * test["published"]):
        return ""
    return (
        f"Sizes are judged in yardsticks, how far PPO without the penalty moves that metric: {number(test['effect'])} "
        f"here, {number(test['published'])} published. "
    )


def yardsticks(test: Mapping[str, Any], which: str = "effect") -> str:
    """The effect (or the `published` one) in yardsticks; a dash where it is compared in another unit."""
    if test["unit"] != YARDSTICKS or test[which] is None:
        return "–"
    return signed(test[which], test[f"{which}_low"], test[f"{which}_high"])


def reach(tests: Sequence[Mapping[str, Any]]) -> float:
    """How far the axis of rows that stand below each other goes to either side, > 0."""
    ends = [test[name] for test in tests for name in ("effect_low", "effect_high", "effect", "published", "stated")]
    return 1.1 * max([abs(end) for end in ends if end is not None], default=1.0) or 1.0


def row(test: Mapping[str, Any], far: float) -> str:
    """One row of a forest plot as SVG in a line, with what it shows in words: published an open diamond, measured a
    filled point with its interval. far: of `reach`, the same for rows that are compared."""

    def x(value: float) -> float:
        return round(WIDE / 2 + (WIDE / 2 - EDGE) * max(-1.0, min(1.0, value / far)), 1)

    middle, said = HIGH / 2, [f"measured {signed(test['effect'], test['effect_low'], test['effect_high'])}"]
    parts = [f'<path class="zero" d="M{WIDE / 2:g} 0V{HIGH}"/>']
    if test["effect_low"] is not None:
        parts.append(f'<path class="interval" d="M{x(test["effect_low"])} {middle:g}H{x(test["effect_high"])}"/>')
    parts.append(f'<circle class="measured" cx="{x(test["effect"])}" cy="{middle:g}" r="3.5"/>')
    if test["published"] is not None:  # drawn last: an open diamond hides nothing, a point would hide it
        at = x(test["published"])
        left, right = round(at - DIAMOND, 1), round(at + DIAMOND, 1)  # absolute: a table's " -7" would become " −7"
        corners = f"M{at} {middle - DIAMOND:g}L{right} {middle:g}L{at} {middle + DIAMOND:g}L{left} {middle:g}z"
        parts.append(f'<path class="published" d="{corners}"/>')
        said.append(f"published {signed(test['published'], None, None)}")
    label = html.escape(f"{', '.join(said)} {test['unit']}; the axis goes to {far:.2g}")
    return f'<svg class="forest-row" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def stated(test: Mapping[str, Any]) -> str:
    """The size that a word goes by: in the metric's unit, by the yardstick that was measured, then in yardsticks."""
    size = f"{test['stated']:.2g} {test['unit']}"
    if test["unit"] != YARDSTICKS or not test["yardstick"]:
        return size
    return f"{number(test['yardstick'] * test['stated'])} {unit(test)}".strip() + f" ({size})"


def turning(test: Mapping[str, Any]) -> str:
    """What new draws would have to show for another word of this test, in the terms of the rule."""
    size = stated(test)
    if test["direction"] == "equal":
        if test["word"] in FOR:
            return f"an interval that leaves ±{size}"
        return f"an interval inside ±{size}" if test["word"] in OPENS else f"an interval that reaches into ±{size}"
    if test.get("kind") == "peak" and test["word"] == OPPOSITE:
        return "values inside the range that are no longer all shown to lie below one of its ends"
    wrong = "below 0" if test["direction"] == "greater" else "above 0"
    return {
        HOLDS: f"an interval that takes in 0, or lies {wrong}",
        HOLDS_SMALLER: f"an interval that takes in 0, or reaches {size}",
        TOO_SMALL: f"an interval that reaches {size}, either way",
        OPPOSITE: "an interval that takes in 0, or lies on the other side of it",
    }.get(test["word"], f"more draws: an interval on one side of 0, or inside ±{size}")


def verdict(word: str) -> str:
    """A word as the site marks it: for, against or open, by its form and its colour."""
    kind = "for" if word in FOR else "against" if word in AGAINST else "open"
    return f'<span class="word {kind}">{word}</span>'
