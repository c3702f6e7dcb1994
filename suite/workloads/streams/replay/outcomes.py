"""What became of the operations, beside what became of them when they were captured."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Kind, Tallies
from fsmatrix.results.evidence.stored import JsonObject, inside
from fsmatrix.results.histogram import BINS, bin_of, dense
from fsmatrix.suite.workloads.streams.replay.converting import Played, Skipped
from fsmatrix.suite.workloads.streams.replay.survey import CLASSES, KINDS, Integers, is_data
from fsmatrix.traces.model import UNKNOWN, Columns

Chosen = slice | Integers | npt.NDArray[np.bool_]  # of the operations of a block
ERRNOS = 256  # numbers below it are counted by themselves, all others together as 0


def _by_kind() -> Integers:
    return np.zeros(KINDS, np.int64)


class Counts:
    """Tallies of one rank, or of all; names and shapes are those of the phase's facts."""

    def __init__(self, timed: bool = False) -> None:
        """`timed`: operations have issue times; else a time is a pause."""
        self._timed = timed
        self.played = _by_kind()
        self.agreed = _by_kind()  # the captured outcome
        self.failed_as_captured = _by_kind()
        self.failed_otherwise = _by_kind()  # another errno, or it had succeeded
        self.succeeded_otherwise = _by_kind()  # it had failed
        self.other_bytes = _by_kind()  # succeeded both times, with other bytes moved
        self.short = _by_kind()  # fewer bytes than asked for
        self.skipped = np.zeros((len(Skipped), KINDS), np.int64)
        self.errno = np.zeros((2, ERRNOS), np.int64)  # as captured, otherwise
        self.bytes = _by_kind()
        self.ns = _by_kind()
        self.class_operations = np.zeros(CLASSES + 1, np.int64)
        self.class_bytes = np.zeros(CLASSES + 1, np.int64)
        self.class_ns = np.zeros(CLASSES + 1, np.int64)
        self.issue_error = np.zeros(BINS, np.int64)
        self.issue_error_ns = 0
        self.issue_error_ns_max = 0
        self.added = 0  # opens and closes that the trace does not have
        self.added_failed = 0
        self.widened = 0
        self.buffered = 0
        self.barriers = 0
        self.threads = 0  # of the trace
        self.sharing = 0  # threads that share a lane with another of their time

    @classmethod
    def of(cls, tallies: JsonObject) -> Counts:
        """Those of all ranks, from the tallies of a phase's facts."""
        counts = cls()
        for name, own in list(vars(counts).items()):
            if isinstance(own, np.ndarray):
                setattr(counts, name, dense(inside(tallies[name])).reshape(own.shape))
            elif not name.startswith("_"):
                setattr(counts, name, tallies[name])
        return counts

    def tallies(self) -> Tallies:
        """As a generator returns them: tables row by row."""
        return {
            name: value.ravel() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if not name.startswith("_")
        }

    def skip(self, kind: npt.NDArray[np.uint8], reason: Integers) -> None:
        """Count what is not played."""
        np.add.at(self.skipped, (reason, kind), 1)

    def add(
        self,
        block: Columns,
        played: Played,
        outcomes: npt.NDArray[np.void],
        file_class: npt.NDArray[np.uint8],
    ) -> None:
        """Count what was played of a block; `file_class`: of each of the block's operations."""
        ran = outcomes["start"] > 0
        own: Chosen = slice(None)  # as it mostly is: all ran and nothing was added
        source: Chosen = own
        if len(played.ops) != len(block["kind"]) or not ran.all():
            own = ran & (played.source >= 0)
            added = ran & (played.source < 0)
            self.added += int(added.sum())
            self.added_failed += int((added & (outcomes["result"] < 0)).sum())
            source = played.source[own]
        self.widened += played.widened
        self.buffered += played.buffered
        kind = block["kind"][source]
        result, size = _result(block, played, outcomes, own, source)
        data = is_data(kind)
        as_captured = self._compare(kind, data, result, block["result"][source], size)
        came = result if as_captured else np.where(data, np.maximum(result, 0), 0)
        self._sum(kind, file_class[source], came, outcomes["duration"][own])
        if self._timed:
            self._issue(played.ops["time"][own], outcomes["start"][own])

    def _sum(
        self,
        kind: npt.NDArray[np.uint8],
        file_class: npt.NDArray[np.uint8],
        came: Integers,
        ns: npt.NDArray[np.uint64],
    ) -> None:
        """Operations, bytes and ns by kind and by class of files."""
        if not len(kind):
            return
        shape = (CLASSES + 1, KINDS)
        operations, moved, took = np.zeros((3, *shape), np.int64)
        if kind.min() == kind.max() and file_class.min() == file_class.max():
            place = file_class[0], kind[0]  # as in long runs of reads: sums are much faster
            operations[place], moved[place], took[place] = len(kind), came.sum(), ns.sum()
        else:
            both = file_class.astype(np.intp) * KINDS + kind
            # a block's sums are far below 2^53, where a float64 stops to be exact
            operations, moved, took = (
                np.bincount(both, weights, operations.size).astype(np.int64).reshape(shape)
                for weights in (None, came, ns)
            )
        self.played += operations.sum(axis=0)
        self.bytes += moved.sum(axis=0)
        self.ns += took.sum(axis=0)
        self.class_operations += operations.sum(axis=1)
        self.class_bytes += moved.sum(axis=1)
        self.class_ns += took.sum(axis=1)

    def _compare(
        self,
        kind: npt.NDArray[np.uint8],
        data: npt.NDArray[np.bool_],
        result: Integers,
        captured: Integers,
        size: Integers,
    ) -> bool:
        """Outcomes beside those captured; only what is not plainly the same is looked at twice.

        True: all are reads and writes that moved what they asked for, then and now.
        """
        plain = (result == captured) & (result == size) & data
        if plain.all():
            self.agreed += np.bincount(kind, minlength=KINDS)
            return True
        self.agreed += np.bincount(kind[plain], minlength=KINDS)
        rest = np.flatnonzero(~plain)
        kind, result, captured, size = kind[rest], result[rest], captured[rest], size[rest]
        data = is_data(kind)
        failed = result < 0
        unknown = captured == UNKNOWN
        had_failed = (captured < 0) & ~unknown
        same = np.where(data | failed | had_failed, result == captured, True)
        agreed = np.where(unknown, ~failed, same)
        for total, mask in (
            (self.agreed, agreed),
            (self.failed_as_captured, failed & agreed),
            (self.failed_otherwise, failed & ~agreed),
            (self.succeeded_otherwise, ~failed & had_failed),
            (self.other_bytes, ~failed & ~had_failed & ~agreed),
            (self.short, data & ~failed & (result < size)),
        ):
            total += np.bincount(kind[mask], minlength=KINDS)
        number = np.where(-result < ERRNOS, -result, 0)
        for row, mask in zip(self.errno, (failed & agreed, failed & ~agreed), strict=True):
            row += np.bincount(number[mask], minlength=ERRNOS)
        return False

    def _issue(self, intended: npt.NDArray[np.uint64], start: npt.NDArray[np.uint64]) -> None:
        """How late operations with a time were issued."""
        timed = intended > 0
        if not timed.any():
            return
        late = np.maximum(start[timed].astype(np.int64) - intended[timed].astype(np.int64), 0)
        self.issue_error += np.bincount(bin_of(late), minlength=BINS)
        self.issue_error_ns += int(late.sum())
        self.issue_error_ns_max = max(self.issue_error_ns_max, int(late.max()))


def _result(
    block: Columns,
    played: Played,
    outcomes: npt.NDArray[np.void],
    own: Chosen,
    source: Chosen,
) -> tuple[Integers, Integers]:
    """Results as the captured operation would have had them, and the bytes it asked for."""
    result: Integers = outcomes["result"][own].copy()
    size = block["size"][source].astype(np.int64)
    data = is_data(block["kind"][source])
    if not data.all():
        size[~data] = 0
    if played.widened:
        moved = result >= 0
        inside = np.clip(result - played.before[own], 0, size)
        result = np.where(moved, inside, result)
    return result, size


def kinds() -> tuple[str, ...]:
    """Names of the kinds, in the order of the tallies."""
    return tuple(kind.name.lower() for kind in Kind)
