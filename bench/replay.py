"""Replays beside their peers: rates, times of issue, what a capture costs, memory of long traces.

    taskset -c 1 python bench/replay.py [--dir D] [--rounds 15] [--only WHAT ...] [--json]

rate     4 KiB reads at random offsets of one file that is in the page cache, one thread: the
         replay in mode queue, the workload `pattern`, fio's read_iolog of the same operations
         (replay_no_stall; its clock begins after it has read the log), and the limit, a bare C
         loop of the same pread calls.  Rounds alternate; who begins changes.  Ratios of one
         round, as medians with quartiles: at least 0.9 of the pattern's rate and 1.5 x fio's.
         Where the limit by fio is below that, no program can be 1.5 x as fast as fio.
         A file of 4 MiB fits the processor's caches, one of 256 MiB does not.
timed    20,000 such reads a second for 5 s: the share that was issued within 100 us of its time,
         at least 0.99, and how long fio takes for the same log with its times.
memory   100 million operations of a generator on the driver that does nothing: the growth of the
         largest resident size between 1 and 100 million, at most 64 MiB.

What captures and their texts cost: bench/capture.py.  Status 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from fsmatrix.backends.player.lanes import Player, PlayerOptions
from fsmatrix.backends.player.ops import Chunks, CountingChunks, Kind, Place
from fsmatrix.backends.player.player import open_player
from fsmatrix.suite.workloads.streams import pattern
from fsmatrix.suite.workloads.streams.replay.generate import generate
from fsmatrix.suite.workloads.streams.replay.survey import ReplayParams
from fsmatrix.traces.trace_model import COLUMNS, Header
from fsmatrix.traces.tracefile import writing

SIZE = 4096
FILES = (4 << 20, 256 << 20)  # bytes
FILE_BYTES = FILES[-1]  # timed
OPERATIONS = 1 << 19  # of a round
RATE, SECONDS = 20_000, 5  # timed
SOON_NS = 100_000
DATA = "data.00000000"  # as the workload pattern names the file of rank 0
PLACE = Place(rank=0, ranks=1, node=0, nodes=1, threads=1, seed=1)
GROWTH = 64 << 20  # bytes
Row = dict[str, Any]


# -- traces and players ------------------------------------------------------------------------
def offsets_of(count: int, size: int) -> npt.NDArray[np.uint64]:
    """Where each operation reads in a file of `size` bytes."""
    pages = np.random.default_rng(7).integers(0, size // SIZE, count)
    return (pages * SIZE).astype(np.uint64)


def trace_of(path: Path, count: int, interval_ns: int, size: int) -> None:
    """Reads at random offsets of the file DATA, in a trace at `path`."""
    offsets = offsets_of(count, size)
    with writing(path) as trace:
        trace.slot(trace.file(DATA.encode(), size))
        columns = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
        columns |= {
            "kind": np.full(count, Kind.READ, COLUMNS["kind"]),
            "size": np.full(count, SIZE, COLUMNS["size"]),
            "offset": offsets,
            "time": (np.arange(count) * interval_ns).astype(COLUMNS["time"]),
            "result": np.full(count, SIZE, COLUMNS["result"]),
        }
        trace.append(columns)
        trace.finish(Header("bench"))


def iolog_of(path: Path, file: Path, count: int, interval_ns: int, size: int) -> None:
    """The same as fio's log; version 3 has times in microseconds, 2 has none."""
    offsets = offsets_of(count, size)
    stamps = np.arange(count) * interval_ns // 1000
    timed = bool(interval_ns)
    lines = [f"fio version {3 if timed else 2} iolog"]
    lines += [f"{'0 ' if timed else ''}{file} {what}" for what in ("add", "open")]
    times = (f"{stamp} " for stamp in stamps.tolist()) if timed else iter([""] * count)
    lines += [f"{t}{file} read {at} {SIZE}" for t, at in zip(times, offsets.tolist(), strict=True)]
    lines.append(f"{f'{stamps[-1]} ' if timed else ''}{file} close")
    path.write_text("\n".join(lines) + "\n")


