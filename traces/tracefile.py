"""Trace files, read and written.

Read: header and tables at once, operations in blocks; nothing of a file is believed.  Written:
operations go to disk in blocks, the tables of files and threads at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fsmatrix.results.files import hdf, hdf_check, safefile
from fsmatrix.results.files.hdf import FaultTolerantFile
from fsmatrix.traces.trace_model import (
    ABSENT,
    BLOCK,
    COLUMNS,
    FORMAT,
    NOT_CAPTURED,
    UNKNOWN,
    VERSION,
    Columns,
    Files,
    Header,
    Operation,
    Operations,
    Thread,
    TraceError,
    name_problem,
    problem,
)

MOST_FILES = 1 << 24  # a table of them, and the player's slots, stay in memory
# A chunk has 64 Ki values of at most 8 bytes: what is stored in so many bytes need not be tried.
LIMITS = hdf_check.Limits(objects=64, depth=2, unpacked=1 << 50, inflate_from=600 << 10)
TABLES: Mapping[str, str] = {
    "files/names": "u1",
    "files/ends": "u8",
    "files/size": "i8",
    "files/directory": "u1",
    "slots/file": "u4",
    "threads/process": "u8",
    "threads/thread": "u8",
    "threads/rank": "u8",
}

CACHE = 1 << 20  # bytes of chunks that HDF5 keeps for each column


class Trace:
    """An open trace, as model.Operations.  Made by `opened`."""

    def __init__(self, path: Path, file: h5py.File) -> None:
        self.path = path
        self._file = file
        self.header = _header(path, file)
        tables = {name: _table(path, file, name, kind) for name, kind in TABLES.items()}
        _check_tables(path, tables)
        self.files = _files(tables)
        self.slots: npt.NDArray[np.uint32] = tables["slots/file"]  # file of each slot
        self.threads: npt.NDArray[np.uint64] = np.column_stack(  # [thread, (process, id, rank)]
            [tables[f"threads/{name}"] for name in ("process", "thread", "rank")]
        )
        self._data = {name: _column(path, file, name, dtype) for name, dtype in COLUMNS.items()}
        self.operations = int(self._data["kind"].shape[0])
        if any(data.shape[0] != self.operations for data in self._data.values()):
            raise TraceError(path, "damaged: its columns have different lengths")

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[Columns]:
        """Operations first, first + 1, ... stop - 1, checked, `block` of them at a time."""
        stop = self.operations if stop is None else min(stop, self.operations)
        after = 0
        for begin in range(first, stop, block):
            end = min(begin + block, stop)
            try:
                part = {name: self._data[name][begin:end] for name in columns}
            except hdf.HDF5_ERRORS as error:
                raise TraceError(self.path, f"damaged: {str(error)[:200]}") from error
            wrong = problem(part, len(self.slots), len(self.threads), after)
            if wrong is not None:
                raise TraceError(self.path, f"operation {begin + wrong[0]} has {wrong[1]}")
            if "time" in part:
                after = int(part["time"][-1])
            yield part


@contextmanager
def opened(path: Path | str) -> Iterator[Trace]:
    """The trace at `path`.  ResultError for what is none, is damaged, or is of a newer format."""
    path = Path(path)
    try:
        handle = safefile.descriptor(path, follow=True)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error
    with ExitStack() as closing:
        raw = closing.enter_context(os.fdopen(handle, "rb"))
        try:
            file = closing.enter_context(h5py.File(raw, "r"))
            size = os.fstat(handle).st_size
            hdf_check.check(path, file, size, lambda at, n: os.pread(handle, n, at), LIMITS)
            trace = Trace(path, file)
        except hdf.HDF5_ERRORS as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise  # of another file
            raise TraceError(path, f"not a trace, or damaged: {str(error)[:200]}") from error
        yield trace


def _header(path: Path, file: h5py.File) -> Header:
    attributes = file.attrs
    if attributes.get("format") != FORMAT:
        raise TraceError(path, "an HDF5 file, but not a trace of fsmatrix")
    version = int(attributes["version"])
    if version != VERSION:
        raise TraceError(path, f"has format {version}; this fsmatrix reads {VERSION}")
    try:
        command, unseen, facts = (
            json.loads(str(attributes[name])) for name in ("command", "unseen", "facts")
        )
        return Header(
            source=str(attributes["source"]),
            command=tuple(str(word) for word in command),
            timed=bool(attributes["timed"]),
            anonymised=bool(attributes["anonymised"]),
            unseen={str(what): int(count) for what, count in unseen.items()},
            facts=dict(facts),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TraceError(path, f"damaged: its header cannot be understood: {error}") from error


def _table(path: Path, file: h5py.File, name: str, kind: str) -> npt.NDArray[Any]:
    data = _dataset(path, file, name, kind)
    if data.shape[0] * data.dtype.itemsize > MOST_FILES * 256:
        raise TraceError(path, f"its table {name} is longer than the longest that is read")
    return np.asarray(data[:])


def _column(path: Path, file: h5py.File, name: str, dtype: np.dtype[Any]) -> h5py.Dataset:
    return _dataset(path, file, f"operations/{name}", dtype.str)


def _dataset(path: Path, file: h5py.File, name: str, kind: str) -> h5py.Dataset:
    data = file.get(name)
    if not isinstance(data, h5py.Dataset) or data.dtype != np.dtype(kind) or data.ndim != 1:
        raise TraceError(path, f"damaged: {name} is missing, or has another type")
    if data.chunks is not None and data.chunks[0] > BLOCK:  # HDF5 makes room for a whole one
        raise TraceError(path, f"damaged: {name} has chunks of more than {BLOCK} values")
    if not _whole(data):
        raise TraceError(path, f"damaged: {name} has more values than the file holds")
    return data


def _whole(data: h5py.Dataset) -> bool:
    """Whether all values are stored: HDF5 makes up the others, as many as a file asks for."""
    count = data.shape[0]
    if data.chunks is None:
        return bool(data.id.get_storage_size() >= count * data.dtype.itemsize)
    return bool(data.id.get_num_chunks() >= -(-count // data.chunks[0]))


def _files(tables: Mapping[str, npt.NDArray[Any]]) -> Files:
    names, ends, size, directory = (
        tables[f"files/{name}"] for name in ("names", "ends", "size", "directory")
    )
    return Files(names.tobytes(), ends, size, directory.astype(bool))


def _check_tables(path: Path, tables: Mapping[str, npt.NDArray[Any]]) -> None:
    ends, names = tables["files/ends"], tables["files/names"]
    lengths = {len(tables[f"files/{name}"]) for name in ("ends", "size", "directory")}
    threads = {len(tables[f"threads/{name}"]) for name in ("process", "thread", "rank")}
    if len(lengths) > 1 or len(threads) > 1 or 0 in threads:
        raise TraceError(path, "damaged: its tables have different lengths")
    if len(ends) > MOST_FILES or len(tables["slots/file"]) > MOST_FILES:
        raise TraceError(path, f"has more than {MOST_FILES} files or slots")
    ordered = len(ends) == 0 or bool(np.all(ends[1:] > ends[:-1]))
    if not ordered or (int(ends[-1]) if len(ends) else 0) != len(names):
        raise TraceError(path, "damaged: its names do not fit their table")
    if np.any(tables["slots/file"] >= len(ends)) or np.any(tables["files/size"] < ABSENT):
        raise TraceError(path, "damaged: a slot has no file, or a file a negative size")
    seen = set()
    for name in _files(tables).names():
        if reason := name_problem(name):
            raise TraceError(path, reason)
        seen.add(name)
    if len(seen) < len(ends):
        raise TraceError(path, "damaged: a path occurs twice in its table")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TraceWriter]:
    """A trace that appears at `path` when the block ends, whole and durable.

    The block calls `finish`.  If it raises, nothing appears.  OSError as the system gives it.
    """
    with safefile.replacing(path) as aside, closing(FaultTolerantFile(aside)) as stream:
        with h5py.File(stream, "w", libver=hdf.LIBVER, rdcc_nbytes=CACHE) as file:
            writer = TraceWriter(path, file, stream)
            yield writer
            if not writer.finished:
                raise ValueError("a trace ends with its header: call finish()")
        stream.sync()
    safefile.sync_directory(path.parent)


class TraceWriter:
    """Takes files, threads and operations; memory holds the tables and one block.

    TraceError for an operation or a name that no trace may have; OSError of a full device.
    """

    def __init__(self, path: Path, file: h5py.File, stream: FaultTolerantFile) -> None:
        self.finished = False
        self.operations = 0
        self._path, self._file, self._stream = path, file, stream
        self._files: dict[bytes, int] = {}
        self._sizes: list[int] = []
        self._directories: list[bool] = []
        self._slots: list[int] = []  # file of each
        self._threads: dict[Thread, int] = {}
        self._rows: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._waiting = 0
        self._last = 0
        self._data = {
            name: file.create_dataset(
                f"operations/{name}",
                shape=(0,),
                maxshape=(None,),
                dtype=dtype,
                chunks=(BLOCK,),
                compression=1,
                shuffle=True,
            )
            for name, dtype in COLUMNS.items()
        }

    # -- tables ----------------------------------------------------------------------------
    def file(self, name: bytes, size: int = ABSENT, directory: bool = False) -> int:
        """Row of the file at this path, made if it is new with what it was at the start.

        `size`: bytes at the start of the trace, ABSENT if it was not there then.
        """
        row = self._files.get(name)
        if row is not None:
            return row
        if reason := name_problem(name):
            raise TraceError(self._path, reason)
        row = self._files[name] = len(self._files)
        self._sizes.append(size)
        self._directories.append(directory)
        return row

    def was(self, row: int, size: int, directory: bool = False) -> None:
        """What a file was at the start, where that is learned later."""
        self._sizes[row], self._directories[row] = size, directory

    def slot(self, row: int) -> int:
        """A new slot of a file."""
        self._slots.append(row)
        return len(self._slots) - 1

    def thread(self, thread: Thread) -> int:
        """Row of a thread, made if it is new."""
        return self._threads.setdefault(thread, len(self._threads))

    # -- operations ------------------------------------------------------------------------
    def add(
        self,
        operation: Operation,
        time: int,
        *,
        thread: int = 0,
        latency: int = NOT_CAPTURED,
        result: int = UNKNOWN,
    ) -> None:
        """One operation; see COLUMNS for units.  Times never decrease."""
        kind, slot, flags, slot2, offset, size = operation
        rows = self._rows
        rows["kind"].append(kind)
        rows["flags"].append(flags)
        rows["slot"].append(slot)
        rows["slot2"].append(slot2)
        rows["thread"].append(thread)
        rows["offset"].append(offset)
        rows["size"].append(size)
        rows["time"].append(time)
        rows["latency"].append(latency)
        rows["result"].append(result)
        self._waiting += 1
        if self._waiting == BLOCK:
            self._flush()

    def append(self, columns: Columns) -> None:
        """Many operations: every column of COLUMNS, of one length."""
        self._flush()
        self._write(columns)

    def finish(self, header: Header) -> None:
        """Write what waits, the tables and the header."""
        self._flush()
        self._tables()
        attributes = self._file.attrs
        attributes["format"] = FORMAT
        attributes["version"] = VERSION
        attributes["source"] = header.source
        attributes["timed"] = int(header.timed)
        attributes["anonymised"] = int(header.anonymised)
        for name, value in (
            ("command", header.command),
            ("unseen", header.unseen),
            ("facts", header.facts),
        ):
            attributes[name] = json.dumps(value)
        self._stream.check()
        self.finished = True

    # -- parts -----------------------------------------------------------------------------
    def _flush(self) -> None:
        if not self._waiting:
            return
        try:
            columns = {
                name: np.array(self._rows[name], dtype=dtype) for name, dtype in COLUMNS.items()
            }
        except OverflowError as error:
            reason = f"one of the operations from {self.operations} on has {error}"
            raise TraceError(self._path, reason) from error
        for values in self._rows.values():
            values.clear()
        self._waiting = 0
        self._write(columns)

    def _write(self, columns: Columns) -> None:
        count = len(columns["kind"])
        if not count:
            return
        wrong = problem(columns, len(self._slots), max(len(self._threads), 1), self._last)
        if wrong is not None:
            raise TraceError(self._path, f"operation {self.operations + wrong[0]} has {wrong[1]}")
        self._last = int(columns["time"][-1])
        for name, data in self._data.items():
            data.resize((self.operations + count,))
            data[self.operations :] = columns[name]
        self.operations += count
        self._stream.check()

    def _tables(self) -> None:
        names = list(self._files)
        ends = np.cumsum([len(name) for name in names], dtype=np.uint64)
        self._table("files/names", np.frombuffer(b"".join(names), dtype=np.uint8))
        self._table("files/ends", ends)
        self._table("files/size", np.array(self._sizes, dtype=np.int64))
        self._table("files/directory", np.array(self._directories, dtype=np.uint8))
        self._table("slots/file", np.array(self._slots, dtype=np.uint32))
        threads = list(self._threads) or [Thread()]
        for column in ("process", "thread", "rank"):
            values = np.array([getattr(thread, column) for thread in threads], dtype=np.uint64)
            self._table(f"threads/{column}", values)

    def _table(self, name: str, values: Any) -> None:
        self._file.create_dataset(
            name, data=values, chunks=(BLOCK,), maxshape=(None,), compression=1, shuffle=True
        )


class Handles:
    """Which slot an open handle gets: one of the file's that is not open, or a new one."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._slots: dict[int, list[int]] = {}  # file -> its slots
        self._free: dict[int, list[int]] = {}  # file -> those that are not open

    def of_name(self, row: int) -> int:
        """A slot of a file, for what works on its name."""
        if row not in self._slots:
            slot = self._writer.slot(row)
            self._slots[row], self._free[row] = [slot], [slot]
        return self._slots[row][0]

    def opened(self, row: int) -> int:
        """The slot of a new handle."""
        self.of_name(row)
        if self._free[row]:
            return self._free[row].pop()
        slot = self._writer.slot(row)
        self._slots[row].append(slot)
        return slot

    def closed(self, row: int, slot: int) -> None:
        """The handle is gone; its slot may be opened again."""
        self._free[row].append(slot)


