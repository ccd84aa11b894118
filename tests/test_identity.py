"""Identity of code: what decides a number changes it, what does not leaves it, and nothing that runs is left out."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import textwrap
from pathlib import Path

import pytest

from tests.executed import ROOT, change, copied, definitions, mutated, reached, recorded
from tests.tiny import gpt2, prompts
from workbook.store import identity
from workbook.store.identity import Code, CodeError, differences

LEARNER = ("Config", "init", "train")
ON_POLICY = {"updates": 2, "episodes_per_update": 8, "epochs": 2, "minibatches": 2, "max_new_tokens": 5}


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def of(folder: Path, *roots: str, packages=("toy",)) -> str:
    return Code(folder, packages).identity(roots or ["toy.run:train"])


TOY = {
    "toy/__init__.py": "",
    "toy/run.py": '''
        """Training."""
        from __future__ import annotations
        import math as m
        from .losses import clip as clipped, unused
        from . import tables

        def train(x: float, steps: int = 3) -> float:
            """Train."""
            total: float = 0.0
            for _ in range(steps):
                total += clipped(x) * tables.SIZE[0]
            return m.sqrt(total)

        def report(x):
            return f"{unused(x)}"
        ''',
    "toy/losses.py": """
        from pydantic import BaseModel, Field

        class Settings(BaseModel):
            low: float = Field(0.1, ge=0, description="lowest")

            def both(self):
                return self.low, 1

        def clip(x):
            low, high = Settings().both()
            return min(max(x, low), high)

        def unused(x):
            return x + 1
        """,
    "toy/tables.py": """
        SIZE = [2, 3]
        OTHER = 5
        """,
}


def changed(tmp_path: Path, file: str, old: str, new: str, files=TOY, roots=()) -> bool:
    """Whether a replacement in one file changes the identity."""
    before = of(tree(tmp_path / "before", files), *roots)
    text = textwrap.dedent(files[file])
    assert old in text, "the test changes nothing"
    return of(tree(tmp_path / "after", {**files, file: text.replace(old, new)}), *roots) != before


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("toy/run.py", "    total: float", "    # what follows is a sum\n\n    total: float"),
        ("toy/run.py", '"""Train."""', '"""Train, and say so."""'),
        ("toy/run.py", '"""Train."""\n', "\n"),
        ("toy/run.py", "clipped(x) * tables", "(clipped(\n        x\n    )) * tables"),
        ("toy/run.py", "x: float, steps: int = 3) -> float", "x: int, steps=3) -> Settings"),
        ("toy/run.py", "total: float = 0.0", "total = 0.0"),
        ("toy/run.py", "clip as clipped, unused", "unused, clip as clipped"),
        ("toy/run.py", "import math as m\n", "import math as m\nimport os\n"),
        ("toy/run.py", "unused(x)", "x"),
        ("toy/run.py", "    return m.sqrt(total)", '    "the root"\n    return m.sqrt(total)'),
        ("toy/losses.py", "x + 1", "x + 2"),
        ("toy/losses.py", 'description="lowest"', 'description="the lowest"'),
        ("toy/losses.py", ', description="lowest"', ""),
        ("toy/losses.py", "    low: float", '    """Settings."""\n\n    low: float'),
        ("toy/tables.py", "OTHER = 5", "OTHER = 6"),
        ("toy/tables.py", "OTHER = 5", "OTHER = 5\nif __name__ == '__main__':\n    print(OTHER)"),
    ],
)
def test_what_decides_nothing_leaves_the_identity(tmp_path, file, old, new):
    assert not changed(tmp_path, file, old, new)


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("toy/run.py", "0.0", "0"),
        ("toy/run.py", "steps: int = 3", "steps: int = 4"),
        ("toy/run.py", "m.sqrt", "m.exp"),
        ("toy/run.py", "import math as m", "import cmath as m"),
        ("toy/run.py", "clip as clipped", "unused as clipped"),
        ("toy/run.py", "tables.SIZE", "tables.OTHER"),
        ("toy/run.py", "def train", "@staticmethod\ndef train"),
        ("toy/run.py", "def train", "m.pi = 3\n\ndef train"),
        ("toy/losses.py", "self.low, 1", "self.low, 1.0"),
        ("toy/losses.py", "0.1", "0.2"),
        ("toy/losses.py", "ge=0", "gt=0"),
        ("toy/losses.py", "low: float", "low: int"),
        ("toy/losses.py", "def both", "def all"),
        ("toy/losses.py", "low, high", "high, low"),
        ("toy/losses.py", "(BaseModel)", "(BaseModel, frozen=True)"),
        ("toy/losses.py", "(BaseModel)", "(object)"),
        ("toy/tables.py", "OTHER", "SIZE = [2, 4]\nOTHER"),
        ("toy/tables.py", "OTHER", "SIZE[0] = 3\nOTHER"),
        ("toy/tables.py", "OTHER", "for i in range(2):\n    SIZE[i] = i\nOTHER"),
        ("toy/tables.py", "OTHER", "SIZE.append(4)\nOTHER"),
        ("toy/tables.py", "OTHER", "import os\nos.environ['X'] = '1'\nOTHER"),
        ("toy/tables.py", "OTHER", "import os\n_ = os.nice(1)\nOTHER"),
        ("toy/__init__.py", "", "import os\nos.nice(1)\n"),
    ],
)
def test_what_decides_a_number_changes_it(tmp_path, file, old, new):
    assert changed(tmp_path, file, old, new)


def test_a_file_renamed_a_function_moved_and_names_changed_leave_it(tmp_path):
    other = {
        "toy/deep/__init__.py": "",
        "toy/__init__.py": "",
        "toy/run.py": """
            import toy.deep.numbers
            from math import sqrt

            def fit(x, steps=3):
                from toy import surrogate
                total = 0.0
                for _ in range(steps):
                    total += surrogate.clip_it(x) * toy.deep.numbers.LENGTHS[0]
                return sqrt(total)
            """,
        "toy/surrogate.py": """
            from .settings import Choice

            def clip_it(x):
                low, high = Choice().both()
                return min(max(x, low), high)
            """,
        "toy/settings.py": """
            import pydantic

            class Choice(pydantic.BaseModel):
                low: float = pydantic.Field(0.1, ge=0)

                def both(self):
                    return self.low, 1
            """,
        "toy/deep/numbers.py": "LENGTHS = [2, 3]\n",
    }
    assert of(tree(tmp_path / "a", TOY)) == of(tree(tmp_path / "b", other), "toy.run:fit")


def test_functions_that_trade_their_contents_change_who_uses_one(tmp_path):
    files = {"toy/run.py": "def f(x):\n    return x\n\ndef g(x):\n    return -x\n\ndef train(x):\n    return f(x)\n"}
    traded = {"toy/run.py": "def f(x):\n    return -x\n\ndef g(x):\n    return x\n\ndef train(x):\n    return f(x)\n"}
    swapped = {"toy/run.py": "def g(x):\n    return x\n\ndef f(x):\n    return -x\n\ndef train(x):\n    return g(x)\n"}
    first, second, third = (of(tree(tmp_path / n, each)) for n, each in zip("abc", (files, traded, swapped)))
    assert first != second and first == third


def test_two_tables_of_equal_content_are_two(tmp_path):
    code = "A = []\nB = []\n\ndef put(x):\n    A.append(x)\n\ndef train(x):\n    put(x)\n    return A, B, FOUND\n"
    first, second = (of(tree(tmp_path / n, {"toy/run.py": code.replace("FOUND", n)})) for n in "AB")
    assert first != second


def test_recursion_and_circles_of_imports(tmp_path):
    files = {
        "toy/run.py": "from .even import even\n\ndef train(n):\n    return even(n)\n\n"
        "def odd(n):\n    return n and even(n - 1)\n",
        "toy/even.py": "def even(n):\n    from .run import odd\n    return not n or odd(n - 1)\n\n"
        "def own(n):\n    return n and own(n - 1)\n",
    }
    assert not changed(tmp_path / "1", "toy/even.py", "own", "mine", files)
    assert changed(tmp_path / "2", "toy/even.py", "n - 1", "n - 2", files)
    assert changed(tmp_path / "3", "toy/run.py", "n and even", "n or even", files)


@pytest.mark.parametrize(
    "run, other, same",
    [  # a condition decides which of two is used: it counts, with both
        (
            "if A:\n    from .f import f\nelse:\n    from .g import f",
            "if not A:\n    from .f import f\nelse:\n    from .g import f",
            False,
        ),
        (
            "try:\n    from .f import f\nexcept ImportError:\n    f = None",
            "try:\n    from .f import f\nexcept ImportError:\n    f = 1",
            False,
        ),
        ("from .f import *", "from .f import f", True),
        ("from .f import *", "from .g import *", False),
        ("from .f import f", "from .g import f\nfrom .f import f", False),
        ("from .f import f", "if TYPE_CHECKING:\n    from .g import f\nfrom .f import f", True),
    ],
)
def test_conditional_and_star_imports_at_the_top(tmp_path, run, other, same):
    files = {"toy/f.py": "def f(x):\n    return x\n", "toy/g.py": "def f(x):\n    return -x\n"}
    code = "A = 1\n{}\n\ndef train(x):\n    return f(x)\n"
    first, second = ({**files, "toy/run.py": code.format(each)} for each in (run, other))
    assert (of(tree(tmp_path / "a", first)) == of(tree(tmp_path / "b", second))) is same


def test_conditional_imports_in_a_function(tmp_path):
    files = {
        "toy/f.py": "def f(x):\n    return x\n",
        "toy/g.py": "def f(x):\n    return -x\n",
        "toy/run.py": "de"
        "f train(x):\n    if x:\n        from .f import f\n    else:\n        from .g import f\n    return f(x)\n",
    }
    assert changed(tmp_path / "1", "toy/run.py", "if x", "if not x", files)
    assert changed(tmp_path / "2", "toy/g.py", "-x", "x * 2", files)


@pytest.mark.parametrize(
    "files, message",
    [
        ({"toy/run.py": "from .f import g\n\ndef train():\n    g()\n", "toy/f.py": ""}, "toy.f has no g"),
        ({"toy/run.py": "from . import f\n\ndef train():\n    f.g()\n", "toy/f.py": ""}, "toy.f has no g"),
        ({"toy/run.py": "from .f import g\n\ndef train():\n    g()\n"}, "no such module"),
        ({"toy/run.py": "from .f import g\n\ndef train():\n    g()\n", "toy/f.py": "from .run import g\n"}, "circle"),
        ({"toy/run.py": "def train(:\n"}, "invalid syntax"),
        ({"toy/run.py": ""}, "toy.run has no train"),
        ({"toy/other.py": ""}, "no such module"),
    ],
)
def test_what_cannot_be_found_is_refused_by_name(tmp_path, files, message):
    with pytest.raises(CodeError, match=message):
        of(tree(tmp_path, files))


def test_local_names_hide_definitions(tmp_path):
    code = {
        "toy/run.py": """
            def size(x):
                return x

            def train(size, rows):
                return [row + size for row in rows], (lambda row: size)(0)
            """
    }
    assert not changed(tmp_path / "1", "toy/run.py", "return x", "return -x", code)
    hidden = {"toy/run.py": code["toy/run.py"].replace("train(size, rows)", "train(rows)")}
    assert changed(tmp_path / "2", "toy/run.py", "return x", "return -x", hidden)


def test_a_method_can_be_a_root_without_the_rest_of_its_class(tmp_path):
    code = """
        class Box(dict):
            SIZE = 3

            def big(self):
                return self.double() * self.SIZE

            def double(self):
                return 2

            def other(self):
                return 4
        """
    for number, (old, same) in enumerate({"2": False, "3": False, "4": True, "dict": False}.items()):
        new = changed(tmp_path / str(number), "toy/run.py", old, "5", {"toy/run.py": code}, ["toy.run:Box.big"])
        assert new is not same, old


def test_what_is_known_not_to_run_can_be_left_out(tmp_path):
    files = {"toy/run.py": "def f():\n    return 1\n\ndef g():\n    return 2\n\ndef train():\n    return f(), g()\n"}
    other = {"toy/run.py": files["toy/run.py"].replace("1", "3")}
    first, second = (Code(tree(tmp_path / n, each), ["toy"]) for n, each in zip("ab", (files, other)))
    roots = ["toy.run:train"]
    assert first.identity(roots) != second.identity(roots)
    assert first.identity(roots, ["toy.run:f"]) == second.identity(roots, ["toy.run:f"]) != first.identity(roots)
    assert set(first.reach(roots, ["toy.run:f"])) == {"toy.run:train", "toy.run:g"}


def test_methods_do_not_see_what_their_class_defines(tmp_path):
    code = "def size():\n    return 1\n\nclass Box:\n    size = 3\n\n    def both(self):\n        return size()\n"
    assert changed(tmp_path, "toy/run.py", "return 1", "return 2", {"toy/run.py": code}, ["toy.run:Box"])


def test_what_is_taken_from_a_class_counts(tmp_path):
    code = {"toy/run.py": "class Box:\n    low, high = 1, 2\n\ndef train():\n    return Box.low\n"}
    assert changed(tmp_path, "toy/run.py", "Box.low", "Box.high", code)


def test_an_import_in_a_function_runs_its_module(tmp_path):
    files = {"toy/run.py": "def train(x):\n    import toy.side\n", "toy/side.py": "import os\nos.nice(1)\n"}
    assert changed(tmp_path, "toy/side.py", "nice(1)", "nice(2)", files)


def test_a_module_handed_on_is_all_its_public_names(tmp_path):
    files = {
        "toy/run.py": "from . import one\n\ndef train(x):\n    return vars(one)[x](2)\n",
        "toy/one.py": "from .two import g\n\ndef f(x):\n    return x\n\ndef _own(x):\n    return 1\n",
        "toy/two.py": "def g(x):\n    return x + 1\n",
    }
    assert changed(tmp_path / "1", "toy/one.py", "return x", "return -x", files)
    assert changed(tmp_path / "2", "toy/two.py", "x + 1", "x + 2", files)
    assert changed(tmp_path / "3", "toy/one.py", "def f(", "def e(", files)
    assert not changed(tmp_path / "4", "toy/one.py", "return 1", "return 2", files)


def test_what_enters_itself_in_a_table_counts_where_its_module_is_imported(tmp_path):
    files = {
        "toy/run.py": "from . import all\nfrom .table import TABLE\n\ndef train(name):\n    return TABLE[name]()\n",
        "toy/table.py": "TABLE = {}\n\ndef entered(f):\n    TABLE[f.__name__] = f\n    return f\n\n"
        "def plain(f):\n    return f\n",
        "toy/all.py": "from .table import entered, plain\n\n@entered\ndef one():\n    return 1\n\n"
        "@plain\ndef two():\n    return 2\n",
    }
    assert changed(tmp_path / "1", "toy/all.py", "return 1", "return 3", files)
    assert not changed(tmp_path / "2", "toy/all.py", "return 2", "return 3", files)


def test_names_that_a_face_gives_lazily(tmp_path):
    face = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .inner import f, g

        def __getattr__(name):
            import importlib
            return getattr(importlib.import_module("toy.inner"), name)
        """
    files = {
        "toy/__init__.py": face,
        "toy/inner.py": "def f(x):\n    return x\n\ndef g(x):\n    return 0\n",
        "toy/run.py": "import toy\n\ndef train(x):\n    return toy.f(x)\n",
    }
    assert changed(tmp_path / "1", "toy/inner.py", "return x", "return -x", files)
    assert not changed(tmp_path / "2", "toy/inner.py", "return 0", "return 1", files)
    assert changed(tmp_path / "3", "toy/__init__.py", "getattr(importlib", "hasattr(importlib", files)


