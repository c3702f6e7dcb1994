"""What a Ceph test bed may look like, and what cannot be placed on it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fsmatrix.backends.ceph.levels.redundancy import Redundancy, parse_redundancy, placement_refusal
from fsmatrix.backends.testbed.storage import StorageOptions
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
        return self.copies.placement_groups(self.osds)

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
