"""The picture of three texts: one prompt, what the model wrote before training, with the penalty and without it."""

from __future__ import annotations

import html
import textwrap
from pathlib import Path
from typing import NamedTuple

from workbook.results.files import SAMPLES, read_rows, standing
from workbook.results.tables import join

SHOWN = {  # run: what it is called; the first prompt of the first seed is shown, whatever they wrote
    "zero_shot": "before training",
    "ppo_kl_default": "trained, with the penalty",
    "ppo_kl_0": "trained, without the penalty",
}
WIDTH, LEFT, LINE, LETTERS = 520, 20, 22, 58  # of the picture, in its units; letters that fit a line
BAR = 110  # units of a score of 1
STYLE = (
    "text{font:15px system-ui,sans-serif;fill:#222}.head{font-weight:600}.note{fill:#555}rect{fill:#fff;stroke:#bbb}"
    ".bar{fill:#0072b2;stroke:none}.rest{fill:#e4e4e4;stroke:none}"
)


class Written(NamedTuple):
    """One run's text and its score, 0 to 1."""

    title: str
    response: str
    score: float


class Three(NamedTuple):
    """A draw's first test prompt, and what each run of `SHOWN` made of it."""

    draw: int
    prompt: str
    written: list[Written]

    @property
    def chosen(self) -> str:
        """Which texts these are, of all that there are."""
        return f"The first test prompt of draw {self.draw}, nothing selected"


def three(reports: Path) -> Three:
    """The first prompt of samples.jsonl. Raises: ValueError if a run of `SHOWN` is missing, or has another one."""
    rows = read_rows(standing(reports, SAMPLES))
    first = {}
    for row in rows:
        first.setdefault(row["condition"], row)
    if missing := [name for name in SHOWN if name not in first]:
        raise ValueError(f"{reports / SAMPLES}: expected texts of {join(list(SHOWN))}, found none of {join(missing)}")
    shown = [first[name] for name in SHOWN]
    if len({(row["seed"], row["example_id"]) for row in shown}) > 1:
        raise ValueError(f"{reports / SAMPLES}: expected the same first prompt of every run")
    written = [Written(SHOWN[row["condition"]], row["response"], row["score"]) for row in shown]
    return Three(shown[0]["seed"], shown[0]["prompt"], written)


def in_words(three: Three) -> str:
    """The picture for those who do not see it."""
    said = " ".join(f"{each.title}: “{each.response}”, score {each.score:.2f}." for each in three.written)
    return f"{three.chosen}: “{three.prompt}”. {said}"


def draw(three: Three) -> str:
    """SVG: a band a text, its score as a bar beside its name; nothing but text and rectangles."""
    y, parts = 34, []

    def say(text: str, x: int, style: str = "") -> None:
        kind = f' class="{style}"' if style else ""
        parts.append(f'<text x="{x}" y="{y}"{kind}>{html.escape(text, quote=False)}</text>')

    for said in (three.chosen, f"The prompt: {three.prompt} …"):
        for line in textwrap.wrap(said, LETTERS):
            say(line, LEFT, "note")
            y += LINE
    for each in three.written:
        y += LINE // 2
        say(each.title, LEFT, "head")
        say(f"score {each.score:.2f}", WIDTH - LEFT - 76, "note")
        for name, width in (("rest", BAR), ("bar", round(BAR * each.score))):
            parts.append(
                f'<rect class="{name}" x="{WIDTH - LEFT - 86 - BAR}" y="{y - 11}" width="{width}" height="11"/>'
            )
        y += LINE
        for line in textwrap.wrap(f"… {each.response}", LETTERS):
            say(line, LEFT)
            y += LINE
    frame = f'<rect x="1" y="1" width="{WIDTH - 2}" height="{y - 2}" rx="6"/>'
    words = html.escape(in_words(three), quote=False)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
    return f"{head}<title>{words}</title><style>{STYLE}</style>{frame}{''.join(parts)}</svg>\n"
