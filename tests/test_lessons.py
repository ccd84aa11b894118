"""Every lesson has the form of a lesson, runs from its first cell to its last, and fails where its check is broken."""

from __future__ import annotations

import ast
import builtins
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_notebooks import DRAWS, ROOT, SMALL, python, read, source
from workbook.draws import small
from workbook.stages import nb

LESSONS = sorted(p.name for p in (ROOT / "notebooks").glob("[01][0-9]_*.ipynb"))
NAMES = [Path(name).stem for name in LESSONS]
SIZES = SMALL | {  # what a lesson may take besides; each lesson is given those that it has
    "draws": "300",
    "sync_every": "1",
    "gradient_steps": "2",
    "samples": "4",
    "held_out": "64",
    "concepts": "24",
    "pairs": "40",
    "comparisons": "20",
    "simulations": "5",
}
TABLE = re.compile(r"^\| change \| and watch \|\n\|-+\|-+\|\n(\|.+\|\n?){3,}", re.MULTILINE)
VIEWS = {"figures", "explorer", "sentence", "live", "browse", "annotate"}
COMPARES = {"assert_close", "assert_allclose", "assert_array_equal", "assert_frame_equal"}
BROKEN = {  # lesson -> (what its own code says, the same with a mistake); its check must notice
    "01_text_as_an_mdp": ("uniform[len(tokens)] *", "(1 - uniform[len(tokens)]) *"),
    "02_samplers": ("mass.cumsum(-1) - mass ", "mass.cumsum(-1) "),
    "03_rewards_and_kl": ("mask.sum(1) - 1] += scores", "mask.sum(1) - 2] += scores"),
    "04_advantages": ("(gamma * lam) ** ahead", "lam ** ahead"),
    "05_ppo": ("ratio.clamp(1 - clip, 1 + clip) * advantages).mean()", "ratio * advantages).mean()"),
    "06_nlpo": ("state.update % config.sync_every == 0", "state.update == 0"),
    "07_a2c_and_trpo": ("loss = -(logprobs * advantages).mean()", "loss = -(logprobs * advantages).sum()"),
    "08_dqn": ("batch.discounts[i] * q.max()", "batch.discounts[i] * q.mean()"),
    "09_group_baselines": ("- R) / (R.shape[1] - 1)", "- R) / R.shape[1]"),
    "10_reward_hacking": ("(p.exp() * (p - q)).sum(-1)", "(q.exp() * (p - q)).sum(-1)"),
    "11_reward_models": ("return positive / (negative + positive)", "return negative / (negative + positive)"),
    "12_preferences": ("1 - seen / shuffled", "1 - seen * shuffled"),
    "13_the_metric_is_not_the_task": ("(x - max(floors))", "(x - min(floors))"),
}


def faults(notebook: dict) -> list[str]:
    """What a notebook lacks of a lesson's form, in words."""
    found, cells = [], notebook["cells"]
    text = [source(c) for c in cells if c["cell_type"] == "markdown"]
    code = [c for c in cells if c["cell_type"] == "code"]
    first = source(cells[0]) if cells[0]["cell_type"] == "markdown" else ""
    if not first.startswith("# "):
        found.append("title: the first cell starts with one")
    if "**Question.**" not in first:
        found.append("question: the first cell asks it")
    if "─►" not in first:
        found.append("arrow: the first cell names the arrow of the data flow")
    parts = [part for cell in text for part in re.split(r"^(?=## )", cell, flags=re.MULTILINE)]
    tries = [p for p in parts if p.startswith("## What to try")]
    if len(tries) != 1 or not TABLE.search(tries[0]):
        found.append("tries: one section '## What to try' with a table, change | and watch, of three rows or more")
    asked = [p for p in parts if p.startswith("## Three questions")]
    if len(asked) != 1 or re.findall(r"^(\d+)\. .", asked[0], re.MULTILINE) != ["1", "2", "3"]:
        found.append("questions: one section '## Three questions' with 1., 2. and 3.")
    if text and not parts[-1].startswith("## Three questions"):
        found.append("end: the questions are the last thing")
    if not any(checks(c, package_names(code)) for c in code):
        found.append("check: no cell compares what is written out with the package (assert_close or assert)")
    if not any(isinstance(node, (ast.FunctionDef, ast.Lambda)) for c in code for node in ast.walk(python(c))):
        found.append("written out: no function of the lesson's own")
    if not any(DRAWS.search(source(c)) for c in code):
        found.append("figure: none")
    return found