def cells(*code: str, **other) -> str:
    text = [{"cell_type": "markdown", "source": ["# a title ", *other.get("text", ())]}]
    return json.dumps(
        {
            "cells": text
            + [{"cell_type": "code", "source": [each], "outputs": other.get("outputs", [])} for each in code]
        }
    )


def test_a_notebook_is_its_code(tmp_path):
    first = cells("%matplotlib inline\nfrom toy import run\nx = 1", "run.train(x)")
    files = {**TOY, "n.ipynb": first}
    assert not changed(tmp_path / "1", "n.ipynb", "a title", "the title", files, ["n.ipynb"])
    assert not changed(tmp_path / "2", "n.ipynb", "%matplotlib inline\\n", "# plots\\n\\n", files, ["n.ipynb"])
    assert not changed(tmp_path / "3", "n.ipynb", '"outputs": []', '"outputs": [1]', files, ["n.ipynb"])
    assert changed(tmp_path / "4", "n.ipynb", "x = 1", "x = 2", files, ["n.ipynb"])
    assert changed(tmp_path / "5", "toy/losses.py", "0.1", "0.2", files, ["n.ipynb"])
    assert not changed(tmp_path / "6", "toy/losses.py", "x + 1", "x + 2", files, ["n.ipynb"])


def test_differences_name_what_changed_not_what_moved():
    old = {"a:f": "1", "a:g": "2", "a:h": "3", "a:k": "4", "b:X": "5"}
    new = {"a:f": "1", "c:g": "2", "c:h": "9", "a:k": "7", "c:Y": "8"}
    assert differences(old, new) == ["a:k changed", "c:h changed (was a:h)", "c:Y is new", "b:X is not used any more"]
    assert differences(old, old) == []


