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
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import quantile_test

sys.path.append(str(Path(__file__).parent))  # also under -P

from ceph_rivals import DEPTH, OBJECT, SMALL, Cell, OnFiles, OnRados, Rate

from fsmatrix.backends.testbed.ceph_testbed import (
    CephTestbed,
    CephTestbedOptions,
    down,
    missing,
    up,
)

TARGET = 1.0
AGAINST = ("fio", "rados bench", "ceph-fuse")
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
