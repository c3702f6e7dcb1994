"""Rows of IOR with their bytes and windows, and the settings that this takes.

IOR computes bandwidth = bytes moved / (last close - first open) (ReduceIterResults), and
prints both numbers rounded.  The window is computed from both: it is the middle of where the
interval bytes / bandwidth and the interval of the printed time overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsmatrix.results.formats.ior.model import (
    KIB,
    MIB,
    Number,
    Row,
    Settings,
    Test,
    count_of,
    whole,
)
from fsmatrix.results.formats.ior.model import settings as settings_of_argv

LARGEST = (1 << 63) - 1
ROUNDED = 6  # bytes: half of 0.01 KiB
COLUMN = {"transfer_size": "transfer_size", "block_size": "block"}  # KiB


@dataclass(frozen=True)
class Iteration:
    """One access of one iteration."""

    row: Row
    bytes: int
    exact: bool  # else bytes are known only as well as rate x time
    window: float  # seconds, open to close
    contradiction: str
    fewest: bool = False  # bytes are the fewest that rounded numbers allow


# -- settings --------------------------------------------------------------------------------
def merge(test: Test, argv: Sequence[str]) -> None:
    """Complete the settings: what IOR printed, then its summary, then the command line."""
    settings = test.settings
    for name in test.conflicts:
        settings.pop(name, None)
    asked = settings_of_argv(argv) if argv else {}
    if asked.get("script"):
        asked = {}
    summary = next(iter(test.summary.values()), {}) if "summary" not in test.conflicts else {}
    for name in ("tasks", "tasks_per_node", "iterations", "segments"):
        settings.setdefault(name, whole(summary.get(name, "")))
    for name in ("transfer_size", "block_size"):
        printed = settings.pop(f"{name}_printed", None)
        column = {_whole_bytes(row.numbers[COLUMN[name]], row.coarse) for row in test.rows}
        settings.setdefault(
            name,
            _exact(
                printed if isinstance(printed, Number) else None,
                whole(summary.get(name, "")),
                count_of(asked, name),
                column.pop() if len(column) == 1 else None,
            ),
        )
    if "api" in summary:
        settings.setdefault("api", summary["api"])
    for name, value in asked.items():
        if name not in ("transfer_size", "block_size"):
            settings.setdefault(name, value)
    if "read_file" in settings:
        settings.setdefault("read", settings["read_file"] or bool(settings.get("check_read")))
    if "read" in settings and "write" in settings:
        both = settings["read"] and settings["write"]
        settings["operations"] = "both" if both else "read" if settings["read"] else "write"
    tasks, each = settings.get("tasks"), settings.get("tasks_per_node")
    if tasks is None and len(tasks_of_rows := {row.tasks for row in test.rows}) == 1:
        settings["tasks"] = tasks_of_rows.pop()
    if tasks and tasks == each:
        settings.setdefault("nodes", 1)
    for name in [name for name, value in settings.items() if value is None]:
        del settings[name]


def _exact(printed: Number | None, *candidates: int | None) -> int | None:
    """A size: one that was printed whole, or the first candidate that is printed so."""
    if printed is not None and printed.half == 0:
        return int(printed.value)
    for value in candidates:
        if value and (printed is None or printed.holds(value)):
            return value
    return None


def _whole_bytes(column: Number, coarse: bool) -> int | None:
    """Bytes of a column in KiB, if it is printed that finely, or rounded to a plain "4.0"."""
    exact = column.half * KIB < 0.5 or (coarse and column.value.is_integer())
    return round(column.value * KIB) if exact else None


def expected(test: Test) -> int | None:
    """Bytes of one access of one iteration when nothing cuts it short."""
    settings = test.settings
    counts = [count_of(settings, name) or 0 for name in ("block_size", "segments", "tasks")]
    if not all(counts):
        return None
    bytes_ = math.prod(counts)
    printed = settings.get("aggregate_printed")
    if bytes_ > LARGEST or (isinstance(printed, Number) and not printed.holds(bytes_)):
        return None
    return bytes_


# -- one iteration ---------------------------------------------------------------------------
def _spans(row: Row, bytes_: int) -> tuple[Number, Number]:
    """The window (seconds) as the rate tells it, and as it was printed."""
    rate, total = row.within("bandwidth"), row.within("total")
    low = bytes_ / MIB / rate.high
    high = bytes_ / MIB / rate.low if rate.low > 0 else math.inf
    half = (high - low) / 2
    by_rate = Number(low + half if math.isfinite(half) else total.value, half)
    return by_rate, total


def iteration(row: Row, bytes_: int, exact: bool = True) -> Iteration:
    """Bytes and window of a row; a contradiction if its numbers do not fit together."""
    by_rate, total = _spans(row, bytes_)
    low, high = max(by_rate.low, total.low), min(by_rate.high, total.high)
    if low > high * (1 + 1e-9):
        which = "" if row.iteration is None else f", iteration {row.iteration}"
        text = (
            f"{row.access}{which}: {bytes_} bytes at "
            f"{row.numbers['bandwidth'].value:g} MiB/s need {by_rate.value:.6g} s, "
            f"the printed time is {row.numbers['total'].value:g} s"
        )
        return Iteration(row, bytes_, exact, by_rate.value, text)
    return Iteration(row, bytes_, exact, (low + high) / 2, "")


def counted(row: Row, test: Test, inline: bool) -> Iteration | None:
    """A row with its bytes; None if nobody knows them.

    A stonewalled row without its message has them by rate and time, but not about so where other
    rows have messages (`inline`): then it was lost, and else it stands in another text.
    """
    asked = expected(test)
    if row.moved is not None:
        return iteration(row, row.moved)
    stonewalled = bool(test.settings.get("stonewall"))
    if asked is not None:
        counts = iteration(row, asked)
        if not stonewalled or not counts.contradiction:
            return counts
    amount = _derived(row, test, stonewalled or asked is not None)
    return None if inline and amount is not None and not amount.exact else amount


def transfer_size(row: Row, settings: Settings) -> int:
    """Bytes of one transfer: the row has KiB with two digits, the options have it exactly."""
    printed = round(row.numbers["transfer_size"].value * KIB)
    declared = count_of(settings, "transfer_size") or 0
    return declared if abs(declared - printed) <= ROUNDED else printed


def _derived(row: Row, test: Test, any_amount: bool) -> Iteration | None:
    """Bytes from rate x time: a multiple of what all tasks move at once, if only one fits."""
    low, high = _amounts(row)
    if not (row.coarse or low > 0) or not low <= high <= LARGEST:
        return None
    block, transfer = round(row.numbers["block"].value * KIB), transfer_size(row, test.settings)
    tasks = count_of(test.settings, "tasks") or 0
    unit = transfer if any_amount else block * tasks
    if unit <= 0:
        return None
    first, last = math.ceil(low / unit), math.floor(high / unit)
    if first == last > 0:
        return iteration(row, first * unit)
    if row.coarse and not any_amount:
        return _fewest(row, test, unit)
    if not any_amount or last < first or low <= 0:
        return None
    middle = max(round((low + high) / 2 / transfer), 1) * transfer
    return iteration(row, middle, exact=False)


def _amounts(row: Row) -> tuple[float, float]:
    """Fewest and most bytes that its rate and its time allow."""
    rate, total = row.within("bandwidth"), row.within("total")
    return max(rate.low, 0) * max(total.low, 0) * MIB, rate.high * total.high * MIB


def _fewest(row: Row, test: Test, unit: int) -> Iteration | None:
    """The least multiple of `unit` bytes that all rows of a test, which move as much, allow."""
    amounts = [_amounts(other) for other in test.rows if other.moved is None]
    first = max(1, *(math.ceil(low / unit) for low, _ in amounts))
    last = min(math.floor(high / unit) for _, high in amounts)
    if first > last:
        return None
    return replace(iteration(row, first * unit, exact=first == last), fewest=True)
