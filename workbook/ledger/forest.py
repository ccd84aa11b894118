"""Forest plot of the ledger: what was published beside what was measured, contrast by contrast, on one axis.

    figure = forest({"mini": rows})                    # rows: of judge.ledger, or claims.json
    figure = forest({"mini": rows, "imdb": others})    # several profiles: one mark each
    keep({"mini": rows}, folder)                       # forest.svg: eight rows; forest_rest.svg: the others

Effects are in yardsticks: how far PPO without the KL penalty moves that metric from the untrained model, the papers'
in theirs, ours in ours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workbook.figures.parts import alt_text, caption, legend, save
from workbook.figures.style import GREY, INK, styled
from workbook.ledger import one_model, page
from workbook.results.tables import join, minus

LOOKS = {  # profile: colour (Okabe and Ito), marker
    "mini": ("#0072B2", "o"),
    "full": ("#D55E00", "s"),
    "imdb": ("#009E73", "^"),
    "paper": ("#000000", "P"),
}
OTHERS = (("#CC79A7", "v"), ("#E69F00", "X"), ("#56B4E9", "p"), ("#5E3C99", "*"))  # profiles of one's own
NARROWEST, WIDEST = 1.25, 3.0  # yardsticks that the axis shows on either side, at least and at most
INCHES = 0.105  # of height, per mark of a row
TOLD, LETTERS = 0.56, 46  # inches of a row that has its claim in words, and letters of a line of it
HEADLINE = 8  # rows of the first figure
ASIDE = "Tests in italics stand beside and decide nothing. "  # where there are any
FIRST, REST = "forest", "forest_rest"  # names of the two figures


@dataclass(frozen=True)
class Effect:
    """In yardsticks, with its interval (95 %, or that of a registered design's look); None where there is none (no
    published spread, fewer than two seeds)."""

    value: float
    low: float | None
    high: float | None
    n: int | None = None


@dataclass(frozen=True)
class Contrast:
    """One tested contrast that has a published effect. measured: by profile."""

    claim: str
    name: str
    decides: bool
    published: Effect
    measured: dict[str, Effect] = field(default_factory=dict)
    said: str = ""  # the claim in words


def contrasts(ledgers: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Contrast]:
    """The contrasts in yardsticks that have a published effect and were tested, in the order of the ledgers.

    ledgers: profile -> rows as of `judge.ledger`. Effects in other units cannot stand on the axis and are left out.
    """
    found: dict[tuple[str, str], Contrast | None] = {}  # also those left out: they keep the order of the tests
    for profile, rows in ledgers.items():
        for row in rows:
            for c in row["components"]:
                key = (row["id"], c["name"])
                found.setdefault(key, None)
                if c["unit"] != "yardsticks" or c["published"] is None or c["effect"] is None:
                    continue
                if found[key] is None:
                    published = Effect(c["published"], c["published_low"], c["published_high"])
                    found[key] = Contrast(*key, c["role"] == "decides", published, said=row.get("claim", ""))
                found[key].measured[profile] = Effect(c["effect"], c["effect_low"], c["effect_high"], c["n"])
    return sorted((c for c in found.values() if c is not None), key=lambda c: c.claim)  # stable: tests keep their order


def agreement(found: Sequence[Contrast], profile: str) -> str:
    """One sentence on how a profile's effects lie to the published ones; empty if it tested none of them."""
    pairs = [(c.published.value, c.measured[profile]) for c in found if profile in c.measured]
    if not pairs:
        return ""
    same = sum(np.sign(p) == np.sign(m.value) for p, m in pairs)
    known = [(p, m) for p, m in pairs if m.low is not None]
    inside = sum(m.low <= p <= m.high for p, m in known)
    said = f"{profile}: the published direction in {same} of {len(pairs)} contrasts"
    return said + (f", the published effect inside our interval in {inside} of {len(known)}." if known else ".")


def halves(found: Sequence[Contrast]) -> tuple[list[Contrast], list[Contrast]]:
    """(the `HEADLINE` rows that a reader should see first, the others), each in the order of `contrasts`.

    First come a claim's deciding tests before those beside, its first before its second, claims that more profiles
    measured before others; so no claim has two rows in the headline while another has none.
    """
    nth: dict[str, int] = {}
    rank = {}
    for i, c in sorted(enumerate(found), key=lambda each: not each[1].decides):
        nth[c.claim] = nth.get(c.claim, 0) + 1
        rank[i] = (not c.decides, nth[c.claim], -len(c.measured), i)
    first = set(sorted(rank, key=rank.__getitem__)[:HEADLINE])
    return [c for i, c in enumerate(found) if i in first], [c for i, c in enumerate(found) if i not in first]


