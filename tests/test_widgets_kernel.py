"""Widgets in a real kernel, with and without somebody who could use them: a front end gets the widget, all else a page
that shows the same."""

from __future__ import annotations

import re
import subprocess
import sys

import nbformat
import pytest

from workbook.lab import static
from workbook.stages import nb

from .shown import alts, text

CELLS = [
    "from workbook.lab import sentence\nsentence.coloured(['superb', 'plot'], {'reward': [0.5, -1.0], 'KL': [0.1, "
    "0.2]})",
    """from workbook.lab import live
def train(state, prompts, score, config):
    for update in range(1, 6):
        if "may" in globals():  # somebody says when
            may.wait()
        yield {"update": update, "objective/score": update / 10, "objective/kl": 0.0}
view = live.run(train, {}, None, None, None, None)
view""",
    "print(len(view.rows), view.alive)",
]


def execute(client, code: str, metadata: dict) -> list[dict]:
    """What a cell sends, run as a front end that sends this metadata with it."""
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    message = client.session.msg("execute_request", content, metadata=metadata)
    client.shell_channel.send(message)
    sent = []
    while True:
        got = client.get_iopub_msg(timeout=240)
        sent.append(got)
        ours = got["parent_header"].get("msg_id") == message["header"]["msg_id"]
        if ours and got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
            return sent
        assert got["msg_type"] != "error", got["content"]


def displayed(sent: list[dict]) -> list[dict]:
    return [m["content"]["data"] for m in sent if m["msg_type"] in ("execute_result", "display_data")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_asks_decides_what_a_kernel_shows():
    """JupyterLab, which names the cell, gets the widget and its page; anything else gets the page alone."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=240, kernel_name="python3")
    try:
        (alone,) = displayed(execute(client, CELLS[0], {}))
        assert set(alone) == {"text/html", "text/plain"} and "superb" in alone["text/html"]
        (both,) = displayed(execute(client, CELLS[0], {"cellId": "one"}))
        assert set(both) == {"text/html", "text/plain", nb.WIDGET} and both["text/html"] == alone["text/html"]

        execute(client, "import threading\nmay = threading.Event()", {"cellId": "before"})
        (shown,) = displayed(execute(client, CELLS[1], {"cellId": "two"}))
        assert nb.WIDGET in shown  # the cell is over and the run is not
        printed = "".join(
            m["content"]["text"] for m in execute(client, CELLS[2], {"cellId": "three"}) if m["msg_type"] == "stream"
        )
        assert printed == "0 True\n"
        ended = execute(client, "may.set(); view.wait(); print(view.rows[-1]['update'])", {"cellId": "four"})
        assert "5" in "".join(m["content"].get("text", "") for m in ended if m["msg_type"] == "stream")
        last = [m["content"]["data"] for m in ended if m["msg_type"] == "update_display_data"]
        assert last and "finished: 5 updates" in last[-1]["text/html"] and nb.WIDGET in last[-1]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    # the notebook as JupyterLab saves it, without the state of widgets: nbconvert takes the page
    cells = [
        nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", data=d)])
        for d in (both, last[-1])
    ]
    from nbconvert import HTMLExporter

    readable(HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))[0])


def readable(page: str) -> None:
    """The page holds what the two widgets show."""
    words = text(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL))
    assert "superb" in words and "scale of KL" in words and "finished: 5 updates" in words
    assert any("Curves of 5 updates" in alt for alt in alts(page))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_unattended_notebooks_show_pages(tmp_path):
    """By this package's runner (papermill) and by nbconvert --execute, which also saves widget states."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    notebook.metadata["kernelspec"] = nb.KERNEL
    nbformat.write(notebook, tmp_path / "in.ipynb")
    assert nb.run(str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb"), {}, html=str(tmp_path / "out.html")) == 0
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert executed.cells[2].outputs[0]["text"] == "5 False\n"  # it had ended when the cell ended
    readable((tmp_path / "out.html").read_text(encoding="utf-8"))
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--to",
        "html",
        "--execute",
        "--ExecutePreprocessor.startup_timeout=240",
    ]
    command += ["in.ipynb", "--output", "other.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    readable((tmp_path / "other.html").read_text(encoding="utf-8"))


def test_no_front_end_here():
    assert static.cell() == "" and not static.front_end()
