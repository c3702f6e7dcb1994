"""A Python step that tells where a rank is: the smallest one; and a stream that ranks share.

Ranks import it by PYTHONPATH.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from fsmatrix.backends.player.ops import OP, OUTCOME, Chunk, Chunks, CountingChunks, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.workloads.streams import pattern

ROOT = str(Path(__file__).resolve().parents[2])  # what PYTHONPATH must be
WHERE = f"{__name__}:where"
QUEUE = f"{__name__}:queue"
SLOW = f"{__name__}:slow"


def where(params: Mapping[str, Any], place: Place, root: str) -> dict[str, Any]:
    """Host, pid, CPUs and memory (bytes resident) of this rank."""
    pages = int(open("/proc/self/statm").read().split()[1])  # noqa: PTH123, SIM115
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "rank": place.rank,
        "root": root,
        "cpus": sorted(os.sched_getaffinity(0)),
        "params": dict(params),
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
    }


def slow(params: JsonObject, place: Place) -> Chunks:
    """The stream of `pattern`, one operation in 10 ms, left open at its end."""
    for chunk in cast("Chunks", pattern.generate(params, place)):
        for first in range(len(chunk.ops)):
            time.sleep(0.01)
            if (yield replace(chunk, ops=chunk.ops[first : first + 1])):
                return


def queue(params: Mapping[str, Any], place: Place) -> CountingChunks:
    """Blocks of mkdir, each taken by one rank of the node; `missing` of them below no directory."""
    assert place.turn is not None
    size, blocks = int(params["size"]), int(params["blocks"])
    played = failed = longest = 0
    starts = np.zeros(blocks, dtype=np.int64)
    while (block := place.turn()) < blocks:
        ops = np.zeros(size, dtype=OP)
        ops["kind"], ops["file"] = Kind.MKDIR, np.arange(size)
        outcomes = np.zeros(size, dtype=OUTCOME)
        missing = int(params["missing"])
        names = [
            b"%sn%d-%d-%d" % (b"no/" if i < missing else b"", place.node, block, i)
            for i in range(size)
        ]
        yield Chunk(ops, names, outcomes=outcomes, batch=3)
        played += int((outcomes["start"] > 0).sum())
        failed += int((outcomes["result"] == -errno.ENOENT).sum())
        longest = max(longest, int(outcomes["duration"].max()))
        starts[block] += 1
    return {"played": played, "failed": failed, "blocks": starts, "duration_max": longest}
