"""A trace without what tells whose it is: names of files, the command, process ids.

Every part of a path becomes a pseudonym, the same wherever it stands, so that folders stay
folders.  Pseudonyms are keyed by random bytes that nobody keeps: a guess cannot be tried.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path

import numpy as np

from fsmatrix.traces.model import Header, Thread, TraceError
from fsmatrix.traces.reader import Trace, opened
from fsmatrix.traces.writer import TraceWriter, writing

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