@contextmanager
def player_of(driver: str, root: Path, slots: int, size: int = SIZE) -> Iterator[Player]:
    """A C player that does not end at errors."""
    options = PlayerOptions(slots=slots, max_op_bytes=size, stop_on_error=False)
    player = open_player(driver, str(root), options, "c")
    try:
        yield player
    finally:
        player.close()


def play(player: Player, chunks: Chunks | CountingChunks) -> Mapping[str, Any]:
    """Play all; what the generator returned.  Its first chunk is made before the clock runs."""
    chunk = next(chunks)
    player.begin(time.monotonic_ns())
    while True:
        player.play(chunk)
        try:
            chunk = next(chunks)
        except StopIteration as end:
            return end.value or {}


def rate_of(root: Path, chunks: Chunks | CountingChunks, slots: int = 1) -> float:
    """Reads per second between the first and the last."""
    with player_of("posix", root, slots) as player:
        play(player, chunks)
        result = player.result()
    if result.errors or result.operations != OPERATIONS:
        raise RuntimeError(f"{result.operations} operations, {result.first_error}")
    return result.operations / (result.io_last_ns - result.io_first_ns) * 1e9


# -- what is measured --------------------------------------------------------------------------
def rate(root: Path, rounds: int) -> list[Row]:
    """Replay, pattern, fio and the bare loop, in alternating rounds, for each size of file."""
    return [row for size in FILES for row in rate_in(root, rounds, size)]


def rate_in(root: Path, rounds: int, size: int) -> list[Row]:
    """The same in one file of `size` bytes."""
    made(root, size)
    trace, log = root / "trace.h5", root / "fio.log"
    trace_of(trace, OPERATIONS, 0, size)
    iolog_of(log, root / DATA, OPERATIONS, 0, size)
    task = pattern.Task(
        step="read", operation="read", layout="file-per-process", chunk=SIZE,
        bytes=OPERATIONS * SIZE, random="with-replacement",
    )  # fmt: skip
    work = ReplayParams(trace=str(trace), mode="queue", slots=1)
    # as many operations as the trace has, of the same file
    engines: dict[str, Callable[[], float]] = {
        "replay": lambda: rate_of(root, generate(work.document(), PLACE)),
        "pattern": lambda: rate_of(root, within(size, pattern.chunks(task, PLACE))),
        "fio": lambda: fio(log)[0],
        "limit": lambda: bare(root / DATA, size),
    }
    rates: dict[str, list[float]] = {name: [] for name in engines}
    order = list(engines)
    for number in range(rounds + 1):
        order = order[1:] + order[:1]
        for name in order:
            value = engines[name]()
            if number:
                rates[name].append(value)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    rows = []
    for one, peer, least in (
        ("replay", "pattern", 0.9), ("replay", "fio", 1.5), ("replay", "limit", 0),
        ("limit", "fio", 0),
    ):  # fmt: skip
        ratios = [a / b for a, b in zip(rates[one], rates[peer], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            row(
                f"reads/s in {size >> 20} MiB, {one} by {peer}",
                f"{middle:.3f} ({low:.3f} - {high:.3f})",
                f">= {least}" if least else "beside", middle >= least,
                medians if not rows else None,
            )
        )  # fmt: skip
    return rows


def made(root: Path, size: int) -> None:
    """The file DATA, in the page cache."""
    (root / DATA).write_bytes(np.random.default_rng(1).bytes(size))


def bare(file: Path, size: int) -> float:
    """Reads per second of a C loop of pread that does nothing else: what the kernel allows."""
    from fsmatrix.backends.player import _player

    handle = os.open(file, os.O_RDONLY)
    try:
        return (
            OPERATIONS / _player._bare_loop(handle, offsets_of(OPERATIONS, size), SIZE, False) * 1e9
        )
    finally:
        os.close(handle)


def within(size: int, chunks: Chunks) -> Chunks:
    """The pattern's offsets, wrapped into the file: it draws from as many blocks as it reads."""
    for chunk in chunks:
        chunk.ops["offset"] &= size - 1
        yield chunk


def fio(log: Path, *more: str) -> tuple[float, float]:
    """Reads per second, and seconds, of fio's replay of a log."""
    argv = ["fio", "--name=replay", "--ioengine=psync", f"--read_iolog={log}", "--invalidate=0",
            "--output-format=json", "--thread=1", *(more or ("--replay_no_stall=1",))]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=600)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return job["total_ios"] / (job["runtime"] / 1e3), job["runtime"] / 1e3


