"""Open loops in real time: when operations are issued, and latencies beside queueing theory.

    python -P bench/rate.py [--dir D] [--seconds 5] [--only WHAT ...] [--json]

issue    4 KiB reads at random offsets of a file in the page cache, at half the rate of the closed
         loop: the share issued within 100 us of their time, at least 0.999, and the achieved by
         the offered rate, within 0.1 %.  Also at 50,000 and 1000 a second; asleep between these.
theory   Reads that take 50 us each (served.c), 14,000 a second: percentiles of latency beside those
         of D/D/1 and M/D/1, and beside three times the sampling error of those.
stall    The same, and one takes 200 ms: how many were late by half of it or more, beside what
         follows from the rates.

Needs a C compiler and idle processors: on busy ones the figures are of the others' work, but for
short times of a real-time policy (chrt -f 5 python -P bench/rate.py --seconds 0.8).
Status 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OUTCOME, Place
from fsmatrix.backends.player.player import open_player
from fsmatrix.results.evidence.workloads import DUE
from fsmatrix.suite.workloads.streams import pattern
from fsmatrix.suite.workloads.streams.chunks import LEAD_NS, Arrivals

NATIVE = Path(__file__).resolve().parent.parent / "backends" / "player" / "native"
SIZE, FILE_BYTES = 4096, 64 << 20
PLACE = Place(rank=0, ranks=1, node=0, nodes=1, threads=1, seed=1)
SOON_NS = 100_000
SERVICE_NS, SERVED_RATE = 50_000, 14_000  # theory, stall
STALL_NS = 200_000_000
PAUSE = 0.6  # s before each: the kernel stops a real-time process that leaves none
Row = dict[str, Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Told:
    """Of one open loop."""

    late: Floats  # [operation] ns from when it was due to its call
    latency: Floats  # [operation] ns from when it was due to its end
    due: int
    begun: int  # by the end of the arrivals


def waiting(t: float, load: float, service: float) -> float:
    """Probability that an M/D/1 arrival waits for at most `t`.

    Erlang 1909; in this form Iversen and Staalhagen, Electronics Letters 35 (25), 1999:
    (1 - rho) sum over k of (lambda (k D - t))^k / k! exp(-lambda (k D - t)), k up to t / D.
    """
    rate = load / service
    terms = []
    for k in range(int(t // service) + 1):
        x = rate * (k * service - t)  # not above 0
        sign = -1 if k % 2 else 1
        size = k * math.log(-x) - math.lgamma(k + 1) - x if x else (0.0 if k == 0 else -math.inf)
        terms.append(sign * math.exp(size))
    return (1 - load) * math.fsum(terms)


def quantile(q: float, load: float, service: float) -> float:
    """Latency below which a share `q` of M/D/1 arrivals stay: wait and service."""
    low, high = 0.0, service
    while waiting(high, load, service) < q:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waiting(middle, load, service) < q else (low, middle)
    return service + high


def task_of(rate: float, poisson: bool, seconds: float) -> pattern.Task:
    """Random reads for so long; rate 0: as fast as possible."""
    until = LEAD_NS + round(seconds * 1e9)
    return pattern.Task(
        step="read",
        operation="read",
        layout="file-per-process",
        chunk=SIZE,
        bytes=FILE_BYTES,
        random="permutation",
        endless=True,
        arrivals=Arrivals(rate=rate, poisson=poisson, until=until) if rate else None,
    )


def open_loop(driver: Any, root: Path, rate: float, poisson: bool, seconds: float) -> Told:
    """Play all that is due, asking what becomes of each operation."""
    time.sleep(PAUSE)
    chunks = pattern.generate(task_of(rate, poisson, seconds).document(), PLACE)
    chunk, parts = next(chunks), []
    room = np.full(int(rate * seconds * 1.2) + 1000, 0, OUTCOME)  # its pages are there already
    player = open_player(driver, str(root), PlayerOptions(slots=1, max_op_bytes=SIZE), "c")
    try:
        player.begin(time.monotonic_ns() + 2_000_000)
        while True:
            if chunk.outcomes is None:
                outcomes, room = np.split(room, [len(chunk.ops)])
                chunk = replace(chunk, outcomes=outcomes)
            player.play(chunk)
            parts.append((chunk.ops["time"], chunk.outcomes))
            chunk = next(chunks)
    except StopIteration as end:
        due = int(end.value[DUE])
        if player.result().errors:
            raise RuntimeError(str(player.result().first_error)) from end
    finally:
        player.close()
    times, outcomes = (np.concatenate(part) for part in zip(*parts, strict=True))
    timed = times > 0
    start = outcomes["start"][timed].astype(np.float64)
    late = start - times[timed]
    begun = int((start < LEAD_NS + seconds * 1e9).sum())
    return Told(late, late + outcomes["duration"][timed], due, begun)


def fastest(root: Path, seconds: float) -> float:
    """Reads per second of the closed loop."""
    player = open_player("posix", str(root), PlayerOptions(slots=1, max_op_bytes=SIZE), "c")
    chunks = pattern.chunks(task_of(0, False, 0), PLACE)
    try:
        player.play(next(chunks))
        player.stop_at(time.monotonic_ns() + int(seconds * 1e9))
        while (chunk := next(chunks)) and player.play(chunk) == len(chunk.ops):
            pass
        result = player.result()
        return result.operations / (result.io_last_ns - result.io_first_ns) * 1e9
    finally:
        player.close()


def served(folder: Path) -> Any:
    """The driver of served.c as a capsule."""
    library = folder / "served.so"
    words = ["cc", "-O2", "-shared", "-fPIC", f"-I{NATIVE}", "-o", str(library)]
    subprocess.run([*words, str(Path(__file__).with_name("served.c"))], check=True)
    loaded = ctypes.CDLL(str(library))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(ctypes.c_char.in_dll(loaded, "driver")), NAME, None)


NAME = b"fsmatrix.driver.v4"  # of the capsule, which keeps a pointer to it


# -- what is measured --------------------------------------------------------------------------
def issue(root: Path, seconds: float) -> list[Row]:
    """When reads of a cached file are issued, and how many."""
    (root / "data.00000000").write_bytes(np.random.default_rng(1).bytes(FILE_BYTES))
    fastest(root, 0.2)
    most = fastest(root, seconds / 5)
    rows = [row("closed loop, reads/s", f"{most:,.0f}", "beside", True)]
    for rate in (most / 2, 50_000.0, 1000.0):
        for poisson in (False, True):
            told = open_loop("posix", root, rate, poisson, seconds)
            name = f"{'poisson' if poisson else 'constant'}, {rate:,.0f}/s"
            soon = float((told.late <= SOON_NS).mean())
            share = told.begun / told.due
            middle, high = np.quantile(told.late, (0.5, 0.999)) / 1e3
            rows += [
                row(
                    f"{name}: issued within 100 us",
                    f"{soon:.5f} (late by {middle:.2f} us, 99.9 %: {high:.1f} us)",
                    ">= 0.999",
                    soon >= 0.999,
                ),
                row(
                    f"{name}: achieved / offered",
                    f"{share:.5f} of {told.due / seconds:,.0f}/s",
                    ">= 0.999",
                    share >= 0.999,
                ),
            ]
    return rows


def theory(root: Path, seconds: float) -> list[Row]:
    """Percentiles of latency of a server with a known time."""
    os.environ["SERVED_NS"] = str(SERVICE_NS)
    os.environ.pop("SERVED_STALL_AT", None)
    driver = served(root)
    load = SERVED_RATE * SERVICE_NS / 1e9
    rows = []
    for poisson in (False, True):
        told = open_loop(driver, root, SERVED_RATE, poisson, seconds)
        for q in (0.5, 0.9, 0.99):
            right = quantile(q, load, SERVICE_NS) if poisson else SERVICE_NS
            found = float(np.quantile(told.latency, q))
            allowed = max(3 * error_of(told.latency, q), 2_000)  # ns; clock reads and dispatch
            rows.append(
                row(
                    f"{'M' if poisson else 'D'}/D/1, load {load:g}: {100 * q:g} % below, us",
                    f"{found / 1e3:.1f}, theory {right / 1e3:.1f}",
                    f"+- {allowed / 1e3:.1f}",
                    abs(found - right) <= allowed,
                )
            )
    return rows


def error_of(latency: Floats, q: float, batches: int = 20) -> float:
    """Standard error of a quantile, by batch means: neighbours wait for the same others."""
    each = [np.quantile(batch, q) for batch in np.array_split(latency, batches)]
    return float(np.std(each, ddof=1)) / math.sqrt(batches)


def stall(root: Path, seconds: float) -> list[Row]:
    """One read of 200 ms: what was due meanwhile, and until the queue is empty again, is late."""
    os.environ["SERVED_NS"] = str(SERVICE_NS)
    seconds = min(seconds, FILE_BYTES / SIZE / SERVED_RATE)  # each block is read once at most
    chunks = pattern.generate(task_of(SERVED_RATE, False, seconds).document(), PLACE)
    next(chunks)
    os.environ["SERVED_STALL_AT"] = str(next(chunks).ops["offset"][1000])
    told = open_loop(served(root), root, SERVED_RATE, False, seconds)
    rest = STALL_NS / 2  # of the stall, when an operation is late by more than half of it
    gap = 1e9 / SERVED_RATE
    right = rest / (gap - SERVICE_NS)  # each that is due adds its gap and takes its service
    found = int((told.latency >= rest).sum())
    return [
        row("a stall of 200 ms: the longest latency, ms", f"{told.latency.max() / 1e6:.1f}",
            ">= 200", told.latency.max() >= STALL_NS),
        row("late by 100 ms or more", f"{found}, theory {right:.0f}", "+- 5 %",
            abs(found - right) <= 0.05 * right),
        row("operations without a latency", str(told.due - len(told.latency)), "0",
            told.due == len(told.latency)),
    ]  # fmt: skip


def row(what: str, value: str, bound: str, kept: bool) -> Row:
    """One line of the table."""
    return {"what": what, "value": value, "bound": bound, "kept": bool(kept)}


MEASURES: dict[str, Callable[[Path, float], list[Row]]] = {
    "issue": issue, "theory": theory, "stall": stall,
}  # fmt: skip


def show(rows: list[Row]) -> None:
    """Print the rows as a table."""
    table = Table(title="Open loop")
    for column in ("what", "value", "bound", "kept"):
        table.add_column(column)
    for line in rows:
        table.add_row(line["what"], line["value"], line["bound"], "yes" if line["kept"] else "NO")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> int:
    """0 if all bounds are kept, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", nargs="*", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.dir, prefix="fsmatrix-bench-") as name:
        for what in asked.only:
            rows += MEASURES[what](Path(name), asked.seconds)
    print(json.dumps(rows, indent=1)) if asked.json else show(rows)
    return 0 if all(line["kept"] for line in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