# A trace without what tells whose it is: names of files, the command, process ids.
#
# Every part of a path becomes a pseudonym, the same wherever it stands, so that folders stay
# folders.  Pseudonyms are keyed by random bytes that nobody keeps: a guess cannot be tried.


LETTERS = 12  # of a pseudonym: 48 bits
_EXTENSION = re.compile(rb"(?s:.)+(\.[A-Za-z0-9]{1,8})")


class Pseudonyms:
    """Names -> pseudonyms, by a key that lives as long as this."""

    def __init__(self, extensions: bool) -> None:
        """`extensions`: what follows the last dot stays, where it is short."""
        self._key = secrets.token_bytes(32)
        self._extensions = extensions
        self._parts: dict[bytes, bytes] = {}
        self._given: set[bytes] = set()

    def path(self, name: bytes) -> bytes:
        """The pseudonym of a path, part by part."""
        return b"/".join(map(self._part, name.split(b"/")))

    def _part(self, part: bytes) -> bytes:
        pseudonym = self._parts.get(part)
        if pseudonym is None:
            pseudonym = self._new(part)
            self._parts[part] = pseudonym
            self._given.add(pseudonym)
        return pseudonym

    def _new(self, part: bytes) -> bytes:
        extension = _EXTENSION.fullmatch(part) if self._extensions else None
        end = extension[1] if extension is not None else b""
        salt = 0
        while True:
            text = b"%d/" % salt + part
            code = hmac.new(self._key, text, hashlib.sha256).hexdigest()[:LETTERS]
            pseudonym = code.encode("ascii") + end
            if pseudonym not in self._given:
                return pseudonym
            salt += 1


