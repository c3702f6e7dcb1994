"""The player on Ceph beside fio, rados bench and ceph-fuse: rates, and CPU time per operation.

    python bench/ceph.py [--pairs 10] [--seconds 1] [--against fio ...] [--directory BED] [--json]

Root.  Brings up a test bed (2 nodes, one OSD each, nothing throttled) or uses the one in
--directory.  A pair is one run of the player and one of the other, back to back, each in a
process and with one connection of its own, with the same configuration, object size, operation
size, depth and order of operations; who begins alternates.  The rate is completed operations by
the engine's own window: from the first operation to the last completion.  The interval of the
median ratio is the exact one of order statistics (95 %).

Orders: fio reads and writes at random in objects that were written in full (looked at: it does
not notice missing ones); rados bench writes new objects one after the other, and reads at random,
without comparing, in objects of an earlier run; the player does as the one it is compared with,
in objects that lie on the OSDs as those do (as many on each), new ones under a new name each time.
ceph-fuse and libcephfs have one operation in flight, one file and a new mount in each run.

CPU is the client's user and system time by operation.  Of the player and of ceph-fuse it is that
of the window; of fio and rados bench that of the process, less that of a run with one operation.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import quantile_test

from fsmatrix.backends.testbed.ceph_testbed import (
    CephTestbed,
    CephTestbedOptions,
    down,
    missing,
    up,
)

PLAY = Path(__file__).with_name("ceph_play.py")
SMALL, OBJECT = 4096, 4 << 20  # bytes
DEPTH = 16
OBJECTS = 64
SPAN = OBJECTS * OBJECT  # bytes that random operations go over
FEW = 16  # objects that rados bench fills in small pieces, for small reads
WARM_SPAN = SPAN // 2  # fits in libcephfs's cache (client_oc_size, 200 MiB)
MOST_WRITTEN = 1 << 30  # bytes of new objects in one run: the OSDs are small
LEAST_FREE = 6 << 30
BASE_RUNS = 3
MOST_NAMES = 1000  # to try for one that gives a wanted placement

TARGET = 1.0
AGAINST = ("fio", "rados bench", "ceph-fuse")


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


def program(argv: list[str]) -> tuple[str, float]:
    """What a program printed, and its CPU seconds; RuntimeError with its last words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # numpy's threads would spin beside what is timed
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=False, env=environment
    )
    if done.returncode:
        text = done.stdout[-2000:] + done.stderr[-4000:]
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{text}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def player(**asked: Any) -> Rate:
    """The player in a process of its own; `asked` is Play's of ceph_play.py."""
    settings = {"span": SPAN, "seed": uuid.uuid4().int & 0xFFFF} | asked
    result = json.loads(program([sys.executable, "-P", str(PLAY), json.dumps(settings)])[0])
    count = result["operations"]
    return Rate(count / result["seconds"], (result["cpu"] + result["beside"]) / count * 1e6)


