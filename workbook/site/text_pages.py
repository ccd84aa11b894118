"""Where a run's texts stand on the site: of the registered design a page a run, an anchor a draw; of the profiles that
use its draws, the runs that it lacks, a page a report, an anchor a run."""

from __future__ import annotations

from typing import NamedTuple

from workbook.ledger.claim import repetitions
from workbook.site.committed import DESIGN, SAME, Committed

REST = "others"  # runs that no report shows


def place(condition: str) -> str:
    """The page of a run of the design."""
    return f"texts/{condition}/index.md"


def of_pages(found: Committed) -> dict[str, list[str]]:
    """Run of the design of which texts are committed -> itself and its repetitions, which are on its page."""
    kept, runs = found.texts.get(DESIGN, {}), found.runs.get(DESIGN, {})
    parts = {name: [other for other in repetitions(runs, name) if other in kept] for name in kept}
    repeated = {other for name, others in parts.items() for other in others if other != name}
    return {name: others for name, others in parts.items() if name not in repeated}


class OfReport(NamedTuple):
    """Runs of a profile that share a page: those that a report is the first to show."""

    profile: str
    report: str
    runs: list[str]


def of_reports(found: Committed) -> dict[str, OfReport]:
    """Page -> its runs: those of which texts are committed, and none of the design's run of that name."""
    pages: dict[str, OfReport] = {}
    for profile in SAME:
        left = [name for name in found.texts.get(profile, {}) if name not in found.texts.get(DESIGN, {})]
        for report, shown in [*found.shown.get(profile, {}).items(), (REST, [*left])]:
            if mine := [name for name in left if name in shown]:
                pages[f"texts/{profile}/{report}/index.md"] = OfReport(profile, report, mine)
                left = [name for name in left if name not in mine]
    return pages


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