def package_names(code: list[dict]) -> set[str]:
    """The names by which a notebook knows the package's modules and functions, widgets and small.start left out."""
    imports = [n for c in code for n in ast.walk(python(c)) if isinstance(n, ast.ImportFrom) and n.module]
    names = {a.asname or a.name for n in imports if n.module.split(".")[0] in ("rlnlp", "workbook") for a in n.names}
    return names - VIEWS - {"check_parameters", "lesson", "small", "seeds"}


def checks(cell: dict, package: set[str]) -> bool:
    """Whether a cell asserts something and names the package where it does."""
    nodes = list(ast.walk(python(cell)))
    called = {n.func.attr for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    asserts = bool(called & COMPARES) or any(isinstance(n, ast.Assert) for n in nodes)
    return asserts and any(isinstance(n, ast.Name) and n.id in package for n in nodes)


@pytest.mark.parametrize("name", LESSONS, ids=NAMES)
def test_a_lesson_has_its_form(name):
    assert not faults(read(name))


def spoil(notebook: dict, rule: str) -> None:
    """Break one rule of the form in a lesson that keeps them all."""
    cells = notebook["cells"]
    last, code = cells[-1], [c for c in cells if c["cell_type"] == "code"]
    if rule == "title":
        cells[0]["source"] = source(cells[0])[2:]
    elif rule == "question":
        cells[0]["source"] = source(cells[0]).replace("**Question.**", "")
    elif rule == "arrow":
        cells[0]["source"] = source(cells[0]).replace("─►", "-")
    elif rule == "tries":
        last["source"] = re.sub(r"(?m)^\| (?!change).*\n?", "", source(last))
    elif rule == "questions":
        last["source"] = source(last) + "\n4. And a fourth?"
    elif rule == "end":
        last["source"] = source(last) + "\n\n## Answers\n\nNone."
    elif rule == "check":
        for cell in code:
            cell["source"] = source(cell).replace("assert_close", "allclose").replace("assert ", "None and ")
    elif rule == "written out":
        notebook["cells"] = [c for c in cells if "def " not in source(c) and "lambda" not in source(c)]
    elif rule == "figure":
        notebook["cells"] = [c for c in cells if c["cell_type"] != "code" or not DRAWS.search(source(c))]


RULES = ["title", "question", "arrow", "tries", "questions", "end", "check", "written out", "figure"]


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_part_is_noticed(rule):
    notebook = copy.deepcopy(read("01_text_as_an_mdp.ipynb"))
    spoil(notebook, rule)
    assert [f for f in faults(notebook) if f.startswith(f"{rule}:")], faults(notebook)


def test_a_check_that_does_not_name_the_package_is_none():
    cell = {"source": "mine = 1\nassert mine == 1"}
    assert not checks(cell, {"losses"})
    assert checks({"source": "assert mine == losses.gae(1)"}, {"losses"})


def misnamed(notebook: dict, changes: list[str]) -> list[str]:
    """What code in the column "change" names that the lesson does not have, and imported names that it takes away."""
    space, own = {}, set(dir(builtins))
    for node in (n for c in notebook["cells"] if c["cell_type"] == "code" for n in ast.walk(python(c))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(ast.unparse(node), space)
        own |= {getattr(node, field, None) for field in ("id", "arg", "name")}
    found = []
    for text in changes:
        nodes = list(ast.walk(ast.parse(text)))
        given = {a.asname or a.name for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
        given |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found += [f"{node.id} is a module"] * isinstance(space.get(node.id), ModuleType)
                given.add(node.id)
        for node in nodes:
            if isinstance(node, ast.Name) and node.id not in own | given | {*space}:
                found.append(f"no {node.id}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                thing = space.get(node.value.id)
                found += [f"no {ast.unparse(node)}"] * (isinstance(thing, ModuleType) and not hasattr(thing, node.attr))
    return found


def changes(notebook: dict) -> list[str]:
    """The code in the first column of "What to try"; parts of a line that are no code by themselves are left out."""
    rows = TABLE.search(source(notebook["cells"][-1]).partition("## What to try\n\n")[2])[0].splitlines()[2:]
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row.rpartition(" | ")[0]) if parses(text)]


def parses(text: str) -> bool:
    try:
        return bool(ast.parse(text))
    except SyntaxError:
        return False


@pytest.mark.parametrize("name", LESSONS, ids=NAMES)
def test_what_to_try_names_what_is_there(name):
    notebook = read(name)
    assert changes(notebook) and not misnamed(notebook, changes(notebook))


def test_a_name_that_is_not_there_is_noticed():
    wrong = ["raters = [preferences.Rater(i) for i in range(12)]", "ratings.loads(mine)", "ratings.load(mine)"]
    found = misnamed(read("12_preferences.ipynb"), wrong)
    assert found == ["raters is a module", "no preferences", "no ratings.loads"]


def place_of(notebook: dict, right: str) -> dict:
    """The one code cell that says this."""
    places = [c for c in notebook["cells"] if c["cell_type"] == "code" and right in source(c)]
    assert len(places) == 1 and source(places[0]).count(right) == 1, f"{right!r} is in {len(places)} cells"
    return places[0]


def test_the_thirteen_lessons_are_there_with_a_mistake_to_make_in_each():
    assert [int(name[:2]) for name in NAMES] == list(range(1, 14))
    for stem, (right, _) in BROKEN.items():
        place_of(read(f"{stem}.ipynb"), right)
    assert sorted(BROKEN) == NAMES


@pytest.fixture(scope="session")
def start():
    """The models that all lessons start from at this size, trained once; the lessons find them."""
    small.start(reviews=int(SMALL["reviews"]), steps=int(SMALL["steps"]))


def execute(path: Path, folder: Path, kernels: dict[str, str]) -> subprocess.CompletedProcess:
    """A lesson as a stranger runs it, small: `folder` is an empty one, there is no network."""
    defaults = nb.parameters_of(json.loads(path.read_text(encoding="utf-8")), path.name)
    given = {name: value for name, value in SIZES.items() if name in defaults}
    options = [word for name, value in given.items() for word in ("-p", name, value)]
    own = ("MPLBACKEND", "PYTEST_CURRENT_TEST")  # the tests' own
    environment = {k: v for k, v in os.environ.items() if k not in own} | {"HF_HUB_OFFLINE": "1"} | kernels
    return subprocess.run(
        [sys.executable, "-m", "workbook.stages.nb", "run", str(path), "out.ipynb", *options, "--html", "out.html"],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LESSONS, ids=NAMES)
def test_a_lesson_runs_from_top_to_bottom(name, tmp_path, start, kernels):
    done = execute(ROOT / "notebooks" / name, tmp_path, kernels)
    assert done.returncode == 0, done.stderr[-3000:]
    code = [c for c in json.loads((tmp_path / "out.ipynb").read_text())["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in code)
    outputs = [o for c in code for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<img" in page and "Jupyter widget" not in page  # figures; widgets show their static view


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stem", list(BROKEN))
def test_a_lesson_with_a_mistake_in_it_fails(stem, tmp_path, start, kernels):
    right, wrong = BROKEN[stem]
    notebook = read(f"{stem}.ipynb")
    cell = place_of(notebook, right)
    cell["source"] = source(cell).replace(right, wrong)
    (tmp_path / "broken.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    done = execute(tmp_path / "broken.ipynb", tmp_path, kernels)
    assert done.returncode == 1 and "AssertionError" in done.stderr, done.stderr[-3000:]
