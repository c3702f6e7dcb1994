"""Metrics and display units: files hold SI units, what a reader sees is chosen here."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fsmatrix.results.units import parse_size

Quantity = Literal["bandwidth", "rate", "transactions", "events", "time", "number"]
Level = str | int | float
LEAST_P = 1e-12  # below it a p says nothing more
MISSING = "–"
CLOSED_LOOP, LOADS = "closed loop", ("load", "rate", "capacity")
MARKS = {"range": "*", "one session": "†"}  # by kind of interval (medians.Kind)


@dataclass(frozen=True)
class Metric:
    """One measured variable of the campaign file."""

    name: str  # of the variable
    title: str
    quantity: Quantity
    more_is_better: bool


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("bandwidth", "Bandwidth", "bandwidth", True),
        Metric("iops", "Operations per second", "rate", True),
        Metric("latency_mean", "Latency, mean", "time", False),
        Metric("latency_p50", "Latency, 50th percentile", "time", False),
        Metric("latency_p95", "Latency, 95th percentile", "time", False),
        Metric("latency_p99", "Latency, 99th percentile", "time", False),
        Metric("latency_p99_9", "Latency, 99.9th percentile", "time", False),
    )
}


# what the operations are that no benchmark of I/O calls its own: of a phase, of an engine
TRANSACTIONS = "transactions"
EVENT_ENGINES = frozenset({"root", "uproot"})
OPERATION_RATES: dict[str, Metric] = {
    TRANSACTIONS: Metric("iops", "Transactions of all types", "transactions", True),
    "events": Metric("iops", "Events per second", "events", True),
}


def metric_of(
    name: str, cells: Iterable[Mapping[str, Level]], known: Metric | None = None
) -> Metric:
    """A metric as readers of cells with these levels know it; `known`: of one that METRICS lacks.

    Operations of a database are transactions, those of an analysis of columns are events; where
    the cells differ, only "operations" is true of all.
    """
    kinds = {_operations(levels) for levels in cells} if name == "iops" else set()
    metric = known or METRICS[name]
    return OPERATION_RATES.get(kinds.pop(), metric) if len(kinds) == 1 else metric


def _operations(levels: Mapping[str, Level]) -> str:
    if levels.get("phase") == TRANSACTIONS:
        return TRANSACTIONS
    return "events" if levels.get("engine") in EVENT_ENGINES else ""


def short_title(metric: Metric) -> str:
    """A metric in few words."""
    return metric.quantity if metric.quantity in OPERATION_RATES else SHORT_TITLES[metric.name]


def more_is_better(metric: str) -> bool:
    """Of any metric, also one of a workload's own: all but times."""
    described = METRICS.get(metric)
    return described.more_is_better if described else not metric.endswith("_latency")


# phases that work on names and inodes, also where files get some bytes (mdtest -w, elbencho)
METADATA = frozenset({
    "tree", "mkdir", "create", "stat", "open-read", "rename", "remove", "rmdir", "find",
    "mkdirs", "rmdirs", "rmfiles", "statfiles", "statdirs", "rmobjs", "deldirs", "delfiles",
})  # fmt: skip
METADATA_ENGINES = ("mdtest",)  # whose `read` opens small files one after another
OWN = ""  # as a metric's name: each phase's own


def own_metric(engine: str, phase: str) -> str:
    """What a phase is judged by: bandwidth; operations per second where bytes are not the point.

    That is of metadata, replays, transactions, trims and fsyncs.

    Also of small random data: at one size of operation both have the same ratios, and a curve
    over sizes needs one metric.
    """
    metadata = engine in METADATA_ENGINES or phase in METADATA or "mdtest-" in phase
    metadata |= phase in ("replay", TRANSACTIONS)  # of all kinds of operations
    metadata |= phase == "trim" or phase.endswith("-fsync")  # which move no bytes
    return "iops" if metadata else "bandwidth"


def work_kind(metric: str, phase: str) -> str:
    """What a phase that is judged by `metric` does: data, metadata, or fsync and trim by name."""
    if metric == "bandwidth":
        return "data"
    last = phase.rpartition("-")[2]
    return last if last in ("fsync", "trim") else "metadata"


FACTOR_TITLES = {"ssds_per_hba": "SSDs per HBA"}
SHORT_TITLES = {
    "bandwidth": "bandwidth",
    "iops": "IOPS",
    "latency_mean": "mean latency",
    "latency_p50": "p50",
    "latency_p95": "p95",
    "latency_p99": "p99",
    "latency_p99_9": "p99.9",
}


@dataclass(frozen=True)
class Unit:
    """A display unit: value in SI / `divisor` is shown with `label`."""

    label: str
    divisor: float


# (smallest typical value in SI, unit), largest first
UNITS: dict[Quantity, tuple[tuple[float, Unit], ...]] = {
    "bandwidth": (
        (10 * 2.0**30, Unit("GiB/s", 2.0**30)),
        (2.0**20 / 4, Unit("MiB/s", 2.0**20)),
        (0.0, Unit("KiB/s", 2.0**10)),
    ),
    "rate": (
        (1e7, Unit("MIOPS", 1e6)),
        (1e3, Unit("kIOPS", 1e3)),
        (0.0, Unit("IOPS", 1.0)),
    ),
    "transactions": ((0.0, Unit("tpm", 1 / 60)),),
    "events": (
        (1e6, Unit("M events/s", 1e6)),
        (1e3, Unit("k events/s", 1e3)),
        (0.0, Unit("events/s", 1.0)),
    ),
    "time": (
        (1.0, Unit("s", 1.0)),
        (1e-3, Unit("ms", 1e-3)),
        (1e-6, Unit("µs", 1e-6)),
        (0.0, Unit("ns", 1e-9)),
    ),
    "number": ((0.0, Unit("", 1.0)),),  # of any other unit, which the value's own text names
}


