"""Where the texts of a run of the registered design stand on the site: a page a run, an anchor a draw."""

from __future__ import annotations

from workbook.ledger.claim import repetitions
from workbook.site.committed import DESIGN, Committed


def place(condition: str) -> str:
    """The page of a run of the design."""
    return f"texts/{condition}/index.md"


def of_pages(found: Committed) -> dict[str, list[str]]:
    """Run of the design of which texts are committed -> itself and its repetitions, which are on its page."""
    kept, runs = found.texts.get(DESIGN, {}), found.runs.get(DESIGN, {})
    parts = {name: [other for other in repetitions(runs, name) if other in kept] for name in kept}
    repeated = {other for name, others in parts.items() for other in others if other != name}
    return {name: others for name, others in parts.items() if name not in repeated}


def anchor(seed: int | str, place: int) -> str:
    """Of a draw on its page; place: among the run and its repetitions, from 0."""
    return f"draw-{seed}" + f"-{place + 1}" * bool(place)


def addresses(found: Committed, profile: str) -> dict[tuple[str, int], str]:
    """(run, draw) -> the address of its texts, from the site's root; {} for another profile than the design. With *
    for the draw, which a chart's rows have already, so that they share it."""
    if profile != DESIGN:
        return {}
    return {
        (run, text.seed): f"{place(page).removesuffix('.md')}.html#{anchor('*', i)}"
        for page, runs in of_pages(found).items()
        for i, run in enumerate(runs)
        for text in found.texts[DESIGN][run]
    }
