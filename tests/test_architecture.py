"""The rules of the two houses, read from the imports of every file, lazy ones included (`pytest -s` shows the table).

`rlnlp` is the core; `workbook` is the experiment, in rooms that import only from rooms in rows above their own. What
does not keep a rule yet stands in KNOWN by its place. That list can only shrink: a new breach fails, and so does an
entry that is no longer one.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    ["rlnlp"],
    ["scores", "statistics", "store"],
    ["texts", "arms"],
    ["draws"],
    ["runs", "results"],
    ["figures"],
    ["ledger"],
    ["synthesis"],
    ["grue"],
    ["study"],
    ["lab"],
    ["reports"],
    ["site"],
    ["stages"],
]
ROW = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
ONLY_IN_STAGES = {"dvc", "papermill", "nbconvert", "nbclient"}
CORE_NEEDS = {"torch", "transformers", "numpy", "pydantic", "pydantic_core", "gymnasium"}  # pydantic_core comes with it
# transformers brings it, so the core may import it without asking for more.
CORE_GETS_WITH_THEM = {"safetensors"}
LEARNERS = ("rlnlp/learners/", "workbook/arms/")
# by which a learner is computed, and who watches it: what stands around it says so, once for all
MEANS = (
    "torch.cuda",
    "torch.distributed",
    "dask",
    "distributed",
    "accelerate",
    "tensorboard",
    "wandb",
    "mlflow",
    "dvclive",
)
PUBLIC = {"_asdict", "_fields", "_replace", "_repr_mimebundle_"}  # of named tuples; of IPython
FILE_LINES, FUNCTION_LINES = 350, 60

KNOWN: set[str] = set()


class Source:
    """A file of the tree: its dotted name, its syntax tree and the modules that it imports anywhere."""

    def __init__(self, root: Path, path: Path, modules: set[str]) -> None:
        self.place = path.relative_to(root).as_posix()
        dotted = list(path.relative_to(root).with_suffix("").parts)
        self.package = dotted[:-1]
        self.name = ".".join(dotted[:-1] if dotted[-1] == "__init__" else dotted)
        self.text = code(path)
        self.tree = ast.parse(self.text, self.place)
        self.modules = modules
        self.bound: dict[str, str] = {}  # a name of this file -> what it stands for, of ours
        self.imports = {found for node in ast.walk(self.tree) for found in self._imported(node)}

    @property
    def room(self) -> str:
        """The room: `rlnlp`, a folder of workbook, or the top folder (notebooks, course, bench)."""
        parts = self.place.split("/")
        return parts[1] if parts[0] == "workbook" and len(parts) > 2 else parts[0]

    def _imported(self, node: ast.AST) -> list[str]:
        """Dotted names of the modules that one statement or call imports."""
        if isinstance(node, ast.Import):
            self.bound |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = self.package[: len(self.package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            whole = {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
            self.bound |= whole
            return [name if name in self.modules else base for name in whole.values()]
        if (
            isinstance(node, ast.Call)
            and node.args
            and ast.unparse(node.func).endswith(("import_module", "__import__"))
        ):
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            return [first.value.rstrip(".")] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
        return []

    def ours(self) -> set[str]:
        """Imported modules that are of this tree."""
        return {name for name in self.imports if name.split(".")[0] in ("rlnlp", "workbook")}

    def others(self) -> set[str]:
        """Imported packages that are neither of this tree nor of the standard library."""
        tops = {name.split(".")[0] for name in self.imports}
        return tops - {"rlnlp", "workbook", ""} - set(sys.stdlib_module_names)


def code(path: Path) -> str:
    """Python of a file; of a notebook, its code cells without the lines that are IPython's."""
    if path.suffix == ".py":
        return path.read_text()
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
    return "\n".join("pass" if line.startswith(("%", "!")) else line for line in lines)


