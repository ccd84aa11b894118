"""Notebooks: parameters are checked, outputs comparable, failures clear, and no kernel outlives its parent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from workbook.stages.nb import (
    ParameterError,
    assignments,
    check_parameters,
    parameters_of,
    run,
    scrub,
    strip,
    typed,
)
from workbook.stages.page import NO_ALT, to_html

from .waiting import DEADLINE_S, alive, text_of, until

ROOT = Path(__file__).resolve().parents[1]
OWN = "draw = 0\nrate: float = 0.1  # per step\nname = 'x'\nflag = True\nother = None"


def write(path: Path, *cells: str, tag: str = "parameters") -> Path:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.cells[0].metadata["tags"] = [tag]
    nbformat.write(notebook, path)
    return path


def given(*lines: str) -> str:
    return "\n".join(["# Parameters", *lines, ""])


# parameters ----------------------------------------------------------------------------------------------------------


def test_assignments_are_literals_only():
    assert assignments("a = 1\nb: float = 2.0\nc = f(3)\nd = -1e-4\ne = ['x']\nprint(a)") == {
        "a": 1,
        "b": 2.0,
        "d": -1e-4,
        "e": ["x"],
    }


@pytest.fixture
def no_prctl(monkeypatch):
    called = []
    monkeypatch.setattr("workbook.store.locks.die_with_parent", lambda: called.append(1))
    return called


def test_good_parameters_pass_and_tie_the_kernel_to_its_parent(no_prctl):
    assert check_parameters(["", OWN, given("draw = 3", "rate = 1", "other = 'y'"), "check"]) == {
        "draw": 3,
        "rate": 1,
        "other": "y",
    }
    assert no_prctl == [1]


def test_an_interactive_session_has_nothing_to_check_and_works_beside_params_yaml(
    no_prctl, tmp_path, monkeypatch, capsys
):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params.yaml").write_text("")
    monkeypatch.chdir(tmp_path / "notebooks")
    for _ in range(2):  # a cell can be run again
        assert check_parameters(["", OWN, "check_parameters(In)"]) == {} and not no_prctl
        assert Path.cwd() == tmp_path
    assert capsys.readouterr().out == f"working folder: {tmp_path}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("drow = 3", "unknown parameter 'drow'; did you mean 'draw'?"),
        ("zzz = 3", "unknown parameter 'zzz' (parameters: draw, rate, name, flag, other)"),
        ("draw = '3'", "parameter 'draw': expected int, e.g. 0; found '3'"),
        ("draw = 3.0", "expected int"),
        ("draw = True", "expected int"),
        ("rate = False", "expected float"),
        ("flag = 1", "expected bool"),
        ("name = 7", "expected str"),
    ],
)
def test_wrong_parameters_are_refused(line, says, no_prctl):
    with pytest.raises(ParameterError, match=re.escape(says)):
        check_parameters(["", OWN, given(line), "check"])


def test_a_notebook_without_the_tag_is_refused(no_prctl):
    # papermill then puts its cell first, and the notebook's own values win
    with pytest.raises(ParameterError, match="no cell tagged"):
        check_parameters(["", given("draw = 3"), OWN, "check"])


def test_one_parameters_cell(tmp_path):
    two = json.loads(write(tmp_path / "a.ipynb", OWN, "x = 1").read_text())
    two["cells"][1]["metadata"]["tags"] = ["parameters"]
    with pytest.raises(ParameterError, match="expected one cell"):
        parameters_of(two, "a")
    with pytest.raises(ParameterError, match="must not begin"):
        strip(write(tmp_path / "b.ipynb", given("x = 1")), tmp_path / "c.ipynb")


def test_command_line_values_are_typed_by_the_default():
    assert [typed("3", 0), typed("3", "x"), typed("1e-4", 0.1), typed("true", True), typed("[1, 2]", None)] == [
        3,
        "3",
        1e-4,
        True,
        [1, 2],
    ]
    assert typed("abc", 0) == "abc"  # refused by the check


@pytest.mark.parametrize(("name", "value"), [("drow", "1"), ("draw", "x"), ("draw", "1.5")])
def test_run_refuses_before_a_kernel_starts(tmp_path, name, value, monkeypatch, capsys, no_prctl):
    monkeypatch.setitem(sys.modules, "papermill", None)  # importing it would raise
    assert run(str(write(tmp_path / "a.ipynb", OWN)), str(tmp_path / "out.ipynb"), {name: value}) == 1
    assert "'draw'" in capsys.readouterr().err and not (tmp_path / "out.ipynb").exists()


# strip, run, scrub ---------------------------------------------------------------------------------------------------


def test_printed_text_is_one_piece_however_it_arrived():
    def cell(*outputs):
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("")])
        made.cells[0].outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in outputs]
        return scrub(made)

    whole = cell(("stdout", "a <f at 0x7f00aa11bb22>\nb\n"))
    assert whole == cell(("stdout", "a <f at 0x7f00"), ("stderr", "warning"), ("stdout", "aa11bb22>\nb\n"))
    assert [o["text"] for o in whole.cells[0].outputs] == ["a <f>\nb\n"]


def test_saving_a_notebook_does_not_change_its_stripped_copy(tmp_path):
    plain = write(tmp_path / "a.ipynb", OWN, "1 + 1")
    strip(plain, tmp_path / "before.ipynb")
    saved = nbformat.read(plain, as_version=4)
    saved.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
    saved.cells[1].execution_count, saved.cells[1].id = 7, "other"
    saved.cells[1].metadata["collapsed"] = True
    saved.metadata["kernelspec"] = {"name": "my-kernel", "display_name": "mine"}
    nbformat.write(saved, plain)
    strip(plain, tmp_path / "after.ipynb")
    assert (tmp_path / "before.ipynb").read_bytes() == (tmp_path / "after.ipynb").read_bytes()
    saved.cells[1].source = "1 + 2"
    nbformat.write(saved, plain)
    strip(plain, tmp_path / "edited.ipynb")
    assert (tmp_path / "before.ipynb").read_bytes() != (tmp_path / "edited.ipynb").read_bytes()


def nb(*words: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "workbook.stages.nb", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


CHECK = "from workbook.stages.nb import check_parameters; check_parameters(In)"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook with a bar, an address, a clock and a picture, run twice."""
    folder = tmp_path_factory.mktemp("nb")
    write(
        folder / "a.ipynb",
        "draw = 0",
        CHECK,
        "from tqdm.auto import tqdm\nfor i in tqdm(range(3), desc='steps'): pass\nprint('draw', draw, object())",
        "import ipywidgets; ipywidgets.IntSlider()",
        "from IPython.display import Image\nimport base64\n"
        "Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
        "hgGAWjR9awAAAABJRU5ErkJggg=='))",
    )
    first = nb("run", "a.ipynb", "out/a.ipynb", "-p", "draw", "3", "--html", "out/a.html", cwd=folder)
    second = nb("run", "a.ipynb", "out/b.ipynb", "-p", "draw", "3", cwd=folder)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    return folder / "out", first


