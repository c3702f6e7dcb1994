"""What a traced program has: processes, their descriptors, open files that several share; files.

Files have names over time, a length, and a length at the start.  That comes from a look before the
start (`sizes`), or else from the program's own calls: what stat gave before anything was changed,
or the highest byte that was read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsmatrix.traces.trace_model import ABSENT, Roots
from fsmatrix.traces.tracefile import Handles, TraceWriter

DIRECTORY = -2  # in `sizes`
LOOSE = -3  # in `sizes`: a link to a directory or what could not be looked into
Sizes = Mapping[bytes, int]  # name -> bytes, DIRECTORY, LOOSE; what is not in it was not there

SHIFTS = (24, 16, 8, 0)  # of the bits of a descriptor's number, at each level of a table
LOW = 255
LAST = (1 << 32) - 1  # no descriptor has a greater number


@dataclass(slots=True)
class Start:
    """What stood under a name before the program."""

    present: bool | None = None  # None: nothing tells
    size: int = 0  # at least
    directory: bool = False
    certain: bool = False  # nothing more is to be learned
    looked: bool = False  # that comes from a look before the start
    met: bool = False  # a node stood for it


@dataclass(slots=True)
class Node:
    """A file or directory, whatever its name is now."""

    name: bytes | None
    size: int = 0  # at least
    exact: bool = True
    origin: Start | None = None  # of what was there at the start and is still as it was
    directory: bool = False
    regular: bool = False
    created: bool = False  # perhaps by the program: it was opened with O_CREAT
    written: int = 0  # bytes up to which the program wrote


@dataclass
class Files:
    """The names below the roots."""

    writer: TraceWriter
    sizes: Sizes | None = None
    nodes: dict[bytes, Node] = field(default_factory=dict)  # by the name of now

    def __post_init__(self) -> None:
        self._handles = Handles(self.writer)
        self._rows: dict[bytes, int] = {}
        self._starts: dict[int, Start] = {}  # row ->
        self._moved: dict[bytes, bytes] = {}  # directory -> its name before
        self._closing: dict[int, list[tuple[int, int]]] = {}  # row -> (time, slot)
        looked = (self.sizes or {}).items()
        self._loose = {name for name, size in looked if size == LOOSE}  # nothing below is certain

    # -- rows and slots --------------------------------------------------------------------
    def row(self, name: bytes) -> int:
        """Row of a name in the trace."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self.writer.file(name)
            self._starts[row] = self._start(name)
        return row

    def slot(self, name: bytes) -> int:
        """A slot for what works on a name."""
        return self._handles.of_name(self.row(name))

    def opened(self, row: int, time: int) -> int:
        """The slot of a handle that was opened at `time`."""
        if row in self._closing:
            left = []
            for closed, slot in self._closing[row]:
                if closed < time:
                    self._handles.closed(row, slot)
                else:
                    left.append((closed, slot))
            self._closing[row] = left
            if not left:
                del self._closing[row]
        return self._handles.opened(row)

    def closed(self, row: int, slot: int, time: int) -> None:
        """A handle was closed at `time`: what is opened after that may have its slot."""
        self._closing.setdefault(row, []).append((time, slot))

    # -- nodes -----------------------------------------------------------------------------
    def node(self, name: bytes) -> Node:
        """What stands under a name now."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = self._first(name)
        return node

    def length(self, name: bytes) -> int:
        """How long it is now, as far as that is known."""
        node = self.nodes.get(name)
        return node.size if node is not None else max((self.sizes or {}).get(name, 0), 0)

    def _first(self, name: bytes) -> Node:
        start = self._starts[self.row(self._before(name))]
        if start.met:
            return Node(name)  # there was something, and it went
        start.met = True
        there = start.present is not False
        exact = start.certain or not there
        return Node(name, start.size, exact, start if there else None, start.directory)

    def _start(self, name: bytes) -> Start:
        if name in self.nodes or self._before(name) != name:
            return Start(False)  # it came there by a rename
        parent = self.nodes.get(name.rpartition(b"/")[0])
        if parent is not None and parent.directory and parent.origin is None:
            return Start(False)  # the program made the directory
        if self.sizes is None or (self._loose and any(map(self._loose.__contains__, _above(name)))):
            return Start()
        size = self.sizes.get(name, ABSENT)
        there, folder = size != ABSENT, size == DIRECTORY
        return Start(there, max(size, 0), folder, certain=True, looked=True)

    def _before(self, name: bytes) -> bytes:
        """The name at the start of what lies in a directory that was renamed since."""
        if not self._moved:
            return name
        end = len(name)
        while (end := name.rfind(b"/", 0, end)) > 0:
            if (old := self._moved.get(name[:end])) is not None:
                return old + name[end:]
        return name

    # -- what happens to them --------------------------------------------------------------
    def present(self, node: Node, size: int | None = None, mode: bytes = b"") -> None:
        """A call shows that it is there; `size`, `mode`: as stat gave them."""
        node.directory |= mode == b"S_IFDIR"
        node.regular |= mode == b"S_IFREG"
        start = node.origin
        if start is not None and not start.certain and not node.created:
            start.present = True
            start.directory |= node.directory
        if size is not None and node.regular:
            self.ends(node, size)

    def ends(self, node: Node, size: int) -> None:
        """A call shows how long it is now."""
        start = node.origin
        untouched = node.written == 0 and not node.created
        if start is not None and not start.certain and (size > node.written or untouched):
            start.present, start.size, start.certain = True, size, True
        node.size, node.exact, node.regular = size, True, True

    def absent(self, name: bytes) -> None:
        """A call shows that nothing stands there."""
        node = self.node(name)
        if node.origin is not None and not node.created:
            if node.origin.present is None:
                node.origin.present = False
            self.nodes[name] = Node(name)

    def created(self, name: bytes, directory: bool = False) -> Node:
        """A file or directory was made where none was."""
        self.absent(name)
        self._starts[self.row(name)].directory |= directory
        node = self.nodes[name] = Node(name, directory=directory, regular=not directory)
        return node

    def appeared(self, name: bytes) -> None:
        """It came by a call that no trace has: for the trace it was there before."""
        parent = self.nodes.get(name.rpartition(b"/")[0])
        self._loose.add(name)
        if parent is not None and parent.directory and parent.origin is None:
            self.nodes[name] = Node(name, exact=False)  # where nothing can have been before
            return
        start = self._starts[self.row(name)] = Start(met=True)
        self.nodes[name] = Node(name, exact=False, origin=start)

    def linked(self, name: bytes, size: int) -> None:
        """A link was made, of a file of at least this length; or a special file."""
        node = self.created(name)
        node.size, node.exact = size, False
        self._loose.add(name)

    def resized(self, node: Node, size: int) -> None:
        """It has this length now."""
        node.origin = None
        node.size, node.exact, node.regular = size, True, True

    def written(self, node: Node, end: int) -> None:
        """Bytes up to `end` were written."""
        node.regular = True
        node.written = max(node.written, end)
        node.size = max(node.size, end)

    def read(self, node: Node, end: int, short: bool) -> None:
        """Bytes up to `end` were read; `short`: fewer than were asked for."""
        if end > node.size:  # a short read before was short for another reason than the end
            node.size, start = end, node.origin
            if start is not None and not start.looked:
                start.present, start.size = True, end
        if short and not node.exact:
            self.ends(node, end)

    def removed(self, name: bytes, directory: bool = False) -> None:
        """Its name is gone; who has it open still has it."""
        node = self.node(name)
        self.present(node, mode=b"S_IFDIR" if directory else b"")
        node.name = None
        self.nodes[name] = Node(name)

    def renamed(self, old: bytes, new: bytes) -> None:
        """It has another name now; what had that is gone."""
        node = self.node(old)
        self.present(node)
        self.absent(new)
        if (gone := self.nodes.get(new)) is not None:
            gone.name = None
        del self.nodes[old]
        if not node.regular:
            self._rename_below(old, new)
        self.nodes[old], self.nodes[new] = Node(old), node
        node.name = new
        self.row(new)

    def exchanged(self, first: bytes, second: bytes) -> None:
        """Two names have changed their files; what lies below directories is not followed."""
        nodes = self.node(first), self.node(second)
        self.nodes[second], self.nodes[first] = nodes
        nodes[0].name, nodes[1].name = second, first

    def _rename_below(self, old: bytes, new: bytes) -> None:
        prefix = old + b"/"
        for name in [name for name in self.nodes if name.startswith(prefix)]:
            moved = self.nodes.pop(name)
            moved.name = new + name[len(old) :]
            self.nodes[moved.name] = moved
        for place, before in [*self._moved.items()]:
            if place == old or place.startswith(prefix):
                self._moved[new + place[len(old) :]] = before
                del self._moved[place]
        self._moved.setdefault(new, self._before(old))

    def finish(self) -> None:
        """Write down what was there at the start."""
        for name in self._rows:
            for folder in _above(name.rpartition(b"/")[0]):
                if folder in self._rows:
                    self._starts[self._rows[folder]].directory = True
        for row, start in self._starts.items():
            there = start.present or (start.present is None and start.size > 0)
            size = start.size if there and not start.directory else 0
            self.writer.was(row, size if there else ABSENT, start.directory)


def _above(name: bytes) -> Iterator[bytes]:
    """The name, and the directories that it lies in."""
    while name:
        yield name
        name = name.rpartition(b"/")[0]


# What lies below the roots before a program starts: the length of every file.


MOST_FILES = 1_000_000


def found_sizes(roots: Roots, most: int = MOST_FILES) -> Sizes | None:
    """Name in the trace -> bytes; None if there are more than `most` files.

    A link to a file has the length of that file; what is below a link to a directory, or in a
    directory that cannot be read, is not looked at (LOOSE).
    """
    lengths: dict[bytes, int] = {}
    waiting = [(root or b"/", label) for root, label in zip(roots.paths, roots.labels, strict=True)]
    for _, label in waiting:
        if label:
            lengths[label] = DIRECTORY
    while waiting:
        path, label = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = label + b"/" + entry.name if label else entry.name
                    lengths[name] = _length(entry)
                    if lengths[name] == DIRECTORY:
                        waiting.append((entry.path, name))
                    if len(lengths) > most:
                        return None
        except OSError:
            lengths[label] = LOOSE  # the program itself may not look into it either
    return lengths


def _length(entry: os.DirEntry[bytes]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            return DIRECTORY
        if entry.is_dir():
            return LOOSE
        facts = entry.stat()
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    except OSError:
        return LOOSE  # a link that leads nowhere, or it just went


@dataclass(slots=True)
class OpenFile:
    """What open makes: an offset, shared by all descriptors that were copied from it."""

    path: bytes | None  # normal; None: not to be had
    node: Node | None = None  # None: outside the roots, or a root itself
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
class TableNode:
    """Descriptors whose numbers begin alike; of several tables until one of them changes it."""

    parts: dict[int, Any] = field(default_factory=dict)  # by 8 bits: nodes, or OpenFiles at last
    users: int = 1  # nodes and tables that it is part of
    handles: int = -1  # open files with a handle in the trace below it; -1: not counted

    def own(self) -> TableNode:
        """This node for one user, who changes it: itself, or a copy if it has others."""
        if self.users == 1:
            self.handles = -1
            return self
        self.users -= 1
        for part in self.parts.values():
            part.users += 1
        return TableNode(dict(self.parts))


class Descriptors:
    """Open files by number.  What several tables have in common is held once.

    A tree by the bits of the numbers.  A fork costs one reference, and a change then a copy of
    the nodes on the way to its number: a fork of a process with very many descriptors costs no
    more than one of a process with few.
    """

    def __init__(self, root: TableNode | None = None) -> None:
        self._root = root or TableNode()

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

    def _way(self, number: int) -> list[TableNode]:
        """The nodes down to a number, each of them of this table alone."""
        self._root = self._root.own()
        way = [self._root]
        for shift in SHIFTS[:-1]:
            at = number >> shift & LOW
            node = way[-1].parts.get(at)
            way[-1].parts[at] = node = TableNode() if node is None else node.own()
            way.append(node)
        return way

    def cut(self, first: int, last: int) -> Descriptors:
        """Take out the numbers from `first` to `last`."""
        if first <= 0 and last >= LAST:
            whole, self._root = self._root, TableNode()
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


def _cut(node: TableNode, shift: int, first: int, last: int) -> TableNode:
    part = TableNode()
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


def _merge(node: TableNode, others: TableNode) -> None:
    for at, other in others.parts.items():
        if at in node.parts:
            node.parts[at] = node.parts[at].own()
            _merge(node.parts[at], other.own())
        else:
            node.parts[at] = other


def _handles(node: TableNode, shift: int) -> int:
    if node.handles < 0:
        parts = node.parts.values()
        counts = (_handles(part, shift - 8) if shift else part.counts for part in parts)
        node.handles = sum(counts)
    return node.handles


def _released(node: TableNode, shift: int) -> Iterator[OpenFile]:
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
