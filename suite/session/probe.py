"""A Python step that tells where a rank is: the smallest one, used by the tests."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from fsmatrix.backends.player.ops import Place


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
