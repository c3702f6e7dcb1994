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
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.process import boot_id
from fsmatrix.suite.session import wire
from fsmatrix.suite.session.comm import Comm

if TYPE_CHECKING:
    from fsmatrix.results.record import Geometry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)
# Where a step is carried out: by one leader, the leader of each node, ranks of MPI, every rank.
Where = Literal["once", "node", "mpi", "rank"]


def own_place(comm: Comm) -> Rank:
    """What a rank sees of its place; its node is not known yet."""
    processor, shared = comm.place()
    return Rank(
        rank=comm.rank,
        host=platform.node(),
        node=0,
        node_rank=0,
        boot_id=boot_id(),
        mounts=str(Path("/proc/self/ns/mnt").readlink()),
        pid=os.getpid(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        processor=processor,
        shared=shared,
        links=link_speed(),
    )


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
    ranks = on_nodes(wire.gather(comm, own_place(comm)))
    documents = comm.bcast([rank.document() for rank in ranks])
    return tuple(read(Rank, each, "rank") for each in documents)


def on_nodes(ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """The ranks, which are in order, with their nodes and places on them."""
    nodes: dict[Hashable, int] = {}
    counts: Counter[int] = Counter()
    placed = []
    for rank in ranks:
        node = nodes.setdefault((rank.boot_id, plain_name(rank.host)), len(nodes))
        placed.append(replace(rank, node=node, node_rank=counts[node]))
        counts[node] += 1
    return tuple(placed)


def plain_name(host: str) -> str:
    """A host name without its domain; an address stays whole."""
    first = host.partition(".")[0]
    return host if first.isdecimal() or not first else first


def members(ranks: Iterable[Rank], geometry: Geometry) -> list[int]:
    """World ranks of a run, node after node: the same number on each of its nodes."""
    return [
        rank.rank
        for rank in sorted(ranks, key=lambda rank: (rank.node, rank.node_rank))
        if rank.node < geometry.nodes and rank.node_rank < geometry.processes_per_node
    ]


def addressed(ranks: Sequence[Rank], where: Where, geometry: Geometry) -> list[int]:
    """Who carries a step of a run out: every rank, one on each node, or rank 0.

    The others sleep on: nothing runs beside a program.
    """
    all_ranks = members(ranks, geometry)
    if where == "rank":
        return all_ranks
    leaders = [rank for rank in all_ranks if ranks[rank].node_rank == 0]
    return leaders if where == "node" else leaders[:1]


def disagreements(ranks: Sequence[Rank]) -> list[str]:
    """Where MPI divides the ranks into nodes otherwise than the kernels do; sentences."""
    hosts = {rank.node: rank.host for rank in reversed(ranks)}
    reasons = []
    for key, what in (("processor", "processor names"), ("shared", "groups of shared memory")):
        pairs = [(rank.node, getattr(rank, key)) for rank in ranks]
        for node, values in _grouped(pairs).items():
            if len(values) > 1:
                reasons.append(f"MPI sees {len(values)} {what} on the one node {hosts[node]}")
        for value, nodes in _grouped((value, node) for node, value in pairs).items():
            if len(nodes) > 1:
                names = ", ".join(hosts[node] for node in nodes)
                shared = (
                    f"the processor name {value}" if key == "processor" else "one shared memory"
                )
                reasons.append(f"MPI sees {shared} on {len(nodes)} nodes ({names})")
    return reasons


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The distinct second ones for each of the first ones, in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in dict.fromkeys(pairs):
        groups.setdefault(key, []).append(value)
    return groups
