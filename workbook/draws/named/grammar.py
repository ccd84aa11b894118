"""The judge of generated reviews: the grammar itself, which knows how each of their sentences was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbook.draws import judging
from workbook.draws.maker import Maker
from workbook.store.files import atomic_json

READS = ("reward_validation",)
SETTINGS = ()


def fit(make: Maker, fresh: Path, states: Path) -> tuple[dict, None]:
    atomic_json(fresh / "judge.json", {"kind": "grammar"})
    return judging.facts(make, "grammar", load(fresh)), None


def load(folder: Path) -> Callable:
    from workbook.texts.corpus import judge

    return judge
