"""What a stranger reads first, on README and on the site's home: three lines, a picture, five results, all computed.

`python -m workbook.site readme` writes them into README between two marks, and the picture into reports/.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbook.results.files import FACTS
from workbook.results.tables import markdown
from workbook.site import effects, picture
from workbook.site.committed import DESIGN, DRAWN, Committed

BEGIN, END = "<!-- front: python -m workbook.site readme -->", "<!-- end of front -->"
FIVE = {  # claim: the test whose numbers stand in the table
    "P01": "ppo score",
    "P04": "equal beta and decoding",
    "P10": "ppo score",
    "P40": "ppo from the better start",
    "P41": "score",
}
PAPER = "[arXiv:2210.01241](https://arxiv.org/abs/2210.01241)"
READ = (
    "*Published*: mean difference, with the 95 % interval that its spreads allow. *Here*: the registered design, whose "
    "claims and rule were fixed before it ran, with the interval at the level of its look. *Too small*: an effect of "
    "the stated size is excluded either way. *Opposite*: some part of the claim is shown to go the other way."
)
PICTURE = "reports/three_texts.svg"
REPORT = "reports/{profile}/claims/claims.md"  # where README's rows lead


def test(found: Committed, claim: str, name: str) -> Mapping[str, Any]:
    """A test of the registered design. Raises: KeyError for one that it does not have."""
    for component in found.ledgers[DESIGN][claim]["components"]:
        if component["name"] == name:
            return component
    raise KeyError(f"{claim}: no test {name!r} in {DESIGN}")


def lines(found: Committed) -> str:
    """What was found, in three sentences that need no term of the field, with the scale it was found at."""
    gamed, forgot = test(found, "P01", "ppo score"), test(found, "P01", "ppo human perplexity")
    lead, draws = test(found, "P04", FIVE["P04"]), {row["seeds"] for row in found.ledgers[DESIGN].values()}
    return "\n".join(
        [
            "- **Paid for a score alone, a language model stops writing language.** Without a penalty on drifting from "
            f"ordinary text the score rises by {effects.raw(gamed)} on a scale of 0 to 1, and the model finds a word "
            f"of ordinary reviews {math.exp(forgot['difference']):.1f} times less likely ({effects.raw(forgot)} nats).",
            f"- **NLPO, the method of the paper ({PAPER}), is not better than plain PPO**: {effects.raw(lead)} in "
            f"score, where {effects.raw_published(lead).partition(' ')[0]} was published.",
            f"- **The scale is small.** {min(draws)} to {max(draws)} independent draws, each with its own models of "
            f"{weights(found):,} weights on generated film reviews; what a large model does, these numbers cannot say.",
        ]
    )


def weights(found: Committed) -> int:
    """Of the models that the design trains. Raises: ValueError if its draws differ in it."""
    facts = json.loads((found.root / "reports" / DRAWN / FACTS).read_text(encoding="utf-8"))["models"]
    (count,) = {model["policy"]["parameters"] for model in facts.values()}
    return count


def five(found: Committed, link: str = REPORT) -> str:
    """The table of five results. link: where a claim's row leads, of `profile`, `claim` and `report`."""
    rows = []
    for claim, name in FIVE.items():
        row, component = found.ledgers[DESIGN][claim], test(found, claim, name)
        where = link.format(profile=DESIGN, claim=claim, report=row["report"])
        rows.append(
            {
                "claim": f"{claim}: {' '.join(found.claims[claim]['claim'].split())}",
                "in": effects.unit(component),
                "published": effects.raw_published(component) or "no number",
                "here": effects.raw(component),
                "verdict": f"**{row['word']}**",
                "where": f"[{claim}]({where})",
            }
        )
    return markdown(pd.DataFrame(rows))


def shown(found: Committed) -> str:
    """The picture of three texts."""
    return f"![{picture.in_words(*picture.three(found.root / 'reports' / DRAWN))}]({PICTURE})"


def block(found: Committed) -> str:
    """Three lines, the picture, five results and how to read them."""
    return "\n\n".join([lines(found), shown(found), "**Five results**", five(found), READ])


def readme(text: str, found: Committed) -> str:
    """README's text with the block made anew. Raises: ValueError without the marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"README: expected the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{block(found)}\n{END}{after}"
