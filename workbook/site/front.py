"""What a stranger reads first, on README and on the site's home: three lines, a picture, five results, all computed.

`python -m workbook.site readme` writes them into README between two marks, and the picture into reports/.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbook.ledger import beside
from workbook.ledger.published import published_yardstick
from workbook.results.files import FACTS
from workbook.results.tables import join, markdown, signed
from workbook.site import effects, picture
from workbook.site.committed import DESIGN, DRAWN, SAME, Committed

BEGIN, END = "<!-- front: python -m workbook.site readme -->", "<!-- end of front -->"
FIVE = {  # claim: the test whose numbers stand in the table
    "P01": "ppo score",
    "P04": "equal beta and decoding",
    "P10": "ppo score",
    "P40": "ppo from the better start",
    "P41": "score",
}
ASIDE = {  # claim: tests that its word does not say, and what they are of
    "P01": {"ppo human perplexity": "smaller in score alone, as β was chosen; log-perplexity of human text, nats"},
    "P04": {"each with its own decoding": "each decoded as it was trained"},
    "P10": {
        "ppo independent judge": "supervised texts may end, which costs them score; judge nobody trained on, PPO",
        "nlpo independent judge": "NLPO",
    },
    "P40": {"mask without knowledge": "the better start is extra training; the second half, which decides nothing"},
    "P41": {
        "wobble of training": "only cited there; at equal β, where REINFORCE moves further; PPO's training is "
        "steadier, log ratio",
    },
}
REAL, SMALLER = "reviews", "imdb"  # the profiles of real reviews: one base model, five that are smaller
KEPT = SAME[0]  # the profile that keeps facts, and most texts, of the registered design's runs
PICTURE = "reports/three_texts.svg"
WHERE = "docs/findings/five.md#{name}"  # where README's rows lead


def test(found: Committed, claim: str, name: str) -> Mapping[str, Any]:
    """A test of the registered design. Raises: KeyError for one that it does not have."""
    for component in found.ledgers[DESIGN][claim]["components"]:
        if component["name"] == name:
            return component
    raise KeyError(f"{claim}: no test {name!r} in {DESIGN}")


def lines(found: Committed) -> str:
    """What was found: what a setting decides, then in three sentences that need no term of the field, with the scale
    it was found at."""
    gamed, forgot = test(found, "P01", "ppo score"), test(found, "P01", "ppo human perplexity")
    lead, draws = test(found, "P04", FIVE["P04"]), {row["seeds"] for row in found.ledgers[DESIGN].values()}
    own, nucleus = (test(found, "P04", n) for n in ("each with its own decoding", "against ppo in its own nucleus"))
    return "\n".join(
        [
            length(found),
            "- **Paid for a score alone, these models unlearn the language they were trained on.** Trained without a "
            f"penalty on drifting, a model ends {effects.raw(gamed)} higher in score (0 to 1) than trained with it, "
            f"and finds a word of ordinary reviews {math.exp(forgot['difference']):.1f} times less likely. "
            f"{real(found)}",
            f"- **NLPO, the first paper's method, trains no better than plain PPO**: {effects.raw(lead)} in score, "
            f"where {effects.raw_published(lead).partition(' ')[0]} was published ({later(found)} in a later version, "
            f"by hearsay). When it writes likely words only, as it trained, it leads by {effects.raw(own)}; "
            f"if PPO trains and writes so too, by {effects.raw(nucleus)}.",
            f"- **The scale is small.** {min(draws)} to {max(draws)} draws, each with its own models of "
            f"{weights(found):,} weights on generated film reviews; they say nothing of large models.",
        ]
    )


def length(found: Committed) -> str:
    """What becomes of the discount's effect where texts may not end (claim O01)."""
    free, fixed = test(found, "O01", "free length"), test(found, "O01", "fixed length")
    turns = " turns at half the budget;" * bool(found.ledgers[DESIGN]["O01"]["turns"])
    return (
        "- **Whether texts may end decides the sign of the discount's effect** ([O01, P20 to P22]"
        "(docs/findings/length.md)): γ = 1, not 0.95, changes PPO's log-perplexity of human text by "
        f"{effects.raw(free)} nats where they may, by {effects.raw(fixed)} where not. "
        f"{free['n']} draws;{turns} `{DRAWN}`'s four give no word."
    )