@pytest.mark.xdist_group("executed")
def test_the_same_result_has_the_same_bytes(executed):
    out, _ = executed
    assert (out / "a.ipynb").read_bytes() == (out / "b.ipynb").read_bytes()
    assert sorted(p.name for p in out.iterdir()) == ["a.html", "a.ipynb", "b.ipynb"]
    text = (out / "a.ipynb").read_text()
    assert "draw 3 <object object>" in text and "papermill" not in json.loads(text)["metadata"]
    assert "0x" not in text and "steps" not in [
        line for c in json.loads(text)["cells"] for line in c.get("outputs", [])
    ]
    assert "widget-view" not in text and "iopub" not in text


@pytest.mark.xdist_group("executed")
def test_progress_shows_as_text_while_it_runs(executed):
    _, done = executed
    assert re.search(r"steps: 100%\|", done.stderr) and "draw 3" in done.stdout


@pytest.mark.xdist_group("executed")
def test_the_page_needs_no_network(executed):
    page = (executed[0] / "a.html").read_text()
    assert "iVBORw0KGgo" in page
    assert not re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]*>", page)
    assert not re.findall(r"@import|import\(|url\(\s*['\"]?https?:|cdn\.|cdnjs", page)


def test_scripts_of_other_hosts_are_taken_out(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    page = (
        '<b>kept</b><script src="https://far.example/x.js"></script><link rel="stylesheet" '
        'href="https://far.example/x.css">'
    )
    notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", data={"text/html": page})]
    to_html(notebook, tmp_path / "a.html", "a")
    assert "far.example" not in (text := (tmp_path / "a.html").read_text()) and "<b>kept</b>" in text


def test_a_failing_cell_is_the_last_thing_said(tmp_path):
    write(tmp_path / "a.ipynb", "draw = 0", CHECK, "raise RuntimeError('loss is not finite at update 3')")
    done = nb("run", "a.ipynb", "out.ipynb", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "RuntimeError: loss is not finite at update 3"
    assert "loss is not finite" in (tmp_path / "out.ipynb").read_text()


@pytest.mark.parametrize("end", ["import sys; sys.exit(0)", "raise SystemExit"])
def test_a_notebook_that_ends_itself_has_failed(tmp_path, end):
    """Its later cells did not run, so what they were to write is not there; papermill calls this a success."""
    write(tmp_path / "a.ipynb", "draw = 0", CHECK, end, "open('written', 'w')")
    done = nb("run", "a.ipynb", "out.ipynb", cwd=tmp_path)
    assert not (tmp_path / "written").exists()
    assert done.returncode == 1 and "cell 3 failed; see out.ipynb" in done.stderr and "SystemExit" in done.stderr


LATE = """
import sys
from pathlib import Path
from nbclient.output_widget import OutputWidget
from tests.waiting import until
from workbook.stages import nb

told = OutputWidget.output


def late(self, *given):
    until(Path("over").exists)  # the reply of the cell arrives meanwhile
    return told(self, *given)


OutputWidget.output = late
sys.exit(nb.main(["run", "a.ipynb", "out.ipynb"]))
"""


def test_a_widget_with_outputs_does_not_stop_the_run(tmp_path):
    """The run used to wait for ever where the reply of a cell arrived while its widget's output was looked at."""
    shown = "import ipywidgets\nipywidgets.interactive_output(lambda p: display(p), {'p': ipywidgets.FloatSlider(0.5)})"
    shown += "\nopen('over', 'w').close()"
    write(tmp_path / "a.ipynb", "draw = 0", CHECK, shown, "print('and on')")
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0 and "and on" in done.stdout, done.stderr[-2000:]


def test_killing_the_runner_ends_the_kernel_and_leaves_nothing_in_tmp(tmp_path):
    beat = "import os, pathlib, threading\npathlib.Path('beat').write_text(str(os.getpid()))\nthreading.Event().wait()"
    write(tmp_path / "a.ipynb", "draw = 0", CHECK, beat)
    (tmp_path / "tmp").mkdir()
    runner = subprocess.Popen(
        [sys.executable, "-m", "workbook.stages.nb", "run", "a.ipynb", "o.ipynb", "-p", "draw", "1"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )
    try:
        kernel = int(text_of(tmp_path / "beat"))
        assert kernel != runner.pid and alive(kernel) and list((tmp_path / "tmp").iterdir())
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
        until(lambda: not alive(kernel), "the end of the kernel")
        until(lambda: not list((tmp_path / "tmp").iterdir()), lambda: f"the end of {[*(tmp_path / 'tmp').rglob('*')]}")
        # a later run in this folder must not meet its sockets
        assert sorted(p.name for p in tmp_path.iterdir() if "ipc" in p.name) == []
    finally:
        runner.kill()


def test_a_page_keeps_the_alt_text_of_its_figures_each_its_own(tmp_path):
    """nbconvert's template loses it; a figure without one says so."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

    def figure(alt):
        metadata = {"image/png": {"alt": alt}} if alt else {}
        return nbformat.v4.new_output("display_data", {"image/png": pixel}, metadata=metadata)

    cell = nbformat.v4.new_code_cell("1")
    cell.outputs = [figure('score < 1, "rising"'), figure(""), figure("falling")]
    to_html(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "page.html", "page")
    page = BeautifulSoup((tmp_path / "page.html").read_text(encoding="utf-8"), "html.parser")
    assert [image["alt"] for image in page.find_all("img")] == ['score < 1, "rising"', NO_ALT, "falling"]
