"""The widgets in a real JupyterLab in headless Chromium: keys, clicks and a drag, and what the screen then says.

What it needs: see tests/lab.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from workbook.stages.nb import KERNEL

from .lab import MARKS, SHOTS, SLOWER, browser_page, drawn, open_notebook, run_all, serve
from .made_up import write_run
from .waiting import until

pytestmark = MARKS
CELLS = [
    """import copy
from workbook.draws import small
from rlnlp import scoring
from rlnlp.learners import nlpo
from workbook.lab import browse, explorer, live, sentence
start = small.start(reviews=300, steps=20, folder="lesson")
score = scoring.scorer(start.reward, start.tokenizer)
config = nlpo.Config(updates=400, episodes_per_update=16, mask_top_p=0.9)
state = nlpo.init(copy.deepcopy(start.policy), config, seed=0)
seen = nlpo.collect(state, start.prompts, score, config)""",
    "explorer.explore(seen, start.tokenizer, state.policy, state.reference, state.mask_model)",
    """real = seen.rollout.mask[0]
words = start.tokenizer.convert_ids_to_tokens(seen.rollout.responses[0, real])
sentence.coloured(words, {"reward": seen.rewards[0, real], "advantage": seen.advantages[0, real]})""",
    "view = live.run(nlpo.train, state, start.prompts, score, config, start.tokenizer)\nview",
    "browse.runs('runs', 'reports')",
    "browse.runs('no', 'where')",
    "print('rows', len(view.rows), 'alive', view.alive)",
]
EXPLORER, SENTENCE, LIVE, BROWSER, EMPTY, ASK = range(1, 7)


@pytest.fixture
def lab(tmp_path):
    """Address of a JupyterLab with a notebook of all the widgets, and two finished runs of made-up numbers beside
    it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    notebook.metadata["kernelspec"] = KERNEL
    nbformat.write(notebook, tmp_path / "widgets.ipynb")
    for name, score in (("ppo_a", 0.2), ("ppo_b", 0.3)):
        write_run(tmp_path / "runs", name, score)
    with serve(tmp_path, "widgets.ipynb") as address:
        yield address


@pytest.fixture
def page():
    with browser_page() as fresh:
        yield fresh


def wait_for(output, pattern: str) -> str:
    """Wait until the text of a cell's output matches; the match."""
    return until(
        lambda: re.search(pattern, " ".join(output.inner_text().split())),
        lambda: f"{pattern!r} in: {output.inner_text()[:2000]}",
        60 * SLOWER,
    )[0]


def press(page, control, *keys: str) -> None:
    """Put the focus on a control, as the tab key does, and press keys."""
    control.focus()
    for key in keys:
        page.keyboard.press(key)


