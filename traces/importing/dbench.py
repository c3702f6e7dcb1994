"""dbench's loadfiles: what one client does in one pass, as dbench 4.0 does it on POSIX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from fsmatrix.traces.importing.base import COARSE, Importer, Lines, Malformed, Stamps, Unseen
from fsmatrix.traces.importing.dbclient import DOING, Client
from fsmatrix.traces.importing.files import Files
from fsmatrix.traces.importing.loadfile import Directive, directive
from fsmatrix.traces.importing.names import Names
from fsmatrix.traces.model import MOST_OFFSET, NO_TIMES, Header
from fsmatrix.traces.writer import TraceWriter

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
