"""What a seed is: a draw of texts and models of its own, or one more run on models that all seeds share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbook.texts import tasks

MARK = " (one base model)"  # beside the profile's name, where profiles stand side by side
SAID = (
    "All seeds start from one base model and share its reward, judges and texts: intervals are over reinforcement "
    "learning's random numbers alone, and every word is about this base model, not about models like it. It is not "
    "pooled with profiles whose seeds are draws of texts and models."
)


def shared(params) -> bool:
    """Whether the seeds of a profile share their models: all of its draws are one (``Task.draw``)."""
    draw = tasks.task(params.task.name).draw
    return len(params.seeds) > 1 and len({draw(seed) for seed in params.seeds}) == 1


def marked(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a ledger's rows say so of their profile."""
    return any(row.get("one_model") for row in rows)


def units(rows: Iterable[Mapping[str, Any]]) -> str:
    """What the n of a ledger's rows counts."""
    return "seeds of one base model" if marked(rows) else "draws"