def sources(root: Path) -> list[Source]:
    """Every Python file of the two packages, and the notebooks, course and bench that use them."""
    packages = [path for top in ("rlnlp", "workbook") for path in sorted((root / top).rglob("*.py"))]
    users = [*sorted((root / "notebooks").glob("*.ipynb")), *sorted((root / "course").glob("*.py"))]
    users += [*sorted((root / "course" / "source").rglob("*.ipynb")), *sorted((root / "bench").rglob("*.py"))]
    modules = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in packages}
    return [Source(root, path, modules) for path in [*packages, *users]]


def room_of(module: str) -> str:
    """The room of a dotted name of this tree (`workbook` for the package itself)."""
    parts = module.split(".")
    return parts[1] if parts[0] == "workbook" and len(parts) > 1 else parts[0]


def upward(files: list[Source]) -> set[str]:
    """Imports of a room that stands in the same row or below; of a room that the table does not have."""
    found = set()
    for file in files:
        if file.name.split(".")[0] not in ("rlnlp", "workbook") or file.name == "workbook":
            continue
        for module in file.ours():
            target = room_of(module)
            if file.room not in ROW or target not in ROW or (target != file.room and ROW[target] >= ROW[file.room]):
                found.add(f"upward: {file.place} imports {module}")
    return found


def libraries(files: list[Source]) -> set[str]:
    """Tools of the stages outside them; what the core imports beyond the five packages that it needs."""
    found = set()
    for file in files:
        tools = file.others() & ONLY_IN_STAGES if file.name.startswith("workbook.") and file.room != "stages" else set()
        extra = file.others() - CORE_NEEDS - CORE_GETS_WITH_THEM if file.room == "rlnlp" else set()
        found |= {f"library: {file.place} imports {name}" for name in tools | extra}
    return found


def means(files: list[Source]) -> set[str]:
    """Cards, process groups, clusters and trackers in a learner's file."""
    found = set()
    for file in (file for file in files if file.place.startswith(LEARNERS)):
        used = {*file.imports, *file.bound.values()}
        used |= {ast.unparse(node) for node in ast.walk(file.tree) if isinstance(node, ast.Attribute)}
        named = {name for name in MEANS if any(f"{one}.".startswith(f"{name}.") for one in used)}
        found |= {f"means: {file.place} uses {name}" for name in named}
    return found


def private(files: list[Source]) -> set[str]:
    """Names with a leading underscore, of our files, that are used in another file than the one which defines them."""
    own = {file.place: defined(file) for file in files}
    ours = set().union(*own.values())
    found = set()
    for file in files:
        used = {name.split(".")[-1] for name in file.bound.values() if name.split(".")[0] in ("rlnlp", "workbook")}
        used |= {node.attr for node in ast.walk(file.tree) if isinstance(node, ast.Attribute)} & ours
        found |= {f"private: {file.place} uses {name}" for name in used - own[file.place] if hidden(name)}
    return found


def defined(file: Source) -> set[str]:
    """Names and attributes that a file defines or sets anywhere."""
    nodes = list(ast.walk(file.tree))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def hidden(name: str) -> bool:
    """Whether a name says that it is of its own file only."""
    return name.startswith("_") and name != "_" and not name.endswith("__") and name not in PUBLIC


def names_of(root: Path) -> set[str]:
    """Names of algorithms, tasks and conditions: the files of learners and arms, and what the profiles list."""
    files = [*(root / "rlnlp" / "learners").glob("*.py"), *(root / "workbook" / "arms").glob("*.py")]
    names = {path.stem for path in files} - {"__init__", "common"}
    for path in [root / "params.yaml", *sorted((root / "profiles").glob("*/params.yaml"))]:
        profile = yaml.safe_load(path.read_text())
        names |= {*profile.get("runs", {}), *profile.get("worlds", {}), profile.get("task", {}).get("name", "")} - {""}
    return names


