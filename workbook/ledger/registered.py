"""The page of a registered design: its looks, what is settled and what is open, and what it says of planted claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workbook.ledger import page
from workbook.ledger.looks import Design, Look
from workbook.results.tables import join, markdown
from workbook.statistics import rule
from workbook.statistics.paired import ALPHA
from workbook.statistics.rule import HOLDS, OPPOSITE, TOO_SMALL
from workbook.statistics.sequential import levels

# Claim: what the ledger has to say of it. K01 asks for half of what is one yardstick by its definition, so that it
# shows sign and detection: "smaller than stated" would be a false word.
PLANTED = {"K01": (HOLDS,), "K02": (TOO_SMALL,), "K03": (OPPOSITE,)}
AT_LEVEL = {"here [95 %]": f"here [{page.AT_LOOK}]"}
SURE = ("C09", "C12")  # of which little else could come out: their traps say why
HEAD = """# The registered design `{profile}`, look by look

[registered.yaml](../../profiles/{profile}/registered.yaml) was committed before the first draw: {claims} claims, the
hash of the rule and of their tests (`{rule}`), {keys} runs a draw with the key of their settings, code and libraries,
the draws {first} to {last} in that order, the looks. A look judges every claim that is still open on the draws so far,
at a level that keeps all looks together at {alpha:g} for each claim and kind of error. A claim is settled when each of
its deciding tests is, for it or against it; then it leaves, with the runs that only it needs, and is not judged again.
[The ledger](claims/claims.md) has every test, [draws.csv.xz](draws.csv.xz) every number that a test reads
(`pandas.read_csv` opens it)."""


def text(
    profile: str,
    design: Design,
    looked: Sequence[Look],
    rows: Sequence[Mapping[str, Any]],
    elsewhere: Mapping[str, Sequence[Mapping[str, Any]]],
    said: Sequence[str],
) -> str:
    """The page as Markdown. rows: `looks.ledger`; elsewhere: profile -> the rows of its ledger; said: what else has to
    be said of this design (draws lost, other code)."""
    facts = {"profile": profile, "claims": len(design.claims), "rule": design.rule[:12], "keys": len(design.keys)}
    head = HEAD.format(**facts, first=design.draws[0], last=design.draws[-1], alpha=design.alpha)
    open_ones = [row for row in rows if not row["settled"]]
    parts = [head, *said, "## Looks", markdown(_looks(design, looked)), "## Settled", _shares(design, rows, elsewhere)]
    if planted := [row for row in rows if row["id"] in PLANTED]:
        parts += ["## What was planted", markdown(_planted(planted))]
    if len(left := page.unsettled(open_ones)):
        parts += ["## Open, and what it would take", markdown(left.rename(columns=AT_LEVEL))]
    return "\n\n".join(parts) + "\n"


def settled(row: Mapping[str, Any]) -> bool:
    """Whether each deciding test of a tested claim has a word that is not open."""
    words = [c["word"] for c in row["components"] if c["role"] == "decides"]
    return bool(words) and row["p"] is not None and rule.settled(words)


def _looks(design: Design, looked: Sequence[Look]) -> pd.DataFrame:
    made = {one.n: one for one in looked}
    rows = []
    for n, level in zip(design.looks, levels(design.looks, design.alpha)):
        words: dict[str, list[str]] = {}
        for name in made[n].settled if n in made else ():
            words.setdefault(made[n].verdicts[name].word, []).append(name)
        left = "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items()) or "none"
        judged = f"{len(made[n].verdicts)}" if n in made else page.NOTHING
        rows.append(
            {"draws": n, "level": f"{level:.4f}", "judged": judged, "settled": left if n in made else "not yet"}
        )
    return pd.DataFrame(rows)


def _shares(design: Design, rows: Sequence[Mapping[str, Any]], elsewhere: Mapping[str, Sequence[Mapping]]) -> str:
    """How many claims are settled: of the registered, without the planted and the sure ones, and of all that any
    profile tests."""
    done = {row["id"] for row in rows if row["settled"]}
    asked = [name for name in design.claims if name not in (*PLANTED, *SURE)]
    tested = {row["id"]: row for found in elsewhere.values() for row in found if row["p"] is not None}
    others = {name for name in tested if name not in design.claims}
    by_others = {row["id"] for found in elsewhere.values() for row in found if row["id"] in others and settled(row)}
    own = {*design.claims} - {*PLANTED}
    whole, many = len(others) + len(own), len(done & own) + len(by_others)
    draws = sorted({tested[name]["seeds"] for name in others})
    said = (
        f"{_of(len(done), len(design.claims))} of the registered claims are settled; without the planted ones and "
        f"those of which little else could come out ({join(SURE)}), {_of(len(done & {*asked}), len(asked))}. Of the "
        f"{whole} claims that any profile tests, the planted ones aside, {_of(many, whole)}"
    )
    if not others:
        return f"{said}."
    return (
        f"{said}: {len(others)} are tested by other profiles only ({join(sorted(others))}), once each, at level "
        f"{ALPHA:g}, on {join([f'{n}' for n in draws])} draws, and {len(by_others)} of them are settled there. No "
        "design registered these: their tests were written after results of runs like these had been seen."
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})"


def _planted(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "claim": f"{row['id']} {row['claim']}",
                "has to be": " or ".join(PLANTED[row["id"]]),
                "is": f"{row['word']}, at {row['look']} draws",
            }
            for row in rows
        ]
    )
