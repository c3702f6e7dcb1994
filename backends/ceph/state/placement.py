"""Where the placement groups of pools lie: made even, and told.

With few groups chance decides how much an OSD has to do: it would pass for a property of the
cluster.  So groups are moved (pg-upmap-items) until each OSD has as many as the next.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fsmatrix.backends.ceph.bindings.errors import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.system import tools

T = TypeVar("T")
PROGRAM = "osdmaptool"
_AT_ONCE = 64  # commands that share one proposal of the monitor
_UPMAP = re.compile(r"^ceph osd pg-upmap-items (\S+) ([0-9 ]+)$", re.MULTILINE)


def balance(cluster: Cluster, pools: Sequence[str], folder: Path) -> int:
    """Move groups of these pools alone until OSDs have equally many; returns how many moved.

    osdmaptool computes the moves; `folder` gets its files.  Clients must be of luminous or newer
    (`osd set-require-min-compat-client`), which is not changed here.
    """
    (folder / "osdmap").write_bytes(_osdmap(cluster))
    argv = [
        PROGRAM,
        str(folder / "osdmap"),
        "--upmap",
        str(folder / "upmaps"),
        "--mark-up-in",  # the OSDs need not run yet
        "--upmap-deviation",
        "1",
        "--upmap-max",
        "10000",
    ]
    for pool in pools:
        argv += ["--upmap-pool", pool]
    tools.run(argv, deadline=60.0)
    path = folder / "upmaps"
    moves = _UPMAP.findall(path.read_text()) if path.exists() else []

    def move(upmap: tuple[str, str]) -> None:
        group, osds = upmap
        cluster.mon("osd pg-upmap-items", pgid=group, id=[int(osd) for osd in shlex.split(osds)])

    at_once(move, moves)
    return len(moves)


def at_once(ask: Callable[[T], Any], values: Iterable[T]) -> None:
    """Send commands together: the monitor decides on them together."""
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        list(workers.map(ask, values))


def _osdmap(cluster: Cluster) -> bytes:
    answer = cluster.mon_bytes("osd getmap")
    if not answer:
        raise CephError("osd getmap gave nothing")
    return answer


def evenness(groups: Iterable[Mapping[str, Any]], osds: Sequence[int]) -> dict[str, Any]:
    """Groups of each of the OSDs that a pool is meant for, and max/mean; every copy counts.

    `groups`: entries of `pg dump` with "up".
    """
    count = Counter(int(osd) for group in groups for osd in group["up"])
    return {
        "pgs_per_osd": [count[osd] for osd in osds],
        "max_over_mean": max(count.values(), default=0) * len(osds) / (sum(count.values()) or 1),
    }


def wait_for_stats(cluster: Cluster, osds: Iterable[int], deadline: float) -> None:
    """Until the manager knows what the OSDs know now: "active+clean" can be stale."""
    wanted = {}
    for osd in osds:
        answer = cluster.osd(osd, "flush_pg_stats")
        wanted[osd] = int(answer if isinstance(answer, int | str) else answer["seq"])
    while wanted:
        for osd, seq in list(wanted.items()):
            if int(cluster.mon("osd last-stat-seq", id=osd, format="plain")) >= seq:
                del wanted[osd]
        if wanted and time.monotonic() > deadline:
            raise CephError(f"statistics of OSDs {sorted(wanted)} did not reach the monitor")
        if wanted:
            time.sleep(0.02)


def groups_of(cluster: Cluster, pool: str) -> list[dict[str, Any]]:
    """Placement groups of a pool, as the manager knows them."""
    answer = cluster.mgr("pg ls-by-pool", poolstr=pool)
    return list(answer["pg_stats"] if isinstance(answer, dict) else answer)


def where(cluster: Cluster, pool: str, expected: Iterable[int] = ()) -> dict[str, Any]:
    """Hosts, OSDs and machines that a pool lies on, and how evenly.

    `expected`: OSDs that it is meant for, if that is known: one without any group counts.
    """
    groups = groups_of(cluster, pool)
    osds = sorted({*expected, *(int(osd) for group in groups for osd in group["up"])})
    tree = cluster.mon("osd tree")["nodes"]
    hosts = [node for node in tree if node["type"] == "host" and set(node["children"]) & {*osds}]
    machines = {
        str(entry["hostname"]) for entry in cluster.mon("osd metadata") if entry["id"] in osds
    }
    return {
        "hosts": sorted({str(host["name"]) for host in hosts}),
        "osds": osds,
        "machines": sorted(machines),
        **evenness(groups, osds),
    }
