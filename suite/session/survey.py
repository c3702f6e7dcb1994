"""Who is where: which ranks share a node, and whether MPI and the kernels agree on that.

What decides is what a kernel says of itself, since no setting can bend it: two ranks are on
one node if they have one boot id and one host name.  Two machines of one name are two nodes;
a machine that MPI splits is one; host names that differ on one kernel (containers, the launch
agent) are nodes that share it, called emulated.  What MPI says (processor name, shared memory)
is kept beside that, and `disagreements` tells where it divides the ranks otherwise.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsmatrix.results.process import boot_id
from fsmatrix.suite.session.comm import Comm

if TYPE_CHECKING:
    from fsmatrix.results.case import Geometry

# Where a step is carried out: by one leader, the leader of each node, ranks of MPI, every rank.
Where = Literal["once", "node", "mpi", "rank"]


@dataclass(frozen=True)
class Rank:
    """Where one rank of the world really is."""

    rank: int
    host: str
    node: int  # index of the node, in order of their first rank
    node_rank: int  # index of the rank inside its node
    boot_id: str
    mounts: str  # identity of the mount namespace
    pid: int
    cpus: tuple[int, ...]
    processor: str = ""  # MPI's name of the node
    shared: int = 0  # lowest rank of those that share memory with this one, as MPI says
    links: float = 0.0  # bytes/s of all links of the kernel, each way; 0 = not known

    @property
    def kernel(self) -> str:
        """One mount, one cache drop and one sampler per kernel and mount namespace."""
        return f"{self.boot_id}/{self.mounts}"


def own_facts(comm: Comm) -> dict[str, Any]:
    """What a rank sees of its place."""
    processor, shared = comm.place()
    return {
        "host": platform.node(),
        "boot_id": boot_id(),
        "mounts": str(Path("/proc/self/ns/mnt").readlink()),
        "pid": os.getpid(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "processor": processor,
        "shared": shared,
        "links": link_speed(),
    }


def link_speed(interfaces: Path = Path("/sys/class/net")) -> float:
    """Bytes/s of all network devices that are up, each way; 0 if one of them does not tell.

    Virtual interfaces (bonds, bridges, VLANs) have no device of their own: what they carry passes
    the others.  RDMA devices may move data that no interface sees: then nothing is known.
    """
    if any(Path("/sys/class/infiniband").glob("*")):
        return 0.0
    speeds = []
    for interface in interfaces.glob("*"):
        try:
            if not (interface / "device").exists():
                continue
            if (interface / "operstate").read_text().strip() == "up":
                speeds.append(float((interface / "speed").read_text()))
        except (OSError, ValueError):  # a driver that knows no speed gives EINVAL
            return 0.0
    return sum(speeds) * 1e6 / 8 if speeds and min(speeds) > 0 else 0.0


def survey(comm: Comm) -> tuple[Rank, ...]:
    """Every rank's place, the same tuple at every rank."""
    return ranks_of(comm.bcast(comm.gather(own_facts(comm))))


def ranks_of(gathered: Sequence[Mapping[str, Any]]) -> tuple[Rank, ...]:
    """Nodes and places on them, from what every rank sees (`own_facts`), in order of ranks."""
    nodes: dict[Hashable, int] = {}
    counts: dict[int, int] = {}
    ranks = []
    for rank, facts in enumerate(gathered):
        node = nodes.setdefault((facts["boot_id"], plain_name(facts["host"])), len(nodes))
        node_rank = counts.get(node, 0)
        counts[node] = node_rank + 1
        own = {**facts, "cpus": tuple(facts["cpus"])}
        ranks.append(Rank(rank=rank, node=node, node_rank=node_rank, **own))
    return tuple(ranks)


def plain_name(host: str) -> str:
    """A host name without its domain; an address stays whole."""
    first = host.partition(".")[0]
    return host if first.isdecimal() or not first else first


def members(ranks: Iterable[Mapping[str, Any]], geometry: Geometry) -> list[int]:
    """World ranks of a run, node after node: the same number on each of its nodes.

    `ranks` are as the session's hello gives them: `Rank` as dictionaries.
    """
    return [
        rank["rank"]
        for rank in sorted(ranks, key=lambda rank: (rank["node"], rank["node_rank"]))
        if rank["node"] < geometry.nodes and rank["node_rank"] < geometry.processes_per_node
    ]


def addressed(ranks: Sequence[Mapping[str, Any]], where: Where, geometry: Geometry) -> list[int]:
    """Who carries a step of a run out: every rank, one on each node, or rank 0.

    The others sleep on: nothing runs beside a program.
    """
    all_ranks = members(ranks, geometry)
    if where == "rank":
        return all_ranks
    leaders = [rank for rank in all_ranks if ranks[rank]["node_rank"] == 0]
    return leaders if where == "node" else leaders[:1]


def disagreements(ranks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where MPI divides the ranks into nodes otherwise than the kernels do; sentences.

    `ranks` are as the session's hello gives them: `Rank` as dictionaries.
    """
    ranks = list(ranks)
    hosts = {rank["node"]: rank["host"] for rank in reversed(ranks)}
    reasons = []
    for key, what in (("processor", "processor names"), ("shared", "groups of shared memory")):
        for node, values in _grouped(ranks, "node", key).items():
            if len(values) > 1:
                reasons.append(f"MPI sees {len(values)} {what} on the one node {hosts[node]}")
        for value, nodes in _grouped(ranks, key, "node").items():
            if len(nodes) > 1:
                names = ", ".join(hosts[node] for node in nodes)
                shared = (
                    f"the processor name {value}" if key == "processor" else "one shared memory"
                )
                reasons.append(f"MPI sees {shared} on {len(nodes)} nodes ({names})")
    return reasons


def _grouped(ranks: Sequence[Mapping[str, Any]], by: str, of: str) -> dict[Any, list[Any]]:
    """The distinct values of `of` for each value of `by`, in order of ranks."""
    groups: dict[Any, dict[Any, None]] = {}
    for rank in ranks:
        groups.setdefault(rank[by], {})[rank[of]] = None
    return {value: list(members) for value, members in groups.items()}
