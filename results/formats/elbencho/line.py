"""One line of elbencho's table: its counts, and the window that they allow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.formats.base import agrees

MIB = 1 << 20
DATA = frozenset({"write", "read", "mixed"})
SETTINGS: dict[str, str] = {  # column -> option
    "path type": "path_type",
    "paths": "paths",
    "hosts": "hosts",
    "threads": "threads",
    "dirs": "dirs",
    "files": "files",
    "file size": "size",
    "block size": "block",
    "direct IO": "direct",
    "random": "rand",
    "IO depth": "iodepth",
    "truncate": "trunc",
}
WHOLE = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Line:
    """One line of the table: column -> cell."""

    number: int
    cells: Mapping[str, str]

    def whole(self, column: str) -> int:
        """A count; 0 where the cell is empty.  ValueError for anything else."""
        cell = self.cells.get(column, "")
        if not cell:
            return 0
        if not WHOLE.fullmatch(cell):
            raise ValueError(f"{column} is {cell[:30]!r}, no whole number")
        return int(cell)

    @property
    def settings(self) -> tuple[str, ...]:
        """What all lines of one start have in common."""
        names = ("label", *SETTINGS, "random aligned", "shared paths", "version", "command")
        return tuple(self.cells.get(name, "") for name in names)


@dataclass(frozen=True)
class Count:
    """What was done by one kind of operation (all; or the reads of a mixture)."""

    bytes: int
    exact: bool
    entries: int
    block: int
    rates: tuple[tuple[int, int], ...]  # (amount, amount per second rounded down)
    iops: int

    def operations(self, name: str, seconds: float) -> int:
        """Blocks of data phases, files or directories of the others."""
        if name not in DATA:
            return self.entries
        exact = self.bytes // self.block if self.block and self.bytes % self.block == 0 else 0
        counted = self.iops * seconds
        if exact and abs(exact - counted) <= seconds + 0.02 * exact + 1:
            return exact
        return round(counted)


def count_of(line: Line, kind: str) -> Count:
    mib = line.whole(f"{kind}MiB [last]")
    entries = line.whole(f"{kind}entries [last]")
    size, block = line.whole("file size"), line.whole("block size")
    iops = line.whole(f"{kind}IOPS [last]")
    files = entries if line.cells.get("path type") == "dir" else line.whole("paths")
    whole = size * files
    exact = not kind and bool(mib) and whole // MIB == mib
    rates = [(entries, line.whole(f"{kind}entries/s [last]"))] if entries else []
    bytes_ = whole if exact else mib * MIB
    if exact and block and whole % block == 0:
        rates.append((whole // block, iops))
    return Count(bytes_, exact or not iops, entries, block, tuple(rates), iops)


def window_of(line: Line, counts: Sequence[Count]) -> tuple[float, float]:
    """The shortest and the longest window that the printed numbers allow, in seconds.

    Rates count whole microseconds, so a rate of 0 says nothing.  ValueError where the
    numbers contradict each other.
    """
    milliseconds = line.whole("time ms [last]")
    low, high = milliseconds / 1000, (milliseconds + 1) / 1000
    for count in counts:
        for amount, rate in count.rates:
            if rate:
                low, high = max(low, amount / (rate + 1)), min(high, amount / rate)
    if low > high and not agrees(low, high):
        raise ValueError(
            f"its time, {milliseconds} ms, contradicts its rates: {low:.6f} to {high:.6f} s"
        )
    return low, max(low, high)
