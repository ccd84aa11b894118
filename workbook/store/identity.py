"""What code decides a result: the definitions that it reaches, and one hash of what they say, wherever they stand.

    code = Code(root)                               # the packages below a folder; read as they are asked for
    roots = ["notebooks/run.ipynb", "rlnlp.learners.ppo:init", "rlnlp.learners.ppo:train"]
    code.identity(roots)                            # hex
    differences(earlier, code.reach(roots))         # in words: what is another

A root is a definition ("module:name"), a method without the rest of its class ("module:Class.method"), a module (all
its public names) or a notebook (its code cells). From it the names are followed, imports inside functions too. Two
roots have one identity if their definitions say the same and refer to each other in the same way: comments, docstrings,
annotations, moves and new names change nothing, recursion costs nothing. What is not found by reading (``importlib``,
``getattr`` of a module, names in texts) has to be named as a root.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .syntax import CodeError, Import, Name, Source, Statement, notebook, source
from .tokens import read

PACKAGES = ("rlnlp", "workbook")
IMPORT = "(import)"  # what a module does when it is imported, besides defining


@dataclass(frozen=True)
class Target:
    """What a name stands for. index: which of the names that the statement binds; rest: what is taken from it."""

    statement: Statement
    index: int
    name: str
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Module:
    name: str


def root_of(function: Callable) -> str:
    """The root that stands for a function or a method, also one whose first arguments are given (functools.partial)."""
    while isinstance(function, functools.partial):
        function = function.func
    if "<" in function.__qualname__:
        raise CodeError(f"{function.__module__}: {function.__qualname__} has no name that could be looked up")
    return f"{function.__module__}:{function.__qualname__}"


@functools.cache
def here() -> Code:
    """The code that this process runs: read once, as it is imported once."""
    return Code(Path(__file__).resolve().parents[2])


class Code:
    """The code below a folder. A module is read once, so make another ``Code`` where files may have changed since."""

    def __init__(self, root: str | Path, packages: Sequence[str] = PACKAGES):
        self.root, self.packages = Path(root), tuple(packages)
        self._sources: dict[str, Source | None] = {}
        self._linked: dict[Statement, list[str | Target]] = {}
        self._notebooks: dict[str, Statement] = {}

    # roots ---------------------------------------------------------------------------------------------------------

    def has(self, root: str) -> bool:
        """Whether there is such a definition in a module of ours."""
        module, _, name = root.partition(":")
        return self._source(module) is not None and self._has(module, name)

    def _root(self, root: str) -> list[str | Target]:
        """The statements that a root names, with the names by which they are asked for where the root is a module."""
        if root.endswith(".ipynb"):
            if root not in self._notebooks:
                path = self.root / root
                self._notebooks[root] = notebook(path.stem, path.read_text(encoding="utf-8"))
            return [Target(self._notebooks[root], 0, "")]
        module, _, name = root.partition(":")
        if self._source(module) is None:
            raise CodeError(f"{root}: no such module")
        return list(self._written(self._attribute(module, name) if name else [Module(module)]))

    # what names stand for ------------------------------------------------------------------------------------------

    def _path(self, module: str) -> Path | None:
        """The file of a module, the folder of a package without `__init__.py`, or None."""
        if module.partition(".")[0] not in self.packages:
            return None
        path = self.root.joinpath(*module.split("."))
        if (path / "__init__.py").is_file():
            return path / "__init__.py"
        file = path.parent / f"{path.name}.py"
        return file if file.is_file() else path if path.is_dir() else None

    def _source(self, module: str) -> Source | None:
        if module not in self._sources:
            path = self._path(module)
            if path is None or path.is_dir():
                self._sources[module] = None if path is None else Source(module)
            else:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                self._sources[module] = source(module, package, path.read_text(encoding="utf-8"))
        return self._sources[module]

    def _imported(self, item: Import, seen: frozenset = frozenset()) -> list:
        """What an import binds: targets, modules, or the dotted name of something outside the packages."""
        if item.module.partition(".")[0] not in self.packages:
            return [".".join(part for part in (item.module, item.name) if part)]
        if self._source(item.module) is None:
            raise CodeError(f"{item.module}: imported, but there is no such module")
        return self._attribute(item.module, item.name, seen) if item.name else [Module(item.module)]

    def _attribute(self, module: str, name: str, seen: frozenset = frozenset()) -> list:
        """What ``module.name`` may be, in the order in which it is bound."""
        if (module, name) in seen:
            raise CodeError(f"{module}: {name} is only imported, in a circle")
        seen |= {(module, name)}
        own, found = self._source(module), []
        for each in own.bound.get(name, ()):
            found += (
                [Target(each, each.names.index(name), name)]
                if isinstance(each, Statement)
                else self._imported(each, seen)
            )
        if not found and self._source(f"{module}.{name}") is not None:
            return [Module(f"{module}.{name}")]
        for star in own.stars if not found else ():
            if star.partition(".")[0] not in self.packages:
                found.append(f"{star}.*.{name}")
            elif not name.startswith("_") and self._has(star, name):
                found += self._attribute(star, name, seen)
        if not found and "__getattr__" in own.bound:
            found += self._attribute(module, "__getattr__", seen)
            for each in own.typed.get(name, ()):
                found += self._imported(each, seen)
        if not found and not (name.startswith("__") and name.endswith("__")):
            raise CodeError(f"{module} has no {name}")
        return found or [f"{module.rpartition('.')[2]}.{name}"]

    def _has(self, module: str, name: str) -> bool:
        own = self._source(module)
        if own is None:
            raise CodeError(f"{module}: imported, but there is no such module")
        return name in own.bound or any(
            self._has(star, name) for star in own.stars if star.partition(".")[0] in self.packages
        )

    def _resolved(self, name: Name, module: str) -> list:
        """What a dotted name in a statement of a module may be: targets, modules, dotted names from outside."""
        first, *rest = name.chain
        if name.where:
            found = [each for item in name.where for each in self._imported(item)]
        else:
            own = self._source(module)
            if own is None or not (first in own.bound or own.stars):
                return [".".join(name.chain)]  # built in, or an error when it runs
            inside = first in own.bound or any(
                s.partition(".")[0] in self.packages and self._has(s, first) for s in own.stars
            )
            outside = [f"{s}.*.{first}" for s in own.stars if s.partition(".")[0] not in self.packages]
            found = self._attribute(module, first) if inside else outside or [first]
        for attribute in rest:
            found = [further for each in found for further in self._taken(each, attribute)]
        return found

    def _taken(self, each, attribute: str) -> list:
        if isinstance(each, Module):
            return self._attribute(each.name, attribute)
        if isinstance(each, Target):
            return [Target(each.statement, each.index, each.name, (*each.rest, attribute))]
        return [f"{each}.{attribute}"]

    def _written(self, found: Iterable) -> Iterator[str | Target]:
        """As tokens. A module that is handed on as a whole is all its public names."""
        for each in found:
            if not isinstance(each, Module):
                yield each if isinstance(each, Target) else f"outside {each}"
                continue
            yield "module"
            for name in sorted(self._source(each.name).bound):
                if not name.startswith("_") and "." not in name:
                    yield name
                    for inside in self._attribute(each.name, name):
                        yield (
                            f"module {inside.name.rpartition('.')[2]}"
                            if isinstance(inside, Module)
                            else next(self._written([inside]))
                        )

    def _tokens(self, statement: Statement) -> list[str | Target]:
        """A statement's tokens, every name replaced by what it stands for."""
        if statement not in self._linked:
            out: list[str | Target] = []
            for token in read(statement).tokens:
                if isinstance(token, Name):
                    out += self._written(self._resolved(token, statement.module))
                else:
                    out.append(token)
            self._linked[statement] = out
        return self._linked[statement]

    # what is reached -----------------------------------------------------------------------------------------------

    def _follow(self, start: Iterable[str | Target], number: dict[Statement, int]) -> list[Statement]:
        """Number all statements that the start refers to, directly or not, in the order met; returns the new ones."""
        met: list[Statement] = []

        def meet(tokens: Iterable[str | Target]) -> None:
            for token in tokens:
                if isinstance(token, Target) and token.statement not in number:
                    number[token.statement] = len(number)
                    met.append(token.statement)

        meet(start)
        for statement in met:  # grows
            meet(self._tokens(statement))
        return met

    def _text(self, tokens: Iterable[str | Target], number: Mapping[Statement, int]) -> Iterator[str]:
        for token in tokens:
            if isinstance(token, Target):
                yield f"to {number[token.statement]} {token.index} {'.'.join(token.rest)}"
            else:
                yield token

    def _all(self, roots: Iterable[str], without: Iterable[str]) -> list[tuple[Statement | None, list[str]]]:
        """(statement, tokens) of everything that decides what roots do, in an order that depends on what it says alone.

        First what the roots reach. Then what the modules of these do when they are imported, with what that reaches.
        """
        number = {token.statement: -1 for name in without for token in self._root(name) if isinstance(token, Target)}
        start = [token for root in roots for token in self._root(root)]
        met, modules = self._follow(start, number), set()
        while True:
            modules |= self._modules_of(met, modules)
            left = [[s for s in self._effects(module) if s not in number] for module in sorted(modules)]
            if not any(left):
                break
            met = []
            for effects in sorted(filter(None, left), key=self._alone):
                met += self._follow([Target(s, 0, "") for s in effects], number)
        inside = [(s, list(self._text(self._tokens(s), number))) for s, place in number.items() if place >= 0]
        return [(None, list(self._text(start, number))), *inside]

    def _alone(self, statements: Sequence[Statement]) -> str:
        number: dict[Statement, int] = {}
        self._follow([Target(s, 0, "") for s in statements], number)
        return _hash(_hash(self._text(self._tokens(s), number)) for s in number)

    def _modules_of(self, statements: Iterable[Statement], known: set[str]) -> set[str]:
        """Modules that are run when these statements are: their own, and those imported, directly or not."""
        todo: set[Import] = set()
        for statement in statements:
            todo.update(read(statement).imports)
            if not statement.alone:
                todo.add(Import(statement.module))
        found: set[str] = set()
        new = {name for item in todo for name in self._run_by(item)} - known
        while new:
            found |= new
            new = {n for name in new for item in self._source(name).imports for n in self._run_by(item)} - found - known
        return found

    @functools.cache  # noqa: B019 (a Code lives as long as its process, or a test)
    def _run_by(self, item: Import) -> tuple[str, ...]:
        """Modules of ours that an import runs: the module, the packages around it, and the name if that is a module."""
        parts = [*item.module.split("."), *([item.name] if item.name else [])]
        names = (".".join(parts[: i + 1]) for i in range(len(parts)))
        return tuple(name for name in names if self._source(name) is not None)

    @functools.cache  # noqa: B019 (a Code lives as long as its process, or a test)
    def _effects(self, module: str) -> list[Statement]:
        """What of a module does more, when it is imported, than giving names their values."""
        return [s for s in self._source(module).statements if s.effect or any(map(self._registers, self._called(s)))]

    def _called(self, statement: Statement) -> Iterator[Statement]:
        for name in read(statement).calls:
            for found in self._resolved(name, statement.module):
                if isinstance(found, Target) and found.statement is not statement:
                    yield found.statement

    @functools.cache  # noqa: B019 (a Code lives as long as its process, or a test)
    def _registers(self, called: Statement) -> bool:
        """Whether a call, when a module is imported, may change what others see: a table of its own module."""
        return any(read(statement).changes for statement in self._follow([Target(called, 0, "")], {}))

    # answers -------------------------------------------------------------------------------------------------------

    def identity(self, roots: Iterable[str], without: Iterable[str] = ()) -> str:
        """Hash of all that the roots reach, hex; another order of the roots is another identity.

        without: definitions that are known not to run, and are not followed (what only another kind of run calls).
        """
        return _hash(_hash(tokens) for _, tokens in self._all(roots, without))

    def reach(self, roots: Iterable[str], without: Iterable[str] = ()) -> dict[str, str]:
        """Name of every definition that the roots reach -> hash of what it says itself, sorted. For explanations."""
        found: dict[str, str] = {}
        for statement, _ in self._all(roots, without)[1:]:
            name = f"{statement.module}:{', '.join(statement.names) or IMPORT}"
            own = (f"to {t.name} {'.'.join(t.rest)}" if isinstance(t, Target) else t for t in self._tokens(statement))
            found[name] = _hash([found.get(name, ""), *own])
        return dict(sorted(found.items()))


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between two answers of ``Code.reach``, one line each; what only stands elsewhere is left out."""
    gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    lines = [f"{name} changed" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    for name in list(added):
        bare = name.partition(":")[2]
        same = [g for g in gone if old[g] == new[name]] or [g for g in gone if g.partition(":")[2] == bare]
        if same:
            gone.remove(same[0])
            added.remove(name)
            if old[same[0]] != new[name]:
                lines.append(f"{name} changed (was {same[0]})")
    return sorted(lines) + [f"{name} is new" for name in added] + [f"{name} is not used any more" for name in gone]


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
