"""The road from ``ppo.train`` to the gradient step, measured: what a reader of PPO has to read is short.

On it is every function and class of the core that two updates of PPO, as its settings are by default, execute; and all
that these name, wherever they name it: in their bodies, as base classes and decorators, and in annotations, so that
``Config`` and ``State`` are on it with what they are made of. A class counts whole.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

from tests.test_architecture import ROOT, Source

FILES, LINES = 7, 520
START = "rlnlp.learners.ppo.train"
WORDS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
Definition = ast.FunctionDef | ast.ClassDef


class Core:
    """The functions and classes at the top level of the files below ``root / "rlnlp"``, by dotted name."""

    def __init__(self, root: Path) -> None:
        paths = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in root.glob("rlnlp/**/*.py")}
        modules = {name.removesuffix(".__init__") for name in paths.values()}
        self.files = [Source(root, path, modules) for path in sorted(paths)]
        self.known: dict[str, tuple[Source, Definition]] = {}
        self.aliases: dict[str, tuple[Source, ast.stmt]] = {}  # names that are given a value, as types are
        for file in self.files:
            for node in file.tree.body:
                if isinstance(node, Definition):
                    self.known[f"{file.name}.{node.name}"] = file, node
                for name in [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
                    if not isinstance(node, Definition):
                        self.aliases[f"{file.name}.{name}"] = file, node

    def road(self, start: set[str]) -> set[str]:
        """``start`` and what it names, directly or not; a value at the top level is followed and not counted."""
        found, todo = set(), set(start)
        while todo:
            found |= todo
            todo = {named for name in todo for named in self._named(name)} - found
        return found & self.known.keys()

    def _named(self, name: str) -> set[str]:
        file, node = self.known.get(name) or self.aliases[name]
        texts = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
        heads = {text: text.partition(".") for text in texts}
        own = {f"{file.name}.{text}" for text in texts}
        imported = {f"{file.bound[head]}{dot}{rest}" for head, dot, rest in heads.values() if head in file.bound}
        return (own | imported) & (self.known.keys() | self.aliases.keys())

    def at(self, path: str, line: int) -> str | None:
        """The definition that holds a line of a file; None for what is executed when a module is imported."""
        for name, (file, node) in self.known.items():
            if path.endswith(f"/{file.place}") and first_line(node) <= line <= node.end_lineno:
                return name
        return None

    def lines(self, name: str) -> int:
        """Lines of a definition that hold code: no blank lines, comments or docstrings."""
        file, node = self.known[name]
        texts = [n for n in ast.walk(node) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
        docstrings = {line for text in texts for line in range(text.lineno, text.end_lineno + 1)}
        tokens = tokenize.generate_tokens(io.StringIO(file.text).readline)
        code = {line for t in tokens if t.type in WORDS for line in range(t.start[0], t.end[0] + 1)}
        return len({line for line in code if first_line(node) <= line <= node.end_lineno} - docstrings)


def first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


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
    return {name for path, line in seen if (name := core.at(path, line))}


def test_the_road_from_ppo_to_the_gradient_step_is_short():
    """At most 7 files and 520 lines of code. ``pytest -s`` prints them."""
    core = Core(ROOT)
    found = core.road(executed(core) | {START})
    table: dict[str, dict[str, int]] = {}
    for name in sorted(found):
        table.setdefault(core.known[name][0].place, {})[name.rpartition(".")[2]] = core.lines(name)
    for place, each in table.items():
        print(f"{sum(each.values()):4} {place}: {', '.join(f'{name} {lines}' for name, lines in each.items())}")
    total = sum(lines for each in table.values() for lines in each.values())
    print(f"{total:4} lines of code in {len(table)} files")
    expected = {"Config", "State", "Horizon", "Settings", "ValueModel", "Decoder", "Experience", "gae", "ppo_clip"}
    assert not expected - {name.rpartition(".")[2] for name in found}, "the measure leaves something out"
    assert len(table) <= FILES and total <= LINES
