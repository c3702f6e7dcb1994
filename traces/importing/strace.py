"""Texts of strace, from `strace -f -ttt -T` or a capture: read as a capture reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.traces.capture import strace
from fsmatrix.traces.importing.base import Importer
from fsmatrix.traces.model import Header
from fsmatrix.traces.writer import TraceWriter

# [PID] TIME CALL(..., or a line about a signal, an exit, or the rest of a call
LINE = re.compile(
    rb"(?:\d+ +|\[pid +\d+\] +)?(?:\d+\.\d+|\d\d:\d\d:\d\d(?:\.\d+)?) +"
    rb"(?:\w+\(|--- SIG|\+\+\+ |<\.\.\. )"
)


class Strace(Importer):
    """One text, those of strace -ff, or one for each rank of an MPI program."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        lines = head.splitlines()[:8]
        return any(LINE.match(line) for line in lines)

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        return strace.read(inputs, writer, roots)
