"""What is wrong with a cluster now, in sentences.

Every failed health check counts but those in HARMLESS, which say nothing about speed or data (a
test bed of size 1 has some of them always); beside them recovery, backfill and whatever else
the placement groups do that the checks do not name.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from fsmatrix.backends.base import Settled
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import TIMEOUT, Cluster, Login
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.ceph.state.facts import osds_up
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, mapping, objects, text, whole

HARMLESS = frozenset(
    {
        *("AUTH_INSECURE_GLOBAL_ID_RECLAIM", "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED"),
        *("POOL_NO_REDUNDANCY", "POOL_APP_NOT_ENABLED", "POOL_PG_NUM_NOT_POWER_OF_TWO"),
        *("POOL_TOO_FEW_PGS", "POOL_TOO_MANY_PGS", "TOO_FEW_PGS", "MANY_OBJECTS_PER_PG"),
        *("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED", "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"),
        *("MDS_INSUFFICIENT_STANDBY", "MON_MSGR2_NOT_ENABLED", "TELEMETRY_CHANGED"),
        *("RECENT_CRASH", "RECENT_MGR_MODULE_CRASH", "MGR_MODULE_DEPENDENCY"),
        *("PG_NOT_SCRUBBED", "PG_NOT_DEEP_SCRUBBED", "OSD_NO_SORTBITWISE"),
        *("BLUESTORE_NO_PER_POOL_OMAP", "BLUESTORE_NO_PER_PG_OMAP", "BLUESTORE_LEGACY_STATFS"),
        *("TOO_FEW_OSDS", "OLD_CRUSH_TUNABLES", "OLD_CRUSH_STRAW_CALC_VERSION", "MON_DISK_LOW"),
    }
)
OSD_SECONDS = 8.0  # for an answer of an OSD
OSDS_ASKED = 64
# parts of a placement group's state in which it does its ordinary work
ORDINARY = frozenset({"active", "clean", "scrubbing", "deep", "unknown"})
REMARKABLE = frozenset({"scrubbing", "deep"})  # ordinary, but it costs bandwidth


def ailments(status: JsonObject) -> list[str]:
    """Sentences about an answer to `ceph status` (JSON)."""
    told = mapping(status, "health")
    checks = mapping(told, "checks")
    sentences = [
        f"{name} ({check['severity']}): {mapping(check, 'summary')['message']}"
        for name, check in ((name, mapping(checks, name)) for name in sorted(checks))
        if name not in HARMLESS
    ]
    if told["status"] == "HEALTH_ERR" and not sentences:
        sentences.append("the cluster's health is HEALTH_ERR")
    return sentences + _groups(mapping(status, "pgmap"))


def _groups(pgmap: JsonObject) -> list[str]:
    """What placement groups do beside their ordinary work."""
    sentences = []
    doing = states(pgmap)
    for state, count in sorted(doing.items()):
        parts = set(state.split("+"))
        if parts - ORDINARY or parts & REMARKABLE or "unknown" in parts:
            sentences.append(f"{count} of {pgmap['num_pgs']} placement groups are {state}")
    rate = pgmap.get("recovering_bytes_per_sec", 0)
    if rate:
        sentences.append(f"recovery moves {rate} bytes per second")
    return sentences


def restarts(before: JsonObject, after: JsonObject) -> list[str]:
    """Sentences about daemons that went down or came up between two answers to `ceph status`."""
    sentences = []
    osds, up = mapping(after, "osdmap"), "osd_up_since"  # when how many OSDs are up changed
    if osds.get(up) != mapping(before, "osdmap").get(up):
        sentences.append(
            f"OSDs went down or came up: {osds['num_up_osds']} of {osds['num_osds']} are up"
        )
    new = _mdss(after)
    sentences += [
        f"the MDS of rank {rank} of file system {filesystem} was restarted or replaced"
        for (filesystem, rank), gid in sorted(_mdss(before).items())
        if new.get((filesystem, rank)) != gid
    ]
    return sentences


def _mdss(status: JsonObject) -> dict[tuple[int, int], int]:
    """(file system, rank) -> id of the MDS instance that has it."""
    fsmap = mapping(status, "fsmap")
    ranks = objects(fsmap, "by_rank") if "by_rank" in fsmap else ()
    return {(whole(r, "filesystem_id"), whole(r, "rank")): whole(r, "gid") for r in ranks}


def states(pgmap: JsonObject) -> dict[str, int]:
    """State of placement groups -> how many."""
    by_state = objects(pgmap, "pgs_by_state") if "pgs_by_state" in pgmap else ()
    return {text(each, "state_name"): whole(each, "count") for each in by_state}


class Watch:
    """Asks again and again over one connection; after a failure over a new one.

    A daemon that was down between two looks only is known by what its restart changed.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._cluster: Cluster | None = None
        self._before: JsonObject | None = None  # status at the look before

    def look(self) -> list[str]:
        """What is wrong now, or was since the look before (empty: nothing).

        That the cluster cannot be asked is an ailment too.
        """
        try:
            if self._cluster is None:
                self._cluster = self._login.connect()
            status = self._cluster.mon("status")
        except BackendError as error:
            self.close()
            return [f"the cluster's health is not known: {error}"]
        sentences = ailments(status) + (restarts(self._before, status) if self._before else [])
        self._before = status
        return sentences

    def close(self) -> None:
        """End the connection; harmless if there is none."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


def silent(login: Login) -> list[str]:
    """The first OSD that is up, as the monitors say, and answers no command (empty: all do).

    OSDs that hang are missed by each other after many seconds; if all of them do, after minutes.
    """
    try:
        with login.connect(OSD_SECONDS) as cluster:
            for osd in osds_up(cluster)[:OSDS_ASKED]:
                try:
                    cluster.osd(osd, "version")
                except CephError as error:
                    if error.errno in (0, errno.ETIMEDOUT):
                        return [f"osd.{osd} does not answer, and the monitors think that it is up"]
    except BackendError:
        pass  # `health` says it
    return []


def health(login: Login) -> list[str]:
    """One look, over a connection of its own."""
    watch = Watch(login)
    try:
        return watch.look()
    finally:
        watch.close()


# A bounded wait until a cluster has done what earlier runs left it to do.
#
# Quiet: no OSD that holds data is down (the placement groups' own states come late), every
# placement group active+clean (scrubbing apart), none being removed on an OSD, and,
# of a CephFS, the purge queues of its active MDSs empty.  Removed files are in the queue until
# their objects are gone; removed pools are on the OSDs until their placement groups are.


PAUSE = 0.05  # seconds between two looks, growing
LONGEST_PAUSE = 1.0
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
        "placement_groups": states(status["pgmap"]),
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
