"""Darshan's logs with DXT: each read and write of each rank, with its begin and end.

Counters, which are what Darshan stores without DXT, hold no single operation.  DXT stores what was
moved, so sizes asked for are not known where less came; and it stores no opens: each rank opens a
file before its first operation on it and closes it after its last, which the header's facts say.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.importing.dbench import Names
from fsmatrix.traces.importing.dxt import MODULES, SEGMENT
from fsmatrix.traces.importing.importer import (
    Files,
    Handle,
    Importer,
    Malformed,
    Unseen,
    extent,
    head,
    single,
)
from fsmatrix.traces.trace_model import MOST_OFFSET, Header, Operation, Thread, TraceError
from fsmatrix.traces.tracefile import TraceWriter

READER = "fsmatrix.traces.importing.dxt"
MAGIC = 6567223  # of a log of Darshan 3, after 8 bytes with its version
VERSION = re.compile(rb"\d\.\d\d\0{4}")
MISSING = "reading Darshan logs needs the package darshan: pip install 'fsmatrix[darshan]'"
NO_ROOM = "operations that DXT's buffers had no room for; no counter tells how many"
MOST_RANK = 1 << 24
SECOND = 1e9  # ns
DEADLINE_S = 120  # that Darshan's library has for a log, and a second more for each
BYTES_A_SECOND = 1 << 16  # of it; a tenth of what it reads on a slow machine
COMPLAINT = re.compile(r"^Error: (.*)", re.MULTILINE)  # the library goes on after it


@dataclass(frozen=True)
class Dxt:
    """What a log says of single operations."""

    modules: Mapping[str, bool]  # what the log has -> whether Darshan dropped some of it
    used: str
    records: Sequence[tuple[str, int]]  # path, rank
    counted: Sequence[tuple[str, int, int]]  # path, reads, writes by Darshan's counters
    segments: npt.NDArray[Any]  # dtype SEGMENT, in the order of their starts


class Darshan(Importer):
    """One log with DXT: a thread for each rank."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        number = head[8:16]
        return VERSION.match(head) is not None and MAGIC in (
            int.from_bytes(number, "little"),
            int.from_bytes(number, "big"),
        )

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        path = single(inputs, "the times of two jobs have nothing in common")
        log = _read(path)
        work = _Work(writer, Names(roots), log)
        for row, segment in enumerate(log.segments.tolist()):
            record, write, offset, length, start, end = segment
            try:
                work.do(record, Kind.WRITE if write else Kind.READ, offset, length, start, end)
            except Malformed as error:
                name, rank = log.records[record]
                place = f"operation {row} by start (rank {rank}, file {name[:80]!r})"
                raise TraceError(path, f"{place}: {error}") from error
        work.end()
        counts = work.counts()
        if log.modules[log.used] and not counts:
            work.unseen.add(NO_ROOM)
        for kind in ("reads", "writes"):
            left = counts.get(f"counted_{kind}", 0) - counts.get(f"traced_{kind}", 0)
            if left > 0:
                work.unseen[f"{kind} that Darshan counted and DXT did not trace"] = left
        return Header(
            source="darshan",
            unseen=dict(work.unseen),
            facts={
                "module": log.used,
                "modules": sorted(log.modules),
                "partial": log.modules[log.used],
                "opened_by_import": work.opens,
                "closed_without_a_call": work.opens,
                **counts,
            },
        )


