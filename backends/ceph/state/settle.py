"""A bounded wait until a cluster has done what earlier runs left it to do.

Quiet: no OSD that holds data is down (the placement groups' own states come late), every
placement group active+clean (scrubbing apart), none being removed on an OSD, and,
of a CephFS, the purge queues of its active MDSs empty.  Removed files are in the queue until
their objects are gone; removed pools are on the OSDs until their placement groups are.
"""

from __future__ import annotations

import time
from typing import Any

from fsmatrix.backends.base import Settled
from fsmatrix.backends.ceph.bindings.librados import TIMEOUT, Cluster, Login
from fsmatrix.backends.ceph.state import facts, health
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import Json, JsonObject, mapping

PAUSE = 0.05  # seconds between two looks, growing
LONGEST_PAUSE = 1.0
OSDS_ASKED = 64
_QUIET_STATES = frozenset({"active", "clean", "scrubbing", "deep"})


def settle(login: Login, timeout: float, filesystem: str | None = None) -> Settled:
    """Wait, at most about `timeout` seconds.  `filesystem` None: no CephFS is involved.

    What cannot be asked (a capability is missing) is "not known: reason" in the state, and does
    not keep the rest from settling; a cluster that does not answer is not quiet.
    """
    began, pause = time.monotonic(), PAUSE
    try:
        with login.connect(max(1.0, min(TIMEOUT, timeout))) as cluster:
            while True:
                state = look(cluster, filesystem)
                seconds = time.monotonic() - began
                quiet = is_quiet(state)
                if quiet or seconds + pause >= timeout:
                    return Settled(quiet, seconds, state)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
    except BackendError as error:
        return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})


def look(cluster: Cluster, filesystem: str | None) -> dict[str, Json]:
    """One look: states of placement groups, their removal, the purge queue."""
    status = cluster.mon("status")
    state: dict[str, Json] = {
        "placement_groups": health.states(status["pgmap"]),
        "osds_down": status["osdmap"]["num_in_osds"] - status["osdmap"]["num_up_osds"],
    }
    state["groups_being_removed"] = _known(lambda: _removing(cluster))
    if filesystem is not None:
        state["purge_queue"] = _known(lambda: _purging(cluster, filesystem))
    return state


def is_quiet(state: JsonObject) -> bool:
    """Whether nothing that is known of goes on."""
    groups = mapping(state, "placement_groups")
    quiet = all(set(name.split("+")) <= _QUIET_STATES for name in groups)
    waiting = [state.get(name, 0) for name in ("osds_down", "groups_being_removed", "purge_queue")]
    return quiet and not any(isinstance(number, int) and number for number in waiting)


def _known(ask: Any) -> int | str:
    try:
        return int(ask())
    except BackendError as error:
        return f"not known: {error}"


def _removing(cluster: Cluster) -> int:
    """Placement groups that OSDs are removing; of the first OSDS_ASKED."""
    asked = {"logger": "osd", "counter": "numpg_removing"}
    osds = facts.osds_up(cluster)[:OSDS_ASKED]
    return sum(int(cluster.osd(n, "perf dump", **asked)["osd"]["numpg_removing"]) for n in osds)


def _purging(cluster: Cluster, filesystem: str) -> int:
    """Items in the purge queues, waiting or being worked on."""
    total = 0
    for name in facts.active_mdss(cluster, filesystem):
        queue = cluster.mds(name, "perf dump", logger="purge_queue")["purge_queue"]
        total += int(queue["pq_executing"]) + int(queue.get("pq_item_in_journal", 0))
    return total
