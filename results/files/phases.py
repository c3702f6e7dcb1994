"""The phases of a run file: arrays [phase, rank], latencies [phase, kind, bin], series, ...

Phases may have different numbers of workers and intervals; shorter ones are padded with
NaN or -1 and `workers` and `intervals` say the true number.  A dimension is at least one
long (netCDF knows no empty dimension of a fixed size); without phases nothing is stored.

Iterations, and what engines say of them in sum, are contiguous ragged arrays as in a campaign file:
those of a phase lie together, `iterations` [phase] says how many.  What a phase does not tell is
NaN.  Latencies over time are ragged too: a row for each interval of a phase and sort of operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.results import histogram, iterations
from fsmatrix.results.files.hdf import Group, Source
from fsmatrix.results.files.schema import (
    InvalidRecordError,
    decode_text,
    encode_text,
    from_json,
    to_json,
)
from fsmatrix.results.iterations import NAN, PREFIX
from fsmatrix.results.record import Floats, Integers, Latency, Phase

# name -> unit, meaning
TIMES = {
    "start": "first operation began, after the phase's agreed start",
    "end": "last operation ended",
}
OPTIONAL_TIMES = {
    "io_start": "first data operation began",
    "io_end": "last data operation ended",
    "overhead": "time spent filling and verifying buffers",
}
COUNTS = {
    "bytes": ("B", "bytes moved"),
    "operations": ("1", "completed operations"),
    "errors": ("1", "failed operations"),
}
SERIES = {
    "interval_bytes": ("B", "bytes of all workers in this interval"),
    "interval_operations": ("1", "operations of all workers in this interval"),
}
TIME_SERIES = {
    "interval_latency_max": ("s", "largest latency of an operation in this interval"),
}
SCALARS = {
    "interval": ("interval_width", "s", "width of one interval; 0 = no series"),
    "began": ("began", "s", "Unix time of the agreed start"),
    "clock_uncertainty": ("clock_uncertainty", "s", "largest uncertainty of a clock offset"),
}
LATENCY = {
    "total": ("latency_total", "sum of all latencies"),
    "minimum": ("latency_min", "smallest latency"),
    "maximum": ("latency_max", "largest latency"),
}
PHASE_JSON = ("errors_by_errno", "facts")
FILL = -1
MOST_LATENCIES = 1 << 15  # phases x kinds; each becomes 15 kB
MOST_INTERVALS = 1 << 19  # of all timelines, 1 kB each; a day in seconds has 86400


def write_iterations(root: Group, phases: Sequence[Phase]) -> None:
    """Iterations and summaries of all phases; what no phase has is left out."""
    for name, (unit, meaning) in iterations.SUMMARY.items():
        values = np.array([phase.summary.get(name, NAN) for phase in phases], dtype=np.float64)
        if any(name in phase.summary for phase in phases):
            root.variable(
                iterations.OWN + name, values, ["phase"], {"units": unit, "long_name": meaning}
            )
    sizes = [iterations.size(phase.iterations) for phase in phases]
    if not sum(sizes):
        return
    root.variable(
        "iterations",
        np.array(sizes, dtype=np.int64),
        ["phase"],
        {"units": "1", "long_name": "number of iterations"},
    )
    root.dimension("iteration", sum(sizes))
    filled = [iterations.filled(phase.iterations) for phase in phases]
    for name, (_, unit, meaning) in iterations.COLUMNS.items():
        if any(name in phase.iterations for phase in phases):
            column = np.concatenate([columns[name] for columns in filled if columns])
            attributes = {"units": unit, "long_name": meaning}
            root.variable(PREFIX + name, column, ["iteration"], attributes)


def read_iterations(root: Source, phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with theirs; of run files of before from the facts, which lose them.

    ValueError if there are others than it says.
    """
    own = {
        name: root.array(iterations.OWN + name)
        for name in iterations.SUMMARY
        if iterations.OWN + name in root
    }
    summed = [
        replace(phase, summary={n: c[i].item() for n, c in own.items() if c[i] == c[i]})
        for i, phase in enumerate(phases)
    ]
    if "iterations" not in root:
        pairs = [(phase, iterations.of_facts(phase.facts)) for phase in summed]
        return tuple(replace(p, facts=facts, iterations=table) for p, (facts, table) in pairs)
    columns = {
        name: root.array(PREFIX + name) for name in iterations.COLUMNS if PREFIX + name in root
    }
    sizes = root.array("iterations")
    ends = np.cumsum(sizes)
    if (sizes < 0).any() or any(column.shape != (ends[-1],) for column in columns.values()):
        raise ValueError("iterations that are more or fewer than their phases have")
    return tuple(
        replace(
            phase,
            iterations=iterations.stripped({n: c[end - size : end] for n, c in columns.items()}),
        )
        for phase, size, end in zip(summed, sizes.tolist(), ends.tolist(), strict=True)
    )


