"""What storage and network cannot exceed: evidence for the audits `faster-than-...`.

Device: what the campaign declares (`targets.X.limits`), else the drives of a test bed.  Network:
what the campaign declares, else the site's fabric, else the link speeds that the nodes' kernels
tell, over the client nodes of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fsmatrix.results.evidence.evidence import Limits
from fsmatrix.results.evidence.rank import Rank
from fsmatrix.results.evidence.values import Level
from fsmatrix.suite.campaign.campaign import Target
from fsmatrix.suite.campaign.site import Site
from fsmatrix.suite.cases.resolve import TargetMember

DEVICE, NETWORK = "device_bytes_per_second", "network_bytes_per_second"


def of_target(member: TargetMember, level: Level, site: Site, nodes: int) -> Limits | None:
    """Limits of a target at a level from `nodes` client nodes; None if nobody says any."""
    device: float | None = None
    network: float | None = None
    sources: dict[str, str] = {}
    declared: Target = member.target
    if declared.limits.device_bandwidth is not None:
        device, sources[DEVICE] = declared.limits.device_bandwidth, "campaign"
    elif member.testbed is not None:
        most, source = member.testbed.device_limit(level)
        if most:
            device, sources[DEVICE] = most, source
    if declared.limits.network_bandwidth is not None:
        network, sources[NETWORK] = declared.limits.network_bandwidth, "campaign"
    elif site.fabric.bandwidth is not None and member.testbed is None:
        network, sources[NETWORK] = site.fabric.bandwidth * nodes, "site"
    if not sources:
        return None
    return Limits(device_bytes_per_second=device, network_bytes_per_second=network, sources=sources)


def with_links(limits: Limits | None, ranks: Sequence[Rank]) -> Limits | None:
    """The limits, with the links of the ranks' kernels where nobody said more of the network."""
    speed = _links(ranks)
    if speed is None or (limits and limits.network_bytes_per_second is not None):
        return limits
    if limits is None:
        return Limits(network_bytes_per_second=speed, sources={NETWORK: "links"})
    sources = {**(limits.sources or {}), NETWORK: "links"}
    return replace(limits, network_bytes_per_second=speed, sources=sources)


def _links(ranks: Iterable[Rank]) -> float | None:
    """Bytes/s of all links of all kernels; None if one kernel does not tell."""
    kernels = {rank.boot_id: rank.links for rank in ranks}
    speeds = [speed for speed in kernels.values() if speed]
    return float(sum(speeds)) if speeds and len(speeds) == len(kernels) else None