# the code as it is ---------------------------------------------------------------------------------------------------


def learner(name: str) -> list[str]:
    module = next(m for p in ("rlnlp.learners", "workbook.arms") if importlib.util.find_spec(m := f"{p}.{name}"))
    return [f"{module}:{each}" for each in LEARNER]


@pytest.fixture
def copy(tmp_path):
    return copied(tmp_path)


def executed(name: str, **settings) -> dict[tuple[str, str], Path]:
    """What a small run of a learner calls."""
    module = importlib.import_module(learner(name)[0].partition(":")[0])
    config = module.Config(**{k: v for k, v in settings.items() if k in module.Config.model_fields})
    policy, given = gpt2(), prompts(16)
    with recorded() as found:
        state = module.init(policy, config, 1)
        for _ in module.train(state, given, lambda rollout: ((rollout.responses == 7).float().sum(1), {}), config):
            pass
    return found


@pytest.mark.parametrize("name", ["ppo", "nlpo", "trpo", "grpo", "dropout"])
def test_functions_that_run_are_in_the_identity(name):
    further = {"breaks": ["ratio"]} if name == "dropout" else {}
    used = definitions(executed(name, **ON_POLICY, **further))
    assert len(used) > 20 and used <= reached(learner(name)), sorted(used - reached(learner(name)))