def fitting(quantity: Quantity, values: Iterable[float]) -> Unit:
    """The unit that fits the geometric mean of the positive, finite values (SI)."""
    logs = [math.log(v) for v in values if math.isfinite(v) and v > 0]
    typical = math.exp(sum(logs) / len(logs)) if logs else 0.0
    choices = UNITS[quantity]
    if not logs:
        return choices[len(choices) // 2][1]
    return next(unit for least, unit in choices if typical >= least)


def number(value: float) -> str:
    """Three significant digits, from 10000 with thin blanks; a dash for NaN."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.2e}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    plain = f"{value:,.{digits}f}"
    return plain.replace(",", "\u202f" if abs(value) >= 10_000 else "")


def brief(value: float, digits: int = 3) -> str:
    """As `:.{digits}g` for sentences, but a large number has no exponent: "107", not "1.1e+02"."""
    if math.isfinite(value) and abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace(",", "\u202f" if abs(value) >= 10_000 else "")
    return f"{value:.{digits}g}"


def p_number(p: float) -> str:
    """A p for tables: "0.03", or "< 1e-12", never 0."""
    return f"< {LEAST_P:g}" if p < LEAST_P else f"{p:.2g}"


def p_text(p: float, digits: int = 2) -> str:
    """A p for sentences: "p = 0.03", or "p < 1e-12", never 0."""
    return f"p < {LEAST_P:g}" if p < LEAST_P else f"p = {p:.{digits}g}"


def text(value: float, unit: Unit) -> str:
    """`value` (SI) in `unit`, without the unit's label."""
    return number(value / unit.divisor)


def size(count: float) -> str:
    """Bytes in the largest binary unit that divides them, or else with three digits."""
    units = [(1024**power, label) for power, label in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]
    for divisor, label in reversed(units):
        if count >= divisor and float(count / divisor).is_integer() and count < 10_000 * divisor:
            return f"{int(count / divisor)} {label}"
    return rounded_size(count)


def rounded_size(count: float) -> str:
    """Bytes in the largest binary unit that they reach, three digits: 3.44 MiB, not 3524 KiB."""
    power = max((p for p in range(5) if count >= 1024**p), default=0)
    value, label = count / 1024**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{int(value) if float(value).is_integer() else number(value)} {label}"


def is_size(factor: str) -> bool:
    """Whether a factor's name says that its levels are bytes."""
    name = factor.lower()
    return (
        name
        in (
            "bs",
            "capacity",
            "chunk",
            "memory",
            "read_ahead",
            "segment",
            "shared_buffers",
            "stripe",
        )
        or name.startswith("bytes")
        or name.endswith(("_size", "_bytes", "blocksize"))
    )


def factor_title(factor: str) -> str:
    """A factor's name for readers: blanks for underscores, and what is no English word as such."""
    return FACTOR_TITLES.get(factor, factor.replace("_", " "))


def level_text(factor: str, level: Level) -> str:
    """A level for readers: bytes with their unit, whole numbers whole, a dash if missing.

    Without a load a case is a closed loop.
    """
    if level == "" or (not isinstance(level, str) and not math.isfinite(level)):
        return CLOSED_LOOP if factor in LOADS else MISSING
    if isinstance(level, str):
        return level
    if is_size(factor) and level >= 0:
        return size(level)
    unit = " %" if factor == "load" else ""
    return f"{int(level)}{unit}" if float(level).is_integer() else f"{level:g}{unit}"


def described(levels: Mapping[str, Level], names: Iterable[str]) -> str:
    """The levels of these factors in words, without those that there are not."""
    there = [n for n in names if n in levels and level_text(n, levels[n]) != MISSING]
    return ", ".join(dict.fromkeys(labelled(name, levels[name]) for name in there))


def labelled(factor: str, level: Level) -> str:
    """A level that says what it is, where the level alone would not: "2 processes per node"."""
    shown = level_text(factor, level)
    if shown == CLOSED_LOOP or (
        isinstance(level, str) and factor in ("pattern", "phase", "workload", "target")
    ):
        return shown
    if factor == "processes_per_node":
        return f"{shown} process{'' if shown == '1' else 'es'} per node"
    if factor in ("nodes", "threads"):
        noun = {"nodes": "client node", "threads": "thread"}[factor]
        return f"{shown} {noun}{'' if shown == '1' else 's'}"
    return f"{factor_title(factor)} {shown}"


class Written(float):
    """A number that somebody wrote, with the text: "3.10" is 3.1, and the text level "3.10"."""

    text: str

    def __new__(cls, value: float, text: str) -> Written:
        """`value` as `text` gives it."""
        number = super().__new__(cls, value)
        number.text = text
        return number


def written(level: float) -> str:
    """A number as a text level has it: as it was written, or in the shortest form."""
    return level.text if isinstance(level, Written) else f"{level:.15g}"


def wanted_level(text: str) -> Level:
    """What somebody wrote for a level: a number, a size in bytes, or a text."""
    for read in (float, parse_size):
        with contextlib.suppress(ValueError):
            number = float(read(text))
            if math.isfinite(number):
                return Written(number, text)
    return text
