"""What workloads tell of a phase beside its rates: open loops and the LHCb analysis.

Each stands in the phase's facts under a name of its own; audits, tables and analyses read it.
Amounts are in bytes, times in seconds.

Latencies of an open loop count from when an operation was due; those from its call, the service
times, stand in kinds of their own.  Of a phase of the LHCb analysis that writes, the counts are
those that the analysis must find in what was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import JsonObject, Stored, StoredError, read

OPEN_LOOP = "open_loop"
CAPACITY = "capacity"  # the fact of a search for one
SATURATED = "saturated"  # the audit
ENOUGH = 0.99  # of the offered rate: with less, the system did not follow
# tallies of a rank: operations due, ns in which they were, those begun by the end of it, and ever
DUE, SPAN, BEGUN, PLAYED = "open_due", "open_span_ns", "open_begun", "open_played"
# variable [run] of the campaign file -> (unit, meaning)
OPEN_LOOP_COLUMNS = {
    "offered_rate": ("s-1", "open loop: operations due / time of the arrivals"),
    "achieved_rate": ("s-1", "open loop: operations begun by the end of the arrivals / that time"),
    "backlog": ("1", "open loop: operations due and not begun at the end of the arrivals"),
    "unplayed": ("1", "open loop: operations due and never begun"),
    "closed_loop_rate": ("s-1", "load: operations / window of the closed loop it is a share of"),
    "capacity": ("s-1", "highest offered rate that keeps the limit of the option `capacity`"),
    "service_mean": ("s", "open loop: mean time from the call of an operation to its end"),
    "service_min": ("s", "open loop: smallest such time"),
    "service_max": ("s", "open loop: largest such time"),
    "service_p50": ("s", "open loop: median of these times"),
    "service_p95": ("s", "open loop: 95 % of them were shorter"),
    "service_p99": ("s", "open loop: 99 % of them were shorter"),
    "service_p99_9": ("s", "open loop: 99.9 % of them were shorter"),
}

LHCB = "lhcb"
LOW, HIGH = 5050.0, 5500.0  # MeV: the histogram's range
CUTS = ("events", "no_muon", "kaons", "no_pions", "below", "above")


@dataclass(frozen=True, kw_only=True)
class OpenLoop(Stored):
    """An open loop, all workers together."""

    rate: float  # operations per second, as asked for
    arrivals: str  # constant, poisson
    seconds: float  # of the arrivals
    due: int  # operations before the end of the arrivals
    backlog: int  # of these not begun at that moment
    unplayed: int  # of these not begun at all
    closed_loop_rate: float | None = None  # of which the rate is a share: operations per second

    @property
    def offered(self) -> float:
        """Operations due per second; of Poisson arrivals near the rate asked for."""
        return self.due / self.seconds

    @property
    def achieved(self) -> float:
        """Operations begun per second, those in the backlog not among them."""
        return (self.due - self.backlog) / self.seconds

    @property
    def saturated(self) -> bool:
        """Whether latencies tell more of the phase's length than of the system.

        Also where an operation was left out: it would have been among the slowest.
        """
        return self.due - self.backlog < ENOUGH * self.due or self.unplayed > 0

    def columns(self) -> Mapping[str, float]:
        """Those of COLUMNS that histograms do not give."""
        columns: dict[str, float] = {
            "offered_rate": self.offered,
            "achieved_rate": self.achieved,
            "backlog": self.backlog,
            "unplayed": self.unplayed,
        }
        if self.closed_loop_rate is not None:
            columns["closed_loop_rate"] = self.closed_loop_rate
        return columns


def open_loop(facts: JsonObject) -> OpenLoop | None:
    """What the facts of a phase tell of an open loop; None if they tell none, or nonsense."""
    if OPEN_LOOP not in facts:
        return None
    try:
        loop = read(OpenLoop, facts[OPEN_LOOP], OPEN_LOOP)
    except StoredError:
        return None
    return loop if loop.seconds > 0 and loop.due > 0 else None


@dataclass(frozen=True, kw_only=True)
class Probe(Stored):
    """One step of a search for a capacity."""

    rate: float  # operations per second, as asked for
    latency: float | None  # the percentile's, seconds; None: saturated, or too few operations
    saturated: bool
    kept: bool  # not saturated, and the latency within the limit


@dataclass(frozen=True, kw_only=True)
class Capacity(Stored):
    """What a search for the highest rate that keeps a limit came to.

    The last of the probes is the phase that the fact is of.  Without a rate, and without one that
    it is at least, the outcomes contradicted each other.
    """

    percentile: str  # mean, p50, p95, p99, p99.9
    limit: float  # seconds
    probes: tuple[Probe, ...]
    rate: float | None = None  # found: operations per second
    at_least: float | None = None  # kept, and no higher one was tried: operations per second


def capacity(facts: JsonObject) -> Capacity | None:
    """What the facts of a phase tell of a search; None if they tell none, or nonsense."""
    if CAPACITY not in facts:
        return None
    try:
        found = read(Capacity, facts[CAPACITY], CAPACITY)
    except StoredError:
        return None
    return found if found.probes else None


@dataclass(frozen=True, kw_only=True)
class Selection(Stored):
    """Events left by each cut, in their order, and the histogram of the mass of what is left."""

    events: int
    no_muon: int
    kaons: int
    no_pions: int
    below: int  # of those left, outside the histogram
    above: int
    counts: tuple[int, ...]  # [bin]

    def differing(self, other: Selection) -> int:
        """Events that the two have not in the same place, at least."""
        cuts: int = max(abs(getattr(self, name) - getattr(other, name)) for name in CUTS)
        if len(self.counts) != len(other.counts):
            return max(self.no_pions, cuts)
        apart = [own - others for own, others in zip(self.counts, other.counts, strict=True)]
        more, fewer = sum(max(n, 0) for n in apart), sum(max(-n, 0) for n in apart)
        return max(more, fewer, cuts)


@dataclass(frozen=True, kw_only=True)
class Analysed(Stored):
    """The phase `write` or `read` of one run, over all its processes."""

    data: str  # what was stored: seed and events, or the digest of a user's file
    found: Selection
    wanted: Selection | None  # of a phase that reads: what was written
    uncompressed: int  # bytes of the columns that were written or read
    stored: int  # of these in files or containers, compressed
    initialisation: float  # of the slowest process: file and columns open
    loop: float  # of the slowest process: the events
    closing: float  # of the slowest process: commit, fsync, close
    start: float  # of the slowest process, before: libraries, compiling, making events
    files: int


def analysed(facts: JsonObject) -> Analysed | None:
    """What the facts of a phase tell of the analysis; None if they tell nothing, or nonsense."""
    if LHCB not in facts:
        return None
    try:
        return read(Analysed, facts[LHCB], LHCB)
    except StoredError:
        return None