def check(path: Path, phases: Sequence[Phase]) -> None:
    """InvalidRecordError if the arrays of a phase do not fit together."""
    for phase in phases:
        for name in (*TIMES, *OPTIONAL_TIMES, *COUNTS):
            values = getattr(phase, name)
            if values is not None and np.shape(values) != np.shape(phase.start)[:1]:
                raise InvalidRecordError(
                    path,
                    f"phase {phase.name!r}: {name} has shape {np.shape(values)}, "
                    f"start has {np.shape(phase.start)}; both must be [rank]",
                )
        given = [getattr(phase, name) for name in (*SERIES, *TIME_SERIES)]
        lengths = {np.shape(values) for values in given if values is not None}
        if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
            raise InvalidRecordError(
                path, f"phase {phase.name!r}: interval series of shapes {sorted(lengths)}"
            )
        for sort, table in phase.timeline.items():
            lengths = lengths or {(len(table),)}
            if {np.shape(table)} != {(*shape, histogram.COARSE) for shape in lengths}:
                raise InvalidRecordError(
                    path,
                    f"phase {phase.name!r}: latencies of {sort!r} over time of shape "
                    f"{np.shape(table)} beside series of {sorted(lengths)}, not [interval, "
                    f"{histogram.COARSE}]",
                )
            if table.dtype.kind != "i" or (table < 0).any():
                reason = f"latencies of {sort!r} over time are no counts"
                raise InvalidRecordError(path, f"phase {phase.name!r}: {reason}")
        if reason := iterations.misfit(phase.iterations, phase.summary):
            raise InvalidRecordError(path, f"phase {phase.name!r}: {reason}")
        for kind, latency in phase.latency.items():
            if np.shape(latency.counts) != (histogram.BINS,):
                raise InvalidRecordError(
                    path,
                    f"phase {phase.name!r}: latency counts of {kind!r} have shape "
                    f"{np.shape(latency.counts)}, not ({histogram.BINS},)",
                )


def write(root: Group, phases: Sequence[Phase]) -> None:
    """All phases into the root group."""
    if not phases:
        return
    workers = [len(phase.start) for phase in phases]
    root.coordinate("phase", texts([p.name for p in phases]), {"long_name": "timed part of a run"})
    root.dimension("rank", max(1, *workers))
    root.variable(
        "workers", integers(workers), ["phase"], {"units": "1", "long_name": "number of workers"}
    )
    for name, meaning in (TIMES | OPTIONAL_TIMES).items():
        rows = [getattr(phase, name) for phase in phases]
        _table(root, name, rows, "rank", {"units": "s", "long_name": meaning})
    for name, (unit, meaning) in COUNTS.items():
        rows = [getattr(phase, name) for phase in phases]
        _table(root, name, rows, "rank", {"units": unit, "long_name": meaning})
    for field, (name, unit, meaning) in SCALARS.items():
        column = np.array([getattr(phase, field) for phase in phases], dtype=np.float64)
        root.variable(name, column, ["phase"], {"units": unit, "long_name": meaning})
    for name in PHASE_JSON:
        column_json = [to_json(getattr(phase, name)) for phase in phases]
        root.variable(name, column_json, ["phase"], {"long_name": f"{name} (JSON)"})
    _write_series(root, phases)
    write_iterations(root, phases)
    _write_latency(root, phases)
    _write_timelines(root, phases)


def _write_series(root: Group, phases: Sequence[Phase]) -> None:
    series = SERIES | TIME_SERIES
    given = [[v for name in series if (v := getattr(p, name)) is not None] for p in phases]
    if not any(given):
        return
    lengths = [max(map(len, values), default=0) for values in given]
    root.dimension("interval", max(1, *lengths))
    root.variable(
        "intervals", integers(lengths), ["phase"], {"units": "1", "long_name": "length of series"}
    )
    for name, (unit, meaning) in series.items():
        rows = [getattr(phase, name) for phase in phases]
        _table(root, name, rows, "interval", {"units": unit, "long_name": meaning})


