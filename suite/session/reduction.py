"""What all ranks of a step measured, and what their generators counted, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Tallies
from fsmatrix.backends.player.result import Latencies, PlayerResult, fold, no_latencies
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.histogram import sparse
from fsmatrix.suite.session.clock import Offset
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import Merged, OperationError
from fsmatrix.suite.session.wire import Arrays

RANK_FIELDS = ("start", "end", "io_start", "io_end", "overhead")
RANK_COUNTS = ("bytes", "operations", "errors")
LARGEST = "_max"  # how the names end of which the largest counts; others are added up
NUMBER = -1  # length of what is no array
MOST_FAILURES = 16  # whose errors are told

Integers = npt.NDArray[np.int64]


def reduced(
    comm: Comm,
    result: PlayerResult,
    generating_ns: int,
    origin: int,
    offset: Offset,
) -> tuple[Merged | None, Arrays]:
    """Everything that the ranks measured, merged: sums by one reduce, times gathered.

    `generating_ns`: what making the chunks took this rank; `origin`: of its player.  Nothing but
    at rank 0; began and facts are for the caller to say.
    """
    arrays = _histograms(comm, result)
    width, series = _series(comm, result)
    arrays |= series
    seconds = [
        (stamp - origin) / 1e9 if stamp else float("nan")
        for stamp in (result.first_ns, result.last_ns, result.io_first_ns, result.io_last_ns)
    ]
    seconds.append((result.overhead_ns + generating_ns) / 1e9)
    own = {
        "seconds": seconds,
        "counts": [result.bytes, result.operations, result.errors],
        "errno": dict(result.errors_by_errno),
        "first_error": result.first_error and vars(result.first_error),
        "uncertainty": offset.uncertainty / 1e9,
    }
    gathered = comm.gather(own)
    if gathered is None:
        return None, {}
    table = np.array([entry["seconds"] for entry in gathered], dtype=np.float64)
    counts = np.array([entry["counts"] for entry in gathered], dtype=np.int64)
    arrays |= {name: table[:, i] for i, name in enumerate(RANK_FIELDS)}
    arrays |= {name: counts[:, i] for i, name in enumerate(RANK_COUNTS)}
    errno: dict[str, int] = {}
    for entry in gathered:
        for name, count in entry["errno"].items():
            errno[name] = errno.get(name, 0) + count
    failures = [
        OperationError(rank=rank, **entry["first_error"])
        for rank, entry in enumerate(gathered)
        if entry["first_error"]
    ]
    merged = Merged(
        interval=width,
        errors_by_errno=errno,
        failures=tuple(failures[:MOST_FAILURES]),
        clock_uncertainty=max(entry["uncertainty"] for entry in gathered),
    )
    return merged, arrays


def _histograms(comm: Comm, result: PlayerResult) -> Arrays:
    """Rows are kinds; if any rank was paced, the service times follow in as many rows."""
    paced = int(comm.largest(np.array([result.service is not None], dtype=np.int64))[0])
    parts = [Latencies(result.counts, result.total_ns, result.min_ns, result.max_ns)]
    if paced:
        parts.append(result.service or no_latencies())
    counts = np.concatenate([part.counts for part in parts])
    packed = np.concatenate([counts.ravel(), *(part.total_ns for part in parts)])
    summed = comm.sum(packed)
    largest = comm.largest(
        np.concatenate([*(-part.min_ns for part in parts), *(part.max_ns for part in parts)])
    )
    kinds = len(counts)
    return {
        "counts": summed[: counts.size].reshape(counts.shape),
        "total": summed[counts.size :] / 1e9,
        "minimum": -largest[:kinds] / 1e9,
        "maximum": largest[kinds:] / 1e9,
    }


def _series(comm: Comm, result: PlayerResult) -> tuple[float, Arrays]:
    """Series of all ranks on the widest interval among them; widths are 10 ms x 2**n."""
    lengths = np.array([result.interval_ns, 0], dtype=np.int64)
    width = int(comm.largest(lengths)[0])
    folded = [
        fold(series, (width // result.interval_ns).bit_length() - 1)
        for series in (result.interval_bytes, result.interval_operations)
    ]
    longest = int(comm.largest(np.array([len(folded[0])], dtype=np.int64))[0])
    padded = np.zeros((2, longest), dtype=np.int64)
    for row, series in enumerate(folded):
        padded[row, : len(series)] = series
    total = comm.sum(padded)
    return width / 1e9, {"interval_bytes": total[0], "interval_operations": total[1]}


def put_together(tallies: Tallies | None, comm: Comm) -> JsonObject:
    """Tallies of all ranks at rank 0, JSON-able; called by all ranks of `comm`.

    A number stays a number, an array is stored by its values that are not zero
    (`histogram.dense` reads it).  What a rank did not count is nothing.  ValueError, at every
    rank, if two ranks give arrays of different lengths.
    """
    own = {name: _integers(name, value) for name, value in (tallies or {}).items()}
    lengths = comm.gather({name: _length(values) for name, values in own.items()})
    agreed, problem = comm.bcast(None if lengths is None else _agreed(lengths))
    if problem:
        raise ValueError(problem)
    merged = {
        name: values
        for largest in (False, True)
        for name, values in _merged(own, agreed, largest, comm).items()
    }
    return {name: merged[name] for name in agreed} if comm.rank == 0 else {}


def _integers(name: str, value: Any) -> Integers:
    values = np.asarray(value)
    if values.dtype.kind not in "iu" or values.ndim > 1:
        raise ValueError(f"tally {name!r} is neither a whole number nor an array of them")
    return values.astype(np.int64)


def _length(values: Integers) -> int:
    return len(values) if values.ndim else NUMBER


def _agreed(lengths: list[Mapping[str, int]]) -> tuple[dict[str, int], str]:
    """The length of each tally; why there is none."""
    merged: dict[str, int] = {}
    for rank, own in enumerate(lengths):
        for name, length in own.items():
            if merged.setdefault(name, length) != length:
                return {}, (
                    f"tally {name!r} has {length} elements at rank {rank}, "
                    f"{merged[name]} at a rank before it ({NUMBER}: it is a number)"
                )
    return merged, ""


def _merged(
    own: Mapping[str, Integers], lengths: Mapping[str, int], largest: bool, comm: Comm
) -> JsonObject:
    """Those of one sort, by one reduction."""
    names = [name for name in lengths if name.endswith(LARGEST) == largest]
    if not names:
        return {}
    nothing = np.iinfo(np.int64).min if largest else 0
    parts = [
        own[name].ravel()
        if name in own
        else np.full(1 if lengths[name] == NUMBER else lengths[name], nothing)
        for name in names
    ]
    packed = np.concatenate(parts)
    merged = comm.largest(packed) if largest else comm.sum(packed)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return {
        name: int(values[0]) if lengths[name] == NUMBER else sparse(values)
        for name, values in zip(names, np.split(merged, ends), strict=True)
    }