class OnRados:
    """The player's rados driver, fio and rados bench on one pool."""

    def __init__(self, bed: CephTestbed, seconds: float, ends: ExitStack) -> None:
        self.bed, self.pool, self.seconds = bed, bed.pools["rados"], seconds
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        with bed.cluster() as cluster:
            pools = {pool["name"]: pool["stats"] for pool in cluster.mon("df")["pools"]}
        if pools[self.pool]["max_avail"] < LEAST_FREE:
            raise SystemExit(
                f"the pool has less than {LEAST_FREE >> 30} GiB: full OSDs end or hang"
            )
        ends.callback(self.clean)
        root = {"conf": bed.conf, "pool": self.pool, "namespace": self.name, "object_size": OBJECT}
        self.root = "".join(f"{key}={value}\n" for key, value in root.items())
        self._fio(OBJECT, "write", "--file_service_type=sequential")
        self.like = {"fio": self._like("", OBJECTS)}  # the player's file for each set of objects
        for size, objects in ((SMALL, FEW), (OBJECT, OBJECTS)):
            space = f"{self.name}-rados-{size}"
            self._bench("600", "write", size, "r", *self._sizes(size), f"--max-objects={objects}")
            self.like[space] = self._like(space, objects)
        base = [self._fio(SMALL, "randread", "--number_ios=1")[1] for _ in range(BASE_RUNS)]
        self.fio_base = statistics.median(base)
        single = ["-b", str(SMALL), "-O", str(SMALL), "--no-cleanup", "--max-objects=1"]
        base = [self._bench("600", "write", 0, f"{i}", *single)[1] for i in range(BASE_RUNS)]
        self.bench_base = statistics.median(base)

    def clean(self) -> None:
        """Remove all objects of ours."""
        with self.bed.cluster() as cluster:
            with cluster.ioctx(self.pool) as plain:
                plain.remove_many([name for name in plain.names() if name.startswith(self.name)])
            for space in (self.name, *(f"{self.name}-rados-{size}" for size in (0, SMALL, OBJECT))):
                with cluster.ioctx(self.pool, space) as objects:
                    objects.remove_all()

    def _like(self, space: str, count: int) -> str:
        """A file of the player, written in full, whose objects lie on the OSDs as those of
        another program in `space` do; RuntimeError if these are not `count` whole ones."""

        def split(names: Sequence[str], space: str) -> Counter[int]:
            where = (
                cluster.mon("osd map", pool=self.pool, object=item, nspace=space) for item in names
            )
            return Counter(int(item["acting_primary"]) for item in where)

        prefix = "benchmark_data" if space else f"{self.name}."
        with self.bed.cluster() as cluster, cluster.ioctx(self.pool, space) as objects:
            names = [item for item in objects.names() if item.startswith(prefix)]
            sizes = [objects.stat(item)[0] for item in names]
            if sizes != [OBJECT] * count:
                raise RuntimeError(f"{len(sizes)} objects of {set(sizes)} bytes, not {count} whole")
            wanted = split(names, space)
            for i in range(MOST_NAMES):
                name = f"there-{count}-{i}"
                if split([f"{name}.{j:016x}" for j in range(count)], self.name) == wanted:
                    break
            else:
                raise RuntimeError(f"no name of {MOST_NAMES} gives the placement {dict(wanted)}")
        player(
            driver="rados",
            root=self.root,
            name=name,
            size=OBJECT,
            write=True,
            random=False,
            create=True,
            depth=DEPTH,
            span=count * OBJECT,
        )
        return name

    def _fio(self, size: int, rw: str, *more: str) -> tuple[str, float]:
        return program(
            [
                "fio",
                f"--name={self.name}",
                "--ioengine=rados",
                f"--pool={self.pool}",
                f"--clientname={self.bed.user}",
                f"--conf={self.bed.conf}",
                f"--bs={size}",
                f"--iodepth={DEPTH}",
                f"--size={SPAN}",
                f"--nrfiles={OBJECTS}",
                "--touch_objects=0",
                "--norandommap=1",
                "--unlink=0",
                "--output-format=json",
                f"--rw={rw}",
                *more,
            ]
        )

    def fio(self, cell: Cell) -> Rate:
        """Rate of fio with its rados engine."""
        run = [
            "--file_service_type=random",
            "--time_based",
            f"--runtime={self.seconds * 1e3:.0f}ms",
        ]
        text, cpu = self._fio(cell.size, "randwrite" if cell.write else "randread", *run)
        job = json.loads(text[text.index("{") :])["jobs"][0]["write" if cell.write else "read"]
        count = job["total_ios"]
        return Rate(count / (job["runtime"] / 1e3), (cpu - self.fio_base) / count * 1e6)

    @staticmethod
    def _sizes(size: int) -> list[str]:
        return ["-b", str(size), "-O", str(OBJECT), "--no-cleanup"]

    def _rados(self, size: int, *more: str) -> tuple[str, float]:
        space = f"{self.name}-rados-{size}"
        return program(["rados", "-c", self.bed.conf, "-p", self.pool, "-N", space, *more])

    def _bench(
        self, seconds: str, what: str, size: int, name: str, *more: str
    ) -> tuple[str, float]:
        return self._rados(
            size, "bench", seconds, what, "--run-name", name, "-t", str(DEPTH), *more
        )

    def bench(self, cell: Cell) -> Rate:
        """Rados bench, in whole seconds; without hints to the OSDs, which nobody else gives."""
        seconds = str(max(round(self.seconds), 1))
        if cell.write:
            name = uuid.uuid4().hex
            sizes = self._sizes(cell.size)
            text, cpu = self._bench(seconds, "write", 0, name, *sizes, "--no-hints")
            self._rados(0, "cleanup", "--run-name", name)
        else:
            text, cpu = self._bench(seconds, "rand", cell.size, "r", "--no-verify")
        count = int(re.findall(r"^Total (?:writes|reads) made:\s+(\d+)", text, re.M)[0])
        taken = float(re.findall(r"^Total time run:\s+([0-9.]+)", text, re.M)[0])
        return Rate(count / taken, (cpu - self.bench_base) / count * 1e6)

    def own(self, cell: Cell) -> Rate:
        """Rate of the player on the objects of its rival."""
        base = {"driver": "rados", "root": self.root, "size": cell.size, "write": cell.write}
        base |= {"seconds": self.seconds, "depth": DEPTH}
        if cell.other == "fio":
            return player(**base, name=self.like["fio"])
        if cell.write:
            return player(
                **base,
                name=f"new-{uuid.uuid4().hex}",
                random=False,
                span=MOST_WRITTEN,
                create=True,
                unlink=True,
            )
        span = (FEW if cell.size == SMALL else OBJECTS) * OBJECT
        return player(**base, name=self.like[f"{self.name}-rados-{cell.size}"], span=span)

    def pair(self, cell: Cell) -> tuple[Callable[[], Rate], Callable[[], Rate]]:
        """The player and the other."""
        other = self.fio if cell.other == "fio" else self.bench
        return (lambda: self.own(cell)), (lambda: other(cell))