def branches(files: list[Source], names: set[str]) -> set[str]:
    """Comparisons with the name of an algorithm, a task or a condition outside the file of that name."""
    found = set()
    for file in files:
        if file.name.split(".")[0] not in ("rlnlp", "workbook"):
            continue
        compared: set[str] = set()
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Compare):
                compared |= strings(node.left, *node.comparators)
            elif isinstance(node, ast.MatchValue):
                compared |= strings(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                compared |= strings(*node.args) if node.func.attr in ("startswith", "endswith") else set()
        own = file.name.split(".")[-1]
        found |= {f"branch: {file.place} compares with {name}" for name in compared & names - {own}}
    return found


def strings(*nodes: ast.AST) -> set[str]:
    """String literals of the nodes, and of the tuples, lists and sets among them."""
    inner = [
        each for node in nodes for each in (node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node])
    ]
    return {node.value for node in inner if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def circles(files: list[Source]) -> set[str]:
    """One circle of imports, if there is any."""
    try:
        TopologicalSorter({file.name: file.ours() - {file.name} for file in files}).prepare()
    except CycleError as error:
        return {"circle: " + " -> ".join(reversed(error.args[1]))}
    return set()


def sizes(files: list[Source]) -> set[str]:
    """Files and functions that are too long to be read in one go."""
    found = set()
    for file in files:
        if file.name.split(".")[0] not in ("rlnlp", "workbook"):
            continue
        if file.text.count("\n") > FILE_LINES:
            found.add(f"size: {file.place} has more than {FILE_LINES} lines")
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.end_lineno - node.lineno >= FUNCTION_LINES
            ):
                found.add(f"size: {file.place} {node.name} has more than {FUNCTION_LINES} lines")
    return found


def breaches(root: Path) -> set[str]:
    """What in the tree breaks a rule, a line each, by place."""
    files = sources(root)
    return (
        upward(files)
        | libraries(files)
        | means(files)
        | private(files)
        | branches(files, names_of(root))
        | circles(files)
        | sizes(files)
    )


def table(root: Path) -> str:
    """A line a room: its row, files, lines, and the rooms that it imports."""
    files = [file for file in sources(root) if file.room in ROW]
    count, lines = Counter(file.room for file in files), Counter()
    uses: dict[str, set[str]] = {}
    for file in files:
        lines[file.room] += file.text.count("\n")
        uses.setdefault(file.room, set()).update(room_of(module) for module in file.ours())
    head = f"{'row':>3}  {'room':<11}{'files':>6}{'lines':>7}  imports"
    rows = [head]
    for room in sorted(count, key=lambda room: (ROW[room], room)):
        above = ", ".join(sorted(uses[room] - {room}, key=lambda other: (ROW.get(other, -1), other)))
        rows.append(f"{ROW[room]:>3}  {room:<11}{count[room]:>6}{lines[room]:>7}  {above}")
    return "\n".join(rows)


def test_every_file_keeps_the_rules_but_for_the_known_ones():
    found = breaches(ROOT)
    print("\n" + table(ROOT))
    assert not found - KNOWN, "\n".join(["new:", *sorted(found - KNOWN)])
    assert not KNOWN - found, "\n".join(["mended, take it out of KNOWN:", *sorted(KNOWN - found)])


def test_every_room_is_in_the_table():
    rooms = {path.parent.name for path in (ROOT / "workbook").glob("*/__init__.py")} | {"rlnlp"}
    assert rooms == set(ROW)


@pytest.fixture
def house(tmp_path):
    """A small tree that keeps every rule, and a way to write a file into it and read its breaches."""

    def write(place: str, text: str) -> set[str]:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return breaches(tmp_path)

    (tmp_path / "params.yaml").write_text("runs: {ppo_kl_0: {algorithm: ppo}}\ntask: {name: imdb}\n")
    for place in ["rlnlp/__init__.py", "rlnlp/learners/ppo.py", "workbook/__init__.py", "workbook/arms/bandit.py"]:
        write(place, "")
    write("workbook/store/files.py", "import rlnlp\n\ndef _part():\n    pass\n")
    assert (
        write("workbook/runs/train.py", "from workbook.store import files\nfrom ..store.files import once\n") == set()
    )
    return write