def real(found: Committed) -> str:
    """The same on real reviews, of one base model and of smaller ones."""
    one, five = ({c["name"]: c for c in found.ledgers[p]["P01"]["components"]} for p in (REAL, SMALLER))
    times, smaller = (f"{math.exp(tests['ppo human perplexity']['difference']):.2f}" for tests in (one, five))
    said = "a judge approves" if one["ppo independent judge"]["low"] > 0 else "no judge is shown to approve"
    return (
        f"On real reviews it is less: {smaller} times for a piece of a word, and {times} times with a larger "
        f"model, which moves less and of which {said}."
    )


def later(found: Committed) -> str:
    """NLPO − PPO in score in a later version of the paper, by a third party's summary of it."""
    printed = found.claims["P04"]["published"]
    ahead = printed["Later version NLPO"]["score"] - printed["Later version PPO"]["score"]
    return signed(ahead, None, None)


def weights(found: Committed) -> int:
    """Of the models that the design trains. Raises: ValueError if its draws differ in it."""
    facts = json.loads((found.root / "reports" / KEPT / FACTS).read_text(encoding="utf-8"))["models"]
    (count,) = {model["policy"]["parameters"] for model in facts.values()}
    return count


def five(found: Committed, link: str = WHERE) -> str:
    """The table of five results. link: where a claim's row leads, of `claim` and `name`, the claim in small letters:
    to the numbers of the row, and to all that decides the claim."""
    rows = []
    for claim, name in FIVE.items():
        row, component = found.ledgers[DESIGN][claim], test(found, claim, name)
        rows.append(
            {
                "claim": " ".join(found.claims[claim]["claim"].split()),
                "published": effects.raw_published(component) or "no number",
                "here": effects.raw(component),
                "verdict": f"**{row['word']}**{beside.doubts(row)}",
                "beside it": aside(found, claim),
                "where": f"[{claim}]({link.format(claim=claim, name=claim.lower())})",
            }
        )
    return markdown(pd.DataFrame(rows))


def aside(found: Committed, claim: str) -> str:
    """The tests of `ASIDE`: of what, how much, what was published, and the test's own word."""
    parts, beside_it = [], effects.raw_published(test(found, claim, FIVE[claim]))  # in the row, not said again
    for name, of in ASIDE[claim].items():
        component = test(found, claim, name)
        said = effects.raw_published(component)
        said = "" if said == beside_it else said
        parts.append(f"{of}: {effects.raw(component)}{f', published {said}' * bool(said)} (*{component['word']}*)")
    return "; ".join(parts)


def legend(found: Committed) -> str:
    """How to read the table."""
    score = test(found, "P01", FIVE["P01"])
    here, there = score["difference"] / score["effect"], published_yardstick(score["metric"])
    units = dict.fromkeys(effects.unit(test(found, claim, name)) for claim, name in FIVE.items())
    return (
        f"Unit: score ({join([*units])}). *Published*: with the 95 % interval its spreads allow. "
        "*Here*: the registered design, whose claims and rule were fixed before it ran, intervals at its look's level "
        "(after 8, 16 or 32 draws). Sizes are judged in *yardsticks*, how far PPO without the penalty moves the "
        f"score from the untrained model: {there:.3f} published, {here:.3f} here, so P01's are "
        f"{score['published']:.2f} and {score['effect']:.2f}: with the penalty PPO keeps {1 - score['published']:.2f} "
        f"of the gain there, {1 - score['effect']:.2f} here. "
        "*Too small*: an effect of the stated size is excluded either way. *Opposite*: some part goes the other way, "
        "and not too small. *Turns*: after half the training the word, or a shown sign, was the other side's."
    )


def shown(found: Committed) -> str:
    """The picture of three texts."""
    return f"![{picture.in_words(picture.three(found.root / 'reports' / KEPT))}]({PICTURE})"


def block(found: Committed) -> str:
    """Three lines, the picture, five results and how to read them."""
    return "\n\n".join([lines(found), shown(found), "**Five results**", five(found), legend(found)])


def readme(text: str, found: Committed) -> str:
    """README's text with the block made anew. Raises: ValueError without the marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"README: expected the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{block(found)}\n{END}{after}"
