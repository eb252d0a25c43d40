"""The syntax tree of a source file, for tests of the rules that a machine can see."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

#: The fields of a statement that hold statements.
BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


class Definition(NamedTuple):
    """A class or a function of a source file.

    Attributes:
        parameters: those of a function, or of a class's `__init__`; None if they are open or there is none.
        bases: the names of a class's bases, as far as they are plain names.
    """

    name: str
    is_class: bool
    docstring: str
    parameters: frozenset[str] | None
    bases: tuple[str, ...]


class SourceOutline(NamedTuple):
    """The imports and the definitions of a source file, wherever in it.

    Attributes:
        imports: the module, with a dot in front for each level of a relative import, and what is taken from it.
    """

    imports: frozenset[tuple[str, str | None]]
    definitions: tuple[Definition, ...]


def parse_source(file: Path) -> ast.Module:
    """Return the syntax tree of a file.

    Python before 3.11.8 and 3.12.2 counts the depth of all parsing in one place: if the collector runs a finalizer
    meanwhile, and that formats a traceback, which parses too, then `ast.parse` raises SystemError. So it waits.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(file.read_text())
    finally:
        if collects:
            gc.enable()


@cache
def read_outline(file: Path) -> SourceOutline:
    """Return the outline of a file: read once for all tests, and much smaller than its tree."""
    statements = [*_walk_statements(parse_source(file))]
    imports = (pair for node in statements for pair in _read_imports(node))
    return SourceOutline(frozenset(imports), tuple(found for node in statements for found in _read_definition(node)))


def _walk_statements(node: Any) -> Iterator[ast.AST]:
    """Yield the statements below a node; an expression holds none."""
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            yield child
            yield from _walk_statements(child)


def _read_imports(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (("." * node.level + (node.module or ""), alias.name) for alias in node.names)


def _read_definition(node: ast.AST) -> Iterator[Definition]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        is_class = isinstance(node, ast.ClassDef)
        bases = tuple(base.id for base in getattr(node, "bases", ()) if isinstance(base, ast.Name))
        yield Definition(node.name, is_class, ast.get_docstring(node) or "", _find_parameters(node), bases)


def _find_parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str] | None:
    functions = node.body if isinstance(node, ast.ClassDef) else [node]
    own = "__init__" if isinstance(node, ast.ClassDef) else node.name
    for function in functions:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name == own:
            given = function.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *([given.vararg] if given.vararg else [])]
            return None if given.kwarg else frozenset(each.arg for each in named)
    return None
