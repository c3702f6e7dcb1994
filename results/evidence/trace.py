"""What a trace is like (docs/traces.md): made by fsmatrix.traces.statistics, drawn by analysis.

Amounts are in bytes, times in seconds, shares and ratios between 0 and 1.  None: not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from fsmatrix.results.evidence.stored import JsonObject, Stored
from fsmatrix.results.units import plural


@dataclass(frozen=True, kw_only=True)
class Frequent(Stored):
    """A size that many requests have."""

    bytes: int
    operations: int


@dataclass(frozen=True, kw_only=True)
class Sizes(Stored):
    """Sizes of requests."""

    smallest: int
    mean: float
    p50: int
    p90: int
    p99: int
    largest: int
    exact: bool  # else percentiles and frequent sizes are rounded down, by at most 1/64
    frequent: tuple[Frequent, ...]
    # operations of 0 bytes, 1, 2-3, 4-7, ... : entry b has those whose size takes b bits
    by_bits: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Latencies(Stored):
    """Captured latencies; a percentile needs 10 operations beyond it."""

    operations: int
    total: float
    mean: float
    p50: float | None
    p95: float | None
    p99: float | None
    p99_9: float | None
    longest: float


@dataclass(frozen=True, kw_only=True)
class KindStatistics(Stored):
    """Operations of one kind."""

    kind: str
    operations: int
    failed: int
    short: int  # moved less than they asked for
    asked: int  # bytes
    moved: int  # bytes; where the outcome was not captured, what was asked for
    sizes: Sizes | None
    latencies: Latencies | None


@dataclass(frozen=True, kw_only=True)
class FileClass(Stored):
    """Files of one extension."""

    name: str
    files: int
    operations: int
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, kw_only=True)
class Order(Stored):
    """Where reads and writes begin, against where the one before them on the handle ended."""

    first: int  # since the handle was opened
    consecutive: int  # just there
    ahead: int  # beyond it
    back: int  # before it

    @property
    def transfers(self) -> int:
        """All of them."""
        return self.first + self.consecutive + self.ahead + self.back

    @property
    def consecutive_share(self) -> float | None:
        """Of those that have one before them."""
        following = self.transfers - self.first
        return self.consecutive / following if following else None

    @property
    def sequential_share(self) -> float | None:
        """Those that begin where the one before them ended, or beyond."""
        following = self.transfers - self.first
        return (self.consecutive + self.ahead) / following if following else None


@dataclass(frozen=True, kw_only=True)
class PageReuse(Stored):
    """Pages that reads and writes touch, and what an LRU cache of them would find.

    The reuse distance of an access is the number of other pages since the last one to its page.
    Errors are standard errors; 0 where every page was followed.
    """

    page_bytes: int
    accesses: int
    unique: float
    unique_error: float
    followed: int  # pages of the sample at the end
    rate: float  # share of the pages in it; 1: all
    cache_bytes: tuple[int, ...]
    miss_ratio: tuple[float, ...]  # of an LRU cache of so many bytes, empty at the start
    miss_ratio_error: tuple[float, ...]
    distance_p10: float | None  # bytes, of accesses to a page that was touched before
    distance_p50: float | None
    distance_p90: float | None


@dataclass(frozen=True, kw_only=True)
class Windows(Stored):
    """Equal parts of the trace, one after the other."""

    unit: str  # s, or operations where times mean nothing
    length: float  # of one
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    others: tuple[int, ...]
    read_bytes: tuple[int, ...]
    written_bytes: tuple[int, ...]
    working_set: tuple[float, ...]  # bytes of the pages touched in it
    new_pages: tuple[float, ...]  # pages touched for the first time


@dataclass(frozen=True, kw_only=True)
class Band(Stored):
    """Files of a class, end to end: where in them, and in which window, something is done."""

    name: str
    files: int
    bytes: int
    # operations of a sample: [row * windows + window], row 0 is the begin of the first file
    rows: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class WorkingSet(Stored):
    """Bytes of the pages touched in one of equal parts of the trace in which some are."""

    unit: str  # s, or operations where times mean nothing
    length: float  # of a part
    median: float
    largest: float


@dataclass(frozen=True, kw_only=True)
class TraceSummary(Stored):
    """What a trace is like, without its parts one by one."""

    reads: int
    writes: int
    read_bytes: int  # moved
    written_bytes: int
    read_order: Order
    write_order: Order
    reuse: PageReuse | None  # None: no read or write moves a byte
    working_set: WorkingSet | None


@dataclass(frozen=True, kw_only=True)
class TraceStatistics(Stored):
    """A trace."""

    source: str
    command: tuple[str, ...]
    timed: bool
    anonymised: bool
    unseen: Mapping[str, int]
    facts: JsonObject
    operations: int
    seconds: float | None  # from the first issue to the last
    files: int
    files_used: int
    directories: int
    slots: int
    threads: int
    processes: int
    ranks: int
    busiest_thread: float | None  # its share of the operations
    kinds: tuple[KindStatistics, ...]
    classes: tuple[FileClass, ...]
    read_order: Order
    write_order: Order
    reuse: PageReuse | None  # None: no read or write moves a byte
    windows: Windows
    bands: tuple[Band, ...]

    @property
    def summary(self) -> TraceSummary:
        """What a report says of it."""
        windows = self.windows
        touched = [size for size in windows.working_set if size]
        return TraceSummary(
            reads=sum(windows.reads),
            writes=sum(windows.writes),
            read_bytes=sum(windows.read_bytes),
            written_bytes=sum(windows.written_bytes),
            read_order=self.read_order,
            write_order=self.write_order,
            reuse=self.reuse,
            working_set=WorkingSet(
                unit=windows.unit,
                length=windows.length,
                median=median(touched),
                largest=max(touched),
            )
            if touched
            else None,
        )


def gaps(facts: JsonObject) -> list[str]:
    """Sentences on what a trace lacks, and what is guessed in it, by the facts of its source."""
    said = []
    for kind in ("reads", "writes"):
        traced, counted = facts.get(f"traced_{kind}"), facts.get(f"counted_{kind}")
        if isinstance(traced, int) and isinstance(counted, int) and traced < counted:
            said.append(f"Only {traced} of {counted} {kind} were traced.")
    if first := facts.get("first_malformed"):
        said.append(f"The first malformed line: {first}.")
    if guesses := list(_guesses(facts)):
        said.append(f"Guessed: {'; '.join(guesses)}.")
    return said


def _guesses(facts: JsonObject) -> Iterator[str]:
    def counted(noun: str, *names: str) -> list[str]:
        numbers = [count for name in names if isinstance(count := facts.get(name), int)]
        return [plural(sum(numbers), noun)] if sum(numbers) else []

    for appends in counted("append", "appends_where_the_size_is_a_guess"):
        yield f"offsets of {appends}"
    added = [
        *counted("open", "opened_by_import", "truncate_by_name"),
        *counted("close", "closed_without_a_call", "truncate_by_name"),
    ]
    if added:
        yield f"{' and '.join(added)} that were not traced"
