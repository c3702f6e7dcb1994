"""What the player's driver uring costs, against fio's io_uring on the same file in the same run.

    python bench/uring.py [--dir D] [--rounds 15] [--seconds 1] [--depth 32] [--json]

Random reads of 4 KiB, on one processor: of a file in the page cache, and with O_DIRECT, both on an
XFS on a loop device with direct I/O (root; --here: only the page cache, in --dir itself).  The
player keeps every latency, and so does fio, with registered buffers and without the map of
blocks that it has read.  "fio, batches" may also submit and collect as many at a time as are in
flight, with the file registered: more than it does by itself.

A round is one run of each, in turns forwards and backwards; ratios are taken within a round,
and their median is given with its 95 % interval from the order of the ratios, at least 6 rounds.
CPU is that of the player's process while it plays, and what fio says of its job.  The target
against fio: 1.1 times its rate, at most 0.9 of its CPU per operation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import driver_refusal, open_player
from fsmatrix.backends.system import tools

SIZE, FILE_BYTES, IMAGE_BYTES = 4096, 256 << 20, 448 << 20
CHUNKS, CHUNK = 16, 16_384
NAME = "fsmatrix-bench-uring"
RATE, CPU = 1.1, 0.9  # targets
FEWEST = 6  # rounds of which the median has an interval
OURS, FIO, BATCHES = "player, uring", "fio", "fio, batches"


@dataclass(frozen=True)
class Asked:
    """What is read, and how."""

    file: Path
    direct: bool
    depth: int
    seconds: float


@dataclass(frozen=True)
class Rate:
    """Operations per second, and seconds of CPU per operation."""

    rate: float
    cpu: float


def played(driver: str, asked: Asked) -> Rate:
    """The player for that time, its streams made beforehand."""
    rng = np.random.default_rng(1)
    chunks = []
    for _ in range(CHUNKS):
        ops = np.zeros(CHUNK, dtype=OP)
        ops["kind"], ops["size"] = Kind.READ, SIZE
        ops["offset"] = rng.integers(0, FILE_BYTES // SIZE, CHUNK, dtype=np.uint64) * SIZE
        chunks.append(Chunk(ops))
    depth = asked.depth if driver.startswith("uring") else 1
    options = PlayerOptions(slots=1, max_op_bytes=SIZE, seed=1, depth=depth)
    player = open_player(driver, str(asked.file.parent), options, "c")
    try:
        opening = np.zeros(1, dtype=OP)
        opening["kind"], opening["flags"] = Kind.OPEN, Flag.DIRECT if asked.direct else 0
        player.play(Chunk(opening, (asked.file.name.encode(),)))
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        player.stop_at(int((began + asked.seconds) * 1e9))
        done = turn = 0
        while time.monotonic() < began + asked.seconds:
            done += player.play(chunks[turn % CHUNKS])
            turn += 1
        player.drain()
        took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
        result = player.result()
    finally:
        player.close()
    if result.errors or result.counts[Kind.READ].sum() != done:
        raise RuntimeError(f"the player failed: {result.errors_by_errno}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Rate(done / took, cpu / done)


def fio(asked: Asked, *more: str) -> Rate:
    """fio's io_uring on the same file for the same time."""
    argv = ["fio", "--name=bench", f"--filename={asked.file}", f"--size={FILE_BYTES}"]
    argv += [f"--bs={SIZE}", "--rw=randread", "--norandommap=1", "--ioengine=io_uring"]
    argv += ["--fixedbufs=1", f"--iodepth={asked.depth}", f"--direct={int(asked.direct)}"]
    argv += [
        "--invalidate=0",
        "--time_based",
        f"--runtime={round(asked.seconds * 1e3)}ms",
        "--thread",
    ]
    argv += ["--output-format=json", *more]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300).stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    seconds = job["read"]["runtime"] / 1e3 * (job["usr_cpu"] + job["sys_cpu"]) / 100
    return Rate(float(job["read"]["iops"]), seconds / job["read"]["total_ios"])


