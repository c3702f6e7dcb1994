"""What a DAOS test bed may look like."""

from __future__ import annotations

from pydantic import Field

from fsmatrix.backends.testbed.base import StorageOptions
from fsmatrix.results.units import PositiveSize

GIB = 1 << 30
SMALLEST_MEMORY = 4 * GIB  # bytes; daos_server takes no smaller memory file system
LABEL = r"^[A-Za-z0-9_][A-Za-z0-9:._-]{0,126}$"


class DaosTestbedOptions(StorageOptions):
    """A DAOS test bed.  Every storage node is a server with one engine, a fault domain."""

    nodes: int = Field(default=2, ge=1, le=16, description="storage nodes, one engine each")
    targets_per_node: int = Field(
        default=1, ge=1, le=16, description="targets of each engine; each of them polls"
    )
    memory: PositiveSize = Field(
        default=SMALLEST_MEMORY,
        ge=SMALLEST_MEMORY,
        multiple_of=GIB,
        description="bytes of each engine's storage: a tmpfs, filled as it is used",
    )
    pool: str = Field(
        default="fsmatrix", pattern=LABEL, description="label of the pool on all nodes"
    )
    pool_percent: int = Field(
        default=50,
        ge=0,
        le=100,
        description="part of each engine's storage that the pool takes; 0: no pool is made, as "
        "for pools on some of the nodes",
    )

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool on each node, whole MiB."""
        return self.memory * self.pool_percent // 100 >> 20 << 20

    @property
    def names(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return tuple(f"node{number}" for number in range(1, self.nodes + 1))
