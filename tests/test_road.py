"""The road from ``ppo.train`` to the gradient step, measured: what a reader of PPO has to read is short.

On it is every function and class of the core that two updates of PPO, as its settings are by default, execute; and all
that these name, wherever they name it: in their bodies, as base classes and decorators, and in annotations, so that
``Config`` and ``State`` are on it with what they are made of. A class counts whole, and so does a value that is given a
name at the top level of a file.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

from tests.test_architecture import ROOT, Source

# Lines: 520 without what refuses models, prompts and settings before training, and what calls rounding nothing.
FILES, LINES = 7, 590
START = "rlnlp.learners.ppo.train"
WORDS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


class Core:
    """What the files below ``root / "rlnlp"`` define at their top level, functions, classes, values: by dotted name."""

    def __init__(self, root: Path) -> None:
        paths = sorted(root.glob("rlnlp/**/*.py"))
        names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in paths}
        self.known: dict[str, tuple[Source, ast.stmt]] = {}
        for file in [Source(root, path, names) for path in paths]:
            for node in file.tree.body:
                self.known |= {f"{file.name}.{name}": (file, node) for name in bound(node)}

    def road(self, start: set[str]) -> dict[str, dict[str, int]]:
        """Place of a file -> what is on the road in it: names -> lines of code. On it is what ``start`` names, and so
        on."""
        found, todo = set(), start & self.known.keys()
        while todo:
            found |= todo
            todo = {other for name in todo for other in self.named(name)} - found
        table: dict[str, dict[str, int]] = {}
        for file, node in dict.fromkeys(self.known[name] for name in sorted(found)):
            table.setdefault(file.place, {})[", ".join(bound(node))] = code_lines(file, node)
        return table

    def named(self, name: str) -> set[str]:
        """What of ours stands anywhere in a definition, by a name of its file or by one that the file imports."""
        file, node = self.known[name]
        texts = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
        heads = [text.partition(".") for text in texts]
        dotted = {f"{file.name}.{head}" for head, _, _ in heads}
        dotted |= {f"{file.bound[head]}{dot}{rest}" for head, dot, rest in heads if head in file.bound}
        return dotted & self.known.keys()

    def at(self, path: str, line: int) -> set[str]:
        """The definition that holds a line of a file; none for what runs when a module is imported."""
        held = [
            name for name, (file, node) in self.known.items() if path.endswith(f"/{file.place}") and holds(node, line)
        ]
        return set(held[:1])


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement at the top level defines; none for imports and texts."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def holds(node: ast.stmt, line: int) -> bool:
    decorators = [each.lineno for each in getattr(node, "decorator_list", [])]
    return min([node.lineno, *decorators]) <= line <= node.end_lineno


def code_lines(file: Source, node: ast.stmt) -> int:
    """Lines of a definition that hold code: no blank lines, comments or docstrings."""
    texts = [n for n in ast.walk(node) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    docstrings = {line for text in texts for line in range(text.lineno, text.end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(file.text).readline)
    code = {line for t in tokens if t.type in WORDS for line in range(t.start[0], t.end[0] + 1)}
    return len({line for line in code if holds(node, line)} - docstrings)


def executed(core: Core) -> set[str]:
    """What of the core two updates of PPO call, from ``ppo.train`` on."""
    from rlnlp.learners import ppo
    from tests import tiny

    seen = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT / "rlnlp")):
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    config = ppo.Config(updates=2, episodes_per_update=8, max_new_tokens=6)
    updates = ppo.train(
        ppo.init(tiny.gpt2(), config, seed=0), tiny.prompts(16), lambda r: (r.mask.sum(1).float(), {}), config
    )
    sys.setprofile(note)
    try:
        ran = list(updates)
    finally:
        sys.setprofile(None)
    assert len(ran) == 2
    return {name for path, line in seen for name in core.at(path, line)}


def test_the_road_from_ppo_to_the_gradient_step_is_short():
    """At most so many files and lines of code. ``pytest -s`` prints them."""
    core = Core(ROOT)
    table = core.road(executed(core) | {START})
    for place, each in table.items():
        print(f"{sum(each.values()):4} {place}: {', '.join(f'{name} {lines}' for name, lines in each.items())}")
    total = sum(lines for each in table.values() for lines in each.values())
    print(f"{total:4} lines of code in {len(table)} files")
    found = {name for each in table.values() for name in each}
    assert found >= {"Config", "State", "Settings", "ValueModel", "Decoder", "Experience", "gae", "ppo_clip", "Score"}
    assert len(table) <= FILES and total <= LINES


def test_nothing_that_is_named_is_left_out(tmp_path):
    """A base class, a decorator, an annotation, a type's parts, a module's attribute; not what nobody names."""
    (tmp_path / "rlnlp").mkdir()
    (tmp_path / "rlnlp" / "__init__.py").write_text("")
    (tmp_path / "rlnlp" / "far.py").write_text(
        'class Base:\n    """Text."""\n\n    # why\n    x = 1\n\n\nclass Part:\n    y: int\n\n\n'
        "def wrap(f):\n    return f\n\n\ndef called():\n    return 1\n\n\ndef alone():\n    return 2\n"
    )
    (tmp_path / "rlnlp" / "near.py").write_text(
        "from rlnlp import far\nfrom rlnlp.far import Base, wrap\n\nKind = dict[str, far.Part]\n\n\n"
        "class Own(Base):\n    pass\n\n\n@wrap\ndef train(own: Own, kind: Kind):\n    return far.called()\n"
    )
    assert Core(tmp_path).road({"rlnlp.near.train"}) == {
        "rlnlp/far.py": {"Base": 2, "Part": 2, "called": 2, "wrap": 2},
        "rlnlp/near.py": {"Kind": 1, "Own": 2, "train": 3},
    }
