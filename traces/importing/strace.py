"""Texts of strace, from `strace -f -ttt -T` or a capture: read as a capture reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.traces.capture import strace
from fsmatrix.traces.capture.text import START
from fsmatrix.traces.importing.importer import Importer
from fsmatrix.traces.trace_model import Header
from fsmatrix.traces.tracefile import TraceWriter

# After who and when: CALL(..., or a line about a signal, an exit, or the rest of a call.  Without
# the time a call has its result.
LINE = re.compile(rb"[a-z_]\w*\(|--- SIG|\+\+\+ |<\.\.\. ")
CALL = re.compile(rb"[a-z_]\w*\(.*\) += (?:-?\d|0x|\?)")


class Strace(Importer):
    """One text, those of strace -ff, or one for each rank of an MPI program."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        return any(map(_is_line, head.splitlines()[:32]))

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        return strace.read(inputs, writer, roots, folder=self.folder)


def _is_line(line: bytes) -> bool:
    start = START.match(line)
    assert start is not None  # all of it is optional
    has_time = any(start.group(3, 5, 6))
    return (LINE if has_time else CALL).match(line, start.end()) is not None
