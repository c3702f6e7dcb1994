"""What a replay tells beside its rates (docs/traces.md): made by the workload, read by all others.

It stands in the phase's facts as "replay".  Amounts are in bytes, times in seconds.  "Captured": as
it went when the trace was captured, times the clients that each played all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import JsonObject, Stored, StoredError, read
from fsmatrix.results.evidence.trace import TraceSummary

FACT = "replay"


@dataclass(frozen=True, kw_only=True)
class CapturedKind(Stored):
    """The chosen operations of one kind when they were captured."""

    operations: int
    bytes: int
    failed: int
    p50: float | None  # latency; None: fewer were captured than that percentile needs
    p99: float | None


@dataclass(frozen=True, kw_only=True)
class PlayedKind(Stored):
    """What became of the operations of one kind."""

    captured: CapturedKind
    played: int
    agreed: int  # had the captured outcome
    failed_as_captured: int  # with the captured errno
    failed_otherwise: int  # with another errno, or the captured one had not failed
    succeeded_otherwise: int  # the captured one had failed
    other_bytes: int  # moved another number of bytes
    short: int  # moved fewer bytes than asked for
    bytes: int
    skipped: Mapping[str, int]  # reason -> operations


@dataclass(frozen=True, kw_only=True)
class Amount(Stored):
    """Operations, what they moved, and the sum of their latencies."""

    operations: int
    bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FileClass(Stored):
    """Files of one extension."""

    captured: Amount
    played: Amount


@dataclass(frozen=True, kw_only=True)
class IssueError(Stored):
    """How late the operations of a timed replay were issued."""

    operations: int
    mean: float
    p50: float | None
    p99: float | None
    longest: float
    within_100us: float  # share of the operations


@dataclass(frozen=True, kw_only=True)
class Replayed(Stored):
    """A replay phase."""

    trace: str  # name of the file, or of the generator
    source: str
    anonymised: bool
    mode: str
    time_scale: float  # of issue times or think times; 0: none
    fill: str
    clients: int  # that each played all of it
    like: TraceSummary | None  # of the whole trace; None: not looked at
    captured_seconds: float | None  # the chosen operations' first issue to the last; None: no times
    operations: int  # chosen, and such as the mode plays
    played: int
    agreed: int
    fidelity: float  # agreed / operations
    declared_fidelity: float
    kinds: Mapping[str, PlayedKind]
    classes: Mapping[str, FileClass]
    errors_as_captured: Mapping[str, int]  # errno -> operations
    errors_otherwise: Mapping[str, int]
    left_out: Mapping[str, int]  # kind -> operations that were not chosen
    issue_error: IssueError | None  # timed
    barriers: int  # ends of chunks that keep the order between threads
    threads: int  # of the trace
    sharing: int  # threads that share a lane with another of their time
    added: int  # opens and closes that the trace does not have
    added_failed: int
    widened: int  # operations that moved more than captured, for O_DIRECT
    buffered: int  # operations that went without O_DIRECT


def replayed(facts: JsonObject) -> Replayed | None:
    """What the facts of a phase tell of a replay; None if they tell none, or nonsense."""
    if FACT not in facts:
        return None
    try:
        return read(Replayed, facts[FACT], FACT)
    except StoredError:
        return None
