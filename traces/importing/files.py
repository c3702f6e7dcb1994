"""The files of an import: what stands under each name, and how long it was at the start.

What an operation uses without the trace having made it was there at the start: a file as long
as its reads need before the trace writes so far, with the directories above it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.traces.importing.base import Malformed
from fsmatrix.traces.model import ABSENT, shown
from fsmatrix.traces.reader import MOST_FILES
from fsmatrix.traces.writer import Handles, TraceWriter

MOST_BYTES = 1 << 30  # of all names, which stay in memory


@dataclass(slots=True)
class Node:
    """A file or a directory, whatever its name is now."""

    row: int  # of its first name
    directory: bool = False
    origin: bool = True  # it was there at the start, and was not cut since
    start: int = 0  # bytes at the start
    size: int = 0  # bytes, as far as the trace tells

    def read(self, end: int) -> None:
        """Bytes up to here were read."""
        if end > self.size:
            self.size = end
            if self.origin:
                self.start = end

    def written(self, end: int) -> None:
        """Bytes up to here were written."""
        self.size = max(self.size, end)

    def cut(self, size: int = 0) -> None:
        """It was truncated: what is read beyond was not there at the start."""
        self.size, self.origin = size, False


class Files:
    """Names and what stands under them, as operation follows operation."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._handles = Handles(writer)
        self._rows: dict[bytes, int] = {}
        self._bytes = 0  # of all names
        self._there: dict[bytes, Node] = {}
        self._inside: dict[bytes, set[bytes]] = {}  # directory -> names of what stands in it
        self._first: list[Node] = []  # that were there at the start

    # -- what is there -------------------------------------------------------------------------
    def row(self, name: bytes) -> int:
        """Row of a name, that of a file that was not there if it is new."""
        row = self._rows.get(name)
        if row is None:
            self._bytes += len(name)
            if len(self._rows) >= MOST_FILES or self._bytes > MOST_BYTES:
                raise Malformed(
                    f"more than {MOST_FILES} files, or than {MOST_BYTES} bytes of names"
                )
            row = self._rows[name] = self._writer.file(name, ABSENT)
        return row

    def get(self, name: bytes) -> Node | None:
        """What stands there now, as far as the trace tells."""
        return self._there.get(name)

    def use(self, name: bytes, directory: bool = False) -> Node:
        """What stands there; if the name is new it was there at the start.

        Malformed if it was removed, or cannot have been there.
        """
        node = self._there.get(name)
        if node is not None:
            return node
        new, above = [name], name.rpartition(b"/")[0]
        while above and above not in self._there:
            new.append(above)
            above = above.rpartition(b"/")[0]
        start = self._there.get(above)
        was = start is None or (start.directory and start.origin)
        if not was or any(each in self._rows for each in new):
            raise Malformed(f"{shown(name)} is not there")
        for each in reversed(new):
            node = self._put(each, Node(self.row(each), directory or each != name))
            self._first.append(node)
        return self._there[name]

    def created(self, name: bytes, directory: bool = False) -> Node:
        """A new file or directory."""
        self.above(name)
        return self._put(name, Node(self.row(name), directory, origin=False))

    def above(self, name: bytes) -> None:
        """Malformed if there is no directory that a new name can stand in."""
        above = name.rpartition(b"/")[0]
        if above and not self.use(above, directory=True).directory:
            raise Malformed(f"{shown(above)} is no directory")

    def removed(self, name: bytes) -> None:
        """What stands there is gone."""
        self._there.pop(name, None)
        self._inside.get(name.rpartition(b"/")[0], set()).discard(name)

    def renamed(self, old: bytes, new: bytes) -> None:
        """What stands there, and below, stands elsewhere."""
        for name in [old, *self.below(old)]:
            node = self._there[name]
            self.removed(name)
            target = new + name[len(old) :]
            self.row(target)
            self._put(target, node)

    def below(self, name: bytes) -> list[bytes]:
        """Names of what stands below a directory, what is in a directory before it."""
        names = [name]
        for each in names:
            names.extend(sorted(self._inside.get(each, ())))
        return names[:0:-1]

    def _put(self, name: bytes, node: Node) -> Node:
        self._there[name] = node
        self._inside.setdefault(name.rpartition(b"/")[0], set()).add(name)
        return node

    def end(self) -> None:
        """Tell the writer how long everything was at the start."""
        for node in self._first:
            self._writer.was(node.row, node.start, node.directory)

    # -- slots ---------------------------------------------------------------------------------
    def slot(self, name: bytes) -> int:
        """A slot for what works on a name."""
        return self._handles.of_name(self.row(name))

    def opened(self, name: bytes) -> Handle:
        """A new handle of the file with this name now."""
        row = self.row(name)
        return Handle(row, self._handles.opened(row), self.use(name))

    def closed(self, handle: Handle) -> None:
        """The handle is gone."""
        self._handles.closed(handle.row, handle.slot)


@dataclass(frozen=True, slots=True)
class Handle:
    """An open file: the row of its name when it was opened, its slot, and what it is."""

    row: int
    slot: int
    node: Node
