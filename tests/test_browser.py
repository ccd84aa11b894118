"""The quick start in a real JupyterLab in headless Chromium: every cell runs, and the slider answers the keyboard.

Needs Chromium (Debian: `apt-get install chromium fonts-dejavu-core`). RLNLP_BROWSER names another executable, or 0 to
leave this out; RLNLP_SCREENSHOTS=folder runs the notebook at its full size and keeps pictures of it there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from .test_notebooks import SMALL

ROOT = Path(__file__).resolve().parent.parent
WANTED = os.environ.get("RLNLP_BROWSER", "")
CHROMIUM = None if WANTED == "0" else shutil.which(WANTED or "chromium") or shutil.which(WANTED or "chromium-browser")
SHOTS = os.environ.get("RLNLP_SCREENSHOTS", "")
SETTINGS = {  # without the first a dialog asks for a kernel; the second keeps cells that are out of sight in the page
    "@jupyterlab/notebook-extension/tracker": {"autoStartDefaultKernel": True, "windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
READY = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.context?.isReady && panel.sessionContext?.isReady && panel.sessionContext.session?.kernel?.status === 'idle'
    && panel.content.widgets.length > 10 && panel.isVisible && !document.querySelector('.jp-Spinner');
}"""
STATE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const cells = panel.content.widgets.filter(cell => cell.model.type === 'code').map(cell => cell.model);
  return {
    idle: panel.sessionContext.session?.kernel?.status === 'idle',
    counts: cells.map(model => model.executionCount),
    errors: cells.flatMap(m => m.outputs.toJSON()).filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue),
  };
}"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not CHROMIUM,
        reason="RLNLP_BROWSER=0" if WANTED == "0" else "no Chromium: apt-get install chromium, or set RLNLP_BROWSER to one",
    ),
]


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
    """Address of a JupyterLab that serves a copy of the quick start and leaves the user's own settings alone."""
    notebook(tmp_path, small=not SHOTS)
    for name, values in SETTINGS.items():
        file = tmp_path / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    environment |= {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        "--IdentityProvider.token=tok", f"--ServerApp.root_dir={tmp_path}", "--ServerApp.terminals_enabled=False",
        "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        f"--LabApp.user_settings_dir={tmp_path / 'settings'}", f"--LabApp.workspaces_dir={tmp_path / 'workspaces'}",
    ]  # fmt: skip
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/api?token=tok", server, tmp_path / "lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/quickstart.ipynb?token=tok&reset"
    finally:
        server.terminate()  # ends the kernels too
        server.wait(60)


def wait_for(address: str, server: subprocess.Popen, log: Path, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=2)
            return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)


@pytest.fixture
def page():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def run_all(page, minutes: float = 8) -> None:
    """Run every cell and wait for the last one. An error output ends the wait and fails."""
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); return 1 }")  # a promise would hang
    deadline = time.monotonic() + 60 * minutes
    while True:
        state = page.evaluate(STATE)
        assert not state["errors"], state["errors"]
        if state["idle"] and all(state["counts"]):
            return
        assert time.monotonic() < deadline, f"not finished after {minutes:g} minutes: {state}"
        time.sleep(1)


def test_the_quick_start_in_jupyterlab(lab, page, tmp_path):
    shots = Path(SHOTS or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    page.goto(lab, timeout=180_000)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=180_000)
    page.wait_for_function(READY, timeout=180_000)
    assert not page.locator(".jp-Dialog").count(), "JupyterLab asks something"
    page.screenshot(path=shots / "opened.png")

    run_all(page)
    label = page.locator(".widget-label", has_text="allowed tokens")
    before = label.inner_text()
    assert re.fullmatch(r"allowed tokens: \d+ of \d+ at p = 0.50", before)
    label.scroll_into_view_if_needed()
    time.sleep(1)
    page.screenshot(path=shots / "slider_before.png")
    page.locator(".widget-slider .noUi-handle").first.focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.widget-label')].some(e => e.innerText.endsWith('at p = 0.10'))", timeout=60_000
    )
    kept = [int(text.split()[2]) for text in (before, label.inner_text())]
    assert 1 <= kept[1] < kept[0], kept
    time.sleep(1)
    page.screenshot(path=shots / "slider_after.png")

    output = page.locator(".jp-OutputArea-output")
    assert output.locator("img").count() == 4  # loss, nucleus twice (the second under the sliders), the two runs
    assert output.locator("span[title^=advantage]").count() >= 1  # coloured words
    for number, heading in enumerate(page.locator(".jp-MarkdownCell h2").all(), 1):
        heading.evaluate("element => element.scrollIntoView()")
        time.sleep(0.3)
        page.screenshot(path=shots / f"part{number:02d}.png")
