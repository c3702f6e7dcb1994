"""Iterations: what an engine did several times within one phase (`ior -i 3`).

A phase holds them as columns [iteration].  They are parts of the phase, not repetitions: they
share its attachment, its caches and often its files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Json, JsonObject, inside

Column = npt.NDArray[Any]  # [iteration]
Columns = Mapping[str, Column]
NAN = float("nan")

# name -> (type, unit, meaning); what an engine does not tell is NaN, or the column is absent
COLUMNS: dict[str, tuple[str, str, str]] = {
    "number": ("i8", "1", "number of the iteration as the engine counts, from 0"),
    "seconds": ("f8", "s", "window of the iteration; those of a phase add up to its window"),
    "bytes": ("i8", "B", "bytes moved"),
    "operations": ("i8", "1", "completed operations"),
    "open": ("f8", "s", "time to open, as the engine printed it"),
    "transfer": ("f8", "s", "time to write or read, as the engine printed it"),
    "close": ("f8", "s", "time to close, as the engine printed it"),
    "block": ("f8", "B", "block that a process writes in one piece of the file"),
    "transfer_size": ("f8", "B", "bytes of one operation"),
    "bandwidth": ("f8", "B s-1", "bandwidth, as the engine printed it"),
    "iops": ("f8", "s-1", "operations per second, as the engine printed them"),
    "latency_rank0": ("f8", "s", "IOR's column Latency: a mean of rank 0 alone"),
    "stonewall_seconds": ("f8", "s", "when the stonewall was hit"),
    "pairs_min": ("f8", "1", "operations of the slowest process when the stonewall was hit"),
    "pairs_max": ("f8", "1", "operations of the fastest process when the stonewall was hit"),
    "slowest_rank": ("f8", "1", "rank that took longest"),
    "rank_min": ("f8", "s", "time of the fastest rank"),
    "rank_median": ("f8", "s", "median of the ranks' times"),
    "rank_max": ("f8", "s", "time of the slowest rank"),
    "bytes_exact": ("f8", "1", "0 = the bytes are rate x time only"),
}
# name -> (unit, meaning): what an engine says of its iterations in sum
SUMMARY: dict[str, tuple[str, str]] = {
    "iterations": ("1", "iterations that the engine's own summary is of"),
    "bandwidth_max": ("B s-1", "largest bandwidth of an iteration, as the engine sums up"),
    "bandwidth_min": ("B s-1", "smallest bandwidth of an iteration, as the engine sums up"),
    "bandwidth_mean": ("B s-1", "mean of the iterations' bandwidths, as the engine sums up"),
    "bandwidth_stddev": ("B s-1", "standard deviation of these bandwidths, as the engine's"),
    "iops_max": ("s-1", "largest rate of operations of an iteration, as the engine sums up"),
    "iops_min": ("s-1", "smallest rate of operations of an iteration, as the engine sums up"),
    "iops_mean": ("s-1", "mean of the iterations' rates of operations, as the engine sums up"),
    "iops_stddev": ("s-1", "standard deviation of these rates, as the engine's"),
}
OWN = "own_"  # of its variables in files
NEEDED = ("number", "seconds", "bytes", "operations")
PREFIX = "iteration_"  # of their variables in files
OWN_VARIABLES = {OWN + name: column for name, column in SUMMARY.items()}
VARIABLES = {PREFIX + name: column for name, column in COLUMNS.items()}

# facts["iterations"] of run files of before -> column; the last two held mappings
_MIB = 1 << 20
_FACTS = {
    "iteration": "number",
    "seconds": "seconds",
    "bytes": "bytes",
    "operations": "operations",
    "open_seconds": "open",
    "transfer_seconds": "transfer",
    "close_seconds": "close",
    "iops_printed": "iops",
    "latency_rank0": "latency_rank0",
    "slowest_rank": "slowest_rank",
    "bytes_exact": "bytes_exact",
}
_NESTED = {
    "stonewall": {
        "seconds": "stonewall_seconds",
        "pairs_min": "pairs_min",
        "pairs_max": "pairs_max",
    },
    "rank_seconds": {"minimum": "rank_min", "median": "rank_median", "maximum": "rank_max"},
}


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Column]:
    """Columns of iterations, each told as column -> value.  Without a `number` they are counted.

    Columns that no row has are absent; KeyError for a row without what is NEEDED.
    """
    numbered = [{"number": index, **row} for index, row in enumerate(rows)]
    names = [name for name in COLUMNS if any(name in row for row in numbered)]
    return {
        name: np.array(
            [row[name] if name in NEEDED else row.get(name, NAN) for row in numbered],
            dtype=COLUMNS[name][0],
        )
        for name in (names if rows else ())
    }


def rows_of(table: Columns) -> list[dict[str, float]]:
    """Inverse of `columns`: each iteration as column -> value, without what is NaN."""
    values = {name: column.tolist() for name, column in table.items()}
    return [
        {name: column[index] for name, column in values.items() if column[index] == column[index]}
        for index in range(size(table))
    ]


def size(table: Columns) -> int:
    """How many iterations there are."""
    return len(next(iter(table.values()))) if table else 0


def filled(table: Columns) -> dict[str, Column]:
    """All columns of COLUMNS, with NaN where nothing is told; empty without iterations."""
    if not size(table):
        return {}
    missing = np.full(size(table), NAN)
    return {name: table.get(name, missing) for name in COLUMNS}


def stripped(table: Columns) -> dict[str, Column]:
    """Inverse of `filled`: without columns that are NaN throughout; empty without iterations."""
    return {
        name: column.copy()
        for name, column in table.items()
        if column.size and not (column != column).all()
    }


def summary(
    rows: Sequence[Mapping[str, float]], metric: str, sample: bool = False
) -> dict[str, float]:
    """SUMMARY of iterations by their column `metric` (bandwidth, iops); empty if one has none.

    The deviation is of a population (/ n, as IOR has it), or of a `sample` (/ (n - 1)).
    """
    if not rows or not all(metric in row for row in rows):
        return {}
    values = np.array([row[metric] for row in rows], dtype=np.float64)
    return {
        "iterations": len(values),
        f"{metric}_max": float(values.max()),
        f"{metric}_min": float(values.min()),
        f"{metric}_mean": float(values.mean()),
        f"{metric}_stddev": float(values.std(ddof=int(sample and len(values) > 1))),
    }


def misfit(table: Columns, own: Mapping[str, float]) -> str:
    """Why these cannot be the iterations of a phase and their summary; empty if they can."""
    if unknown := sorted(own.keys() - SUMMARY.keys()):
        return f"a summary of iterations has no {unknown[0][:80]!r}"
    if unknown := sorted(table.keys() - COLUMNS.keys()):
        return f"iterations have no column {unknown[0][:80]!r}"
    if table and (missing := [name for name in NEEDED if name not in table]):
        return f"iterations without {missing[0]}"
    shapes = {np.shape(column) for column in table.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        return f"columns of iterations of shapes {sorted(shapes)}, not all [iteration]"
    for name, column in table.items():
        if np.asarray(column).dtype.kind != COLUMNS[name][0][0]:
            return f"{name} of an iteration is of another type"
    return ""


def impossible(column: Column) -> bool:
    """Whether a value of a column is negative or infinite (NaN: not told)."""
    return bool((column < 0).any() or np.isinf(column).any())


def of_facts(facts: JsonObject) -> tuple[JsonObject, dict[str, Column]]:
    """The facts of a phase and its iterations, which run files of before have in its facts.

    What is no list of iterations as they were written then stays where it is.
    """
    parts = facts.get("iterations") if isinstance(facts, dict) else None
    if not isinstance(parts, list) or not parts:
        return facts, {}
    rows = [_row(part) for part in parts if isinstance(part, dict)]
    whole = NEEDED[1:]  # the number is counted where it was not told
    if len(rows) < len(parts) or not all(name in row for row in rows for name in whole):
        return facts, {}
    return {name: fact for name, fact in facts.items() if name != "iterations"}, columns(rows)


def _row(part: JsonObject) -> dict[str, float]:
    row = _renamed(part, _FACTS)
    for field, names in _NESTED.items():
        row |= _renamed(inside(part, field), names)
    if _is_number(rate := part.get("bandwidth_mib")):
        row["bandwidth"] = rate * _MIB
    return row


def _renamed(part: JsonObject, names: Mapping[str, str]) -> dict[str, float]:
    return {new: value for old, new in names.items() if _is_number(value := part.get(old))}


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1 << 63
