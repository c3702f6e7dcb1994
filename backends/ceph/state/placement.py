"""Where the placement groups of pools lie: made even, and told.

With few groups chance decides how much an OSD has to do: it would pass for a property of the
cluster.  So groups are moved (pg-upmap-items) until each OSD has as many as the next.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.target import Placement

T = TypeVar("T")
PROGRAM = "osdmaptool"
_AT_ONCE = 64  # commands that share one proposal of the monitor
_UPMAP = re.compile(r"^ceph osd pg-upmap-items (\S+) ([0-9 ]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Group:
    """A placement group."""

    pgid: str
    state: str
    up: tuple[int, ...]  # OSDs that it is meant for


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


def evenness(groups: Iterable[Group], osds: Sequence[int]) -> Placement:
    """Groups of each of the OSDs that a pool is meant for, and max/mean; every copy counts."""
    count = Counter(osd for group in groups for osd in group.up)
    return Placement(
        pgs_per_osd=tuple(count[osd] for osd in osds),
        max_over_mean=max(count.values(), default=0) * len(osds) / (sum(count.values()) or 1),
    )


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


def groups_of(cluster: Cluster, pool: str) -> list[Group]:
    """Placement groups of a pool, as the manager knows them."""
    return groups_in(cluster.mgr("pg ls-by-pool", poolstr=pool))


def groups_in(answer: Any) -> list[Group]:
    """Those that an answer of the manager lists."""
    stats = answer["pg_stats"] if isinstance(answer, dict) else answer
    return [Group(str(pg["pgid"]), str(pg["state"]), tuple(map(int, pg["up"]))) for pg in stats]


def where(cluster: Cluster, pool: str, expected: Iterable[int] = ()) -> Placement:
    """Hosts, OSDs and machines that a pool lies on, and how evenly.

    `expected`: OSDs that it is meant for, if that is known: one without any group counts.
    """
    groups = groups_of(cluster, pool)
    osds = sorted({*expected, *(osd for group in groups for osd in group.up)})
    tree = cluster.mon("osd tree")["nodes"]
    hosts = [node for node in tree if node["type"] == "host" and set(node["children"]) & {*osds}]
    machines = {
        str(entry["hostname"]) for entry in cluster.mon("osd metadata") if entry["id"] in osds
    }
    return replace(
        evenness(groups, osds),
        hosts=tuple(sorted({str(host["name"]) for host in hosts})),
        osds=tuple(osds),
        machines=tuple(sorted(machines)),
        keys=(),
    )
