"""A module or a notebook, read but not run: its statements at the top level, and what each name there is bound to."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class CodeError(ValueError):
    """Code whose meaning cannot be found by reading it; the message names the place."""


@dataclass(frozen=True)
class Import:
    """``from module import name``, or ``import module`` where name is "". Absolute."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class Name:
    """A dotted name in the code. where: the imports inside the function that may bind its first part."""

    chain: tuple[str, ...]
    where: tuple[Import, ...] = ()


@dataclass(eq=False)
class Statement:
    """A statement at the top level of a module. names: what it binds there; effect: it does more than binding them."""

    module: str
    names: tuple[str, ...]
    nodes: Sequence[ast.stmt]
    package: str
    effect: bool = False
    alone: bool = False  # a notebook: what its own code defines are its local names
    owner: ast.ClassDef | None = None  # of a method that is looked at without its class


@dataclass
class Source:
    """A module: what each name at its top level may be bound to, in order."""

    name: str
    bound: dict[str, list[Import | Statement]] = field(default_factory=dict)
    typed: dict[str, list[Import]] = field(default_factory=dict)  # imported for annotations, and for who reads the code
    stars: list[str] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)


@functools.lru_cache(maxsize=4096)
def source(name: str, package: str, text: str) -> Source:
    """The module ``name`` of this text. package: where its relative imports start. Raises CodeError for bad syntax."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise CodeError(f"{name}: {error}") from None
    found = Source(name)
    own = set(Bound(tree.body, package).names)
    nodes: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.If) and _is_name(node.test, "TYPE_CHECKING"):
            for alias, targets in Bound(node.body, package).imports.items():
                found.typed.setdefault(alias, []).extend(targets)
            nodes += node.orelse
        else:
            nodes.append(node)
    for node in nodes:
        inside = Bound([node], package)
        found.imports += inside.modules
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.stars += inside.stars
            for alias, targets in inside.imports.items():
                found.bound.setdefault(alias, []).extend(targets)
        elif not (silent(node) or _is_main(node)):
            names = tuple(dict.fromkeys([*inside.names, *inside.imports, *_changed(node, own)]))
            statement = Statement(name, names, [node], package, not _only_binds(node, own))
            found.statements.append(statement)
            for each in names:
                found.bound.setdefault(each, []).append(statement)
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            for each in Bound([member], package).names:
                statement = Statement(name, (f"{node.name}.{each}",), [member], package, owner=node)
                found.bound.setdefault(f"{node.name}.{each}", []).append(statement)
    return found


def notebook(name: str, text: str) -> Statement:
    """All code of a notebook (its JSON) as one statement; text cells, magics and outputs are not looked at."""
    nodes = []
    for number, cell in enumerate(json.loads(text)["cells"]):
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] != "code" or (lines and lines[0].startswith("%%")):
            continue
        code = "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
        try:
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            nodes += compile(code, name, "exec", flags, dont_inherit=True).body
        except (SyntaxError, ValueError) as error:
            raise CodeError(f"{name}, cell {number}: {error}") from None
    return Statement(name, (), nodes, "", effect=True, alone=True)


def absolute(node: ast.ImportFrom, package: str) -> str:
    base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package if node.level else ""
    return ".".join(part for part in (base, node.module) if part)


class Bound:
    """What statements bind in their own scope: names, and imports; functions and classes inside are not entered."""

    def __init__(self, nodes: Sequence[ast.AST], package: str):
        self.package = package
        self.names: dict[str, None] = {}
        self.imports: dict[str, list[Import]] = {}
        self.modules: list[Import] = []
        self.stars: list[str] = []
        self.outer: set[str] = set()  # global, nonlocal
        todo = list(reversed(nodes))
        while todo:
            node = todo.pop()
            kind = type(node)
            if kind in _LOOK:
                _LOOK[kind](self, node)
            if kind not in _CLOSED:
                inside = [getattr(node, key, None) for key in node._fields]
                for each in reversed(inside):
                    if isinstance(each, ast.AST):
                        todo.append(each)
                    elif isinstance(each, list):
                        todo += [n for n in reversed(each) if isinstance(n, ast.AST)]

    def definition(self, node) -> None:
        self.names[node.name] = None

    def comprehension(self, node) -> None:
        for inside in ast.walk(node):
            if isinstance(inside, ast.NamedExpr):
                self.names[inside.target.id] = None

    def whole(self, node: ast.Import) -> None:
        for alias in node.names:
            self.modules.append(Import(alias.name))
            first = alias.name.partition(".")[0]
            self.imports.setdefault(alias.asname or first, []).append(Import(alias.name if alias.asname else first))

    def parts(self, node: ast.ImportFrom) -> None:
        base = absolute(node, self.package)
        for alias in node.names if base != "__future__" else ():
            self.modules.append(Import(base, alias.name if alias.name != "*" else ""))
            if alias.name == "*":
                self.stars.append(base)
            else:
                self.imports.setdefault(alias.asname or alias.name, []).append(Import(base, alias.name))

    def name(self, node: ast.Name) -> None:
        if stored(node):
            self.names[node.id] = None

    def pattern(self, node) -> None:
        if name := node.rest if isinstance(node, ast.MatchMapping) else node.name:
            self.names[name] = None

    def declared(self, node: ast.Global | ast.Nonlocal) -> None:
        self.outer.update(node.names)


_LOOK = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), Bound.definition),
    **dict.fromkeys(COMPREHENSIONS, Bound.comprehension),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), Bound.pattern),
    **dict.fromkeys((ast.Global, ast.Nonlocal), Bound.declared),
    ast.Import: Bound.whole,
    ast.ImportFrom: Bound.parts,
    ast.Name: Bound.name,
}
_CLOSED = {  # nothing in them is bound outside them
    *FUNCTIONS, ast.ClassDef, ast.Lambda, *COMPREHENSIONS, ast.Import, ast.ImportFrom, ast.Name, ast.Constant,
}  # fmt: skip


def chain_of(node: ast.AST) -> tuple[str, ...] | None:
    """("a", "b", "c") for a.b.c, None for what is no dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def stored(node: ast.expr) -> bool:
    return not isinstance(node.ctx, ast.Load)


