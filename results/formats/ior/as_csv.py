"""IOR's CSV: the table of results (4.0 and later), and the times of each rank (4.0 and later)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.results.formats.base import ParseError
from fsmatrix.results.formats.ior.as_text import numbers_of
from fsmatrix.results.formats.ior.model import (
    Log,
    Output,
    Row,
    Test,
    number,
    numbered_lines,
    whole,
)
from fsmatrix.results.record import Floats

HEADER = (
    "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),"
    "numTasks,iter"
)
COLUMNS = (
    "bandwidth",
    "iops",
    "latency",
    "block",
    "transfer_size",
    "open",
    "transfer",
    "close",
    "total",
)
RANKS_HEADER = "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"


def read_csv(text: str, source: str) -> Output:
    """The results; of the settings, only block, transfer size and tasks stand in them."""
    output = Output(finished=None, tests=[Test(1)])
    test = output.test
    log = Log(lambda: test)
    seen = False
    for at, line in numbered_lines(text):
        if not line or log.reads(line, at):
            continue
        if line == HEADER:
            seen = True
            continue
        words = line.split(",")
        if words[0] not in ("write", "read"):
            continue
        row = _row(words, test, at, source)
        if row is not None:
            pending = log.take()
            test.add(Row(row.access, row.numbers, row.iteration, at, tasks=row.tasks, **pending))
    if not seen:
        test.note("the line with the names of the columns is missing")
    _check_sequence(test)
    return output


def _row(words: Sequence[str], test: Test, at: int, source: str) -> Row | None:
    # a decimal comma makes two fields of one number
    if len(words) == 2 * len(COLUMNS) + 3:
        raise ParseError(source, at, "numbers have decimal commas: run IOR with LC_ALL=C")
    if len(words) != len(COLUMNS) + 3:
        test.lose(f"a line of {words[0]} is damaged", at)
        return None
    iteration, tasks = whole(words[-1]), whole(words[-2])
    numbers = numbers_of(COLUMNS, words[1:-2])
    if numbers is None or iteration is None or not tasks:
        test.lose(f"the line of {words[0]} holds impossible numbers", at)
        return None
    return Row(words[0], numbers, iteration, at, tasks=tasks)


def _check_sequence(test: Test) -> None:
    """Iterations count up from 0: a last number that was cut ("1" of "12") does not fit."""
    for access in ("write", "read"):
        rows = [row for row in test.rows if row.access == access]
        for expected, row in enumerate(rows):
            if row.iteration != expected:
                text = f"iteration {row.iteration} of {access} stands in {expected}'s place"
                test.discard(row, text)


@dataclass(frozen=True)
class RankTimes:
    """One access of one iteration: seconds of each rank, in the order in which they ran.

    IOR's own throughputs in this file divide the total by the number of ranks; they are no
    measurement and are left out.
    """

    access: str
    seconds: Floats  # [rank], open to close
    transfer: Floats  # [rank], first to last I/O (fsync included)


def parse_ranks(text: str, source: str) -> list[RankTimes]:
    """`-O saveRankPerformanceDetailsCSV`; ParseError if any of it is missing or damaged."""
    parts: list[tuple[str, list[tuple[float, float]]]] = []
    seen = False
    for at, line in numbered_lines(text):
        if not seen:
            if line != RANKS_HEADER:
                raise ParseError(source, at, "not IOR's file of ranks: the first line is another")
            seen = True
            continue
        words = line.split(",")
        rank = whole(words[1]) if len(words) == 6 else None
        values = [number(word) for word in words[2:]]
        if rank is None or words[0] not in ("write", "read") or None in values:
            raise ParseError(source, at, "not a line of a rank's times")
        first, second = (value.value for value in values[:2] if value is not None)
        if min(first, second) < 0:
            raise ParseError(source, at, "a time below zero")
        if rank == 0:
            parts.append((words[0], []))
        if not parts or parts[-1][0] != words[0] or len(parts[-1][1]) != rank:
            raise ParseError(source, at, f"rank {rank} of {words[0]} stands in the wrong place")
        parts[-1][1].append((first, second))
    if not parts:
        raise ParseError(source, 0, "holds no times of ranks")
    if not text.endswith("\n") or len({len(times) for _, times in parts}) != 1:
        raise ParseError(source, 0, "the last ranks are missing: the file is cut")
    return [
        RankTimes(access, *np.array(times, dtype=np.float64).T.copy()) for access, times in parts
    ]