def timed(root: Path, _rounds: int) -> list[Row]:
    """Issue times of a replay at a fixed rate, and fio's duration of the same."""
    trace, log = root / "timed.h5", root / "timed.log"
    count, interval = RATE * SECONDS, 1_000_000_000 // RATE
    made(root, FILE_BYTES)
    trace_of(trace, count, interval, FILE_BYTES)
    iolog_of(log, root / DATA, count, interval, FILE_BYTES)
    work = ReplayParams(trace=str(trace), mode="timed", time_scale=1.0, slots=1)
    with player_of("posix", root, 1) as player:
        tallies = play(player, generate(work.document(), PLACE))
    late = np.asarray(tallies["issue_error"])
    from fsmatrix.results.histogram import bin_of

    soon = float(late[: int(bin_of([SOON_NS])[0])].sum() / late.sum())
    took = fio(log, "--replay_no_stall=0")[1]
    return [
        row("issued within 100 us of their time", f"{soon:.4f}", ">= 0.99", soon >= 0.99),
        row("fio's seconds for a log of 5 s", f"{took:.2f}", "beside", True),
    ]


def peak_of(*argv: str) -> int:
    """Largest resident size of this program with these arguments, bytes."""
    command = [sys.executable, "-P", __file__, *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return int(done.stdout.split()[-1])


def peak() -> int:
    """Largest resident size of this process, bytes; ru_maxrss would be that of its parent too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def memory(_root: Path, _rounds: int) -> list[Row]:
    """A long generator on the null driver."""
    small, large = (peak_of("--null", str(count)) for count in (1_000_000, 100_000_000))
    grown = large - small
    text = f"{small >> 20} -> {large >> 20} MiB"
    return [row("memory, 1 -> 100 million operations", text, "<= 64 MiB", grown <= GROWTH)]


def null(count: int) -> None:
    """Play so many operations of uniform-random on the null driver; print the peak."""
    from fsmatrix.traces.page_cache import generate as workload

    whole = workload("uniform-random", 1.0, 1).operations
    work = ReplayParams(generator="uniform-random", scale=count / whole, mode="queue", slots=1)
    with player_of("null", Path("/"), 4) as player:
        play(player, generate(work.document(), PLACE))
        done = player.result().operations
    if abs(done - count) > count / 1000:
        raise RuntimeError(f"{done} operations, not {count}")
    print(peak())


def row(what: str, value: str, bound: str, kept: bool, more: Any = None) -> Row:
    """One line of the table."""
    return {"what": what, "value": value, "bound": bound, "kept": kept, "rates": more}


MEASURES: dict[str, Callable[[Path, int], list[Row]]] = {
    "rate": rate, "timed": timed, "memory": memory,
}  # fmt: skip


def show(rows: list[Row]) -> None:
    """Print the rows as a table."""
    table = Table(title="Replay")
    for column in ("what", "value", "bound", "kept"):
        table.add_column(column)
    for line in rows:
        table.add_row(line["what"], line["value"], line["bound"], "yes" if line["kept"] else "NO")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for line in rows:
        if line["rates"]:
            print({name: round(value) for name, value in line["rates"].items()})


def main() -> int:
    """0 if all bounds are kept, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--null", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.null:
        null(asked.null)
        return 0
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.dir, prefix="fsmatrix-bench-") as name:
        root = Path(name)
        for what in asked.only:
            rows += MEASURES[what](root, asked.rounds)
    print(json.dumps(rows, indent=1)) if asked.json else show(rows)
    return 0 if all(line["kept"] for line in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
