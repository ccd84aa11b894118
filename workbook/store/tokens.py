"""What a statement says, as tokens, without what decides nothing.

Left out: comments, layout, docstrings, annotations of functions and variables, lines of imports, descriptions of
settings (``Field(description=)``, ``help=``). Kept: annotations in the bodies of classes, which decide what pydantic
and dataclasses do. A token is a text, or a ``Name`` that something outside the statement has defined; `identity`
finds out what that is.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from .syntax import FUNCTIONS, Bound, CodeError, Import, Name, Statement, chain_of, kept, stored

READ_ANNOTATIONS = {"validate_call", "singledispatch", "singledispatchmethod", "register", "computed_field"}
CHANGES = {"add", "append", "clear", "extend", "insert", "pop", "register", "remove", "setdefault", "update"}


class _Scope:
    """Names that mean something local: kind "function" (with lambdas and comprehensions), "class" or "module"."""

    def __init__(self, kind: str, outside: _Scope | None, bound: Bound, also: Sequence[str] = ()):
        self.kind, self.outside = kind, outside
        several = {n for n, targets in bound.imports.items() if n in bound.names or len(set(targets)) > 1}
        self.imports = {n: tuple(set(t)) for n, t in bound.imports.items() if n not in several | bound.outer}
        self.local = ({*bound.names, *also} | several) - bound.outer

    def find(self, name: str) -> tuple[str, tuple[Import, ...]]:
        """("local", ()), ("outside", the import that binds it here) or ("outside", ())."""
        scope, first = self, True
        while scope is not None:
            if scope.kind != "class" or first:
                if name in scope.local:
                    return "local" if scope.kind != "class" else "either", ()
                if name in scope.imports:
                    return "outside", scope.imports[name]
            scope, first = scope.outside, False
        return "outside", ()


class Reader:
    """Writes a statement down as tokens.

    imports: what its functions import; calls: what it calls when its module is imported; changes: it stores
    into, or calls a method that changes, a name of its module.
    """

    def __init__(self, statement: Statement):
        self.statement = statement
        self.tokens: list[str | Name] = []
        self.imports: list[Import] = []
        self.calls: list[Name] = []
        self.changes = False
        bound = Bound(statement.nodes if statement.alone else (), statement.package)
        self.imports += bound.modules
        if bound.stars:
            raise CodeError(f"{statement.module}: `import *`: name what is imported")
        scope = _Scope("function" if statement.alone else "module", None, bound)
        for node in kept(statement.nodes):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not statement.alone:
                self.definition(node, scope, named=False)
            else:
                self.write(node, scope)
        for base in statement.owner.bases if statement.owner else ():
            self.write(base, scope)
        for node in statement.nodes if not statement.alone else ():
            for call in calls_at_import(node):
                if (chain := chain_of(call)) is not None:
                    self.calls.append(Name(chain))

    def put(self, *tokens: str | Name) -> None:
        self.tokens += tokens

    def write(self, node, scope: _Scope) -> None:
        match node:
            case ast.Name() | ast.Attribute():
                self.name(node, scope)
            case ast.Constant():
                self.tokens.append(f"{type(node.value).__name__} {node.value!r}")
            case list():
                self.put("[")
                for each in kept(node):
                    self.write(each, scope)
                self.put("]")
            case None:
                self.put("-")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definition(node, scope)
            case ast.Lambda():
                self.put("(Lambda")
                self.function(node, [node.body], scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.comprehension(node, scope)
            case ast.Import() | ast.ImportFrom():
                self.imported(node, scope)
            case ast.AnnAssign() if scope.kind != "class":
                if node.value is not None:
                    self.assigned([node.target], node.value, scope)
            case ast.AnnAssign():
                self.put("(AnnAssign")
                self.write(node.target, scope)
                self.annotation(node.annotation, scope)
                self.write(node.value, scope)
                self.put(")")
            case ast.Assign():
                self.assigned(node.targets, node.value, scope)
            case ast.Call():
                self.call(node, scope)
            case ast.Global():
                pass
            case ast.AST():
                self.put(f"({type(node).__name__}")
                for key in node._fields:
                    value = getattr(node, key, None)
                    if value is not None and value != [] and key not in ("ctx", "type_comment"):
                        self.put(f"{key}=")
                        self.write(value, scope)
                self.put(")")
            case _:
                self.put(repr(node))

    def name(self, node: ast.Name | ast.Attribute, scope: _Scope) -> None:
        chain = chain_of(node)
        if chain is None:  # an attribute of something that is no name
            self.put("(Attribute", node.attr)
            self.write(node.value, scope)
            self.put(")")
            return
        first = chain[0]
        if scope.kind == "module" and first in self.statement.names and isinstance(node, ast.Name) and stored(node):
            self.put(f"bind {self.statement.names.index(first)}")
            return
        kind, where = scope.find(first)
        if (owner := self.statement.owner) and first == "self" and kind == "local" and len(chain) > 1:
            if chain[1] in Bound(owner.body, self.statement.package).names:
                self.put(Name((f"{owner.name}.{chain[1]}", *chain[2:])))
                return
        if kind in ("local", "either"):
            self.put(f"local {'.'.join(chain)}")
        if kind == "outside" or (kind == "either" and not stored(node)):
            self.put(Name(chain, where))
            self.changes = self.changes or stored(node)

    def imported(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        """A line of imports says nothing of its own, unless one name may be bound in several ways."""
        for alias, targets in Bound([node], self.statement.package).imports.items():
            if scope.kind == "module":
                self.put("import", f"bind {self.statement.names.index(alias)}", Name((alias,), tuple(targets)))
            elif alias in scope.local:
                self.put("import", f"local {alias}", Name((alias,), tuple(targets)))

    def assigned(self, targets: Sequence[ast.expr], value: ast.expr, scope: _Scope) -> None:
        for target in targets:
            inside = target.value if isinstance(target, ast.Subscript) else None
            if inside is not None and (chain := chain_of(inside)) and scope.find(chain[0])[0] == "outside":
                self.changes = True
        self.put("(Assign")
        for target in targets:
            self.write(target, scope)
        self.put("=")
        self.write(value, scope)
        self.put(")")

    def call(self, node: ast.Call, scope: _Scope) -> None:
        chain = chain_of(node.func) or ("",)
        drop = {"help", "description"} if chain[-1] == "Field" else {"help"}
        if len(chain) > 1 and chain[-1] in CHANGES and scope.find(chain[0])[0] == "outside":
            self.changes = True
        self.put("(Call")
        self.write(node.func, scope)
        for argument in node.args:
            self.write(argument, scope)
        for keyword in node.keywords:
            if keyword.arg not in drop:
                self.put("(keyword", str(keyword.arg))
                self.write(keyword.value, scope)
                self.put(")")
        self.put(")")

    def definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: _Scope, named: bool = True
    ) -> None:
        self.put(f"({type(node).__name__}", *([node.name] if named else []))
        self.put("@")
        self.write(node.decorator_list, scope)
        if isinstance(node, ast.ClassDef):
            self.write(node.bases, scope)
            for keyword in node.keywords:
                self.write(keyword, scope)
            self.body(node.body, "class", scope)
            self.put(")")
            return
        last = {(chain_of(d.func if isinstance(d, ast.Call) else d) or ("",))[-1] for d in node.decorator_list}
        if last & READ_ANNOTATIONS:
            for argument in _arguments(node.args):
                self.annotation(argument.annotation, scope)
            self.annotation(node.returns, scope)
        self.function(node, node.body, scope)

    def function(
        self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef, body: Sequence, scope: _Scope
    ) -> None:
        args = node.args
        for kind in ("posonlyargs", "args", "kwonlyargs"):
            self.put(kind, *(a.arg for a in getattr(args, kind)))
        self.put("*", args.vararg.arg if args.vararg else "-", args.kwarg.arg if args.kwarg else "-")
        for default in (*args.defaults, *args.kw_defaults):
            self.write(default, scope)
        self.body(body, "function", scope, [a.arg for a in _arguments(args)])
        self.put(")")

    def body(self, nodes: Sequence, kind: str, scope: _Scope, also: Sequence[str] = ()) -> None:
        bound = Bound(nodes, self.statement.package)
        self.imports += bound.modules
        if bound.stars:
            raise CodeError(f"{self.statement.module}: `import *` inside a class")
        inside = _Scope(kind, scope, bound, also)
        self.put("{")
        for node in kept(nodes):
            self.write(node, inside)
        self.put("}")

    def comprehension(self, node, scope: _Scope) -> None:
        bound = Bound([generator.target for generator in node.generators], self.statement.package)
        inside = _Scope("function", scope, bound)
        self.put(f"({type(node).__name__}")
        for number, generator in enumerate(node.generators):
            self.put("for", str(generator.is_async))
            self.write(generator.target, inside)
            self.write(generator.iter, inside if number else scope)
            self.write(generator.ifs, inside)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.write(part, inside)
        self.put(")")

    def annotation(self, node: ast.expr | None, scope: _Scope) -> None:
        """As written, where a type in quotes means the same as without them."""
        match node:
            case ast.Constant(value=str()):
                try:
                    self.write(ast.parse(node.value, mode="eval").body, scope)
                except SyntaxError:
                    self.write(node, scope)
            case ast.BinOp():
                self.put("|")
                self.annotation(node.left, scope)
                self.annotation(node.right, scope)
            case ast.Subscript() if (chain_of(node.value) or ("",))[-1] not in ("Literal", "Annotated"):
                self.put("(Subscript")
                self.write(node.value, scope)
                for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                    self.annotation(part, scope)
                self.put(")")
            case _:
                self.write(node, scope)


def _arguments(args: ast.arguments) -> list[ast.arg]:
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *(a for a in (args.vararg, args.kwarg) if a)]


def calls_at_import(node: ast.AST) -> Iterator[ast.expr]:
    """What a definition calls when its module is imported: decorators, defaults, a class's body, the value assigned."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        for decorator in node.decorator_list:
            yield decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, FUNCTIONS):
        children = [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    else:
        children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        yield node.func
    for child in children:
        yield from calls_at_import(child)


read = functools.lru_cache(maxsize=None)(Reader)
