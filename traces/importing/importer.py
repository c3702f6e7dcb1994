"""What the importers share: an importer, the lines of a text, words that become numbers, and files.

The files of an import are what stands under each name, and how long it was at the start.  What an
operation uses without the trace having made it was there at the start: a file as long as its reads
need before the trace writes so far, with the directories above it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsmatrix.results.files import safefile
from fsmatrix.results.registry import Registry
from fsmatrix.traces.capture.system import NO_FOLDER
from fsmatrix.traces.trace_model import ABSENT, MOST_BYTES, MOST_OFFSET, Header, TraceError, shown
from fsmatrix.traces.tracefile import MOST_FILES, Handles, TraceWriter, writing

MOST_LINE = 1 << 16  # bytes; a path has 4095
MOST_DIGITS = 20  # of a number: 2^64 has as many
MOST_UNSEEN = 100  # kinds of what is not in a trace
BUFFER = 1 << 20  # bytes read at once
MILLISECOND = 1_000_000  # ns
COARSE = "most of its times are that of the operation before"
UTF8_MARK, UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
ENCODED = 64  # bytes by which texts of two or four bytes a character are known: others are NUL

MOST_FILE_BYTES = 1 << 30  # of all names, which stay in memory


class Malformed(Exception):
    """A line is not what its format allows; the text says why.  `Lines.wrong` adds where."""


class Unseen(dict[str, int]):
    """What was seen but is not in the trace -> how often; a text cannot make it long."""

    def add(self, what: str) -> None:
        """Count it once more."""
        key = what if what in self or len(self) < MOST_UNSEEN else "of other kinds"
        self[key] = self.get(key, 0) + 1


class Importer(ABC):
    """One format.  Registered by name; one object for one import.

    `folder`: the program's working directory at the start, where the user names it.
    """

    folder: Path | None = None

    @staticmethod
    @abstractmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with these bytes (some 64 KiB) is of this format."""

    @abstractmethod
    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        """All operations of the inputs; the header to finish the trace with.

        `roots`: only files below them, whose names begin there; empty: all files, below "/".
        Several inputs are threads of one trace that begin together.  TraceError names the file
        and, of a text, the line; OSError as the system gives it.
        """


class Lines:
    """The lines of a text, one at a time, without their ends; `number` of the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        """TraceError for a line of more than 64 KiB; OSError as the system gives it."""
        handle = safefile.descriptor(self.path, follow=True)
        with os.fdopen(handle, "rb", buffering=BUFFER) as file:
            while line := file.readline(MOST_LINE):
                self.number += 1
                if len(line) == MOST_LINE and not line.endswith(b"\n"):
                    raise self.wrong(f"longer than {MOST_LINE} bytes")
                yield line.rstrip(b"\r\n")

    def wrong(self, reason: object) -> TraceError:
        """The error for the last line."""
        return TraceError(self.path, f"line {self.number}: {reason}")


def single(inputs: Sequence[Path], why: str) -> Path:
    """The only input; TraceError if there are several."""
    if len(inputs) > 1:
        raise TraceError(inputs[1], f"one at a time: {why}")
    return inputs[0]


def head(path: Path, length: int = MOST_LINE) -> bytes:
    """The first bytes of a file.  ResultError, OSError."""
    handle = safefile.descriptor(path, follow=True)
    try:
        return os.read(handle, length)
    finally:
        os.close(handle)


def encoding_problem(begin: bytes) -> str:
    """Why what begins so is no text that any tool writes, nor a log (empty: it may be one)."""
    if begin.startswith(UTF8_MARK):
        return "begins with a byte order mark: remove these three bytes"
    even, odd = (any(begin[first:ENCODED:2]) for first in (0, 1))
    if begin.startswith(UTF16_MARKS) or (even != odd and len(begin) > 1):
        return "is UTF-16 or UTF-32; turn it into UTF-8: iconv --from-code UTF-16 --to-code UTF-8"
    return ""


def number(word: bytes, what: str) -> int:
    """A word of digits; Malformed for anything else.

    What is 2^63 or more is neither an offset nor a size nor a time.
    """
    if not word.isdigit() or len(word) > MOST_DIGITS:
        raise Malformed(f"{what} {shown_word(word)} is no whole number from 0 to 2^63 - 1")
    value = int(word)
    if value >= MOST_OFFSET:
        raise Malformed(f"{what} {value} is 2^63 or more")
    return value


def instant(word: bytes, unit: int) -> int:
    """A time of so many units of ns, in ns; Malformed for 2^63 ns or more."""
    time = number(word, "the time") * unit
    if time >= MOST_OFFSET:
        raise Malformed(f"the time {shown_word(word)} is not below 2^63 ns")
    return time


class Stamps:
    """Whether the times of a source tell when operations began.

    They do not if they are no finer than a millisecond and most are that of the one before.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._count = self._repeated = 0
        self._fine = False

    def add(self, time: int) -> None:
        """The next one, ns."""
        self._fine = self._fine or time % MILLISECOND != 0
        self._count += self._last is not None
        self._repeated += time == self._last
        self._last = time

    @property
    def coarse(self) -> bool:
        """They are no times to replay by."""
        return not self._fine and 2 * self._repeated > self._count