def keep(ledgers: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> list[str]:
    """Save the figure of the headline rows and that of the others, as far as there are any; the names of both."""
    kept = []
    for name, rows in zip((FIRST, REST), halves(contrasts(ledgers))):
        (folder / f"{name}.svg").unlink(missing_ok=True)
        if rows:
            save(forest(ledgers, rows), folder, name)
            kept.append(name)
    return kept


def forest(ledgers: Mapping[str, Sequence[Mapping[str, Any]]], rows: Sequence[Contrast] | None = None) -> Figure:
    """Published effects (open diamonds, dashed) above measured ones (filled, solid), one row per contrast, by claim.

    ledgers: as for `contrasts`; rows: those of them that are drawn (default: all).
    Lines: intervals of 95 %, in a registered design of 1 minus the level of a claim's look. What lies beyond the axis
    stands at its edge, with its number.
    Raises: ValueError if no contrast with a published effect was tested.
    """
    found = contrasts(ledgers) if rows is None else list(rows)
    if not found:
        raise ValueError("no forest plot: none of the tested contrasts has a published effect in yardsticks")
    profiles = [p for p in ledgers if any(p in c.measured for c in found)]
    looks = _looks(profiles)
    reach = _reach(found)
    lines = 1 + len(profiles)  # marks of a row
    with styled():
        told = len(found) <= HEADLINE and any(c.said for c in found)
        tall = max(INCHES * (lines + 1), TOLD if told else 0.0)
        figure = Figure(figsize=(9.0, 1.9 + tall * len(found)), layout="constrained")
        axis = figure.subplots()
        axis.grid(visible=False, axis="y")
        for y, contrast in enumerate(found):
            offsets = (np.arange(lines) - (lines - 1) / 2) / (lines + 0.5)
            _mark(axis, y + offsets[0], contrast.published, reach, INK, "D", open_=True)
            for offset, profile in zip(offsets[1:], profiles):
                if profile in contrast.measured:
                    _mark(axis, y + offset, contrast.measured[profile], reach, *looks[profile])
        _rows(axis, found, told)
        axis.axvline(0, color=INK, linewidth=1.1, zorder=1)
        for x in (-1, 1):
            axis.axvline(x, color=GREY, linewidth=0.9, linestyle=":", zorder=1)
        axis.set_xlim(-reach, reach)
        axis.set_xlabel(
            "effect in yardsticks\n(dotted: ±1, as far as PPO without the KL penalty moves the untrained model)"
        )
        handles = [Line2D([], [], color=INK, marker="D", markerfacecolor="white", linestyle="--", label="published")]
        for profile in profiles:
            color, marker = looks[profile]
            seeds = _seeds(found, profile) + " of one base model" * one_model.marked(ledgers[profile])
            handles.append(Line2D([], [], color=color, marker=marker, label=f"measured, {profile} ({seeds})"))
        legend(figure, handles)
        caption(
            figure,
            "A row is one contrast, claim and test. Open diamond, dashed: published. Filled, solid: measured here. "
            + _intervals(ledgers, profiles)
            + "Marks on the same side of 0: the same direction. A mark at the edge with an arrow lies beyond the axis, "
            "at the number beside it; a line that ends in an arrowhead goes on. "
            + ASIDE * any(not c.decides for c in found)
            + " ".join(agreement(found, p) for p in profiles),
        )
    return alt_text(figure, _alt(found, profiles))


# parts ---------------------------------------------------------------------------------------------------------------


def _looks(profiles: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each profile: the same in every plot for ours, the next free one for others."""
    unknown = [p for p in profiles if p not in LOOKS]
    return {p: LOOKS[p] if p in LOOKS else OTHERS[unknown.index(p) % len(OTHERS)] for p in profiles}


def _intervals(ledgers: Mapping[str, Sequence[Mapping[str, Any]]], profiles: Sequence[str]) -> str:
    """Of how much the intervals are, a registered design's by the look that gave each claim its word."""
    usual = page.coverage([])
    own = {p: f"{said}, by a claim's look; " for p in profiles if (said := page.coverage(ledgers[p])) != usual}
    if len(own) == len(profiles) == 1:
        return (
            f"Lines: intervals over seeds ({''.join(own.values())}published: {usual}, where a spread was published). "
        )
    looks = "".join(f"{profile}: {said}" for profile, said in own.items())
    return f"Lines: {usual} intervals over seeds ({looks}published: where a spread was published). "


def _reach(found: Sequence[Contrast]) -> float:
    """Yardsticks shown on either side: nine in ten effects lie inside, within limits."""
    sizes = [abs(e.value) for c in found for e in (c.published, *c.measured.values())]
    return float(np.clip(1.2 * np.quantile(sizes, 0.9), NARROWEST, WIDEST))


def _seeds(found: Sequence[Contrast], profile: str) -> str:
    counts = sorted({c.measured[profile].n for c in found if profile in c.measured and c.measured[profile].n})
    return (
        f"n = {counts[0]} seeds" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}" if counts else "n unknown"
    )


def _mark(axis: Axes, y: float, effect: Effect, reach: float, color: str, marker: str, open_: bool = False) -> None:
    """An effect and its interval; what is beyond the axis at its edge."""
    if effect.low is not None:
        low, high = max(effect.low, -reach), min(effect.high, reach)
        if low < high:
            axis.plot(
                [low, high],
                [y, y],
                color=color,
                linewidth=1.3,
                linestyle="--" if open_ else "-",
                zorder=2,
                gid="interval",
            )
        for beyond, edge, head in ((effect.low < -reach, -reach, "<"), (effect.high > reach, reach, ">")):
            if beyond:
                axis.plot([edge], [y], color=color, marker=head, markersize=4, clip_on=False, zorder=2, gid="goes on")
    away = abs(effect.value) > reach
    side = 1 if effect.value > 0 else -1
    x = side * 0.96 * reach if away else effect.value
    face = "white" if open_ else color
    axis.plot(
        [x],
        [y],
        color=color,
        marker=marker,
        markersize=5,
        markerfacecolor=face,
        markeredgecolor=color,
        zorder=3,
        gid="published" if open_ else "measured",
    )
    if away:
        text = f"{_signed(effect.value, 1)} →" if side > 0 else f"← {_signed(effect.value, 1)}"
        axis.text(
            side * 0.92 * reach,
            y,
            text,
            color=INK,
            fontsize=9,
            ha="right" if side > 0 else "left",
            va="center_baseline",
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )


def _signed(value: float, digits: int = 2) -> str:
    return minus(f"{value:+.{digits}f}")


def _rows(axis: Axes, found: Sequence[Contrast], told: bool) -> None:
    """Names at the left (told: the claim in words above its test), a band behind every other claim."""
    names = [f"{c.claim}  {c.name}" for c in found]
    if told:
        claims = [
            textwrap.fill(textwrap.shorten(f"{c.claim} {c.said}", 2 * LETTERS - 8, placeholder=" …"), LETTERS)
            for c in found
        ]
        names = [f"{claim}\n({c.name})" for claim, c in zip(claims, found)]
    order = list(dict.fromkeys(c.claim for c in found))
    axis.set_ylim(len(found) - 0.5, -0.5)
    axis.set_yticks(range(len(found)), names)
    axis.tick_params(axis="y", length=0)
    for label, contrast in zip(axis.get_yticklabels(), found):
        label.set_style("normal" if contrast.decides else "italic")
    for y, contrast in enumerate(found):
        if order.index(contrast.claim) % 2 == 0:
            axis.axhspan(y - 0.5, y + 0.5, color="#F3F3F3", linewidth=0, zorder=0)


def _alt(found: Sequence[Contrast], profiles: Sequence[str]) -> str:
    """The sentences of agreement, and the contrasts in which published and measured differ most."""
    gaps = [(abs(m.value - c.published.value), c, p, m) for c in found for p, m in c.measured.items()]
    widest = sorted(gaps, key=lambda gap: -gap[0])[:3]
    far = join(
        [
            f"{c.claim} {c.name} ({p}: published {_signed(c.published.value)}, measured {_signed(m.value)})"
            for _, c, p, m in widest
        ]
    )
    claims = len({c.claim for c in found})
    return (
        f"Forest plot of {len(found)} contrast{'s' * (len(found) > 1)} of {claims} claim{'s' * (claims > 1)}, "
        "published against measured effects in yardsticks. "
        f"{' '.join(agreement(found, p) for p in profiles)} Furthest apart: {far}."
    )
