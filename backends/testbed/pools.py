"""Pools, the file system, and placement that is balanced and checked."""

from __future__ import annotations

import ctypes
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fsmatrix.backends.ceph import capi
from fsmatrix.backends.ceph.errors import CephError
from fsmatrix.backends.ceph.librados import Cluster
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed.home import Home
from fsmatrix.backends.testbed.options import BedOptions

T = TypeVar("T")
FILESYSTEM = "cephfs"
METADATA, DATA, CODED, RADOS = "cephfs.meta", "cephfs.data", "cephfs.coded", "rados"
_FEW = 32  # placement groups of what moves little data
_PROFILE = "bed"
_AT_ONCE = 64  # commands that share one proposal of the monitor
_UPMAP = re.compile(r"^ceph osd pg-upmap-items (\S+) ([0-9 ]+)$", re.MULTILINE)


def make_pools(cluster: Cluster, options: BedOptions) -> None:
    """The RADOS pool, and the pools of the file system.

    With an erasure code the file system's first data pool is replicated (it holds the
    backtraces) and the root's layout names the coded one.
    """
    copies, groups = options.copies, options.placement_groups
    if copies.erasure_coded:
        cluster.mon("osd erasure-code-profile set", name=_PROFILE, profile=[
            f"k={copies.k}", f"m={copies.m}", f"crush-failure-domain={options.failure_domain}",
        ])  # fmt: skip
    _pool(cluster, METADATA, _FEW, copies.copies)
    _pool(cluster, DATA, _FEW if copies.erasure_coded else groups, copies.copies)
    for name in (CODED, RADOS) if copies.erasure_coded else (RADOS,):
        _pool(cluster, name, groups, copies.copies, coded=copies.erasure_coded)
    cluster.mon("osd pool application enable", pool=RADOS, app="rados")


def _pool(cluster: Cluster, name: str, groups: int, size: int, coded: bool = False) -> None:
    arguments: dict[str, Any] = {"pool": name, "pg_num": groups, "pgp_num": groups}
    if coded:
        cluster.mon("osd pool create", **arguments, pool_type="erasure",
                    erasure_code_profile=_PROFILE)  # fmt: skip
        cluster.mon("osd pool set", pool=name, var="allow_ec_overwrites", val="true")
    else:
        cluster.mon("osd pool create", **arguments, pool_type="replicated", size=size)


def make_filesystem(cluster: Cluster, options: BedOptions) -> None:
    """The CephFS on its pools."""
    cluster.mon("fs new", fs_name=FILESYSTEM, metadata=METADATA, data=DATA, force=True)
    cluster.mon("fs set", fs_name=FILESYSTEM, var="standby_count_wanted", val="0")
    if options.copies.erasure_coded:
        cluster.mon("fs add_data_pool", fs_name=FILESYSTEM, pool=CODED)


def lay_out_root(conf: str, timeout: float = 30.0) -> None:
    """New files go to the coded pool: the root's `ceph.dir.layout.pool`."""
    library, mount = capi.load(capi.CEPHFS), ctypes.c_void_p()
    library.ceph_create(ctypes.byref(mount), b"admin")
    library.ceph_conf_read_file(mount, conf.encode())
    for name, value in capi.client_options(timeout, "", {}).items():
        library.ceph_conf_set(mount, name.encode(), value.encode())
    capi.bounded("layout of /", timeout, lambda: _lay_out(library, mount))
    library.ceph_release(mount)  # not after an error: the call may still use it


def _lay_out(library: ctypes.CDLL, mount: ctypes.c_void_p) -> None:
    pool = CODED.encode()
    code = library.ceph_mount(mount, b"/")
    if code == 0:
        name = b"ceph.dir.layout.pool"
        code = library.ceph_setxattr(mount, b"/", name, pool, len(pool), 0)
        library.ceph_unmount(mount)
    if code < 0:
        raise CephError("layout of the file system's root", code)


def balance(home: Home, cluster: Cluster) -> int:
    """Move placement groups until each OSD has as many as the next; returns how many moved.

    osdmaptool computes the moves (pg-upmap-items), for one pool after the other.
    """
    cluster.mon("osd set-require-min-compat-client", version="luminous")
    (home.folder / "osdmap").write_bytes(_osdmap(cluster))
    argv = ["osdmaptool", str(home.folder / "osdmap"), "--upmap", str(home.folder / "upmaps"),
            "--mark-up-in",  # the OSDs need not run yet
            "--upmap-deviation", "1", "--upmap-max", "10000"]  # fmt: skip
    for pool in cluster.mon("osd lspools"):
        argv += ["--upmap-pool", str(pool["poolname"])]
    tools.run(argv, deadline=60.0)
    path = home.folder / "upmaps"
    moves = _UPMAP.findall(path.read_text()) if path.exists() else []

    def move(one: tuple[str, str]) -> None:
        group, osds = one
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


def placement(cluster: Cluster, names: dict[int, str], osds: int) -> dict[str, Any]:
    """Placement groups of each OSD, per pool, as they are, and max/mean of each pool.

    For a coded or replicated pool every shard or copy counts.
    """
    answer = cluster.mgr("pg dump", dumpcontents=["pgs_brief"])
    groups = answer["pg_stats"] if isinstance(answer, dict) else answer
    counts: dict[str, Counter[int]] = {name: Counter() for name in names.values()}
    for group in groups:
        name = names.get(int(str(group["pgid"]).split(".")[0]))
        if name is not None:
            counts[name].update(int(osd) for osd in group["up"])
    return {
        name: {
            "pgs_per_osd": [count[osd] for osd in range(osds)],
            "max_over_mean": max(count.values(), default=0) * osds / (sum(count.values()) or 1),
        }
        for name, count in counts.items()
    }


def wait_for_stats(cluster: Cluster, osds: int, deadline: float) -> None:
    """Until the manager knows what the OSDs know now: "active+clean" can be stale."""
    wanted = {}
    for osd in range(osds):
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
