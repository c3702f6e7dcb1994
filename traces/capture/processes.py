"""Processes, their tables of descriptors, and the open files that several of them may share."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsmatrix.traces.capture.files import Node


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
    users: int = 0  # descriptors
    before: bool = False  # opened before the trace, and without a handle in it so far


@dataclass(slots=True)
class Table:
    """Descriptors of a process, or of several that share them (CLONE_FILES)."""

    files: dict[int, OpenFile] = field(default_factory=dict)
    cloexec: set[int] = field(default_factory=set)
    users: int = 1

    def copy(self) -> Table:
        """As fork does it: other descriptors of the same open files."""
        for file in self.files.values():
            file.users += 1
        return Table(dict(self.files), set(self.cloexec))


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
