"""Pools, the file system, and placement that is balanced and checked."""

from __future__ import annotations

import ctypes

from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.errors import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.state import placement as even
from fsmatrix.backends.testbed.ceph.options import CephTestbedOptions
from fsmatrix.backends.testbed.home import Home
from fsmatrix.results.evidence.values import Json

FILESYSTEM = "cephfs"
METADATA, DATA, CODED, RADOS = "cephfs.meta", "cephfs.data", "cephfs.coded", "rados"
_FEW = 32  # placement groups of what moves little data
_PROFILE = "bed"


def make_pools(cluster: Cluster, options: CephTestbedOptions) -> None:
    """The RADOS pool, and the pools of the file system.

    With an erasure code the file system's first data pool is replicated (it holds the
    backtraces) and the root's layout names the coded one.
    """
    copies, groups = options.copies, options.placement_groups
    if copies.erasure_coded:
        cluster.mon(
            "osd erasure-code-profile set",
            name=_PROFILE,
            profile=[
                f"k={copies.k}",
                f"m={copies.m}",
                f"crush-failure-domain={options.failure_domain}",
            ],
        )
    _pool(cluster, METADATA, _FEW, copies.copies)
    _pool(cluster, DATA, _FEW if copies.erasure_coded else groups, copies.copies)
    for name in (CODED, RADOS) if copies.erasure_coded else (RADOS,):
        _pool(cluster, name, groups, copies.copies, coded=copies.erasure_coded)
    cluster.mon("osd pool application enable", pool=RADOS, app="rados")


def _pool(cluster: Cluster, name: str, groups: int, size: int, coded: bool = False) -> None:
    arguments: dict[str, Json] = {"pool": name, "pg_num": groups, "pgp_num": groups}
    if coded:
        cluster.mon(
            "osd pool create", **arguments, pool_type="erasure", erasure_code_profile=_PROFILE
        )
        cluster.mon("osd pool set", pool=name, var="allow_ec_overwrites", val="true")
    else:
        cluster.mon("osd pool create", **arguments, pool_type="replicated", size=size)


def make_filesystem(cluster: Cluster, options: CephTestbedOptions) -> None:
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
    """Even out all pools, one after the other; returns how many groups moved."""
    cluster.mon("osd set-require-min-compat-client", version="luminous")
    names = [str(pool["poolname"]) for pool in cluster.mon("osd lspools")]
    return even.balance(cluster, names, home.folder)


def placement(cluster: Cluster, names: dict[int, str], osds: int) -> dict[str, Json]:
    """Placement groups of each OSD, per pool, as they are, and max/mean of each pool."""
    of_pool: dict[str, list[even.Group]] = {name: [] for name in names.values()}
    for group in even.groups_in(cluster.mgr("pg dump", dumpcontents=["pgs_brief"])):
        name = names.get(int(group.pgid.split(".")[0]))
        if name is not None:
            of_pool[name].append(group)
    return {
        name: even.evenness(osds_of, range(osds)).document() for name, osds_of in of_pool.items()
    }