def extent(offset: int, size: int) -> None:
    """Malformed for bytes that no operation can move."""
    if size > MOST_BYTES:
        raise Malformed(f"{size} bytes in one operation; {MOST_BYTES} are allowed")
    if offset + size >= MOST_OFFSET:
        raise Malformed(f"the end {offset + size} of the operation is 2^63 or more")


def shown_word(word: bytes) -> str:
    """A word of a text for a message."""
    text = word.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


# Names of trace formats -> importers; other packages add theirs as entry points.


BUILTIN = {
    "strace": "fsmatrix.traces.importing.strace:Strace",
    "fio-iolog": "fsmatrix.traces.importing.iolog:Iolog",
    "dbench": "fsmatrix.traces.importing.dbench:Dbench",
    "darshan": "fsmatrix.traces.importing.darshan:Darshan",
    "blkparse": "fsmatrix.traces.importing.blkparse:Blkparse",
}
IMPORTERS: Registry[Importer] = Registry("fsmatrix.traces", BUILTIN, "trace format")
# Files of other tools in, a trace out.


# In what is no trace, but comes from a tool that takes them -> what to do.
NEARLY = (
    (b"usecs/call     calls", "counts of strace -c; a trace has the calls: strace -f -ttt -T -y"),
    (b"# DXT, file_id", "the text of darshan-dxt-parser: import the log itself (.darshan)"),
    (b"# darshan log version", "the text of darshan-parser: import the log itself (.darshan)"),
    (b"\x07tae", "blktrace's own file: make a text of it by blkparse -i"),
)
FOLDER_ADVICE = "name the working directory of the program with --folder, or trace with -y"


@dataclass(frozen=True)
class Imported:
    """What an import has written."""

    format: str
    operations: int
    header: Header


def import_traces(
    inputs: Sequence[Path],
    out: Path,
    format: str = "",
    roots: Sequence[Path] = (),
    folder: Path | None = None,
) -> Imported:
    """One trace of all inputs, at `out`.  Without `format` they are recognised by content.

    `folder`: the working directory of the program, for relative names (absolute; strace).

    TraceError (or ResultError) names the file and line, UnknownName the formats that there are;
    OSError as the system gives it.  Nothing is written then.
    """
    for path in inputs:
        if out.exists() and path.samefile(out):
            raise TraceError(out, "is one of the inputs: give another name for the trace")
    for path in inputs:
        if problem := encoding_problem(head(path)):
            raise TraceError(path, problem)
    name = format or _recognised(inputs)
    importer = IMPORTERS.load(name)()
    importer.folder = folder
    with writing(out) as writer:
        header = importer.read(inputs, writer, roots)
        writer.finish(header)
        if not writer.operations:
            raise TraceError(inputs[0], _nothing(header))
        return Imported(name, writer.operations, header)


def format_of(begin: bytes) -> str:
    """The format of a file that begins so (base.head); empty: none that is known."""
    return next((name for name, each in _importers().items() if each.recognises(begin)), "")


@cache
def _importers() -> Mapping[str, type[Importer]]:
    """All of them; what is installed is looked through once, not for every file."""
    return {name: IMPORTERS.load(name) for name in IMPORTERS.names()}


def _recognised(inputs: Sequence[Path]) -> str:
    """The one format of all inputs."""
    common = ""
    for path in inputs:
        begin = head(path)
        if not begin:
            raise TraceError(path, "is empty")
        name = format_of(begin)
        if not name:
            formats = ", ".join(_importers())
            advice = next((text for sign, text in NEARLY if sign in begin), "")
            advice = advice or f"not a trace of a known format; name one with --format: {formats}"
            raise TraceError(path, advice)
        if common and name != common:
            raise TraceError(path, f"has the format {name}, but {inputs[0]} has {common}")
        common = name
    return common


def _nothing(header: Header) -> str:
    """Why a trace would be empty."""
    unseen = ", ".join(f"{count} {what}" for what, count in header.unseen.items())
    advice = f"; {FOLDER_ADVICE}" if NO_FOLDER in header.unseen else ""
    return "no operation of it can be in a trace" + (f" ({unseen})" if unseen else "") + advice


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
            if len(self._rows) >= MOST_FILES or self._bytes > MOST_FILE_BYTES:
                raise Malformed(
                    f"more than {MOST_FILES} files, or than {MOST_FILE_BYTES} bytes of names"
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
