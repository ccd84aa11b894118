"""The site as `make site` makes it, and the committed results that its pages are made from, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from workbook.site import build, committed

ROOT = Path(__file__).resolve().parents[1]


def make(folder: Path) -> Path:
    """The site, built below a folder."""
    build.write(ROOT, folder / "made", folder / "site")
    build.build(ROOT, folder / "made")
    return folder / "site"


@cache
def found() -> committed.Committed:
    return committed.read(ROOT)
