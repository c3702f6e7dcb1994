"""What storage and network cannot exceed: evidence for the audits `faster-than-...`.

Device: what the campaign declares (`targets.X.limits`), else the drives of a test bed.  Network:
what the campaign declares, else the site's fabric, else the link speeds that the nodes' kernels
tell, over the client nodes of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsmatrix.backends.testbed.drives import limits_of
from fsmatrix.suite.campaign.campaign import Target
from fsmatrix.suite.campaign.site import Site
from fsmatrix.suite.cases.resolve import TargetMember

DEVICE, NETWORK = "device_bytes_per_second", "network_bytes_per_second"


def known(member: TargetMember, level: Mapping[str, Any], site: Site, nodes: int) -> dict[str, Any]:
    """Limits of a target at a level from `nodes` client nodes, bytes/s, with who says them."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    declared: Target = member.target
    if declared.limits.device_bandwidth is not None:
        found[DEVICE], sources[DEVICE] = declared.limits.device_bandwidth, "campaign"
    elif member.bed is not None and (bed := member.bed.at(level)).interface != "none":
        drive = limits_of(bed)
        found[DEVICE] = max(drive.read_bytes, drive.write_bytes) * bed.osds
        sources[DEVICE] = f"{bed.osds} emulated drives"
    if declared.limits.network_bandwidth is not None:
        found[NETWORK], sources[NETWORK] = declared.limits.network_bandwidth, "campaign"
    elif site.fabric.bandwidth is not None and member.bed is None:
        found[NETWORK], sources[NETWORK] = site.fabric.bandwidth * nodes, "site"
    return {**found, "sources": sources} if found else {}


def with_links(limits: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The limits, with the links of the ranks' kernels where nobody said more of the network."""
    speed = _links(ranks)
    if NETWORK in limits or speed is None:
        return dict(limits)
    sources = {**limits.get("sources", {}), NETWORK: "links"}
    return {**limits, NETWORK: speed, "sources": sources}


def _links(ranks: Iterable[Mapping[str, Any]]) -> float | None:
    """Bytes/s of all links of all kernels; None if one kernel does not tell."""
    kernels = {rank["boot_id"]: rank.get("links") for rank in ranks}
    speeds = [speed for speed in kernels.values() if speed]
    return float(sum(speeds)) if speeds and len(speeds) == len(kernels) else None
