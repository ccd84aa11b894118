"""Notebooks stay short and explained, keep no outputs, and the quick start runs from nothing to its last cell."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_LINES, NOTEBOOK_LINES, WIDTH = 15, 120, 120  # blank lines are free
CHECK = "from workbook.stages.nb import check_parameters; check_parameters(In)"
DRAWS = re.compile(r"\bplt\.|\bshow\(|\.plot\(|tokens_html\(")
SMALL = {"reviews": "300", "steps": "20", "updates": "2", "episodes": "16"}  # quick start, seconds instead of a minute


def read(name: str) -> dict:
    return json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    return "".join(cell["source"])


def python(cell: dict) -> ast.Module:
    return ast.parse("".join(line for line in source(cell).splitlines(True) if not line.startswith(("%", "!"))))


def lines(cell: dict) -> int:
    return sum(bool(line.strip()) for line in source(cell).splitlines())


def problems(notebook: dict) -> list[str]:
    """Every budget and rule that a notebook breaks, in words."""
    found, cells = [], notebook["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    if (notebook["nbformat"], notebook["nbformat_minor"]) != (4, 5):
        found.append("format: expected nbformat 4.5")
    kernel = notebook["metadata"].get("kernelspec", {})
    if (kernel.get("name"), kernel.get("display_name")) != ("python3", "Python 3"):
        found.append(f"kernel: expected python3, 'Python 3'; found {kernel}")
    if len({c.get("id") for c in cells}) != len(cells):
        found.append("ids: every cell needs one of its own")
    for number, cell in enumerate(code, 1):
        if cell["outputs"] or cell["execution_count"] is not None:
            found.append(f"outputs: code cell {number} keeps some (python -m workbook.stages.nb strip)")
        if lines(cell) > CELL_LINES:
            found.append(f"cell: code cell {number} has {lines(cell)} lines, allowed {CELL_LINES}")
        if (widest := max(map(len, source(cell).splitlines()), default=0)) > WIDTH:
            found.append(f"width: code cell {number} has a line of {widest} characters, allowed {WIDTH}")
    if (total := sum(map(lines, code))) > NOTEBOOK_LINES:
        found.append(f"notebook: {total} lines of code, allowed {NOTEBOOK_LINES}")
    text = [c for c in cells if c["cell_type"] == "markdown" and source(c).strip()]
    if len(text) < len(code):
        found.append(f"text: {len(text)} text cells for {len(code)} code cells")
    for i, cell in enumerate(cells):
        beside = [source(c) for c in cells[max(0, i - 1) : i + 2] if c["cell_type"] == "markdown"]
        drawn = cell["cell_type"] == "code" and DRAWS.search(source(cell))
        if drawn and not any(re.search(r"how to read", t, re.IGNORECASE) for t in beside):
            found.append(f"figure: no text beside cell {i} says how to read it: {source(cell)[:60]!r}")
    return found + parameter_problems(code)


def parameter_problems(code: list[dict]) -> list[str]:
    tagged = [i for i, c in enumerate(code) if "parameters" in c["metadata"].get("tags", ())]
    if not tagged:
        return []
    if tagged != [0]:
        return [f"parameters: expected one tagged cell, the first; found code cells {[i + 1 for i in tagged]}"]
    found = []
    if len(code) < 2 or not source(code[1]).startswith(CHECK):
        found.append(f"check: the second code cell must start with {CHECK!r}")
    own = [node.targets[0].id for node in python(code[0]).body if isinstance(node, ast.Assign)]
    if not own:
        found.append("parameters: the tagged cell sets none")
    used = {
        n.id for c in code[1:] for n in ast.walk(python(c)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    return found + [f"parameters: {name} is never used" for name in own if name not in used]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[p.stem for p in NOTEBOOKS])
def test_a_notebook_keeps_to_its_budgets(path):
    assert not problems(read(path.name))


def test_every_notebook_of_the_pipeline_is_there_and_takes_parameters():
    names = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]["nb"]["matrix"]["notebook"]
    assert {f"{name}.ipynb" for name in [*names, "quickstart"]} <= {p.name for p in NOTEBOOKS}
    for name in [*names, "quickstart"]:
        assert any("parameters" in c["metadata"].get("tags", ()) for c in read(f"{name}.ipynb")["cells"]), name


def spoil(notebook: dict, how: str) -> None:
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    if how == "outputs":
        code[3]["execution_count"] = 3
    elif how == "cell":
        code[1]["source"] = source(code[1]) + "\nx = 1" * CELL_LINES
    elif how == "width":
        code[2]["source"] = source(code[2]) + "\n# " + "x" * WIDTH
    elif how == "notebook":
        for cell in code[1:]:
            cell["source"] = source(cell) + "\nx = 1" * (CELL_LINES - lines(cell))
    elif how == "text":
        notebook["cells"] = code
    elif how == "figure":
        notebook["cells"] = [c for c in notebook["cells"] if c["cell_type"] == "code" or "ow to read" not in source(c)]
    elif how == "kernel":
        notebook["metadata"]["kernelspec"]["display_name"] = "venv"
    elif how == "format":
        notebook["nbformat_minor"] = 4
    elif how == "ids":
        code[0]["id"] = code[1]["id"]
    elif how == "check":
        code[1]["source"] = source(code[1]).replace("check_parameters(In)", "print(In)")
    elif how == "parameters":
        code[0]["source"] = source(code[0]) + "\nidle = 1"


RULES = ["outputs", "cell", "width", "notebook", "text", "figure", "kernel", "format", "ids", "check", "parameters"]


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_noticed(rule):
    notebook = copy.deepcopy(read("quickstart.ipynb"))
    spoil(notebook, rule)
    assert [p for p in problems(notebook) if p.startswith(f"{rule}:")], problems(notebook)


def execute(tmp_path: Path, given: dict[str, str], kernels: dict[str, str]) -> subprocess.CompletedProcess:
    """The quick start as a stranger runs it: in an empty folder, no network, figures drawn as JupyterLab draws them."""
    options = [word for name, value in given.items() for word in ("-p", name, value)]
    own = ("MPLBACKEND", "PYTEST_CURRENT_TEST")  # the tests' own
    environment = {k: v for k, v in os.environ.items() if k not in own} | {"HF_HUB_OFFLINE": "1"} | kernels
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "workbook.stages.nb",
            "run",
            str(ROOT / "notebooks/quickstart.ipynb"),
            "out.ipynb",
            *options,
            "--html",
            "out.html",
        ],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
def test_the_quick_start_runs_from_nothing(tmp_path, kernels):
    done = execute(tmp_path, SMALL, kernels)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.html", "out.ipynb"], "the quick start writes no files"
    executed = json.loads((tmp_path / "out.ipynb").read_text())
    outputs = [o for c in executed["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 3, "language model, nucleus, and one picture of the two runs that was redrawn in place"
    printed = "".join("".join(o.get("text", "")) for o in outputs)
    assert printed.count("equal; advantages") == 2  # GAE by hand
    assert re.search(r"allowed tokens: \d+ of \d+ at p = 0.50", printed)
    assert all(f"\n{name}\n" in f"\n{printed}" for name in ("before", "β = 0", "β = 0.1"))  # samples of three policies
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.count("padding:1px 3px") > 3 and "<script src" not in page  # coloured words; needs no network


def test_the_quick_start_refuses_a_wrong_parameter(tmp_path, kernels):
    done = execute(tmp_path, {"step": "20"}, kernels)
    assert done.returncode == 1 and "unknown parameter 'step'; did you mean 'steps'?" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_texts_name_of_the_reports_is_in_git():
    """Pages of HTML are built, not kept: a clone has the Markdown."""
    tracked = set(
        subprocess.run(["git", "ls-files", "reports"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    )
    known = tracked | {parent.as_posix() for name in tracked for parent in Path(name).parents}
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("notebooks/*.ipynb")]
    texts += [*ROOT.glob("course/source/*/*.ipynb"), *ROOT.glob("reports/*/*/verdict.md")]
    named = {
        (path.name, name)
        for path in texts
        for name in re.findall(r"(?<![\w/])(?:\.\./)*(reports/[\w./-]*\w)", path.read_text())
    }
    assert {("index.md", "reports/full/kl/verdict.md"), ("README.md", "reports/three_texts.svg")} < named
    assert not {(text, name) for text, name in named if name not in known}