def _table(
    root: Group, name: str, rows: Sequence[Any], dim: str, attributes: Mapping[str, Any]
) -> None:
    """A variable [phase, dim]; left out if no phase gives it, `given` if only some do."""
    given = np.array([row is not None for row in rows], dtype=np.int8)
    if not given.any():
        return
    size = root.size(dim)
    whole = name in COUNTS or name in SERIES
    extra: dict[str, Any] = {"_FillValue": np.int64(FILL) if whole else np.float64(NAN)}
    if not given.all():
        extra["given"] = given
    table = padded(rows, size, FILL if whole else NAN)
    root.variable(name, table, ["phase", dim], {**attributes, **extra})


def _write_latency(root: Group, phases: Sequence[Phase]) -> None:
    kinds = sorted({kind for phase in phases for kind in phase.latency})
    if not kinds:
        return
    counts = np.zeros((len(phases), len(kinds), histogram.BINS), dtype=np.int64)
    given = np.zeros(counts.shape[:2], dtype=np.int8)
    sums = {field: np.full(given.shape, NAN) for field in LATENCY}
    for row, phase in enumerate(phases):
        for kind, latency in phase.latency.items():
            column = kinds.index(kind)
            counts[row, column] = latency.counts
            given[row, column] = 1
            for field, table in sums.items():
                table[row, column] = getattr(latency, field)
    bins = np.flatnonzero(counts.any(axis=(0, 1)))
    bins = bins if bins.size else np.zeros(1, dtype=np.int64)
    root.coordinate("kind", texts(kinds), {"long_name": "kind of operation"})
    root.coordinate(
        "bin", bins.astype(np.int64), {"long_name": "index of a bin that is not empty somewhere"}
    )
    edges = {"bin_lower": histogram.lower_edges(), "bin_upper": histogram.upper_edges()}
    for name, edge in edges.items():
        root.variable(
            name, edge[bins] / 1e9, ["bin"], {"units": "s", "long_name": "bin is [lower, upper)"}
        )
    dims = ["phase", "kind"]
    root.variable(
        "latency_count",
        np.ascontiguousarray(counts[:, :, bins]),
        [*dims, "bin"],
        {"units": "1", "long_name": "operations whose latency fell into the bin"},
    )
    root.variable("latency_given", given, dims, {"long_name": "1 = the phase has this kind"})
    for field, (name, meaning) in LATENCY.items():
        root.variable(name, sums[field], dims, {"units": "s", "long_name": meaning})


def _write_timelines(root: Group, phases: Sequence[Phase]) -> None:
    own = [(i, sort, t) for i, phase in enumerate(phases) for sort, t in phase.timeline.items()]
    if not own:
        return
    counts = np.concatenate([table for _, _, table in own])
    bins = np.flatnonzero(counts.any(axis=0))
    bins = bins if bins.size else np.zeros(1, dtype=np.int64)
    small = not counts.size or counts.max() < 1 << 32
    root.coordinate(
        "timeline", texts([sort for _, sort, _ in own]), {"long_name": "sort of operations"}
    )
    for name, values, meaning in (
        ("timeline_phase", [i for i, _, _ in own], "index of the phase that it is of"),
        ("timeline_size", [len(table) for _, _, table in own], "its number of intervals"),
    ):
        root.variable(name, integers(values), ["timeline"], {"units": "1", "long_name": meaning})
    root.coordinate(
        "timeline_bin",
        bins.astype(np.int64),
        {"long_name": "index of a timeline's bin that is not empty somewhere"},
    )
    edges = histogram.coarse_edges() / 1e9
    for name, edge in (("timeline_lower", edges[bins]), ("timeline_upper", edges[bins + 1])):
        meaning = "bin is [lower, upper)"
        root.variable(name, edge, ["timeline_bin"], {"units": "s", "long_name": meaning})
    root.dimension("timeline_interval", max(1, len(counts)))
    table = np.zeros((max(1, len(counts)), len(bins)), dtype=np.uint32 if small else np.uint64)
    table[: len(counts)] = counts[:, bins]
    root.variable(
        "timeline_count",
        table,
        ["timeline_interval", "timeline_bin"],
        {"units": "1", "long_name": "operations of an interval whose latency fell into the bin"},
    )