class OnFiles:
    """The player's cephfs driver, and its posix driver on ceph-fuse."""

    def __init__(self, bed: CephTestbed, seconds: float, ends: ExitStack) -> None:
        self.bed, self.seconds, self.name = bed, seconds, f"bench-{uuid.uuid4().hex[:8]}"
        self.root = f"conf={bed.conf}\nfilesystem={bed.filesystem}\npath=/\n"
        base = {"driver": "cephfs", "root": self.root, "name": self.name, "size": OBJECT}
        player(**base, write=True, random=False, create=True)
        ends.callback(lambda: player(**base, span=OBJECT, write=False, random=False, unlink=True))

    @contextmanager
    def mounted(self) -> Iterator[tuple[str, int]]:
        """A fresh ceph-fuse, so with empty caches, and its pid; it is gone at the end."""
        with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as place:
            fuse = subprocess.Popen(
                ["ceph-fuse", "-f", "-c", self.bed.conf, place],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                while not os.path.ismount(place):
                    if fuse.poll() is not None:
                        raise RuntimeError(f"ceph-fuse ended with {fuse.returncode}")
                    time.sleep(0.01)
                yield place, fuse.pid
            finally:
                subprocess.run(["umount", place], check=False)
                fuse.wait(60)

    def fuse(self, cell: Cell) -> Rate:
        """The posix driver on ceph-fuse; CPU of both."""
        with self.mounted() as (place, pid):
            return player(**self._asked(cell), driver="posix", root=place, beside=pid)

    def _asked(self, cell: Cell) -> dict[str, Any]:
        warm = cell.state == "warm"
        return {
            "name": self.name,
            "size": cell.size,
            "write": cell.write,
            "seconds": self.seconds,
            "span": WARM_SPAN if warm else SPAN,
            "direct": cell.state == "bypass",
            "warm": warm,
        }

    def pair(self, cell: Cell) -> tuple[Callable[[], Rate], Callable[[], Rate]]:
        """The cephfs driver and ceph-fuse."""
        own = {**self._asked(cell), "driver": "cephfs", "root": self.root}
        return (lambda: player(**own)), (lambda: self.fuse(cell))


CELLS = [
    *(
        Cell(other, size, write)
        for other in AGAINST[:2]
        for size in (SMALL, OBJECT)
        for write in (True, False)
    ),
    *(
        Cell("ceph-fuse", size, write, "bypass")
        for size in (SMALL, OBJECT)
        for write in (True, False)
    ),
    *(
        Cell("ceph-fuse", size, False, state)
        for state in ("cold", "warm")
        for size in (SMALL, OBJECT)
    ),
]


def measure(cell: Cell, own: Callable[[], Rate], other: Callable[[], Rate], pairs: int) -> Any:
    """Measure two players in turns, and return one row of the table."""
    ours, theirs = [], []
    for number in range(pairs + 1):
        first = own() if number % 2 else None
        rival = other()
        rate = first or own()
        if number:  # the first pair only warms up
            ours.append(rate)
            theirs.append(rival)
    ratios = [a.rate / b.rate for a, b in zip(ours, theirs, strict=True)]
    interval: Any = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return asdict(cell) | {
        "pairs": pairs,
        "player": statistics.median(rating.rate for rating in ours),
        "rival": statistics.median(rating.rate for rating in theirs),
        "ratio": statistics.median(ratios),
        "interval": [float(interval.low), float(interval.high)],
        "player_cpu": statistics.median(rating.cpu for rating in ours),
        "rival_cpu": statistics.median(rating.cpu for rating in theirs),
    }


def show(console: Console, rows: list[dict[str, Any]], seconds: float) -> None:
    """Print the rows as a table, a line for each cell."""
    table = Table(title=f"Ceph, objects of 4 MiB, depth {DEPTH} (ceph-fuse: 1), one process")
    columns = (
        "against",
        "cell",
        "cache",
        "player op/s",
        "other op/s",
        "ratio",
        "95 %",
        "player us CPU/op",
        "other us CPU/op",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            row["other"],
            f"{'write' if row['write'] else 'read'} {row['size'] // 1024} KiB",
            row["state"],
            f"{row['player']:.0f}",
            f"{row['rival']:.0f}",
            f"{row['ratio']:.3f}",
            f"{low:.3f} - {high:.3f}",
            f"{row['player_cpu']:.0f}",
            f"{row['rival_cpu']:.0f}",
        )
    console.print(table)
    console.print(
        f"{seconds:.0f} s.  warm: ceph-fuse's reads come from the kernel's page cache and never "
        "reach it; libcephfs's are copied out of its own cache under the client's lock"
    )


@contextmanager
def testbed_in(directory: Path | None) -> Iterator[CephTestbed]:
    """The bed in a directory, or one that lives as long as this."""
    if directory is not None:
        yield CephTestbed.open(directory)
        return
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        place = f"{folder}/bed"
        try:
            yield up(CephTestbedOptions(nodes=2, osds_per_node=1, osd_size=8 << 30), place)
        finally:
            down(place)


def main() -> int:
    """0 if the interval reaches the target in every cell but the warm ones, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--against", nargs="*", default=AGAINST, choices=AGAINST)
    parser.add_argument("--directory", type=Path, help="of a test bed that is up, without cephx")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.pairs < 6:
        parser.error("--pairs must be 6 or more: fewer have no 95 % interval of a median")
    if missing():
        parser.error(missing())
    console, began = Console(width=None if sys.stdout.isatty() else 130), time.monotonic()
    rows = []
    with testbed_in(asked.directory) as bed, ExitStack() as ends:
        rivals: dict[type, Any] = {}
        for cell in (cell for cell in CELLS if cell.other in asked.against):
            kind = OnFiles if cell.other == "ceph-fuse" else OnRados
            if kind not in rivals:
                rivals[kind] = kind(bed, asked.seconds, ends)
            own, other = rivals[kind].pair(cell)
            rows.append(measure(cell, own, other, asked.pairs))
    took = time.monotonic() - began
    print(json.dumps(rows, indent=1)) if asked.json else show(console, rows, took)
    good = all(row["interval"][1] >= TARGET for row in rows if row["state"] != "warm")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
