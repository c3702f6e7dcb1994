"""Bringing a Ceph test bed up, many times in a row: who is waited for, and our own time.

    python bench/testbed.py [--times 20] [--nodes 3] [--json]

Root.  Each time a new bed with CephFS (one OSD on each node), clean, and down again.  Printed are
medians over the times, by step and whole: seconds, those in which a program of Ceph or the
system worked (`waited`), and the rest, which is ours.  The target: none fails, and ours is at
most a third of each whole bring-up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from fsmatrix.backends.testbed.ceph_testbed import CephTestbedOptions, down, missing, up

MOST_OWN = 1 / 3
Step = dict[str, Any]


def bring_up(nodes: int) -> list[Step]:
    """The steps of one bring-up and the whole as the last, by the clock around it."""
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        try:
            began = time.monotonic()
            steps = list(
                up(CephTestbedOptions(nodes=nodes, osds_per_node=1), f"{folder}/bed").steps
            )
            seconds = time.monotonic() - began
        finally:
            down(f"{folder}/bed")
    waited = sum(step["waited"] for step in steps)
    whole = {"name": "all", "seconds": seconds, "waited": waited, "own": seconds - waited}
    return [*steps, whole]


def rows(rounds: list[list[Step]]) -> list[Step]:
    """Medians by step; `share` and `largest_share`: our own part of a step."""
    result = []
    for steps in zip(*rounds, strict=True):
        shares = [step["own"] / step["seconds"] if step["seconds"] else 0.0 for step in steps]
        row: Step = {"name": steps[0]["name"]}
        row |= {
            key: statistics.median(step[key] for step in steps)
            for key in ("seconds", "waited", "own")
        }
        row |= {"share": statistics.median(shares), "largest_share": max(shares)}
        row |= {"slowest": max(step["seconds"] for step in steps)}
        result.append(row)
    return result


def main() -> int:
    """0 if our share of no whole bring-up is above the target, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.times < 1:
        parser.error("--times must be 1 or more")
    if missing():
        parser.error(missing())
    result = rows([bring_up(asked.nodes) for _ in range(asked.times)])
    if asked.json:
        print(json.dumps(result, indent=1))
    else:
        table = Table(title=f"{asked.times} bring-ups in a row, {asked.nodes} nodes, CephFS, clean")
        table.add_column("step")
        for column in ("s", "slowest", "waited", "own", "own share", "largest"):
            table.add_column(column, justify="right")
        for row in result:
            times = (f"{row[key]:.2f}" for key in ("seconds", "slowest", "waited", "own"))
            shares = (f"{row[key]:.0%}" for key in ("share", "largest_share"))
            table.add_row(row["name"], *times, *shares)
        Console(width=None if sys.stdout.isatty() else 110).print(table)
    return 0 if result[-1]["largest_share"] <= MOST_OWN else 1


if __name__ == "__main__":
    sys.exit(main())
