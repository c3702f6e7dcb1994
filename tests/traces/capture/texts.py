"""Written texts of strace, and what of a trace came of them, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.capture import strace
from fsmatrix.traces.trace_model import ABSENT, UNKNOWN, Header
from fsmatrix.traces.tracefile import Trace, opened, writing

START = 1_700_000_000  # s
_OF_A_PROCESS = re.compile(r"\d+ [^\d]")


@dataclass(frozen=True)
class Read:
    """A trace in words."""

    header: Header
    said: list[str]  # "read a 0+10 = 5": kind, name, offset and size, result if it is not 0
    names: dict[str, int]  # size at the start; those that were not there have none
    slots: list[int]
    threads: list[tuple[int, int, int]]
    thread: list[int]
    times: list[int]
    latencies: list[int]
    flags: list[Flag]


def text(path: Path, lines: Sequence[str]) -> Path:
    """A text of strace; lines that begin with a process id get times, 1 us apart."""
    made = []
    for number, line in enumerate(lines):
        if _OF_A_PROCESS.match(line):
            process, _, rest = line.partition(" ")
            line = f"{process} {START}.{number:06d}000 {rest}"
        made.append(line)
    path.write_bytes("".join(line + "\n" for line in made).encode("latin-1"))
    return path


def read(place: Path, *lines: str, root: str = "/r", **options: Any) -> Read:
    """The trace of a text, below /r, which is the working directory too."""
    return read_all(place, [text(place / "text", lines)], [root], **options)


def read_all(place: Path, paths: Sequence[Path], roots: Sequence[str], **options: Any) -> Read:
    """The trace of several texts; the working directory is the first root."""
    options.setdefault("folder", roots[0] if roots else None)
    made = place / "t.h5"
    with writing(made) as writer:
        writer.finish(strace.read(paths, writer, roots, **options))
    with opened(made) as trace:
        return words(trace)


def words(trace: Trace) -> Read:
    """A trace in words."""
    names = [name.decode("latin-1") for name in trace.files.names()]
    said: list[str] = []
    columns: dict[str, list[int]] = {}
    for block in trace.blocks():
        for column, values in block.items():
            columns.setdefault(column, []).extend(values.tolist())
        for row in range(len(block["kind"])):
            said.append(_operation(trace, names, {name: int(block[name][row]) for name in block}))
    sizes = trace.files.size.tolist()
    return Read(
        trace.header,
        said,
        {name: size for name, size in zip(names, sizes, strict=True) if size != ABSENT},
        columns.get("slot", []),
        [(row[0], row[1], row[2]) for row in trace.threads.tolist()],
        columns.get("thread", []),
        columns.get("time", []),
        columns.get("latency", []),
        [Flag(value) for value in columns.get("flags", [])],
    )


def _operation(trace: Trace, names: list[str], row: dict[str, int]) -> str:
    kind = Kind(row["kind"])
    parts = [kind.name.lower(), names[trace.slots[row["slot"]]]]
    if kind in (Kind.READ, Kind.WRITE):
        parts.append(f"{row['offset']}+{row['size']}")
    if kind == Kind.TRUNCATE:
        parts.append(str(row["offset"]))
    if kind == Kind.RENAME:
        parts.append(names[trace.slots[row["slot2"]]])
    if row["result"] == UNKNOWN:
        parts.append("= ?")
    elif row["result"] or kind in (Kind.READ, Kind.WRITE):
        parts.append(f"= {row['result']}")
    return " ".join(parts)
