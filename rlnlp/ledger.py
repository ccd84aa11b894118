"""The ledger as a page: the answer in two sentences, what was decided, what is open and with how many seeds it would not be.

Every function takes the rows of `claims.ledger` (or of a claims.json); the same rows give the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rlnlp.claims import AWAITING, ELSEWHERE, NOT_REPRODUCED, SMALLER, summary
from rlnlp.comparisons import NOT_MEASURED
from rlnlp.progress import counted
from rlnlp.tables import join, markdown
from rlnlp.verdicts import FAILS, INCONCLUSIVE

Rows = Sequence[Mapping[str, Any]]
AGAINST = (FAILS, NOT_REPRODUCED)
SHORT = {"yardsticks": "", "share of runs": " (share of runs)", "own unit": " (its own unit)"}
NOTHING = "–"


def answer(rows: Rows) -> str:
    """Two sentences: how many claims got each word, and which of them the evidence contradicts."""
    n, profile = rows[0]["seeds"], rows[0]["profile"]
    against = [row["id"] for row in rows if row["word"] in AGAINST]
    turns = [row["id"] for row in rows if row["turns"]]
    first = f"Of the {len(rows)} claims, in profile {profile} with n = {n} seed{'s' * (n > 1)}: {counted(summary(rows))}."
    second = f"The evidence goes against {join(against)}" if against else "The evidence goes against none of them"
    half = f"{join(turns)} read{'s' * (len(turns) == 1)} differently" if turns else "no verdict reads differently"
    return f"{first} {second}; at half the training budget {half}."


def decided(rows: Rows) -> pd.DataFrame:
    """The claims that were put to a test: a row per deciding test, the claim and its verdict on the first.

    Effects are in yardsticks where no unit is named.
    """
    lines = []
    for row in rows:
        whole = {
            "claim": f"**{row['id']}** {row['claim']}",
            "verdict": f"**{row['word']}**",
            "at half the budget": (row["half_word"] or NOTHING) + (" (turns)" if row["turns"] else ""),
        }
        for c in (c for c in row["components"] if c["role"] == "decides"):
            cells = {"test": c["name"], "published": _effect(c, "published"), "here [95 %]": _effect(c, "effect"), "alone": _alone(c)}
            lines.append({"claim": whole["claim"], **cells, **whole})
            whole = dict.fromkeys(whole, "")
    return pd.DataFrame(lines)


def unsettled(rows: Rows) -> pd.DataFrame:
    """The deciding tests that leave a claim inconclusive, with the seeds that would settle the effect stated beforehand."""
    return pd.DataFrame(
        [
            {
                "claim": row["id"],
                "test": c["name"],
                "here [95 %]": _effect(c, "effect"),
                "stated beforehand": f"{'±' * (c['direction'] == 'equal')}{c['stated']:.2g}{_unit(c)}",
                "seeds here": f"{c['n']}" if c["n"] else NOTHING,
                "seeds that would settle it": f"{c['n_needed']:,}" if c["n_needed"] else "not known",
            }
            for row in rows
            if row["word"] == INCONCLUSIVE
            for c in row["components"]
            if c["role"] == "decides" and c["word"] in (INCONCLUSIVE, NOT_MEASURED)
        ]
    )


def awaiting(rows: Rows) -> pd.DataFrame:
    """Claims whose learner, sampler or task is not built yet."""
    return _lacking(rows, AWAITING, "waits for")


def elsewhere(rows: Rows) -> pd.DataFrame:
    """Claims that this profile cannot test, with what it would take."""
    return _lacking(rows, ELSEWHERE, "needs")


def text(table: pd.DataFrame) -> str:
    """A table as Markdown; "None." where it has no rows."""
    return markdown(table) if len(table) else "None."


# parts ---------------------------------------------------------------------------------------------------------------


def _lacking(rows: Rows, word: str, title: str) -> pd.DataFrame:
    return pd.DataFrame(
        [{"claim": f"**{r['id']}** {r['claim']}", title: "; ".join(r["lacks"])} for r in rows if r["word"] == word]
    )


def _alone(c: Mapping[str, Any]) -> str:
    return c["word"] + (f" ({SMALLER})" if c["smaller"] else "")


def _effect(c: Mapping[str, Any], which: str) -> str:
    """"+0.68 [+0.54, +0.81]" of a test, published or measured; its note or a dash where there is no number."""
    if c[which] is None:
        return (c["note"] or c["word"]) if which == "effect" else NOTHING
    low, high = c[f"{which}_low"], c[f"{which}_high"]
    return f"{c[which]:+.2f}" + ("" if low is None else f" [{low:+.2f}, {high:+.2f}]") + _unit(c)


def _unit(c: Mapping[str, Any]) -> str:
    return SHORT.get(c["unit"], f" ({c['unit']})")