def test_every_function_that_a_run_executes_changes_its_identity(copy):
    roots, functions = learner("ppo"), executed("ppo", **ON_POLICY)
    before, tried = Code(copy).identity(roots), 0
    for (module, qualname), file in functions.items():
        if "<" in qualname.replace("<locals>", ""):
            continue  # a lambda or a comprehension: part of the function around it
        here = copy / file.relative_to(ROOT)
        text = here.read_text(encoding="utf-8")
        here.write_text(mutated(text, qualname), encoding="utf-8")
        assert Code(copy).identity(roots) != before, f"{module}:{qualname}"
        here.write_text(text, encoding="utf-8")
        tried += 1
    assert tried > 40 and Code(copy).identity(roots) == before


def test_another_learner_counts_in_its_own_runs_only(copy):
    file = copy / "rlnlp" / "learners" / "sac.py"
    before = {name: Code(copy).identity(learner(name)) for name in ("ppo", "nlpo", "sac")}
    change(file, "update")
    after = {name: Code(copy).identity(learner(name)) for name in before}
    assert {name for name in before if after[name] != before[name]} == {"sac"}


def test_moves_in_the_real_code_leave_it(copy):
    """The clip's formula into a file of its own, and a file renamed, with every import rewritten."""
    roots = [*learner("ppo"), *learner("trpo"), "notebooks/run.ipynb"]
    shutil.copytree(ROOT / "notebooks", copy / "notebooks")
    before, names = Code(copy).identity(roots), Code(copy).reach(roots)
    losses = copy / "rlnlp" / "losses.py"
    parsed = ast.parse(losses.read_text(encoding="utf-8"))
    clip = next(n for n in parsed.body if isinstance(n, ast.FunctionDef) and n.name == "ppo_clip")
    imports = [n for n in parsed.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    (copy / "rlnlp" / "surrogate").mkdir()
    tree(
        copy,
        {"rlnlp/surrogate/__init__.py": "", "rlnlp/surrogate/clip.py": ast.unparse(ast.Module([*imports, clip], []))},
    )
    parsed.body.remove(clip)
    losses.write_text(ast.unparse(parsed), encoding="utf-8")
    (copy / "rlnlp" / "optim.py").rename(copy / "rlnlp" / "estimators.py")
    for path in [p for package in identity.PACKAGES for p in (copy / package).rglob("*.py")]:
        module = ast.parse(path.read_text(encoding="utf-8"))
        package = ".".join(path.relative_to(copy).parent.parts)
        for node in [n for n in ast.walk(module) if isinstance(n, ast.ImportFrom) and n.module != "__future__"]:
            node.module, node.level = module_of(node, package), 0
            if node.module == "rlnlp.optim":
                node.module = "rlnlp.estimators"
            if node.module == "rlnlp.losses" and any(alias.name == "ppo_clip" for alias in node.names):
                node.names = [alias for alias in node.names if alias.name != "ppo_clip"]
                module.body.insert(1, ast.ImportFrom("rlnlp.surrogate.clip", [ast.alias("ppo_clip")], 0))
        module.body = sorted(
            module.body, key=lambda n: not (isinstance(n, ast.ImportFrom) and n.module == "__future__")
        )
        path.write_text(ast.unparse(ast.fix_missing_locations(module)), encoding="utf-8")
    assert Code(copy).identity(roots) == before
    assert differences(names, Code(copy).reach(roots)) == []
    change(copy / "rlnlp" / "surrogate" / "clip.py", "ppo_clip")
    assert Code(copy).identity(roots) != before
    assert differences(names, Code(copy).reach(roots)) == [
        "rlnlp.surrogate.clip:ppo_clip changed (was rlnlp.losses:ppo_clip)"
    ]


def module_of(node: ast.ImportFrom, package: str) -> str:
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])
