"""Letters on a ground of their own, as a page's `style` attributes say both, that are hard to read."""

from __future__ import annotations

import re

from matplotlib.colors import is_color_like

from workbook.figures.parts import contrast

LEAST = 4.5  # WCAG 2, level AA, of text that is not large


def pairs(page: str) -> set[tuple[str, str]]:
    """(ground, letters) of every style attribute that names both as colours."""
    found = set()
    for style in re.findall(r"""\sstyle=\\?["']([^"'\\]*)""", page):
        said = dict(re.findall(r"([\w-]+)\s*:\s*([^;]+)", style))
        ground, letters = (
            said.get("background", said.get("background-color", "")).strip(),
            said.get("color", "").strip(),
        )
        if is_color_like(ground) and is_color_like(letters):
            found.add((ground, letters))
    return found


def faint(page: str) -> list[tuple[str, str, float]]:
    """Those of them below `LEAST`, each with its contrast."""
    return [(*pair, round(contrast(*pair), 2)) for pair in sorted(pairs(page)) if contrast(*pair) < LEAST]
