"""What a campaign declares about a target that nobody can be asked for: `targets.X.deployment`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from fsmatrix.results.evidence.deployment import Deployment
from fsmatrix.results.units import PositiveSize
from fsmatrix.suite.campaign.section import Count, Section

Words = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .+_-]*$", max_length=60)]
Redundancy = Annotated[
    str, StringConstraints(pattern=r"^(none|replica [1-9][0-9]?|EC [1-9][0-9]?\+[1-9][0-9]?)$")
]


class DeploymentSection(Section):
    """Facts that decide whether targets are compared fairly.  What the storage tells counts first:
    declared facts fill what it does not tell."""

    redundancy: Redundancy | None = Field(default=None, description="none, replica 3, EC 2+1")
    failure_domain: Words | None = Field(
        default=None, description="what copies of the same data never share: osd, host, rank"
    )
    durability: Literal["write-back", "durable on return"] | None = Field(
        default=None,
        description="of a write without O_DIRECT: only fsync makes it durable, or its return does",
    )
    checksums: Words | None = Field(
        default=None, description="of data: none, crc32c at rest, crc64 end to end"
    )
    ec_encoder: Literal["client", "server", "none"] | None = Field(
        default=None, description="who computes an erasure code"
    )
    chunk_size: PositiveSize | None = Field(
        default=None, description="bytes of one piece (object, stripe) of a file"
    )
    transport: Literal["TCP", "RDMA", "none"] | None = Field(
        default=None, description="between clients and servers"
    )
    encrypted: bool | None = Field(default=None, strict=True, description="in flight")
    data_cache: Words | None = Field(
        default=None, description="what keeps data in a client: none, page cache"
    )
    metadata_cache: Words | None = Field(
        default=None, description="what keeps names and attributes in a client"
    )
    storage_nodes: Count | None = Field(default=None, description="that hold data")
    devices_per_node: Count | None = Field(default=None, description="of each storage node")
    media: Words | None = Field(
        default=None, description="of data: HDD, SSD, NVMe SSD, PMem, RAM, file"
    )
    metadata_media: Words | None = Field(default=None, description="of metadata, likewise")
    usable_bytes: PositiveSize | None = Field(
        default=None, description="that users can fill, redundancy deducted"
    )
    server_cores: Count | None = Field(default=None, description="of all storage nodes together")
    server_memory: PositiveSize | None = Field(
        default=None, description="bytes, of all storage nodes together"
    )

    shared_cores: Literal["none", "shared", "shared, and the servers poll"] | None = Field(
        default=None, description="whether servers work on the cores of clients"
    )

    @property
    def facts(self) -> Deployment:
        """As backends tell it."""
        return Deployment(**self.model_dump(exclude_none=True))
