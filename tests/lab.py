"""A real JupyterLab and a headless Chromium, for tests that drive notebooks.

Needs Chromium (Debian: `apt-get install chromium fonts-dejavu-core`). RLNLP_BROWSER names another executable, or 0 to
leave these tests out; RLNLP_SCREENSHOTS=folder keeps pictures there.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .waiting import until

WANTED = os.environ.get("RLNLP_BROWSER", "")
CHROMIUM = None if WANTED == "0" else shutil.which(WANTED or "chromium") or shutil.which(WANTED or "chromium-browser")
SHOTS = os.environ.get("RLNLP_SCREENSHOTS", "")
SLOWER = float(os.environ.get("RLNLP_BROWSER_PATIENCE", "1"))  # times longer to wait, on a busy machine
SETTINGS = {  # without the first a dialog asks for a kernel; the second keeps cells that are out of sight in the page
    "@jupyterlab/notebook-extension/tracker": {"autoStartDefaultKernel": True, "windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
READY = """least => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.context?.isReady && panel.sessionContext?.isReady
    && panel.sessionContext.session?.kernel?.status === 'idle'
    && panel.content.widgets.length >= least && panel.isVisible && !document.querySelector('.jp-Spinner');
}"""
STATE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const cells = panel.content.widgets.filter(cell => cell.model.type === 'code').map(cell => cell.model);
  return {
    idle: panel.sessionContext.session?.kernel?.status === 'idle',
    counts: cells.map(model => model.executionCount),
    errors: cells.flatMap(m => m.outputs.toJSON()).filter(o => o.output_type === 'error')
      .map(o => o.ename + ': ' + o.evalue),
  };
}"""
MARKS = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(900 * SLOWER),
    pytest.mark.skipif(
        not CHROMIUM,
        reason="RLNLP_BROWSER=0"
        if WANTED == "0"
        else "no Chromium: apt-get install chromium, or set RLNLP_BROWSER to one",
    ),
]


@contextmanager
def serve(folder: Path, notebook: str, *more: str) -> Iterator[str]:
    """Address of a JupyterLab that opens a notebook of `folder` and leaves the user's own settings alone. more:
    arguments of its command line."""
    for name, values in SETTINGS.items():
        file = folder / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    environment |= {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--IdentityProvider.token=tok",
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.terminals_enabled=False",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        f"--LabApp.user_settings_dir={folder / 'settings'}",
        f"--LabApp.workspaces_dir={folder / 'workspaces'}",
        *more,
    ]
    with open(folder / "lab.log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/api?token=tok", server, folder / "lab.log", 180 * SLOWER)
        yield f"http://127.0.0.1:{port}/lab/tree/{notebook}?token=tok&reset"
    finally:
        server.terminate()  # ends the kernels too
        try:
            server.wait(60 * SLOWER)
        except subprocess.TimeoutExpired:  # stopped while a thread of its pool was at work, it waits for it for ever
            server.kill()
            server.wait()


def wait_for(address: str, server: subprocess.Popen, log: Path, seconds: float) -> None:
    def answers() -> bool:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            return bool(urllib.request.urlopen(address, timeout=2))
        except OSError:
            return False

    until(answers, lambda: log.read_text()[-3000:], seconds)


@contextmanager
def browser_page(**more) -> Iterator:
    """A page of a fresh Chromium. more: as Playwright's `new_page` takes it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=60_000 * SLOWER,
        )
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **more})
        page.set_default_timeout(30_000 * SLOWER)
        yield page
        browser.close()


def open_notebook(page, address: str, cells: int) -> None:
    """Go to the address and wait until the notebook, of at least so many cells, is there and its kernel is idle."""
    wait = 180_000 * SLOWER
    page.goto(address, timeout=wait)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=wait)
    page.wait_for_function(READY, arg=cells, timeout=wait)
    assert not page.locator(".jp-Dialog").count(), "JupyterLab asks something"


def run_all(page, minutes: float = 8) -> None:
    """Run every cell and wait for the last one. An error output ends the wait and fails."""
    page.evaluate(
        "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); return 1 }"
    )  # a promise would hang

    def done() -> bool:
        state = page.evaluate(STATE)
        assert not state["errors"], state["errors"]
        return state["idle"] and all(state["counts"])

    until(done, lambda: f"all cells: {page.evaluate(STATE)}", 60 * minutes * SLOWER)


def drawn(page) -> None:
    """Wait until the browser has drawn what is there now."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