def silent(node) -> bool:
    """A statement that does nothing: `pass`, and a text, which is a docstring or a comment."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def kept(nodes: Sequence) -> list:
    return [node for node in nodes if not silent(node)]


def _is_name(node: ast.expr, name: str) -> bool:
    return (chain_of(node) or ("",))[-1] == name


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and _is_name(node.test.left, "__name__")


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    for inside in ast.walk(node):
        if isinstance(inside, ast.Assign):
            yield from inside.targets
        elif isinstance(inside, (ast.AugAssign, ast.AnnAssign)):
            yield inside.target


def _changed(node: ast.stmt, own: set[str]) -> list[str]:
    """Names of the module into which a statement stores: ``TABLE[key] = value`` is part of what TABLE is."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return []
    found = []
    for target in _targets(node):
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name) and target.id in own:
            found.append(target.id)
    return found


def _only_binds(node: ast.stmt, own: set[str]) -> bool:
    """Whether a statement does nothing but give names of its module their values."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return True
    if isinstance(node, (ast.For, ast.If)):
        return all(_only_binds(each, own) for each in (*node.body, *node.orelse))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "_" for target in targets):
            return False
        roots = []
        for target in targets:
            while isinstance(target, (ast.Subscript, ast.Attribute)):
                target = target.value
            roots += target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        return all(isinstance(root, ast.Name) and root.id in own or isinstance(root, ast.Starred) for root in roots)
    if isinstance(node, ast.Try):  # an import that may fail, and what stands in for it
        bodies = (
            *node.body,
            *node.orelse,
            *node.finalbody,
            *(each for handler in node.handlers for each in handler.body),
        )
        return all(isinstance(each, (ast.Import, ast.ImportFrom)) or _only_binds(each, own) for each in bodies)
    return isinstance(node, (ast.Import, ast.ImportFrom)) or silent(node)