BREAKS = {
    "core imports workbook": ("rlnlp/models.py", "import workbook.store.files\n", "upward"),
    "core imports workbook lazily": ("rlnlp/models.py", "def f():\n    from workbook.store import files\n", "upward"),
    "core imports workbook by name": (
        "rlnlp/models.py",
        "import importlib\nimportlib.import_module('workbook.store.files')\n",
        "upward",
    ),
    "a name made of parts": (
        "workbook/store/x.py",
        "import importlib\nimportlib.import_module(f'workbook.arms.{1}')\n",
        "upward",
    ),
    "upwards": ("workbook/store/locks.py", "from workbook.runs import train\n", "upward"),
    "upwards, relative": ("workbook/store/locks.py", "from ..runs.train import x\n", "upward"),
    "within a row": ("workbook/results/table.py", "from workbook.runs import train\n", "upward"),
    "a room without a place": ("workbook/attic/old.py", "from workbook.store import files\n", "upward"),
    "a stages' tool elsewhere": ("workbook/runs/run.py", "def f():\n    import papermill as pm\n", "library"),
    "pictures in the core": ("rlnlp/show.py", "from matplotlib import pyplot\n", "library"),
    "a learner that asks for a card": (
        "rlnlp/learners/ppo.py",
        "import torch\nx = torch.cuda.is_available()\n",
        "means",
    ),
    "one that imports it": ("rlnlp/learners/ppo.py", "from torch import distributed as d\n", "means"),
    "an arm with a tracker": ("workbook/arms/bandit.py", "def f():\n    import wandb.sdk\n", "means"),
    "a private name imported": ("workbook/runs/run.py", "from workbook.store.files import _part\n", "private"),
    "a private name of a module": (
        "workbook/runs/run.py",
        "from workbook.store import files\nfiles._part()\n",
        "private",
    ),
    "a private method of an object": ("workbook/runs/run.py", "def f(draw):\n    return draw._part()\n", "private"),
    "a notebook's private name": (
        "notebooks/a.ipynb",
        '{"cells": [{"cell_type": "code", "source": ["%x\\n", "from workbook.store.files import _part\\n"]}]}',
        "private",
    ),
    "an algorithm in an if": ("workbook/runs/run.py", "def f(a):\n    if a == 'ppo':\n        return 1\n", "branch"),
    "an arm in a tuple": ("workbook/runs/run.py", "def f(a):\n    return a in ('x', 'bandit')\n", "branch"),
    "a condition in a match": ("workbook/runs/run.py", "match 1:\n    case 'ppo_kl_0':\n        pass\n", "branch"),
    "a task in startswith": ("workbook/runs/run.py", "def f(a):\n    return a.startswith('imdb')\n", "branch"),
    "a circle": ("workbook/runs/run.py", "from workbook.runs import loop\n", "circle"),
    "a long file": ("workbook/runs/run.py", "x = 1\n" * 351, "size"),
    "a long function": ("workbook/runs/run.py", "def f():\n" + "    x = 1\n" * 60, "size"),
}


@pytest.mark.parametrize("case", BREAKS)
def test_each_rule_notices_what_breaks_it(house, case):
    place, text, rule = BREAKS[case]
    if rule == "circle":
        assert house("workbook/runs/loop.py", "def f():\n    from workbook.runs.run import x\n") == set()
    found = house(place, text)
    assert len(found) == 1 and found.pop().startswith(rule + ": "), found


def test_a_file_may_name_its_own_algorithm_and_use_its_own_private_names(house):
    assert house("rlnlp/learners/nlpo.py", "def _f(a):\n    return a == 'nlpo'\n\n_f('x')\n") == set()


def test_an_entry_that_is_mended_must_leave_the_list(monkeypatch):
    monkeypatch.setitem(globals(), "KNOWN", KNOWN | {"size: rlnlp/nothing.py has more than 350 lines"})
    with pytest.raises(AssertionError, match="take it out of KNOWN"):
        test_every_file_keeps_the_rules_but_for_the_known_ones()
