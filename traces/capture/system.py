"""The traced program's view of its system: what a call means depends on all calls before it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.capture.processes import Descriptors, Files, Folder, OpenFile, Table, Task
from fsmatrix.traces.capture.text import AT_FDCWD, MASK, Call, Malformed, stated
from fsmatrix.traces.trace_model import (
    BLOCK,
    COLUMNS,
    MOST_BYTES,
    MOST_OFFSET,
    NOT_CAPTURED,
    UNKNOWN,
    Operation,
    Roots,
    Thread,
    name_problem,
    normal,
)
from fsmatrix.traces.tracefile import TraceWriter

# Operations in the order of their issue, whatever the order in which they ended.


MOST_WAITING = 16 * BLOCK  # operations that wait for a call that was begun before them and lasts
_ORDER = ("time", "count", "kind", "flags", "slot", "slot2", "thread", "offset", "size")
FIELDS = (*_ORDER, "latency", "result")
Row = tuple[int, ...]  # FIELDS


class Order:
    """Sorts operations into a trace; memory holds what waits for unfinished calls."""

    def __init__(self, writer: TraceWriter) -> None:
        self.moved = 0  # operations whose issue time had to be set to that of one before
        self._writer = writer
        self._rows: list[Row] = []
        self._limit = BLOCK
        self._origin: int | None = None
        self._last = 0

    def add(self, row: Row, unfinished: Mapping[int, int]) -> None:
        """One operation.  `unfinished`: who -> issue time of what is still to come."""
        self._rows.append(row)
        if len(self._rows) >= self._limit:
            self._write(min(unfinished.values(), default=None))

    def finish(self) -> None:
        """Write what waits."""
        self._write(None)

    def _write(self, bound: int | None) -> None:
        rows = self._rows
        rows.sort()
        end = len(rows)
        if bound is not None and end < MOST_WAITING:
            end = int(np.searchsorted(np.array([row[0] for row in rows]), bound, "right"))
        self._rows = rows[end:]
        self._limit = len(self._rows) + BLOCK
        if not end:
            return
        values = dict(zip(FIELDS, zip(*rows[:end], strict=True), strict=True))
        columns = {
            name: np.array(values[name], dtype=dtype)
            for name, dtype in COLUMNS.items()
            if name != "time"
        }
        columns["time"] = self._times(np.array(values["time"], dtype=np.int64))
        self._writer.append(columns)

    def _times(
        self, times: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Since the first operation; never going back."""
        if self._origin is None:
            self._origin = int(times[0])
        times = times - self._origin
        self.moved += int(np.count_nonzero(times < self._last))
        times = np.maximum(times, self._last)
        self._last = int(times[-1])
        return times.astype(np.uint64)


OUTSIDE = "outside the root"
ROOT_ITSELF = "the root itself"
NO_FILE = "a descriptor that was not opened in the trace"
NO_NAME = "a path that strace could not read"
NO_FOLDER = "a path relative to a directory that is not known"
LONG_NAME = "a path that is too long"


