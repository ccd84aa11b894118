"""A registered design's draws that another profile has run too: are their numbers the same?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbook.results.measures import MEASURES
from workbook.results.tables import join
from workbook.synthesis.sources import Source

ROW = ["condition", "seed", "split", "decoding"]
DIGITS = 1e-6  # relative: the committed draws have seven digits


def said(design: Source, others: Sequence[Source]) -> str:
    """A sentence for each profile that has rows of the design's draws; conditions of equal name and settings count."""
    found = [sentence(design, other) for other in others if other is not design]
    return "\n\n".join(text for text in found if text)


def sentence(design: Source, other: Source) -> str:
    """How many numbers both tables have, and how many of them differ; "" where they share none."""
    alike = [c for c, own in design.settings.items() if other.settings.get(c) == own]
    if design.draw() != other.draw():
        return ""
    both = design.results.per_seed.merge(other.results.per_seed, on=ROW, suffixes=("", "_again"))
    both = both[both.condition.isin(alike)]
    names = [n for n in MEASURES if f"{n}_again" in both]
    left, right = (both[[f"{n}{end}" for n in names]].to_numpy(float) for end in ("", "_again"))
    there = np.isfinite(left) & np.isfinite(right)
    if not there.any():
        return ""
    off = there & ~np.isclose(left, right, rtol=DIGITS, atol=0)
    differ = join([f"`{c}`" for c in pd.unique(both.condition[off.any(axis=1)])])
    return (
        f"The profile {other.profile} has run {len(set(both.seed))} draws of {design.profile} again: of "
        f"{there.sum():,} numbers that both tables have, {off.sum():,} differ in seven digits"
        f"{f' ({differ})' if differ else ''}."
    )