class _Work:
    """The operations as a trace."""

    def __init__(self, writer: TraceWriter, names: Names, log: Dxt) -> None:
        self.unseen = Unseen()
        self.opens = 0
        self._writer, self._names, self._log = writer, names, log
        self._files = Files(writer)
        self._open: dict[int, Handle | None] = {}  # record -> its handle; None: outside
        self._left = Counter(log.segments["record"].tolist())  # operations of each record
        self._done: Counter[Kind] = Counter()
        self._begin: int | None = None
        self._last = 0

    def do(
        self, record: int, kind: Kind, offset: int, length: int, start: float, end: float
    ) -> None:
        """One operation.  Malformed for what cannot be."""
        if offset < 0 or length < 0:
            raise Malformed(f"{length} bytes at {offset}")
        extent(offset, length)
        if not 0 <= start <= end < MOST_OFFSET / SECOND:
            raise Malformed(f"it begins at {start} s and ends at {end} s")
        time = round(start * SECOND)
        if self._begin is None:
            self._begin = time
        self._last = time - self._begin
        name, rank = self._log.records[record]
        thread = self._writer.thread(Thread(process=rank, rank=rank))
        if record not in self._open:
            self._open[record] = self._opened(name, thread)
        handle = self._open[record]
        if handle is None:
            self.unseen.add("outside the root")
            return
        (handle.node.read if kind == Kind.READ else handle.node.written)(offset + length)
        self._writer.add(
            Operation(kind, handle.slot, offset=offset, size=length),
            self._last,
            thread=thread,
            latency=round((end - start) * SECOND),
            result=length,
        )
        self._done[kind] += 1
        self._left[record] -= 1
        if not self._left[record]:
            self._files.closed(handle)
            self._writer.add(Operation(Kind.CLOSE, handle.slot), self._last, thread=thread)

    def end(self) -> None:
        """No more operations."""
        self._files.end()

    def counts(self) -> dict[str, int]:
        """Reads and writes below the roots, traced and by the counters; empty without these."""
        counted = [each for each in self._log.counted if self._inside(each[0])]
        if not counted:
            return {}
        return {
            "traced_reads": self._done[Kind.READ],
            "counted_reads": sum(reads for _, reads, _ in counted),
            "traced_writes": self._done[Kind.WRITE],
            "counted_writes": sum(writes for _, _, writes in counted),
        }

    def _inside(self, path: str) -> bool:
        try:
            return self._names.name(path.encode("utf-8", "surrogateescape")) is not None
        except Malformed:
            return False

    def _opened(self, path: str, thread: int) -> Handle | None:
        name = self._names.name(path.encode("utf-8", "surrogateescape"))
        if name is None:
            return None
        if self._files.use(name).directory:
            raise Malformed("it is a directory")
        handle = self._files.opened(name)
        self.opens += 1
        self._writer.add(Operation(Kind.OPEN, handle.slot), self._last, thread=thread)
        return handle


def _failure(status: int, complaint: str) -> str:
    """Why the reading process failed, empty if it did not.

    The library gives what lies before damage, and says so on its standard error only.
    """
    if not status:
        found = COMPLAINT.search(complaint)
        return found[1][:200] if found else ""
    if complaint:
        return complaint.splitlines()[-1][:200]
    return f"it ended with {f'status {status}' if status > 0 else f'signal {-status}'}"


def _read(path: Path) -> Dxt:
    """The segments of a log.  TraceError, OSError."""
    head(path, 1)  # an error of the system says more than the library does
    if importlib.util.find_spec("darshan") is None:
        raise TraceError(path, MISSING)
    command = [sys.executable, "-P", "-m", READER, str(path.absolute())]
    limit = DEADLINE_S + path.stat().st_size // BYTES_A_SECOND
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as error:
        reason = f"it did not end within {limit} s and was killed"
        raise TraceError(path, f"Darshan's library cannot read it: {reason}") from error
    if reason := _failure(done.returncode, done.stderr.decode("utf-8", "replace").strip()):
        raise TraceError(path, f"Darshan's library cannot read it: {reason}")
    first, _, data = done.stdout.partition(b"\n")
    try:
        header = json.loads(first)
        records = [(str(name), int(rank)) for name, rank in header["records"]]
        modules = {str(name): bool(partial) for name, partial in header["modules"].items()}
        counted = [
            (str(name), int(reads), int(writes)) for name, reads, writes in header["counted"]
        ]
        used = str(header["used"])
        segments = np.frombuffer(data, dtype=SEGMENT)
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(path, f"Darshan's library gave no segments: {error}") from error
    if not used:
        raise TraceError(
            path,
            f"has no DXT ({' or '.join(MODULES)}), so no single operations: run the program with "
            f"DXT_ENABLE_IO_TRACE=1 (it has {', '.join(sorted(modules)) or 'nothing'})",
        )
    if any(not 0 <= rank < MOST_RANK for _, rank in records):
        raise TraceError(path, f"has a rank that is not from 0 to {MOST_RANK - 1}")
    return Dxt(
        modules, used, records, counted, segments[np.argsort(segments["start"], kind="stable")]
    )
