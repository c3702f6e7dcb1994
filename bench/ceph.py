"""The player on Ceph beside fio, rados bench and ceph-fuse: rates, and CPU time per operation.

    python bench/ceph.py [--pairs 10] [--seconds 2] [--cells 4096 ...] [--directory BED] [--json]

Root.  Brings up a test bed (2 nodes, one OSD each, nothing throttled) or uses the one in
--directory.  A pair is one run of the player and one of the other, back to back, each in a
process and with a connection of its own, with the same object size, operation size, depth and
order of operations; who begins alternates.  The rate is operations per second in the engine's
own window.  The interval of the median ratio is the exact one of order statistics (95 %).
CPU is the client's user and system time, per operation: of the player while it plays, of the
others of their whole process with its connection (a few hundredths of a second a run).

Orders: fio reads and writes at random in objects that are there; rados bench writes new objects
one after the other and reads at random among them; the player does as the one it is compared
with.  ceph-fuse and libcephfs have one operation in flight and one file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import quantile_test

from fsmatrix.backends.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player import open_player
from fsmatrix.backends.testbed.ceph import Bed, BedOptions, down, missing, up

OBJECT = 4 << 20  # bytes
DEPTH = 16
SPAN = 64 * OBJECT  # bytes that random operations go over
WARM_SPAN = SPAN // 2  # fits in libcephfs's cache (client_oc_size, 200 MiB)
MOST_WRITTEN = 1 << 30  # bytes of new objects in one run: the OSDs are small
LEAST_FREE = 6 << 30
CHUNK = 1024
TARGET = 1.0


@dataclass(frozen=True)
class Rate:
    """Operations per second, and microseconds of the client's CPU per operation."""

    rate: float
    cpu: float


@dataclass(frozen=True)
class Cell:
    """What is compared, and with whom."""

    other: str
    size: int
    write: bool
    state: str = "-"  # of the cache

    @property
    def name(self) -> str:
        """As a row says it."""
        return f"{'write' if self.write else 'read'} {self.size // 1024} KiB"


CELLS = [
    *(Cell(other, size, write) for other in ("fio", "rados bench") for size in (4096, OBJECT)
      for write in (True, False)),
    *(Cell("ceph-fuse", size, write, "bypass") for size in (4096, OBJECT)
      for write in (True, False)),
    *(Cell("ceph-fuse", size, False, state) for size in (4096, OBJECT)
      for state in ("cold", "warm")),
]  # fmt: skip


def operations(play: Mapping[str, Any]) -> Iterator[Chunk]:
    """Chunks without end, or up to the end of the span if it goes straight on."""
    rng, size, at = np.random.default_rng(play["seed"]), play["size"], 0
    blocks = play["span"] // size
    while play["random"] or at < blocks:
        ops = np.zeros(min(CHUNK, blocks), dtype=OP)
        ops["kind"], ops["size"] = Kind.WRITE if play["write"] else Kind.READ, size
        where = rng.integers(0, blocks, len(ops)) if play["random"] else np.arange(len(ops)) + at
        ops["offset"] = where.astype(np.uint64) * np.uint64(size)
        at += len(ops)
        yield Chunk(ops[where < blocks])


def one_op(kind: Kind, name: bytes, flags: int = 0) -> Chunk:
    """A chunk of one operation on slot 0."""
    ops = np.zeros(1, dtype=OP)
    ops["kind"], ops["flags"] = kind, flags
    return Chunk(ops, (name,) if kind in (Kind.OPEN, Kind.CREATE) else ())


