"""Numbers and texts for people: intervals, differences, Markdown tables, samples side by side, as in all reports."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pandas as pd

PLURAL = {  # of the ledger, in the order in which they are counted: of several claims
    "holds": "hold",
    "holds, but smaller than stated": "hold, but smaller than stated",
    "too small": "too small",
    "opposite": "opposite",
    "open": "open",
    "open, leans for": "open, leaning for",
    "open, leans against": "open, leaning against",
    "awaiting": "awaiting",
    "not testable here": "not testable here",
}
PROMPT_WORDS = 20  # words of a prompt that a report shows at most


MINUS = "−"  # the one sign of a negative number in every text, table and figure


HYPHEN = re.compile(r"(?:(?<!\w)|(?<=\de))-(?=\.?\d)")  # before a number or in its exponent, not in "distinct-2"


def minus(text: str) -> str:
    """A text whose negative numbers have the one minus sign: "[-0.031, 2e-04]" is "[−0.031, 2e−04]"."""
    return HYPHEN.sub(MINUS, text)


def number(value: float) -> str:
    """Three decimals; where that would show nothing but zeros, or very much, two significant digits: "0.00039",
    "12000", never a power of ten."""
    if value == 0 or 0.0005 <= abs(value) < 1e4 or not math.isfinite(value):
        return minus(f"{value:.3f}")
    return minus(f"{Decimal(f'{value:.1e}'):f}")


def p_value(value: float | None) -> str:
    """Three decimals, "<0.001" where they would say no more; "" for none."""
    return "" if value is None or pd.isna(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def between(low: float | None, high: float | None) -> str:
    """ "[low, high]"; empty where there is no interval (one seed)."""
    return "" if low is None or pd.isna(low) else f"[{number(low)}, {number(high)}]"


def signed(value: float, low: float | None, high: float | None) -> str:
    """A difference and its interval: "+0.031 [0.011, 0.052]"."""
    sign = "+" if value >= 0 else MINUS
    return f"{sign}{number(abs(value))} {between(low, high)}".strip()


def effect(value: float | None, low: float | None, high: float | None) -> str:
    """An effect and its interval: "+0.68 [+0.54, +0.81]"; empty where there is none."""
    if value is None:
        return ""
    return f"{value:+.2f}" + ("" if low is None else f" [{low:+.2f}, {high:+.2f}]")


def counted(summary: Mapping[str, int]) -> str:
    """The ledger in a line: "9 hold; 1 opposite; 8 open, leaning for". summary: word -> how many claims got it."""
    return "; ".join(f"{summary[w]} {many if summary[w] > 1 else w}" for w, many in PLURAL.items() if summary.get(w))


def join(parts: Sequence[str], last: str = " and ") -> str:
    """ "a, b and c"."""
    parts = list(parts)
    return ", ".join(parts[:-1]) + last + parts[-1] if len(parts) > 1 else "".join(parts)


def markdown(table: pd.DataFrame) -> str:
    """A table as Markdown, nothing cut short, one minus sign; the row names become the first column where they say
    something."""
    if any(table.index.astype(str) != "") and not isinstance(table.index, pd.RangeIndex):
        table = table.rename_axis("").reset_index()
    lines = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).values.tolist()]
    return minus(
        "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |" for cells in lines)
    )


def short(prompt: str) -> str:
    """The last words of a prompt, those next to the response."""
    words = prompt.split()
    return ("… " if len(words) > PROMPT_WORDS else "") + " ".join(words[-PROMPT_WORDS:])


def safe(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = html.escape(text, quote=False)
    for sign in "\\`*_[]|#~":
        text = text.replace(sign, "\\" + sign)
    return text


def side_by_side(rows: Sequence[dict[str, str]], titles: Sequence[str]) -> str:
    """An HTML table: a row per entry, a column per title; what an entry lacks reads "not run"."""
    head = "".join(f'<th scope="col" style="text-align:left">{html.escape(t)}</th>' for t in titles)
    cell = '<td style="text-align:left;vertical-align:top;white-space:normal;min-width:9em">'
    body = "".join(
        "<tr>" + "".join(f"{cell}{html.escape(row.get(t, 'not run'))}</td>" for t in titles) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
