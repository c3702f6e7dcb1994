"""Processes, their tables of descriptors, and the open files that several of them may share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fsmatrix.traces.capture import files

SHIFTS = (24, 16, 8, 0)  # of the bits of a descriptor's number, at each level of a table
LOW = 255
LAST = (1 << 32) - 1  # no descriptor has a greater number


@dataclass(slots=True)
class OpenFile:
    """What open makes: an offset, shared by all descriptors that were copied from it."""

    path: bytes | None  # normal; None: not to be had
    node: files.Node | None = None  # None: outside the roots, or a root itself
    row: int = 0
    slot: int = -1  # -1: there is no handle of it in the trace
    offset: int = 0
    append: bool = False
    listed: bool = False  # a directory whose listing began
    before: bool = False  # opened before the trace, and without a handle in it so far
    users: int = 0  # descriptors; those of tables that share a node count once

    @property
    def counts(self) -> bool:
        """Whether it has a handle in the trace, or may get one."""
        return self.slot >= 0 or self.before


@dataclass(slots=True)
class Node:
    """Descriptors whose numbers begin alike; of several tables until one of them changes it."""

    parts: dict[int, Any] = field(default_factory=dict)  # by 8 bits: nodes, or OpenFiles at last
    users: int = 1  # nodes and tables that it is part of
    handles: int = -1  # open files with a handle in the trace below it; -1: not counted

    def own(self) -> Node:
        """This node for one user, who changes it: itself, or a copy if it has others."""
        if self.users == 1:
            self.handles = -1
            return self
        self.users -= 1
        for part in self.parts.values():
            part.users += 1
        return Node(dict(self.parts))


class Descriptors:
    """Open files by number.  What several tables have in common is held once.

    A tree by the bits of the numbers.  A fork costs one reference, and a change then a copy of
    the nodes on the way to its number: a fork of a process with very many descriptors costs no
    more than one of a process with few.
    """

    def __init__(self, root: Node | None = None) -> None:
        self._root = root or Node()

    def fork(self) -> Descriptors:
        """The same for another table."""
        self._root.users += 1
        return Descriptors(self._root)

    def get(self, number: int) -> OpenFile | None:
        """What a descriptor stands for."""
        if number >> 32:
            return None
        node: Any = self._root
        for shift in SHIFTS:
            node = node.parts.get(number >> shift & LOW)
            if node is None:
                return None
        return node  # type: ignore[no-any-return]

    def put(self, number: int, file: OpenFile) -> None:
        """A number that is free stands for a file."""
        self._way(number)[-1].parts[number & LOW] = file

    def pop(self, number: int) -> OpenFile | None:
        """A descriptor ends; what it stood for."""
        if self.get(number) is None:
            return None
        way = self._way(number)
        file: OpenFile = way[-1].parts.pop(number & LOW)
        for depth in (2, 1, 0):
            if not way[depth + 1].parts:
                del way[depth].parts[number >> SHIFTS[depth] & LOW]
        return file

    def _way(self, number: int) -> list[Node]:
        """The nodes down to a number, each of them of this table alone."""
        self._root = self._root.own()
        way = [self._root]
        for shift in SHIFTS[:-1]:
            at = number >> shift & LOW
            node = way[-1].parts.get(at)
            way[-1].parts[at] = node = Node() if node is None else node.own()
            way.append(node)
        return way

    def cut(self, first: int, last: int) -> Descriptors:
        """Take out the numbers from `first` to `last`."""
        if first <= 0 and last >= LAST:
            whole, self._root = self._root, Node()
            return Descriptors(whole)
        self._root = self._root.own()
        return Descriptors(_cut(self._root, SHIFTS[0], first, last))

    def take(self, others: Descriptors) -> None:
        """Put in what others have, at numbers that are free here; nothing is left of them."""
        self._root = self._root.own()
        _merge(self._root, others._root.own())

    def handles(self) -> int:
        """How many have a handle in the trace."""
        return _handles(self._root, SHIFTS[0])

    def release(self) -> Iterator[OpenFile]:
        """Give all up: the files that are in no other table, by number; each loses a user then."""
        yield from _released(self._root, SHIFTS[0])


def _cut(node: Node, shift: int, first: int, last: int) -> Node:
    part = Node()
    for at in sorted(node.parts):
        low, high = at << shift, (at + 1 << shift) - 1
        if high < first or low > last:
            continue
        if first <= low and high <= last:
            part.parts[at] = node.parts.pop(at)
            continue
        below = node.parts[at] = node.parts[at].own()
        part.parts[at] = _cut(below, shift - 8, first - low, last - low)
        for each in (node, part):
            if not each.parts[at].parts:
                del each.parts[at]
    return part


def _merge(node: Node, others: Node) -> None:
    for at, other in others.parts.items():
        if at in node.parts:
            node.parts[at] = node.parts[at].own()
            _merge(node.parts[at], other.own())
        else:
            node.parts[at] = other


def _handles(node: Node, shift: int) -> int:
    if node.handles < 0:
        parts = node.parts.values()
        counts = (_handles(part, shift - 8) if shift else part.counts for part in parts)
        node.handles = sum(counts)
    return node.handles


def _released(node: Node, shift: int) -> Iterator[OpenFile]:
    node.users -= 1
    if node.users:
        return
    for at in sorted(node.parts):
        if shift:
            yield from _released(node.parts[at], shift - 8)
        else:
            yield node.parts[at]


@dataclass(slots=True)
class Table:
    """Descriptors of a process, or of several that share them (CLONE_FILES)."""

    kept: Descriptors = field(default_factory=Descriptors)
    cloexec: Descriptors = field(default_factory=Descriptors)  # that end with execve
    users: int = 1

    def copy(self) -> Table:
        """As fork does it: other descriptors of the same open files."""
        return Table(self.kept.fork(), self.cloexec.fork())

    def get(self, number: int) -> OpenFile | None:
        """What a descriptor stands for."""
        return self.kept.get(number) or self.cloexec.get(number)

    def put(self, number: int, file: OpenFile, cloexec: bool) -> None:
        """A number that is free stands for a file."""
        (self.cloexec if cloexec else self.kept).put(number, file)

    def pop(self, number: int) -> OpenFile | None:
        """A descriptor ends; what it stood for."""
        return self.kept.pop(number) or self.cloexec.pop(number)

    def mark(self, number: int, cloexec: bool) -> None:
        """A descriptor ends with execve, or does not."""
        if (file := self.pop(number)) is not None:
            self.put(number, file, cloexec)

    def mark_all(self, first: int, last: int) -> None:
        """All from `first` to `last` end with execve."""
        self.cloexec.take(self.kept.cut(first, last))

    def cut(self, first: int = 0, last: int = LAST) -> Descriptors:
        """Take out the descriptors from `first` to `last`."""
        part = self.kept.cut(first, last)
        part.take(self.cloexec.cut(first, last))
        return part


@dataclass(slots=True)
class Folder:
    """A working directory, of several threads."""

    path: bytes | None


@dataclass(slots=True)
class Task:
    """A thread that is traced, with the table of its descriptors."""

    id: int
    process: int
    table: Table
    folder: Folder
    row: int = -1  # of the thread in the trace, which has only those with operations
    closing: OpenFile | None = None  # by an unfinished close
