"""Where one rank of a session was: sent by its session, stored with each run.

Standard library only: ranks import it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.results.evidence.stored import Stored


@dataclass(frozen=True, kw_only=True)
class Rank(Stored):
    """Where one rank of a session's world really is.  None: not known, as in files of before."""

    rank: int
    host: str
    node: int  # index of the node, in order of their first rank
    node_rank: int  # index of the rank inside its node
    boot_id: str
    mounts: str  # identity of the mount namespace
    pid: int
    cpus: tuple[int, ...]  # that it may use; of a run: that it might use in the last step
    processor: str | None = None  # MPI's name of the node
    shared: int | None = None  # lowest rank of those that share memory with this one, as MPI says
    links: float | None = None  # bytes/s of all links of the kernel, each way; 0 = not known
    affinity: str | None = None  # policy of a run: core, none

    @property
    def kernel(self) -> str:
        """One mount, one cache drop and one sampler per kernel and mount namespace."""
        return f"{self.boot_id}/{self.mounts}"