def read(root: Source) -> tuple[Phase, ...]:
    """The phases of a run file."""
    if "phase" not in root:
        return ()
    names = strings(root, "phase")
    workers = root.array("workers")
    intervals = root.array("intervals") if "intervals" in root else workers
    columns: dict[str, Sequence[Any]] = {"name": names}
    for name in (*TIMES, *OPTIONAL_TIMES, *COUNTS):
        columns[name] = _rows(root, name, workers)
    for name in (*SERIES, *TIME_SERIES):
        columns[name] = _rows(root, name, intervals)
    for field, (name, _, _) in SCALARS.items():
        columns[field] = root.array(name).tolist()
    for name in PHASE_JSON:
        columns[name] = [from_json(text) for text in root.texts(name)]
    columns["latency"] = _read_latency(root, len(names))
    columns["timeline"] = _read_timelines(root, len(names))
    phases = [
        Phase(**{field: values[row] for field, values in columns.items()})
        for row in range(len(names))
    ]
    return read_iterations(root, phases)


def _rows(root: Source, name: str, sizes: Integers) -> Sequence[npt.NDArray[Any] | None]:
    if name not in root:
        return [None] * len(sizes)
    table, given = root.given(name)
    return [
        table[row, :size].copy() if given is None or given[row] else None
        for row, size in enumerate(sizes.tolist())
    ]


def _read_latency(root: Source, phases: int) -> list[dict[str, Latency]]:
    result: list[dict[str, Latency]] = [{} for _ in range(phases)]
    if "kind" not in root:
        return result
    kinds = strings(root, "kind")
    bins = root.array("bin")
    counts = root.array("latency_count")
    sums = {field: root.array(name) for field, (name, _) in LATENCY.items()}
    given = root.array("latency_given")
    if given.size > MOST_LATENCIES:
        raise ValueError(f"latencies of {given.size} phases and kinds")
    for row, column in np.argwhere(given).tolist():
        whole = np.zeros(histogram.BINS, dtype=np.int64)
        whole[bins] = counts[row, column]
        values = {field: float(table[row, column]) for field, table in sums.items()}
        result[row][kinds[column]] = Latency(counts=whole, **values)
    return result


def _read_timelines(root: Source, phases: int) -> list[dict[str, Integers]]:
    """Of each phase; nothing in run files of before.  ValueError if they do not fit together."""
    result: list[dict[str, Integers]] = [{} for _ in range(phases)]
    if "timeline" not in root:
        return result
    sizes, owners = root.array("timeline_size"), root.array("timeline_phase")
    bins, counts = root.array("timeline_bin"), root.array("timeline_count")
    ends = np.cumsum(sizes)
    if (sizes < 0).any() or ends[-1] > min(len(counts), MOST_INTERVALS):
        raise ValueError(f"timelines of {ends[-1]} intervals, {len(counts)} are there")
    most = np.iinfo(np.int64).max
    if counts.dtype.kind != "u" or bins.min(initial=0) < 0 or counts.max(initial=0) > most:
        raise ValueError("timelines whose counts or bins are none")
    for sort, owner, size, end in zip(
        strings(root, "timeline"), owners.tolist(), sizes.tolist(), ends.tolist(), strict=True
    ):
        if not 0 <= owner < phases:
            raise ValueError(f"a timeline of phase {owner} of {phases}")
        whole = np.zeros((size, histogram.COARSE), dtype=np.int64)
        whole[:, bins] = counts[end - size : end]
        result[owner][sort] = whole
    return result


def padded(rows: Sequence[Any], size: int, fill: float) -> npt.NDArray[Any]:
    """[row, max(1, size)]: each row followed by `fill`; None is a row of `fill`."""
    dtype = np.int64 if isinstance(fill, int) else np.float64
    table = np.full((len(rows), max(1, size)), fill, dtype=dtype)
    for index, row in enumerate(rows):
        if row is not None:
            table[index, : len(row)] = row
    return table


def cube(series: Sequence[Floats], hosts: int, samples: int) -> Floats:
    """[host, metric, sample] of one [host, sample] array per metric; NaN where there is none."""
    table = np.full((max(1, hosts), max(1, len(series)), max(1, samples)), NAN)
    for index, values in enumerate(series):
        table[:hosts, index, : np.shape(values)[1]] = values
    return table


def texts(values: Sequence[str]) -> list[str]:
    """Strings as HDF5 can hold them; one empty string if there is none."""
    return [encode_text(value) for value in values] or [""]


def strings(group: Source, name: str) -> tuple[str, ...]:
    """The strings of a variable; inverse of `texts`."""
    return tuple(decode_text(text) for text in group.texts(name))


def integers(values: Sequence[int]) -> Integers:
    """`values` as an array of int64."""
    return np.array(values, dtype=np.int64)