def test_the_widgets_in_jupyterlab(lab, page, tmp_path):
    shots = Path(SHOTS or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    open_notebook(page, lab, cells=len(CELLS))
    run_all(page)
    outputs = [page.locator(".jp-CodeCell").nth(i).locator(".jp-OutputArea").first for i in range(len(CELLS))]

    def shot(which: int, name: str) -> None:
        outputs[which].scroll_into_view_if_needed()
        drawn(page)
        outputs[which].screenshot(path=shots / f"{name}.png")

    # a live run: the kernel answers while it trains; pause, go on, stop
    here = outputs[LIVE]
    wait_for(here, r"update \d+ of 400")
    press(page, here.get_by_role("button", name="pause"), "Enter")
    before = int(wait_for(here, r"paused after update \d+").split()[-1])
    page.evaluate(
        """index => {
          const content = window.jupyterapp.shell.currentWidget.content;
          content.activeCellIndex = index;
          window.jupyterapp.commands.execute('notebook:run-cell');
          return 1;
        }""",
        ASK,
    )
    wait_for(outputs[ASK], f"rows {before} alive True")
    shot(LIVE, "live_paused")
    here.get_by_role("button", name="resume").click()
    wait_for(here, rf"update (?!{before} )\d+ of 400")
    here.get_by_label("curve", exact=True).select_option("policy/clip_fraction")
    page.wait_for_function(
        "() => [...document.querySelectorAll('img')].some(i => i.alt.includes('policy/clip_fraction'))",
        timeout=60_000 * SLOWER,
    )
    # a cell that awaits the run does not keep the buttons from working
    page.evaluate(
        """([index, code]) => {
          const content = window.jupyterapp.shell.currentWidget.content;
          content.widgets[index].model.sharedModel.setSource(code);
          content.activeCellIndex = index;
          window.jupyterapp.commands.execute('notebook:run-cell');
          return 1;
        }""",
        [ASK, "print('waited for', (await view)[-1]['update'])"],
    )
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"
    )
    press(page, here.get_by_role("button", name="stop"), "Enter")
    ended = int(wait_for(here, r"stopped after update \d+").split()[-1])
    assert ended > before
    wait_for(outputs[ASK], f"waited for {ended}")
    here.locator("button[disabled]", has_text="pause").wait_for()
    assert "Samples of the last update" in here.inner_text()
    shot(LIVE, "live_stopped")

    # the explorer: arrow keys, buttons, the menu, a drag
    here = outputs[EXPLORER]
    assert "token 0 (0 to" in here.inner_text() and "mask model, p" in here.inner_text()
    handles = here.locator(".noUi-handle")  # of episode, token, value
    press(page, handles.nth(1), "ArrowRight", "ArrowRight")
    wait_for(here, r"token 2 \(0 to \d+\)")
    press(page, here.get_by_role("button", name="next token"), "Enter")
    wait_for(here, r"token 3 \(0 to \d+\)")
    here.get_by_role("button", name="previous token").click()
    many = int(wait_for(here, r"\d+ of \d+ tokens survive top_p 0.9 ").split()[0])
    press(page, handles.nth(2), *["ArrowLeft"] * 10)
    few = int(wait_for(here, r"\d+ of \d+ tokens survive top_p 0.4 ").split()[0])
    assert 1 <= few < many, (few, many)
    shot(EXPLORER, "explorer_top_p")
    here.get_by_label("sampler").select_option("top_k")
    wait_for(here, r"survive top_k 10 of the policy")
    here.get_by_label("applied to").select_option("mask model")
    wait_for(here, r"survive top_k 10 of the mask model")
    box, bar = handles.nth(2).bounding_box(), here.locator(".noUi-target").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(bar["x"] + bar["width"], box["y"] + box["height"] / 2, steps=8)
    page.mouse.up()
    wait_for(here, r"survive top_k 1000 of the mask model")
    press(page, handles.nth(0), "ArrowRight")
    wait_for(here, r"episode 1, score")
    shot(EXPLORER, "explorer_dragged")

    # a sentence: the toggle
    here = outputs[SENTENCE]
    wait_for(here, "scale of reward")
    press(page, here.get_by_role("button", name="advantage"), "Enter")
    wait_for(here, "scale of advantage")
    assert here.locator("span[title^=advantage]").count() > 0 and not here.locator("span[title^=reward]").count()
    shot(SENTENCE, "sentence")

    # the run browser: choose with the keyboard, change the view
    here = outputs[BROWSER]
    picture = here.locator("img[alt*='ppo_a objective'][alt*='ppo_b objective']")
    picture.wait_for()
    press(page, here.get_by_role("checkbox", name="ppo_b"), "Space")
    here.locator("img[alt*='ppo_a objective']:not([alt*='ppo_b objective'])").wait_for()
    press(page, here.get_by_role("checkbox", name="ppo_b"), "Space")
    picture.wait_for()
    shot(BROWSER, "browser_curves")
    press(page, here.get_by_role("button", name="frontier"), "Enter")
    here.locator("img[alt^='score against kl_deployed']").wait_for()
    shot(BROWSER, "browser_frontier")
    here.get_by_role("button", name="samples").click()
    wait_for(here, r"ppo_b says 0 at 1 \(0\.25\)")
    shot(BROWSER, "browser_samples")
    assert "No run is finished yet" in outputs[EMPTY].inner_text() and "make reproduce" in outputs[EMPTY].inner_text()
    shot(EMPTY, "browser_empty")

    # saved and exported, the page shows what the widgets show
    page.evaluate("() => { window.jupyterapp.commands.execute('docmanager:save'); return 1 }")

    def whole() -> str:
        text = (tmp_path / "widgets.ipynb").read_text(encoding="utf-8")
        return text if "stopped after update" in text else ""

    saved = until(whole, "the end of the run in the saved notebook", 60 * SLOWER)
    from nbconvert import HTMLExporter

    exported, _ = HTMLExporter().from_notebook_node(nbformat.reads(saved, as_version=4))
    for words in (f"stopped after update {ended}", "tokens survive top_p", "scale of advantage", "ppo_b says 0 at 1"):
        assert words in exported, words
