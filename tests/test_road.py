"""The road from ``ppo.train`` to the gradient step, measured: what a run of PPO executes is short enough to be read."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

import rlnlp
from rlnlp.learners import ppo
from tests import tiny

PACKAGE = Path(rlnlp.__file__).parent
WORDS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


def executed() -> set[tuple[str, int]]:
    """(file, first line) of every function of the package that two updates of PPO call, from ``ppo.train`` on."""
    seen = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    config = ppo.Config(updates=2, episodes_per_update=8, max_new_tokens=6)
    state = ppo.init(tiny.gpt2(), config, seed=0)
    prompts = tiny.prompts(16)
    updates = ppo.train(state, prompts, lambda rollout: (rollout.mask.sum(1).float(), {}), config)
    sys.setprofile(note)
    try:
        ran = list(updates)
    finally:
        sys.setprofile(None)
    assert len(ran) == 2
    return seen


def code_lines(node: ast.AST, text: str) -> int:
    """Lines of a definition that hold code: no blank lines, comments or docstrings."""
    docstrings = {
        line
        for inner in ast.walk(node)
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant) and isinstance(inner.value.value, str)
        for line in range(inner.lineno, inner.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for t in tokens if t.type in WORDS for line in range(t.start[0], t.end[0] + 1)}
    return len({line for line in code if first_line(node) <= line <= node.end_lineno} - docstrings)


def first_line(node: ast.AST) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def road() -> dict[Path, dict[str, int]]:
    """File -> the functions and classes at its top level of which something was executed: their lines of code,
    whole."""
    found: dict[Path, dict[str, int]] = {}
    for name, line in executed():
        text = Path(name).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and first_line(node) <= line <= node.end_lineno:
                found.setdefault(Path(name), {})[node.name] = code_lines(node, text)
    return found


def test_the_road_from_ppo_to_the_gradient_step_is_short():
    """At most 7 files and 520 lines of code. ``pytest -s`` prints them."""
    found = road()
    for file, each in sorted(found.items()):
        told = ", ".join(f"{name} {lines}" for name, lines in sorted(each.items()))
        print(f"{sum(each.values()):4} {file.relative_to(PACKAGE)}: {told}")
    total = sum(sum(functions.values()) for functions in found.values())
    print(f"{total:4} lines of code in {len(found)} files")
    assert "ppo_clip" in {name for functions in found.values() for name in functions}, "the measure sees no loss"
    assert len(found) <= 7 and total <= 520
