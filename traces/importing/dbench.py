"""dbench's loadfiles: what one client does in one pass, as dbench 4.0 does it on POSIX.

A line is `[TIME] VERB PARAMETER... STATUS`, names in double quotes: `WriteX HANDLE OFFSET SIZE
RETURNED STATUS`, `NTCreateX "NAME" OPTIONS DISPOSITION HANDLE STATUS`, `Unlink "NAME" ATTRIBUTES
STATUS`, `Rename "OLD" "NEW" STATUS` (dbench 4.0).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.importing.importer import (
    COARSE,
    Files,
    Handle,
    Importer,
    Lines,
    Malformed,
    Stamps,
    Unseen,
    extent,
    number,
    shown_word,
)
from fsmatrix.traces.trace_model import (
    MOST_OFFSET,
    NO_TIMES,
    Header,
    Operation,
    Roots,
    Thread,
    name_problem,
    normal,
)
from fsmatrix.traces.tracefile import TraceWriter

OK = frozenset({"NT_STATUS_OK", "0x00000000", "0x0", "SUCCESS"})
CREATING = 2  # disposition FILE_CREATE
TRUNCATING = frozenset({4, 5})  # dispositions FILE_OVERWRITE and FILE_OVERWRITE_IF
DIRECTORY = 1  # create option FILE_DIRECTORY_FILE


class Directive(NamedTuple):
    """One line of a loadfile."""

    time: str  # seconds after the start as written; empty: the line has none
    verb: str
    parameters: tuple[str, ...]  # names without their quotes
    status: str

    @property
    def ok(self) -> bool:
        """Whether the operation went well when the loadfile was made."""
        return self.status in OK


def directive(line: str) -> Directive | None:
    """What a line says; None for one that has no verb and status."""
    if '"' in line:
        words: list[str] = []
        for index, part in enumerate(line.split('"')):
            words.extend([part] if index % 2 else part.split())
    else:
        words = line.split()
    time = words.pop(0) if words and words[0][:1].isdigit() else ""
    if len(words) < 2:
        return None
    return Directive(time, words[0], tuple(words[1:-1]), words[-1])


def integer(word: str) -> int:
    """As strtol reads it, 0 for what is no number."""
    try:
        return int(word, 0)
    except ValueError:
        return 0


# Which name in the trace a path of a source gets.


class Names:
    """Names of paths below the roots, or of all without roots; relative ones begin at "/"."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """`roots`: absolute; ValueError if one contains another."""
        self._roots = Roots([os.fsencode(root) for root in roots] or [b"/"])

    def name(self, path: bytes) -> bytes | None:
        """The name of a path as the source writes it; None: outside the roots, or a root itself.

        Malformed for what can be no path.
        """
        whole = normal(b"", path)
        name = None if whole in self._roots.paths else self._roots.name(whole)
        if name and (reason := name_problem(name)):
            raise Malformed(reason)
        return name


# One client of dbench: what each verb of a loadfile does on POSIX.
#
# As strace shows it.  Names are used as they are written.  Not in the trace is what dbench adds
# around an operation: the stat and the search of a directory before it, the fstat after an open.


ERRORS: Mapping[str, int] = {  # what the status of a failed operation is on POSIX
    "NT_STATUS_OBJECT_NAME_NOT_FOUND": errno.ENOENT,
    "NT_STATUS_OBJECT_PATH_NOT_FOUND": errno.ENOENT,
    "NT_STATUS_NO_SUCH_FILE": errno.ENOENT,
    "NT_STATUS_OBJECT_NAME_COLLISION": errno.EEXIST,
    "NT_STATUS_ACCESS_DENIED": errno.EACCES,
    "NT_STATUS_FILE_IS_A_DIRECTORY": errno.EISDIR,
    "NT_STATUS_NOT_A_DIRECTORY": errno.ENOTDIR,
    "NT_STATUS_DIRECTORY_NOT_EMPTY": errno.ENOTEMPTY,
    "NT_STATUS_DISK_FULL": errno.ENOSPC,
}
# nothing in a trace is like them: statvfs, utime, locks of ranges, a pause
NOT_PLAYED = frozenset(
    {"QUERY_FS_INFORMATION", "SET_FILE_INFORMATION", "LockX", "UnlockX", "Sleep"}
)
MOST_OPEN = 1 << 20  # handles of one client


class Client:
    """Carries out the directives of one client."""

    def __init__(
        self,
        writer: TraceWriter,
        files: Files,
        names: Names,
        unseen: Unseen,
        index: int,
    ) -> None:
        self._writer, self._files, self._names, self._unseen = writer, files, names, unseen
        self._thread = writer.thread(Thread(process=index))
        self._handles: dict[str, Handle | bytes] = {}  # bytes: the name of a directory
        self._time = 0

    def do(self, line: Directive, time: int) -> None:
        """One directive.  Malformed for what dbench would not do."""
        if line.verb in NOT_PLAYED:
            self._unseen.add(line.verb)
            return
        doing = DOING.get(line.verb)
        if doing is None:
            verbs = ", ".join(sorted({*DOING, *NOT_PLAYED}))
            raise Malformed(f"unknown operation {line.verb[:40]!r}; known: {verbs}")
        parameters, method = doing
        if len(line.parameters) < parameters:
            raise Malformed(f"{line.verb} has {parameters} parameters and a status")
        if not line.ok and line.status not in ERRORS:
            self._unseen.add(f"{line.verb} with the status {line.status[:40]}")
            return
        self._time = time
        method(self, line)

    # -- names -----------------------------------------------------------------------------
    def _name(self, path: str) -> bytes | None:
        name = self._names.name(path.replace("\\", "/").encode("latin-1"))
        if name is None:
            self._unseen.add("outside the root")
        return name

    def create(self, line: Directive) -> None:
        path, options, disposition, handle = line.parameters[:4]
        if (name := self._name(path)) is None:
            return
        if handle in self._handles and line.ok:
            raise Malformed(f"handle {handle[:40]} is open")
        if len(self._handles) >= MOST_OPEN:
            raise Malformed(f"more than {MOST_OPEN} handles are open")
        node = self._files.get(name)
        if line.ok and (integer(options) & DIRECTORY or (node and node.directory)):
            if integer(options) & DIRECTORY:
                self._make(name)
            self._handles[handle] = name
            return
        how = integer(disposition)
        creates = how == CREATING or how in TRUNCATING
        kind = Kind.CREATE if creates else Kind.OPEN
        flags = Flag.TRUNCATE if how in TRUNCATING else 0
        if not line.ok:
            exclusive = Flag.EXCLUSIVE if creates and ERRORS[line.status] == errno.EEXIST else 0
            self._add(Operation(kind, self._files.slot(name), flags=flags | exclusive), line)
            return
        if creates and node is None:
            node = self._files.created(name)
        else:
            node = self._files.use(name)
            if how in TRUNCATING:
                node.cut()
        opened = self._handles[handle] = self._files.opened(name)
        self._add(Operation(kind, opened.slot, flags=flags), line)

    def mkdir(self, line: Directive) -> None:
        if (name := self._name(line.parameters[0])) is None:
            return
        if line.ok:
            self._make(name)
        else:
            self._add(Operation(Kind.MKDIR, self._files.slot(name)), line)

    def _make(self, name: bytes) -> None:
        """mkdir, which dbench also tries where a directory is already."""
        there = self._files.get(name)
        if there is None:
            self._files.created(name, directory=True)
        self._add(
            Operation(Kind.MKDIR, self._files.slot(name)),
            None,
            result=-errno.EEXIST if there else 0,
        )

    def remove(self, line: Directive) -> None:
        if (name := self._name(line.parameters[0])) is None:
            return
        kind = Kind.RMDIR if line.verb == "Rmdir" else Kind.UNLINK
        if line.ok:
            node = self._files.use(name, directory=kind == Kind.RMDIR)
            if node.directory != (kind == Kind.RMDIR) or self._files.below(name):
                raise Malformed(f"{line.verb} of {shown_word(name)} cannot have succeeded")
            self._files.removed(name)
        self._add(Operation(kind, self._files.slot(name)), line)

    def rename(self, line: Directive) -> None:
        old, new = (self._name(path) for path in line.parameters[:2])
        if old is None or new is None:
            return
        if line.ok:
            self._files.use(old)
            self._files.above(new)
            target = self._files.get(new)
            inside = (new + b"/").startswith(old + b"/")
            if inside or (target and (target.directory or self._files.below(new))):
                raise Malformed(f"Rename to {shown_word(new)} cannot have succeeded")
            self._files.renamed(old, new)
        self._add(Operation(Kind.RENAME, self._files.slot(old), slot2=self._files.slot(new)), line)

    def deltree(self, line: Directive) -> None:
        """Looks into all directories and unlinks the files; dbench leaves the directories."""
        name = self._name(line.parameters[0])
        if name is None or self._files.get(name) is None:
            return
        for each in [*self._files.below(name), name]:
            node = self._files.use(each)
            if node.directory:
                self._add(Operation(Kind.READDIR, self._files.slot(each)), None)
            else:
                self._files.removed(each)
                self._add(Operation(Kind.UNLINK, self._files.slot(each)), None)

    def find(self, line: Directive) -> None:
        """A search reads the directory, whether or not something in it is like the pattern."""
        above = line.parameters[0].replace("/", "\\").rpartition("\\")[0]
        if (name := self._name(above)) is None:
            return
        if self._files.get(name) is not None or line.ok:
            if not self._files.use(name, directory=True).directory:
                raise Malformed(f"{shown_word(name)} is no directory")
            self._add(Operation(Kind.READDIR, self._files.slot(name)), None)
        else:
            self._add(Operation(Kind.READDIR, self._files.slot(name)), line)

    def stat(self, line: Directive) -> None:
        if (name := self._name(line.parameters[0])) is None:
            return
        if line.ok:
            self._files.use(name)
        self._add(Operation(Kind.STAT, self._files.slot(name)), line)

    # -- handles ---------------------------------------------------------------------------
    def _handle(self, line: Directive) -> Handle | bytes:
        handle = self._handles.get(line.parameters[0])
        if handle is None:
            raise Malformed(f"handle {line.parameters[0][:40]} is not open")
        return handle

    def close(self, line: Directive) -> None:
        handle = self._handle(line)
        if line.ok:
            del self._handles[line.parameters[0]]
        if isinstance(handle, Handle) and line.ok:
            self._files.closed(handle)
            self._add(Operation(Kind.CLOSE, handle.slot), line)

    def stat_handle(self, line: Directive) -> None:
        handle = self._handle(line)
        slot = handle.slot if isinstance(handle, Handle) else self._files.slot(handle)
        self._add(Operation(Kind.STAT, slot), line)

    def flush(self, line: Directive) -> None:
        handle = self._handle(line)
        if isinstance(handle, Handle):
            self._add(Operation(Kind.FSYNC, handle.slot), line)
        else:
            self._unseen.add("Flush of a directory")

    def transfer(self, line: Directive) -> None:
        handle = self._handle(line)
        if not isinstance(handle, Handle):
            raise Malformed(f"{line.verb} on {shown_word(handle)}, which is a directory")
        offset, size, moved = (
            number(word.encode("latin-1"), what)
            for word, what in zip(
                line.parameters[1:4], ("the offset", "the size", "the bytes moved"), strict=True
            )
        )
        extent(offset, size)
        if moved > size:
            raise Malformed(f"{moved} bytes moved of {size}")
        kind = Kind.READ if line.verb == "ReadX" else Kind.WRITE
        if line.ok and moved:
            (handle.node.read if kind == Kind.READ else handle.node.written)(offset + moved)
        self._add(Operation(kind, handle.slot, offset=offset, size=size), line, result=moved)

    def _add(self, operation: Operation, line: Directive | None, result: int = 0) -> None:
        """`line`: its status counts; None: the operation succeeds."""
        if line is not None and not line.ok:
            result = -ERRORS[line.status]
        self._writer.add(operation, self._time, thread=self._thread, result=result)


Method = Callable[[Client, Directive], None]
DOING: Mapping[str, tuple[int, Method]] = {  # verb -> its parameters, and how it is done
    "NTCreateX": (4, Client.create),
    "Mkdir": (1, Client.mkdir),
    "Rmdir": (1, Client.remove),
    "Unlink": (1, Client.remove),
    "Rename": (2, Client.rename),
    "Deltree": (1, Client.deltree),
    "FIND_FIRST": (1, Client.find),
    "QUERY_PATH_INFORMATION": (1, Client.stat),
    "Close": (1, Client.close),
    "QUERY_FILE_INFORMATION": (1, Client.stat_handle),
    "Flush": (1, Client.flush),
    "WriteX": (4, Client.transfer),
    "ReadX": (4, Client.transfer),
}
SECOND = 10**9  # ns


class Line(NamedTuple):
    """A directive with where it stands."""

    time: int  # ns
    number: int
    client: int
    directive: Directive


class Dbench(Importer):
    """Loadfiles; each is a client, which is a thread of the trace."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        first = [line for line in head.decode("latin-1").splitlines()[:8] if line.strip()]
        parsed = [directive(line) for line in first]
        return any(each and each.verb in DOING for each in parsed)

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        texts = [Lines(path) for path in inputs]
        timed = [False] * len(texts)
        stamps = [Stamps() for _ in texts]
        files, unseen = Files(writer), Unseen()
        names = Names(roots)
        clients = [Client(writer, files, names, unseen, index) for index in range(len(texts))]
        streams = [_lines(text, index, timed) for index, text in enumerate(texts)]
        begin: int | None = None
        for line in streams[0] if len(streams) == 1 else merge(*streams):
            if begin is None:
                begin = line.time
            try:
                stamps[line.client].add(line.time)
                clients[line.client].do(line.directive, line.time - begin)
            except Malformed as error:
                text = texts[line.client]
                text.number = line.number  # a merge is a line ahead
                raise text.wrong(error) from error
        files.end()
        coarse = any(timed) and any(each.coarse for each in stamps)
        return Header(
            source="dbench",
            timed=all(timed) and not coarse,
            unseen=dict(unseen),
            facts={NO_TIMES: COARSE} if coarse else {},
        )


def _lines(text: Lines, client: int, timed: list[bool]) -> Iterator[Line]:
    """Lines of a text; `timed` becomes true where they have times."""
    before, first = 0, True
    for raw in text:
        if not raw.strip() or raw.startswith(b"#"):
            continue
        line = directive(raw.decode("latin-1"))
        try:
            if line is None:
                raise Malformed("no 'VERB PARAMETER... STATUS' of a loadfile")
            if first:
                timed[client], first = bool(line.time), False
            if timed[client] != bool(line.time):
                raise Malformed("some lines have times and some have none")
            time = _time(line.time) if line.time else 0
            if time < before:
                raise Malformed("its time is before that of the line before it")
        except Malformed as error:
            raise text.wrong(error) from error
        before = time
        yield Line(time, text.number, client, line)


def _time(word: str) -> int:
    """Seconds as written -> ns."""
    try:
        time = Decimal(word) * SECOND
        if 0 <= time < MOST_OFFSET:
            return int(time)
    except ArithmeticError as error:
        raise Malformed(f"the time {word[:40]!r} is no number of seconds") from error
    raise Malformed(f"the time {word[:40]!r} is not from 0 to 2^63 ns")