def play(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run in a process of its own: play for a time; operations, window and CPU seconds."""
    player = open_player(
        asked["driver"], asked["root"], slots=1, max_op_bytes=asked["size"], depth=asked["depth"],
        implementation="c",
    )  # fmt: skip
    name, flags = asked["name"].encode(), Flag.DIRECT if asked["direct"] else 0
    player.play(one_op(Kind.CREATE if asked["create"] else Kind.OPEN, name, flags))
    if asked["warm"]:
        for chunk in operations({**asked, "random": False}):
            player.play(chunk)
    before, usage = player.result(), resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic_ns()
    if asked["seconds"]:
        player.stop_at(began + int(asked["seconds"] * 1e9))
    for chunk in operations(asked):
        if player.play(chunk) < len(chunk.ops):
            break
    player.drain()
    after, used = player.result(), resource.getrusage(resource.RUSAGE_SELF)
    player.stop_at(0)
    player.play(one_op(Kind.CLOSE, name))
    if asked["unlink"]:
        player.play(one_op(Kind.UNLINK, name))
    if after.errors:
        raise RuntimeError(f"the player failed: {after.first_error}")
    player.close()
    spent = used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime
    return {
        "operations": after.operations - before.operations,
        "seconds": (after.io_last_ns - began) / 1e9,
        "cpu": spent,
    }


def player(**asked: Any) -> Rate:
    """The player in a process of its own."""
    settings = {"depth": DEPTH, "random": True, "span": SPAN, "seed": uuid.uuid4().int & 0xFFFF}
    settings |= {"direct": False, "warm": False, "create": False, "unlink": False} | asked
    argv = [sys.executable, "-P", __file__, "--play", json.dumps(settings)]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    count = max(found["operations"], 1)
    return Rate(count / found["seconds"], found["cpu"] / count * 1e6)


def program(argv: list[str]) -> tuple[str, float]:
    """What a program printed, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class OnRados:
    """The player's rados driver, fio and rados bench on one pool."""

    def __init__(self, bed: Bed, seconds: float) -> None:
        self.pool, self.conf, self.seconds = bed.pools["rados"], bed.conf, seconds
        with bed.cluster() as cluster:
            pools = {one["name"]: one["stats"] for one in cluster.mon("df")["pools"]}
        if pools[self.pool]["max_avail"] < LEAST_FREE:
            raise SystemExit(
                f"the pool has less than {LEAST_FREE >> 30} GiB: full OSDs end or hang"
            )
        self.root = f"conf={bed.conf}\npool={self.pool}\nnamespace=bench\nobject_size={OBJECT}\n"
        player(driver="rados", root=self.root, name="there", size=OBJECT, write=True, seconds=0,
               random=False, create=True)  # fmt: skip
        self.fio(Cell("fio", OBJECT, True), fill=True)

    def fio(self, cell: Cell, fill: bool = False) -> Rate:
        """fio's rados engine on objects that it has written before."""
        argv = [
            "fio", "--name=bench", "--ioengine=rados", f"--pool={self.pool}", "--clientname=admin",
            f"--conf={self.conf}", f"--bs={cell.size}", f"--iodepth={DEPTH}", f"--size={SPAN}",
            f"--nrfiles={SPAN // OBJECT}", "--touch_objects=0", "--norandommap=1",
            "--output-format=json", "--file_service_type=random", "--unlink=0",
        ]  # fmt: skip
        if fill:
            argv += ["--rw=write", "--file_service_type=sequential"]
        else:
            rw = "randwrite" if cell.write else "randread"
            argv += [f"--rw={rw}", "--time_based", f"--runtime={self.seconds}"]
        text, cpu = program(argv)
        job = json.loads(text[text.index("{") :])["jobs"][0]["write" if cell.write else "read"]
        count = max(job["total_ios"], 1)
        return Rate(count / (job["runtime"] / 1e3), cpu / count * 1e6)

    def bench(self, cell: Cell) -> Rate:
        """Rados bench; objects to read are written by an uncounted run before."""
        name = f"bench-{uuid.uuid4().hex}"
        base = ["rados", "-c", self.conf, "-p", self.pool, "-N", "rados-bench"]
        run = ["--run-name", name, "-t", str(DEPTH)]
        size = ["-b", str(cell.size), "-O", str(OBJECT), "--no-cleanup"]
        seconds = str(max(int(self.seconds), 1))
        try:
            text, cpu = program([*base, "bench", seconds, "write", *run, *size])
            if not cell.write:
                text, cpu = program([*base, "bench", seconds, "rand", *run])
        finally:
            program([*base, "cleanup", "--run-name", name])
        count = int(re.findall(r"^Total (?:writes|reads) made:\s+(\d+)", text, re.M)[0])
        taken = float(re.findall(r"^Total time run:\s+([0-9.]+)", text, re.M)[0])
        return Rate(count / taken, cpu / count * 1e6)

    def own(self, cell: Cell) -> Rate:
        """The player."""
        base = {"driver": "rados", "root": self.root, "size": cell.size, "write": cell.write}
        base |= {"seconds": self.seconds}
        if cell.other == "rados bench" and cell.write:
            return player(**base, name="new", random=False, span=MOST_WRITTEN, create=True,
                          unlink=True)  # fmt: skip
        return player(**base, name="there")

    def pair(self, cell: Cell) -> tuple[Callable[[], Rate], Callable[[], Rate]]:
        """The player and the other."""
        other = self.fio if cell.other == "fio" else self.bench
        return (lambda: self.own(cell)), (lambda: other(cell))


class OnFiles:
    """The player's cephfs driver, and its posix driver on ceph-fuse."""

    def __init__(self, bed: Bed, seconds: float) -> None:
        self.bed, self.seconds = bed, seconds
        self.root = f"conf={bed.conf}\nfilesystem={bed.filesystem}\npath=/\n"
        player(driver="cephfs", root=self.root, name="there", size=OBJECT, write=True, seconds=0,
               random=False, create=True, depth=1)  # fmt: skip

    @contextmanager
    def mounted(self) -> Iterator[str]:
        """A fresh ceph-fuse, so with empty caches; its process is gone at the end."""
        with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as place:
            fuse = subprocess.Popen(
                ["ceph-fuse", "-f", "-c", self.bed.conf, place],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                while not os.path.ismount(place):
                    if fuse.poll() is not None:
                        raise RuntimeError(f"ceph-fuse ended with {fuse.returncode}")
                    time.sleep(0.01)
                yield place
            finally:
                subprocess.run(["umount", place], check=False)
                fuse.wait(60)

    def fuse(self, cell: Cell) -> Rate:
        """CPU: the player's and all of ceph-fuse's own, also for mounting and warming."""
        with self.mounted() as place:
            own = player(**self._asked(cell), driver="posix", root=place)
            seconds = self.seconds
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Rate(own.rate, own.cpu + spent / (own.rate * seconds) * 1e6)

    def library(self, cell: Cell) -> Rate:
        """The cephfs driver."""
        return player(**self._asked(cell), driver="cephfs", root=self.root)

    def _asked(self, cell: Cell) -> dict[str, Any]:
        warm = cell.state == "warm"
        return {
            "span": WARM_SPAN if warm else SPAN,
            "name": "there", "size": cell.size, "write": cell.write, "seconds": self.seconds,
            "depth": 1, "direct": cell.state == "bypass", "warm": warm,
        }  # fmt: skip

    def pair(self, cell: Cell) -> tuple[Callable[[], Rate], Callable[[], Rate]]:
        """The cephfs driver and ceph-fuse."""
        return (lambda: self.library(cell)), (lambda: self.fuse(cell))


def measure(cell: Cell, own: Callable[[], Rate], other: Callable[[], Rate], pairs: int) -> Any:
    """One row."""
    mine, theirs = [], []
    for number in range(pairs + 1):
        first = own() if number % 2 else None
        rival = other()
        rate = first or own()
        if number:  # the first pair only warms up
            mine.append(rate)
            theirs.append(rival)
    ratios = [a.rate / b.rate for a, b in zip(mine, theirs, strict=True)]
    interval: Any = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return asdict(cell) | {
        "pairs": pairs,
        "player": statistics.median(one.rate for one in mine),
        "rival": statistics.median(one.rate for one in theirs),
        "ratio": statistics.median(ratios),
        "interval": [float(interval.low), float(interval.high)],
        "player_cpu": statistics.median(one.cpu for one in mine),
        "rival_cpu": statistics.median(one.cpu for one in theirs),
    }


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table(title=f"Ceph, objects of 4 MiB, depth {DEPTH} (ceph-fuse: 1), one process")
    columns = ("against", "cell", "cache", "player op/s", "other op/s", "ratio", "95 %",
               "player us CPU/op", "other us CPU/op")  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        cell = Cell(row["other"], row["size"], row["write"], row["state"])
        low, high = row["interval"]
        table.add_row(
            row["other"], cell.name, row["state"], f"{row['player']:.0f}", f"{row['rival']:.0f}",
            f"{row['ratio']:.3f}", f"{low:.3f} - {high:.3f}", f"{row['player_cpu']:.0f}",
            f"{row['rival_cpu']:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(
        "warm: ceph-fuse's reads come from the kernel's page cache, libcephfs's are calls"
    )


@contextmanager
def bed_in(directory: Path | None) -> Iterator[Bed]:
    """The bed in a directory, or one that lives as long as this."""
    if directory is not None:
        yield Bed.open(directory)
        return
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        place = f"{folder}/bed"
        try:
            yield up(BedOptions(nodes=2, osds_per_node=1, osd_size=8 << 30), place)
        finally:
            down(place)


def main() -> int:
    """0 if the interval reaches the target in every cell but the warm ones, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--against", nargs="*", default=["fio", "rados bench", "ceph-fuse"])
    parser.add_argument("--directory", type=Path, help="of a test bed that is up")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        print(json.dumps(play(json.loads(asked.play))))
        return 0
    if asked.pairs < 6:
        parser.error("--pairs must be 6 or more: fewer have no 95 % interval of a median")
    if missing():
        parser.error(missing())
    console = Console(width=None if sys.stdout.isatty() else 130)
    rows = []
    with bed_in(asked.directory) as bed:
        kinds = {"fio": OnRados, "rados bench": OnRados, "ceph-fuse": OnFiles}
        made: dict[type, Any] = {}
        for cell in (cell for cell in CELLS if cell.other in asked.against):
            kind = kinds[cell.other]
            if kind not in made:
                made[kind] = kind(bed, asked.seconds)
            own, other = made[kind].pair(cell)
            rows.append(measure(cell, own, other, asked.pairs))
    print(json.dumps(rows, indent=1)) if asked.json else show(console, rows)
    good = all(row["interval"][1] >= TARGET for row in rows if row["state"] != "warm")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
