"""The quick start in a real JupyterLab in headless Chromium: every cell runs, and the slider answers the keyboard.

What it needs: see tests/lab.py; with RLNLP_SCREENSHOTS=folder the notebook runs at its full size.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .lab import MARKS, SHOTS, STATE, browser_page, drawn, open_notebook, run_all, serve
from .test_notebooks import SMALL
from .waiting import until

ROOT = Path(__file__).resolve().parent.parent
pytestmark = MARKS
UNDER_THE_SLIDERS = "() => document.querySelector('.widget-vbox .jp-OutputArea-output img')?.src"


def notebook(folder: Path, small: bool) -> None:
    """A copy of the quick start, with small numbers in its parameters cell if asked."""
    content = json.loads((ROOT / "notebooks/quickstart.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if small and "parameters" in cell["metadata"].get("tags", ()):
            text = "".join(cell["source"])
            for name, value in SMALL.items():
                text, changed = re.subn(rf"^{name} = \d+", f"{name} = {value}", text, flags=re.MULTILINE)
                assert changed == 1, name
            cell["source"] = text
    (folder / "quickstart.ipynb").write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def lab(tmp_path):
    """Address of a JupyterLab that serves a copy of the quick start."""
    notebook(tmp_path, small=not SHOTS)
    with serve(tmp_path, "quickstart.ipynb") as address:
        yield address


@pytest.fixture
def page():
    with browser_page() as fresh:
        yield fresh


def test_the_quick_start_in_jupyterlab(lab, page, tmp_path):
    shots = Path(SHOTS or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    open_notebook(page, lab, cells=11)
    page.screenshot(path=shots / "opened.png")

    run_all(page)
    label = page.locator(".widget-label", has_text="allowed tokens")
    before = label.inner_text()
    assert re.fullmatch(r"allowed tokens: \d+ of \d+ at p = 0.50", before)
    label.scroll_into_view_if_needed()
    drawn(page)
    page.screenshot(path=shots / "slider_before.png")
    picture = page.evaluate(UNDER_THE_SLIDERS)
    page.locator(".widget-slider .noUi-handle").first.focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.widget-label')].some(e => e.innerText.endsWith('at p = 0.10'))",
        timeout=60_000,
    )
    kept = [int(text.split()[2]) for text in (before, label.inner_text())]
    assert 1 <= kept[1] < kept[0], kept
    page.wait_for_function(f"before => ![before, undefined].includes(({UNDER_THE_SLIDERS})())", arg=picture)
    until(lambda: page.evaluate(STATE)["idle"], "the last picture")  # a slider that moved on may have asked for more
    drawn(page)
    page.screenshot(path=shots / "slider_after.png")

    output = page.locator(".jp-OutputArea-output")
    assert output.locator("img").count() == 4  # loss, nucleus twice (the second under the sliders), the two runs
    assert output.locator("span[title^=advantage]").count() >= 1  # coloured words
    for number, heading in enumerate(page.locator(".jp-MarkdownCell h2").all(), 1):
        heading.evaluate("element => element.scrollIntoView()")
        drawn(page)
        page.screenshot(path=shots / f"part{number:02d}.png")