def engines(depth: int) -> dict[str, Callable[[Asked], Rate]]:
    """What is compared."""
    batches = (f"--iodepth_batch_submit={depth}", f"--iodepth_batch_complete_max={depth}")
    found: dict[str, Callable[[Asked], Rate]] = {
        OURS: partial(played, "uring"),
        FIO: fio,
        BATCHES: lambda asked: fio(asked, *batches, "--registerfiles=1"),
        "player, posix (depth 1)": partial(played, "posix"),
    }
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95 % or a little more, by order statistics (sign test)."""
    n, below, cut = len(ratios), 0.0, 0
    while below + math.comb(n, cut) / 2**n <= 0.025:
        below += math.comb(n, cut) / 2**n
        cut += 1
    ordered = sorted(ratios)
    return ordered[cut - 1], ordered[n - cut]


def compared(asked: Asked, rounds: int) -> list[dict[str, Any]]:
    """One row for each engine: its medians, and the player's ratios to it."""
    runs = engines(asked.depth)
    rates: dict[str, list[Rate]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        order = list(runs.items())
        for name, run in order if number % 2 else reversed(order):
            rate = run(asked)
            if number:  # the first round warms up
                rates[name].append(rate)
    return [row(name, asked, rates) for name in runs]


def row(name: str, asked: Asked, rates: Mapping[str, Sequence[Rate]]) -> dict[str, Any]:
    """Medians of one engine, and the player's ratios to it within rounds."""
    pairs = list(zip(rates[OURS], rates[name], strict=True))
    faster = [ours.rate / other.rate for ours, other in pairs]
    cheaper = [ours.cpu / other.cpu for ours, other in pairs]
    return {
        "work": "direct" if asked.direct else "page cache",
        "engine": name,
        "depth": asked.depth,
        "operations_per_second": statistics.median(each.rate for each in rates[name]),
        "cpu_seconds_per_operation": statistics.median(each.cpu for each in rates[name]),
        "rate_ratio": statistics.median(faster),
        "rate_interval": interval(faster),
        "cpu_ratio": statistics.median(cheaper),
        "cpu_interval": interval(cheaper),
        "rounds": len(pairs),
    }


def output(*argv: object) -> str:
    """What a program printed."""
    words = [str(word) for word in argv]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def loop_file_system(directory: Path) -> Iterator[Path]:
    """An XFS on a loop device with direct I/O, mounted; everything goes at the end."""
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-", dir=directory) as name:
        image, point = Path(name) / "image", Path(name) / "mounted"
        written(image, IMAGE_BYTES)
        point.mkdir()
        device = output("losetup", "--find", "--show", "--direct-io=on", image)
        try:
            output("mkfs.xfs", "-q", "-f", "-K", device)
            output("mount", device, point)
            try:
                yield point
            finally:
                output("umount", point)
        finally:
            output("losetup", "--detach", device)


def written(file: Path, size: int) -> None:
    """A file whose every block is there."""
    block = np.random.default_rng(1).bytes(1 << 20)
    with file.open("wb") as out:
        for _ in range(size >> 20):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


def measure(directory: Path, here: bool, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows."""
    rows = []
    with ExitStack() as stack:
        if here:
            own = tempfile.TemporaryDirectory(prefix="fsmatrix-bench-", dir=directory)
            place = Path(stack.enter_context(own))
        else:
            place = stack.enter_context(loop_file_system(directory))
        file = place / NAME
        written(file, FILE_BYTES)
        for direct in (False,) if here else (False, True):
            rows += compared(Asked(file, direct, asked.depth, asked.seconds), asked.rounds)
    return rows


def met(line: Mapping[str, Any]) -> bool:
    """Whether the target against fio as it is by itself is reached."""
    return bool(line["rate_ratio"] >= RATE and line["cpu_ratio"] <= CPU)


def show(rows: Sequence[Mapping[str, Any]], cpu: int) -> None:
    """Print the rows as a table, a line for each engine."""
    depth = rows[0]["depth"]
    table = Table(title=f"4 KiB random reads, depth {depth}, one process on processor {cpu}")
    for column in ("work", "engine", "kops/s", "CPU us", "player: rate", "95 %", "CPU", "95 % "):
        table.add_column(column, justify="left" if column in ("work", "engine") else "right")
    for line in rows:
        intervals = ["{:.3f} - {:.3f}".format(*line[f"{of}_interval"]) for of in ("rate", "cpu")]
        table.add_row(
            line["work"],
            line["engine"],
            f"{line['operations_per_second'] / 1e3:.1f}",
            f"{line['cpu_seconds_per_operation'] * 1e6:.3f}",
            f"{line['rate_ratio']:.3f}",
            intervals[0],
            f"{line['cpu_ratio']:.3f}",
            intervals[1],
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for line in rows:
        if line["engine"] == FIO:
            console.print(
                f"target {RATE} x fio's rate at {CPU} of its CPU, {line['work']}: "
                f"{'met' if met(line) else 'NOT met'} ({line['rate_ratio']:.3f}, "
                f"{line['cpu_ratio']:.3f}; {line['rounds']} rounds)"
            )


def main() -> int:
    """0 if the targets are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--here", action="store_true", help="no loop device: only the page cache")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.rounds < FEWEST or asked.seconds <= 0 or not 1 <= asked.depth <= 1024:
        parser.error(f"--rounds {FEWEST} or more, --depth 1 to 1024, --seconds above 0")
    refused = driver_refusal("uring", asked.depth) or tools.missing("fio")
    if not asked.here:
        refused = refused or own_mounts.root_refusal() or tools.missing("mkfs.xfs")
    if refused:
        parser.error(refused)
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    rows = measure(asked.dir, asked.here, asked)
    if asked.json:
        print(json.dumps({"cpu": cpu, "rows": rows}, indent=1))
    else:
        show(rows, cpu)
    return 0 if all(met(line) for line in rows if line["engine"] == FIO) else 1


if __name__ == "__main__":
    sys.exit(main())
