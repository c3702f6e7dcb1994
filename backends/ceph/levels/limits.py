"""What a cluster must allow before pools are made in it: rights, deletion, placement groups."""

from __future__ import annotations

import errno
import secrets
from typing import Any

from fsmatrix.backends.ceph.bindings.errors import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster

NEEDED = (
    "making levels needs a user with the capabilities of an administrator "
    "(mon 'allow *', mgr 'allow *', osd 'allow *', mds 'allow *'), or prepared pools "
    "(levels.pools)"
)


def refusal(cluster: Cluster, unprotected: bool) -> str:
    """Why pools cannot be made and removed here; `unprotected`: pools of one copy."""
    try:
        # Harmless: there is no such rule, and none is removed.  Who may not is told so.
        cluster.mon("osd crush rule rm", name=f"fsmatrix-probe-{secrets.token_hex(8)}")
        may_delete = _monitor_option(cluster, "mon_allow_pool_delete")
        may_one = not unprotected or _monitor_option(cluster, "mon_allow_pool_size_one")
    except CephError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"client.{cluster.user} may not: {NEEDED}"
        raise
    for name, allowed in (
        ("mon_allow_pool_delete", may_delete),
        ("mon_allow_pool_size_one", may_one),
    ):
        if not allowed:
            return f"the monitors do not allow it: ceph config set mon {name} true"
    return ""


def too_many_groups(cluster: Cluster, per_osd: float) -> str:
    """Why so many placement groups more for each OSD are too many."""
    allowed = int(_monitor_option(cluster, "mon_max_pg_per_osd"))
    nodes = cluster.mon("osd df")["nodes"]
    there = max((int(node["pgs"]) for node in nodes if node.get("status") == "up"), default=0)
    if there + per_osd <= allowed:
        return ""
    return (
        f"an OSD would have {there + per_osd:.0f} placement groups, and mon_max_pg_per_osd is "
        f"{allowed}: set levels.pg_num, or raise it"
    )


def _monitor_option(cluster: Cluster, name: str) -> Any:
    """As a monitor has it now, wherever it is set."""
    monitor = cluster.mon("quorum_status")["quorum_names"][0]
    return cluster.mgr("config show", who=f"mon.{monitor}", key=name)
