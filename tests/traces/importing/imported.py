"""Texts imported and read back, for the tests of importers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.importing.importer import import_traces
from fsmatrix.traces.trace_model import Header
from fsmatrix.traces.tracefile import opened


class Row(NamedTuple):
    """One operation of a trace."""

    kind: Kind
    name: bytes
    offset: int
    size: int
    time: int
    latency: int
    result: int
    flags: int
    thread: int
    slot: int
    name2: bytes


@dataclass(frozen=True)
class Trace:
    """All of a small trace."""

    header: Header
    rows: list[Row]
    files: dict[bytes, tuple[int, bool]]  # name -> size at the start, whether a directory
    threads: list[list[int]]

    def did(self, *columns: str) -> list[tuple[object, ...]]:
        """Some columns of all operations."""
        return [tuple(getattr(row, column) for column in columns) for row in self.rows]


def imported(
    folder: Path, *texts: str | bytes, format: str = "", roots: Sequence[Path] = ()
) -> Trace:
    """The trace of texts; their files are in-0, in-1, ..."""
    paths = []
    for index, text in enumerate(texts):
        path = folder / f"in-{index}"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        paths.append(path)
    return imported_files(folder, paths, format, roots)


def imported_files(
    folder: Path, paths: Sequence[Path], format: str = "", roots: Sequence[Path] = ()
) -> Trace:
    """The trace of files."""
    import_traces(paths, folder / "t.h5", format, roots)
    return trace_of(folder / "t.h5")


def trace_of(path: Path) -> Trace:
    """A trace read back."""
    with opened(path) as trace:
        names = list(trace.files.names())
        file = trace.slots.tolist()
        rows = []
        for block in trace.blocks():
            columns = {name: values.tolist() for name, values in block.items()}
            for i, kind in enumerate(columns["kind"]):
                rows.append(
                    Row(
                        kind=Kind(kind),
                        name=names[file[columns["slot"][i]]],
                        name2=names[file[columns["slot2"][i]]],
                        **{
                            name: columns[name][i]
                            for name in (
                                *("offset", "size", "time", "latency", "result"),
                                *("flags", "thread", "slot"),
                            )
                        },
                    )
                )
        sizes, directories = trace.files.size.tolist(), trace.files.directory.tolist()
        files = dict(zip(names, zip(sizes, directories, strict=True), strict=True))
        return Trace(trace.header, rows, files, trace.threads.tolist())
