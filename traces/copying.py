"""Operations as a trace file, whatever they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fsmatrix.traces.model import Operations, Thread
from fsmatrix.traces.writer import writing


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
