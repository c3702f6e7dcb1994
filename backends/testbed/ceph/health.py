"""How a bed's cluster is, as its monitor says."""

from __future__ import annotations

from fsmatrix.backends.ceph.bindings.librados import Cluster


def serving(cluster: Cluster) -> bool:
    """Whether the manager is available and an MDS active."""
    status = cluster.mon("status")
    active = status["fsmap"].get("up", 0) >= 1 and any(
        rank.get("status") == "up:active" for rank in status["fsmap"].get("by_rank", [])
    )
    return bool(status["mgrmap"]["available"]) and active


def all_clean(cluster: Cluster) -> bool:
    """Whether all placement groups are active+clean, as far as the manager knows."""
    groups = cluster.mon("status")["pgmap"]
    clean = sum(
        int(state["count"])
        for state in groups.get("pgs_by_state", [])
        if state["state_name"] == "active+clean"
    )
    return 0 < clean == int(groups["num_pgs"])


def summary(cluster: Cluster) -> str:
    """Where a cluster stands, for an error."""
    states = cluster.mon("status")["pgmap"].get("pgs_by_state", [])
    words = [f"{state['count']} {state['state_name']}" for state in states]
    return "; ".join([", ".join(words), *checks(cluster).values()])


def checks(cluster: Cluster) -> dict[str, str]:
    """Health checks that are raised now: {code: summary}."""
    raised = cluster.mon("health")["checks"]
    return {code: str(check["summary"]["message"]) for code, check in raised.items()}