class System:
    """Processes, files and what is made of their calls."""

    def __init__(
        self, writer: TraceWriter, files: Files, roots: Roots, folders: Sequence[bytes | None]
    ) -> None:
        """`folders`: the working directory at the start, by number of the id space."""
        self.files, self.roots = files, roots
        self.unseen: Counter[str] = Counter()
        self.facts: Counter[str] = Counter()
        self.order = Order(writer)
        self.unfinished: dict[int, int] = {}  # task -> issue time
        self.tasks: dict[int, Task] = {}
        self.ranks: Mapping[int, int] = {}  # id space -> rank
        self._writer = writer
        self._folders = folders
        self._count = 0

    # -- processes -------------------------------------------------------------------------
    def task(self, task: int) -> Task:
        """A thread; one that nobody made is a new process."""
        if task not in self.tasks:
            folder = Folder(self._folders[task >> 40])
            self._new(task, task, Table(), folder)
        return self.tasks[task]

    def _new(self, task: int, process: int, table: Table, folder: Folder) -> None:
        self.tasks[task] = Task(task, process, table, folder)

    def forked(self, parent: Task, child: int, flags: bytes, time: int) -> None:
        """fork, vfork, clone or clone3 gave a child."""
        if child in self.tasks:
            self.gone(child, time)  # its end was not written down
        table = parent.table
        if b"CLONE_FILES" in flags:
            table.users += 1
        else:
            table = table.copy()
        folder = parent.folder if b"CLONE_FS" in flags else Folder(parent.folder.path)
        process = parent.process if b"CLONE_THREAD" in flags else child
        self._new(child, process, table, folder)

    def superseded(self, task: int, by: int, time: int) -> None:
        """`by`, another thread of the process, executes a program and goes on as `task`."""
        if by not in self.tasks or by == task:
            return
        self.gone(task, time)
        goes_on = self.tasks.pop(by)
        self._new(task, goes_on.process, goes_on.table, goes_on.folder)
        if by in self.unfinished:
            self.unfinished[task] = self.unfinished.pop(by)

    def executed(self, task: Task, call: Call) -> None:
        """execve: a table of its own, without what is closed then."""
        self.unshare(task)
        ended, task.table.cloexec = task.table.cloexec, Descriptors()
        for file in ended.release():
            self.closed(task, file, call, implied=True)

    @staticmethod
    def unshare(task: Task) -> None:
        """A table of its own."""
        if task.table.users > 1:
            task.table.users -= 1
            task.table = task.table.copy()

    def gone(self, task: int, time: int) -> None:
        """A thread ended: its table goes if it was the last that used it."""
        was = self.tasks.pop(task, None)
        self.unfinished.pop(task, None)
        if was is None:
            return
        was.table.users -= 1
        if was.table.users == 0:
            for file in was.table.cut().release():
                self.closed(was, file, Call(task, time=time), implied=True)

    # -- descriptors -----------------------------------------------------------------------
    def file(self, task: Task, number: int) -> OpenFile | None:
        """What a descriptor stands for; None is counted."""
        file = task.table.get(number)
        if file is None:
            self.unseen[NO_FILE] += 1
        return file

    def handle(self, task: Task, number: int) -> OpenFile | None:
        """An open file that the trace has a handle of; others are counted."""
        file = self.file(task, number)
        if file is None or file.slot >= 0:
            return file
        self.unseen[
            ROOT_ITSELF if file.path and self.roots.name(file.path) == b"" else OUTSIDE
        ] += 1
        return None

    def place(
        self, task: Task, number: int, file: OpenFile, call: Call, cloexec: bool = False
    ) -> None:
        """A descriptor stands for a file now; what it stood for before is closed."""
        if not 0 <= number < 1 << 31:
            raise Malformed(f"a descriptor of {number}")
        file.users += 1
        self.close(task, number, call, implied=True)
        task.table.put(number, file, cloexec)

    def close(self, task: Task, number: int, call: Call, implied: bool = False) -> None:
        """A descriptor ends."""
        file = task.table.pop(number)
        if file is not None:
            self.closed(task, file, call, implied)

    def close_all(self, task: Task, first: int, last: int, call: Call) -> None:
        """Descriptors from `first` to `last` end; those of other tables too cost nothing."""
        ended = task.table.cut(first, last)
        elsewhere = ended.handles()
        for file in ended.release():
            elsewhere -= file.counts
            self.closed(task, file, call)
        if elsewhere:
            self.facts["closes_of_copies"] += elsewhere

    def closed(self, task: Task, file: OpenFile, call: Call, implied: bool = False) -> None:
        """A descriptor of an open file has ended; with the last one its handle does."""
        file.users -= 1
        if file.slot < 0:
            return
        if file.users > 0:
            self.facts["closes_of_copies"] += not implied
            return
        if implied:
            self.facts["closed_without_a_call"] += 1
            call = Call(call.task, time=call.time)
        self.add(task, call, Operation(Kind.CLOSE, file.slot))
        self.files.closed(file.row, file.slot, call.time)
        file.slot = -1

    def told(self, task: Task, call: Call, works: bool) -> None:
        """What strace -y states: the working directory, and what inherited descriptors stand for.

        `works`: the call works on what its descriptors stand for, so that a handle is needed.
        """
        for number, stated_path in stated(call.arguments):
            path = normal(b"", stated_path)
            if number == AT_FDCWD:
                task.folder.path = path
                continue
            file = task.table.get(number)
            if file is None:
                file = OpenFile(path, before=True)
                self.place(task, number, file, call)
            if works and file.before:
                self._reopened(task, file, call)

    def _reopened(self, task: Task, file: OpenFile, call: Call) -> None:
        """A handle of what was opened before the trace, which begins at its start."""
        file.before = False
        name = self.roots.name(file.path or b"")
        if not name or name_problem(name):
            return
        file.row, file.node = self.files.row(name), self.files.node(name)
        file.slot = self.files.opened(file.row, call.time)
        opening = Operation(Kind.OPEN, file.slot)
        self.add(task, call, opening, result=UNKNOWN, latency=NOT_CAPTURED)
        self.files.present(file.node)
        self.facts["opened_by_import"] += 1

    # -- names -----------------------------------------------------------------------------
    def path(self, task: Task, number: int, path: bytes | None) -> bytes | None:
        """The normal path that a call names; None is counted."""
        if path is None:
            self.unseen[NO_NAME] += 1
            return None
        if path.startswith(b"/"):
            return normal(b"", path)
        if number == AT_FDCWD:
            base = task.folder.path
        else:
            file = task.table.get(number)
            base = file.path if file is not None else None
        if base is None:
            self.unseen[NO_FOLDER] += 1
            return None
        return normal(base, path)

    def name(self, path: bytes | None) -> bytes | None:
        """The name in the trace of a normal path; what has none is counted."""
        if path is None:
            return None
        name = self.roots.name(path)
        if name is None:
            self.unseen[OUTSIDE] += 1
        elif name == b"":
            self.unseen[ROOT_ITSELF] += 1
        elif name_problem(name):
            self.unseen[LONG_NAME] += 1
        else:
            return name
        return None

    # -- operations ------------------------------------------------------------------------
    def add(
        self,
        task: Task,
        call: Call,
        operation: Operation,
        *,
        result: int | None = None,
        latency: int | None = None,
    ) -> None:
        """One operation; without `result`, `latency` those of the call."""
        kind, slot, flags, slot2, offset, size = operation
        size = min(size, MOST_BYTES)
        if offset < 0 or offset + size >= MOST_OFFSET:
            raise Malformed(f"{size} bytes at {offset}: no byte lies at 2^63 or beyond")
        if result is None:
            result = outcome(call)
        if latency is None:
            latency = call.latency if call.result is not None else NOT_CAPTURED
        self._count += 1
        if task.row < 0:
            rank = self.ranks.get(task.id >> 40, 0)
            task.row = self._writer.thread(Thread(task.process & MASK, task.id & MASK, rank))
        self.order.add(
            (
                call.time, self._count, int(kind), flags, slot, slot2, task.row, offset, size,
                latency, result,
            ),
            self.unfinished,
        )  # fmt: skip


def failed(call: Call) -> bool:
    """Whether it is not known to have succeeded."""
    return call.result is None or bool(call.error) or call.result < 0


def outcome(call: Call) -> int:
    """0, -errno, or UNKNOWN."""
    if call.result is None:
        return UNKNOWN
    if call.error:
        return -int(getattr(errno, call.error, 0)) or UNKNOWN
    return 0 if call.result >= 0 else UNKNOWN


def learn(system: System, place: bytes, call: Call) -> None:
    """What an error says of a name."""
    if call.error == "ENOENT":
        system.files.absent(place)
    elif call.error in ("EEXIST", "EISDIR", "ENOTEMPTY"):
        mode = b"S_IFDIR" if call.error != "EEXIST" else b""
        system.files.present(system.files.node(place), mode=mode)
