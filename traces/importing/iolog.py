"""fio's iologs, versions 2 and 3 (`write_iolog`; formats: fio's manual, "Trace file format").

Version 3 (fio 3.31 and newer): `TIME FILE ACTION [OFFSET LENGTH]`, the time in microseconds after
the log was begun.  Version 2: the same without times, but with `FILE wait TIME 0`: fio waits
until so many milliseconds after the start of its job have passed (measured with fio 3.33; its
manual says microseconds).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.traces.importing.dbench import Names
from fsmatrix.traces.importing.importer import (
    COARSE,
    MILLISECOND,
    Files,
    Handle,
    Importer,
    Lines,
    Malformed,
    Stamps,
    Unseen,
    extent,
    instant,
    number,
    shown_word,
)
from fsmatrix.traces.trace_model import NO_TIMES, Header, Operation, Thread
from fsmatrix.traces.tracefile import TraceWriter

HEADS: Mapping[bytes, int] = {b"fio version 2 iolog": 2, b"fio version 3 iolog": 3}
MICROSECOND = 1_000  # ns
ON_FILES = frozenset({b"add", b"open", b"close"})
TRANSFERS: Mapping[bytes, Kind] = {b"read": Kind.READ, b"write": Kind.WRITE}
SYNCS: Mapping[bytes, int] = {b"sync": 0, b"datasync": Flag.DATA_ONLY}
NOT_PLAYED: Mapping[bytes, str] = {b"trim": "trim", b"sync_file_range": "sync_file_range"}
WAIT = b"wait"
ACTIONS = tuple(
    word.decode() for word in (*sorted(ON_FILES), *TRANSFERS, *SYNCS, *NOT_PLAYED, WAIT)
)


class Action(NamedTuple):
    """One line.  Actions of several logs are ordered by time, and then line by line."""

    time: int  # ns after the log was begun
    line: int
    log: int
    file: bytes
    action: bytes
    offset: int
    size: int


class Log:
    """One iolog: its actions in order."""

    def __init__(self, path: Path, index: int) -> None:
        self.index = index
        self.lines = Lines(path)
        self.version = 0
        self.timed = False
        self.stamps = Stamps()

    def actions(self) -> Iterator[Action]:
        """All of them.  TraceError for a line that fio could not have written."""
        before = 0
        for line in self.lines:
            try:
                if not self.version:
                    self.version = _version(line)
                    self.timed = self.version > 2
                elif line.strip():
                    action = self._action(line, before)
                    before = action.time
                    if action.action == WAIT:
                        self.stamps.add(action.offset * MILLISECOND)
                    elif self.version > 2:
                        self.stamps.add(before)
                    if action.action != WAIT:
                        yield action
            except Malformed as error:
                raise self.lines.wrong(error) from error

    def _action(self, line: bytes, before: int) -> Action:
        time = before
        if line.rstrip() in HEADS:
            raise Malformed("another log begins here: cut it off, and import it beside this one")
        if self.version > 2:
            word, _, line = line.strip().partition(b" ")
            time = instant(word, MICROSECOND)
            if time < before:
                raise Malformed("its time is before that of the line before it")
        words = line.rsplit(None, 1)
        if len(words) == 2 and words[1] in ON_FILES:
            return Action(time, self.lines.number, self.index, words[0].strip(), words[1], 0, 0)
        words = line.rsplit(None, 3)
        if len(words) < 4:
            lacks = "`wait` needs a file before it: " if words[:1] == [WAIT] else ""
            raise Malformed(f"{lacks}neither 'FILE ACTION' nor 'FILE ACTION OFFSET LENGTH'")
        file, action = words[0].strip(), words[1]
        offset, size = number(words[2], "the offset"), number(words[3], "the length")
        if action == WAIT:
            if self.version > 2:
                raise Malformed("'wait' is not allowed in version 3")
            self.timed = True
            time = max(time, instant(words[2], MILLISECOND))
        return Action(time, self.lines.number, self.index, file, action, offset, size)


class Iolog(Importer):
    """fio's iologs; each is a thread of the trace."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        return head.partition(b"\n")[0].rstrip() in HEADS

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        logs = [Log(path, index) for index, path in enumerate(inputs)]
        for log in logs:  # the threads' rows are those of the logs
            writer.thread(Thread(process=log.index))
        reading = _Reading(writer, Names(roots))
        streams = [log.actions() for log in logs]
        for action in streams[0] if len(streams) == 1 else heapq.merge(*streams):
            try:
                reading.do(action)
            except Malformed as error:
                log = logs[action.log]
                log.lines.number = action.line  # a merge is a line ahead
                raise log.lines.wrong(error) from error
        for log in logs:
            if not log.version:
                log.lines.number = 1
                raise log.lines.wrong("no iolog: it is empty")
        reading.files.end()
        coarse = any(log.stamps.coarse for log in logs if log.timed)
        facts: JsonObject = {"versions": [log.version for log in logs]}
        return Header(
            source="fio-iolog",
            timed=all(log.timed for log in logs) and not coarse,
            unseen=dict(reading.unseen),
            facts={**facts, NO_TIMES: COARSE} if coarse else facts,
        )


class _Reading:
    """Carries out the actions of all logs."""

    def __init__(self, writer: TraceWriter, names: Names) -> None:
        self.files = Files(writer)
        self.unseen = Unseen()
        self._writer, self._names = writer, names
        self._open: dict[tuple[int, bytes], Handle] = {}
        self._begin: int | None = None

    def do(self, action: Action) -> None:
        """One action.  Malformed for what cannot be."""
        name = self._names.name(action.file)
        if name is None:
            self.unseen.add("outside the root")
            return
        if action.action == b"add":
            return  # says only that the file will be used
        key = (action.log, name)
        if action.action == b"open":
            if key in self._open:
                raise Malformed(f"opens {shown_word(action.file)}, which is open")
            if self.files.use(name).directory:
                raise Malformed(f"opens {shown_word(action.file)}, which is a directory")
            handle = self._open[key] = self.files.opened(name)
            self._add(action, Operation(Kind.OPEN, handle.slot))
            return
        if (opened := self._open.get(key)) is None:
            raise Malformed(f"uses {shown_word(action.file)}, which is not open")
        if action.action == b"close":
            self.files.closed(self._open.pop(key))
            self._add(action, Operation(Kind.CLOSE, opened.slot))
        else:
            self._work(action, opened)

    def _work(self, action: Action, handle: Handle) -> None:
        """What is done with an open file."""
        word = action.action
        if word in TRANSFERS:
            extent(action.offset, action.size)
            end = action.offset + action.size
            if word == b"read":
                handle.node.read(end)
            else:
                handle.node.written(end)
            kind, slot = TRANSFERS[word], handle.slot
            self._add(action, Operation(kind, slot, offset=action.offset, size=action.size))
        elif word in SYNCS:
            self._add(action, Operation(Kind.FSYNC, handle.slot, SYNCS[word]))
        elif word in NOT_PLAYED:
            self.unseen.add(NOT_PLAYED[word])
        else:
            raise Malformed(f"unknown action {shown_word(word)}; known: {', '.join(ACTIONS)}")

    def _add(self, action: Action, operation: Operation) -> None:
        if self._begin is None:
            self._begin = action.time
        self._writer.add(operation, action.time - self._begin, thread=action.log)


def _version(line: bytes) -> int:
    version = HEADS.get(line.rstrip())
    if version is None:
        raise Malformed("no iolog of version 2 or 3: it begins with 'fio version 2 iolog' or 3")
    return version
