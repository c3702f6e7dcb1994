"""Places of a module where one small change makes a mutant.

A place is known by its module, its function, the lines it is in and its ordinal among equal ones:
so it is found again in another revision.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Place:
    """Where a module can be changed, and what may stand there instead."""

    path: str  # of the module, below the root
    line: int
    function: str  # its qualified name, "" outside of all
    kind: str
    text: str  # of the lines that it is in, each white space one blank
    ordinal: int  # among those that are equal in all of the above but the line
    start: int  # byte
    end: int
    news: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    place: Place
    new: str

    def apply(self, source: bytes) -> bytes:
        """The module with it."""
        return source[: self.place.start] + self.new.encode() + source[self.place.end :]

    def line(self, source: bytes) -> str:
        """`Place.text` with it."""
        first, last = _lines(source, self.place.start, self.place.end)
        changed = self.apply(source)
        return _blank(changed[first : last + len(changed) - len(source)])

    def find(self, root: Path) -> Mutant | None:
        """The same in another revision; None if its place is gone."""
        if not (root / self.place.path).is_file():
            return None
        there = of_file(root, self.place.path)
        same = (one for one in there if _known_by(one) == _known_by(self.place))
        found = next((one for one in same if self.new in one.news), None)
        return None if found is None else Mutant(found, self.new)


def of_file(root: Path, path: str) -> tuple[Place, ...]:
    """All of a module."""
    return places(path, (root / path).read_bytes())


def _known_by(place: Place) -> tuple[str, str, str, str, int]:
    return place.path, place.function, place.kind, place.text, place.ordinal


def _lines(source: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the lines of these bytes begin and end."""
    last = source.find(b"\n", end)
    return source.rfind(b"\n", 0, start) + 1, len(source) if last < 0 else last


def _blank(text: bytes) -> str:
    return " ".join(text.decode().split())


# -- places of a module --------------------------------------------------------------------------
class _Edit(NamedTuple):
    kind: str
    start: int
    end: int
    news: tuple[str, ...]


_COMPARISONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_ARITHMETIC: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_LOGIC: dict[type[ast.AST], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
_OPPOSITE = {"min": "max", "max": "min"}
_EXACT = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)  # swapped: negated


LARGE = 1000.0  # to such a number with a point, one more is nothing: it is doubled


@functools.cache
def places(path: str, source: bytes) -> tuple[Place, ...]:
    """All of a module."""
    module, met, found = _Module(source), Counter[tuple[str, str, str]](), []
    for node, scope in _walk(ast.parse(source)):
        function = ".".join(one.name for one in scope)
        for edit in module.edits(node, scope):
            first, last = _lines(source, edit.start, edit.end)
            key = (function, edit.kind, _blank(source[first:last]))
            line = source.count(b"\n", 0, edit.start) + 1
            found.append(Place(path, line, *key, met[key], edit.start, edit.end, edit.news))
            met[key] += 1
    return tuple(found)


_Scope = tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ...]


def _walk(node: ast.AST, scope: _Scope = ()) -> Iterator[tuple[ast.AST, _Scope]]:
    """Nodes that are code, each with the definitions around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = (*scope, node)
    for child in _code(node):
        yield child, scope
        yield from _walk(child, scope)


def _code(node: ast.AST) -> list[ast.AST]:
    """What of a node is code: no types, decorators, messages, and no lists of names."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = [one for one in node.args.kw_defaults if one is not None]
            return [*node.args.defaults, *defaults, *node.body]
        case ast.ClassDef():
            return [*node.body]
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case ast.Raise() | ast.Assert() | ast.JoinedStr():  # 3.11 has no positions in the last
            return []
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return []
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return []
        case ast.Subscript(value=ast.Name(id="Literal")):
            return []
    return list(ast.iter_child_nodes(node))


class _Module:
    """A module's bytes, and the changes of its nodes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]

    def span(self, node: Any) -> tuple[int, int]:
        """First byte, and the one after the last."""
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset

    def edits(self, node: ast.AST, scope: _Scope) -> Iterator[_Edit]:
        """Of this node itself."""
        match node:
            case ast.Compare():
                sides = itertools.pairwise([node.left, *node.comparators])
                for (left, right), operator in zip(sides, node.ops, strict=True):
                    yield from self._swap("comparison", left, right, _COMPARISONS[type(operator)])
            case ast.BinOp() if type(node.op) in _ARITHMETIC and not _of_text(node):
                pair = _ARITHMETIC[type(node.op)]
                yield from self._swap("arithmetic", node.left, node.right, pair)
            case ast.BoolOp():
                for left, right in itertools.pairwise(node.values):
                    yield from self._swap("logic", left, right, _LOGIC[type(node.op)])
            case ast.If(test=test) | ast.IfExp(test=test) if _code(node):
                yield from self._negate("condition", test)
            case ast.comprehension():
                yield from self._negate("condition", *node.ifs)
            case ast.Return(value=ast.expr() as value) if _answers(scope):
                yield from self._negate("answer", value)
            case ast.Expr(value=ast.Call()):
                yield _Edit("call", *self.span(node), ("pass",))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _OPPOSITE:
                end = self.span(node.func)[1]
                yield _Edit("extreme", end - len(name), end, (_OPPOSITE[name],))
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield from self._number(node, value)

    def _swap(
        self, kind: str, left: ast.expr, right: ast.expr, pair: tuple[str, str]
    ) -> Iterator[_Edit]:
        """The operator between two operands: there are only blanks and brackets beside it."""
        first, last = self.span(left)[1], self.span(right)[0]
        gap = self.source[first:last].decode()
        found = re.search(r"\s+".join(map(re.escape, pair[0].split())), gap)
        if found and "#" not in gap:
            yield _Edit(kind, first + found.start(), first + found.end(), (pair[1],))

    def _negate(self, kind: str, *tests: ast.expr) -> Iterator[_Edit]:
        for test in tests:
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], _EXACT):
                continue
            start, end = self.span(test)
            yield _Edit(kind, start, end, (f"not ({self.source[start:end].decode()})",))

    def _number(self, node: ast.Constant, value: float) -> Iterator[_Edit]:
        changed = [value + 1]
        if isinstance(value, int) and value != 0:
            changed = [value + 1, value - 1]
        elif abs(value) >= LARGE:
            changed = [value * 2]
        if math.isfinite(value):
            yield _Edit("number", *self.span(node), tuple(map(repr, changed)))


def _of_text(node: ast.BinOp) -> bool:
    """Whether texts or lists are put together: the change would be an error of types."""
    literal = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
    return any(
        isinstance(side, literal)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        or (isinstance(side, ast.BinOp) and _of_text(side))
        for side in (node.left, node.right)
    )


def _answers(scope: _Scope) -> bool:
    """Whether a function says yes or no."""
    inner = scope[-1] if scope else None
    return (
        isinstance(inner, ast.FunctionDef)
        and isinstance(inner.returns, ast.Name)
        and inner.returns.id == "bool"
    )
