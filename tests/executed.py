"""Which functions of ours a piece of work calls, and copies of our code to change."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from workbook.store import identity

ROOT = Path(identity.__file__).resolve().parents[2]


@contextmanager
def recorded() -> Iterator[dict[tuple[str, str], Path]]:
    """(module, qualified name) -> file of every function of ours that is called inside."""
    found: dict[tuple[str, str], Path] = {}
    known = set()

    def seen(frame, event, _):
        code = frame.f_code
        if code in known:
            return
        known.add(code)
        if code.co_flags & 2:  # a function: it has names of its own, which a class's body has not
            file = Path(code.co_filename)
            if any(file.is_relative_to(ROOT / package) for package in identity.PACKAGES):
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                found[module, code.co_qualname] = file

    before = sys.gettrace()
    sys.settrace(seen)  # it returns None: only calls are traced, not lines
    try:
        yield found
    finally:
        sys.settrace(before)


def run_notebook(path: Path, **given) -> dict[tuple[str, str], Path]:
    """What a notebook's code calls, run here, in the working folder, with these parameters."""
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    shell = InteractiveShell.instance(history_length=0)
    try:
        with recorded() as found:
            for cell in cells:
                shell.run_cell("".join(cell["source"])).raise_error()
                if "parameters" in cell["metadata"].get("tags", ()):
                    shell.push(given)
    finally:
        InteractiveShell.clear_instance()
    return found


def definitions(called: dict[tuple[str, str], Path]) -> set[str]:
    """The definitions at the top level that functions are in, as `Code.reach` names them."""
    return {f"{module}:{function.partition('.')[0]}" for module, function in called}


def reached(roots, without=()) -> set[str]:
    """Every definition that roots reach; a statement that binds several names by each of them."""
    found = identity.here().reach(roots, without)
    return {
        f"{module}:{name.partition('.')[0]}"
        for module, _, names in (each.partition(":") for each in found)
        for name in names.split(", ")
    }


def copied(folder: Path) -> Path:
    """The code of both packages in another folder."""
    for name in identity.PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def mutated(text: str, qualname: str) -> str:
    """The code with one more statement at the end of a function, which does nothing."""
    module = ast.parse(text)
    place: ast.AST = module
    for part in qualname.replace(".<locals>", "").split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        place = next(n for n in ast.walk(place) if isinstance(n, kinds) and n.name == part)
    place.body.append(ast.Expr(ast.Constant(0xC0FFEE)))
    return ast.unparse(ast.fix_missing_locations(module))


def change(file: Path, qualname: str) -> None:
    file.write_text(mutated(file.read_text(encoding="utf-8"), qualname), encoding="utf-8")
