"""What a Ceph test bed may look like, and what cannot be placed on it."""

from __future__ import annotations

import ctypes
import ipaddress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.facts import Group, balance_groups, evenness, groups_in
from fsmatrix.backends.ceph.levelstate import placement_groups, placement_refusal
from fsmatrix.backends.testbed.bed import StorageOptions
from fsmatrix.backends.testbed.home import Home
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.target import Redundancy, parse_redundancy
from fsmatrix.results.units import PositiveSize

GIB = 1 << 30
SMALLEST_OSD = GIB  # bytes; BlueStore's own needs leave little of less
STUDY_OSDS = {"sata": 6, "pcie": 3}  # per node, in the SSD study


@dataclass(frozen=True)
class Drive:
    """What a whole drive can do: bytes and operations per second."""

    model: str
    read_bytes: float
    write_bytes: float
    read_operations: float
    write_operations: float


# The drives of the SSD study, which gives no figures for them.  Assumed: for the G3i what a
# review printed of the series (tomsitpro, 6.4 TB model); for the 5400s what its class (SATA 3.0,
# 2016) can do.  They are scaled, and levels made of them are emulated, never hardware.
DRIVES = {
    "sata": Drive("Intel 5400s 240 GB, SATA 3.0", 560e6, 480e6, 74e3, 85e3),
    "pcie": Drive("Shannon Direct-IO G3i 1.6 TB, PCIe 2.0", 2600e6, 1600e6, 590e3, 480e3),
}


class CephTestbedOptions(StorageOptions):
    """A Ceph test bed.  Every storage node is a host bucket of its own."""

    osds_per_node: Annotated[int, Field(ge=1, le=24)] | Literal["study"] = Field(
        default=1,
        description="OSDs of each node; study: 6 for sata, 3 for pcie, as in the SSD study",
    )
    interface: Literal["sata", "pcie", "none"] = Field(
        default="none", description="drives to emulate: throttled loop devices; none: plain files"
    )
    scale: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="speed of an emulated drive, as a fraction of the real one's",
    )
    redundancy: str = Field(default="size=1", description="size=1, size=3 or ec=2+1")
    failure_domain: Literal["osd", "host"] = Field(
        default="host", description="what two copies of the same data never share"
    )
    osd_size: PositiveSize = Field(
        default=2 * GIB, ge=SMALLEST_OSD, description="bytes of each OSD"
    )
    pg_num: int | None = Field(
        default=None,
        ge=1,
        le=8192,
        description="placement groups of a data pool; default: 100 per OSD and copy, balanced",
    )
    auth: Literal["none", "cephx"] = Field(
        default="none", description="cephx: users and capabilities"
    )
    address: str = Field(
        default="",
        description="IP address of the daemons, already on this machine; default: one of its own",
    )

    @field_validator("redundancy")
    @classmethod
    def _known_redundancy(cls, value: str) -> str:
        parse_redundancy(value)
        return value

    @field_validator("address")
    @classmethod
    def _known_address(cls, value: str) -> str:
        return str(ipaddress.IPv4Address(value)) if value else ""

    @property
    def per_node(self) -> int:
        """How many OSDs run on one node."""
        if isinstance(self.osds_per_node, int):
            return self.osds_per_node
        return STUDY_OSDS.get(self.interface, 1)

    @property
    def osds(self) -> int:
        """How many OSDs run on all nodes."""
        return self.nodes * self.per_node

    @property
    def copies(self) -> Redundancy:
        """The redundancy as numbers of copies or chunks."""
        return parse_redundancy(self.redundancy)

    @property
    def placement_groups(self) -> int:
        """pg_num of a data pool: a power of two, so that all groups are of one size."""
        if self.pg_num is not None:
            return self.pg_num
        return placement_groups(self.copies, self.osds)

    def node_of(self, osd: int) -> int:
        """Node 1, 2... that holds OSD 0, 1..."""
        return osd // self.per_node + 1

    def refusal(self) -> str:
        """Why this bed cannot be, on any machine (empty: it can)."""
        if reason := placement_refusal(self.redundancy, self.failure_domain, self.nodes, self.osds):
            return reason
        if self.osds_per_node == "study" and self.interface == "none":
            return "osds_per_node: study says how many drives of an interface: choose sata or pcie"
        if self.address and self.bits_per_second:
            return "address and network exclude each other: a limited network has its own addresses"
        return ""


# Pools, the file system, and placement that is balanced and checked.


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
    return balance_groups(cluster, names, home.folder)


def placement(cluster: Cluster, names: dict[int, str], osds: int) -> dict[str, Json]:
    """Placement groups of each OSD, per pool, as they are, and max/mean of each pool."""
    of_pool: dict[str, list[Group]] = {name: [] for name in names.values()}
    for group in groups_in(cluster.mgr("pg dump", dumpcontents=["pgs_brief"])):
        name = names.get(int(group.pgid.split(".")[0]))
        if name is not None:
            of_pool[name].append(group)
    return {name: evenness(osds_of, range(osds)).document() for name, osds_of in of_pool.items()}