def anonymise(source: Path, target: Path, extensions: bool = False) -> Header:
    """Write the trace `source` anonymised to `target`; its header.

    What stays: kinds, sizes, times, which folders are in which, ranks, and numbers of facts.
    TraceError for a source that is no trace; OSError as the system gives it.
    """
    with opened(source) as trace, writing(target) as writer:
        header = Header(
            source=trace.header.source,
            timed=trace.header.timed,
            anonymised=True,
            unseen=trace.header.unseen,
            facts={
                name: value
                for name, value in trace.header.facts.items()
                if isinstance(value, int | float)
            },
        )
        _copy(trace, writer, Pseudonyms(extensions))
        writer.finish(header)
    return header


def _copy(trace: Trace, writer: TraceWriter, pseudonyms: Pseudonyms) -> None:
    sizes, folders = trace.files.size.tolist(), trace.files.directory.tolist()
    for row, name in enumerate(trace.files.names()):
        try:
            new_row = writer.file(pseudonyms.path(name), sizes[row], folders[row])
        except TraceError as error:
            raise TraceError(trace.path, f"file {row}: its pseudonym is too long") from error
        assert new_row == row  # no two names have the same pseudonym
    for file in trace.slots.tolist():
        writer.slot(file)
    processes: dict[tuple[int, int], int] = {}
    threads = []
    for row, (process, _, rank) in enumerate(trace.threads.tolist()):
        number = processes.setdefault((rank, process), len(processes) + 1)
        threads.append(writer.thread(Thread(number, row + 1, rank)))
    rows = np.array(threads, dtype=np.uint32)
    for block in trace.blocks():
        writer.append({**block, "thread": rows[block["thread"]]})


# Operations as a trace file, whatever they come from.


def copy(trace: Operations, path: Path, tell: Callable[[int], None] | None = None) -> None:
    """Write a trace to `path`; whole, or not at all.

    `tell` is called with the number of operations written so far.  TraceError and OSError as
    `blocks` and `writing` raise them.
    """
    with writing(path) as out:
        sizes, directories = trace.files.size.tolist(), trace.files.directory.tolist()
        for name, size, directory in zip(trace.files.names(), sizes, directories, strict=True):
            out.file(name, size, directory)
        for row in trace.slots.tolist():
            out.slot(row)
        for process, thread, rank in trace.threads.tolist():
            out.thread(Thread(process, thread, rank))
        for block in trace.blocks():
            out.append(block)
            if tell is not None:
                tell(out.operations)
        out.finish(trace.header)
