"""What a Ceph cluster does now: its health, bytes to and from its OSDs, caches of its servers.

Health, in sentences.  Every failed health check counts but those in HARMLESS, which say nothing
about speed or data (a test bed of size 1 has some of them always); beside them recovery, backfill
and whatever else the placement groups do that the checks do not name.

Bytes are counted by the interface that carries them.  With all OSDs on loopback addresses the OSDs
count.  Other programs' bytes are counted too, of an interface and by the OSDs.

Caches: what can be dropped, and what is known.  OSDs: BlueStore keeps what it reads only with
bluestore_default_buffered_read, and what it writes only with bluestore_default_buffered_write;
`cache drop` empties the rest (data and onodes).  MDSs: `cache drop` recalls capabilities, flushes
the journal and trims the cache.  Below BlueStore, the page cache of the OSD's host serves RocksDB
where bluefs_buffered_io is on; devices have caches of their own.  Neither is seen from here.
"""

from __future__ import annotations

import errno
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fsmatrix.backends.ceph import facts
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import TIMEOUT, Cluster, Login
from fsmatrix.backends.ceph.facts import osds_up
from fsmatrix.backends.contract import Evidence, Settled
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local import provenance
from fsmatrix.backends.system import devices
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

# What the OSDs of one machine count themselves: bytes for clients, bytes at their devices.
#
# Clients' bytes where every OSD is on this machine's loopback: no interface tells them apart from
# other traffic, and nobody elsewhere can reach these OSDs, so their sum is what this kernel moved
# (data and metadata).  OSDs count an operation before they answer it.
#
# Devices' bytes where every OSD runs under this machine's host name, from the kernel: what the
# servers' caches did not serve, and with copies, journals and RocksDB what was written in all.


MOST_OSDS = 64
LOOK_TIMEOUT = 2.0  # seconds; a look stands beside a measurement
REST = 30.0  # seconds after a failed look in which none is tried
SHARE = 0.02  # of one CPU that looks in the background may take
_COUNTERS = {"network_received_bytes": "op_out_bytes", "network_sent_bytes": "op_in_bytes"}

RECALL = 3  # seconds that other clients get to give capabilities back
AT_ONCE = 8
_SETTINGS = ("bluestore_default_buffered_read", "bluestore_default_buffered_write")


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

    def silent(self) -> list[str]:
        """The first OSD that is up, as the monitors say, and answers no command (empty: all do).

        OSDs that hang are missed by each other after many seconds; if all do, after minutes.
        """
        try:
            with self._login.connect(OSD_SECONDS) as cluster:
                for osd in osds_up(cluster)[:OSDS_ASKED]:
                    try:
                        cluster.osd(osd, "version")
                    except CephError as error:
                        if error.errno in (0, errno.ETIMEDOUT):
                            return [
                                f"osd.{osd} does not answer, and the monitors think that it is up"
                            ]
        except BackendError:
            pass  # `health` says it
        return []

    def close(self) -> None:
        """End the connection; harmless if there is none."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


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


class Watched:
    """The OSDs of a cluster, asked over a connection that stays open."""

    def __init__(self, login: Login) -> None:
        """CephError if the cluster does not tell who they are."""
        self.cluster = login.connect(LOOK_TIMEOUT)
        try:
            self.osds = facts.osds_up(self.cluster)
            metadata = self.cluster.mon("osd metadata") if len(self.osds) <= MOST_OSDS else []
        except BackendError:
            self.cluster.close()
            raise
        self.devices = _devices([entry for entry in metadata if int(entry["id"]) in self.osds])
        self._last: dict[int, dict[str, float]] = {}
        self._next = 0.0  # when a look in the background may be taken again

    def clients(self) -> dict[str, float]:
        """network_{received,sent}_bytes, and how many OSDs counted them (the source).

        Nothing if there are too many OSDs, or one has begun to count anew.  Outside the
        main thread (sampling) also nothing before its share of time has come again: the
        looks before and after a step are always taken.
        """
        began = time.monotonic()
        background = threading.current_thread() is not threading.main_thread()
        if not 0 < len(self.osds) <= MOST_OSDS or (background and began < self._next):
            return {}
        counts = {osd: _counted(self.cluster, osd) for osd in self.osds}
        restarted = any(
            counts[osd][n] < old for osd, of_osd in self._last.items() for n, old in of_osd.items()
        )
        self._last = counts
        ended = time.monotonic()
        self._next = ended + (ended - began) / SHARE
        if restarted:
            return {}
        total = {name: sum(of_osd[name] for of_osd in counts.values()) for name in _COUNTERS}
        return {**total, "network_counting_osds": float(len(counts))}

    def servers(self) -> dict[str, float]:
        """server_device_{read,written}_bytes and _busy_seconds; nothing if not all are here."""
        total = devices.total(self.devices)
        if total is None:
            return {}
        return {
            "server_device_read_bytes": float(total.read_bytes),
            "server_device_written_bytes": float(total.written_bytes),
            "server_device_busy_seconds": total.busy_seconds,
        }


_watched: dict[Login, Watched] = {}
_resting: dict[Login, float] = {}  # until when


def osd_counters(login: Login, clients: bool) -> dict[str, float]:
    """Of the devices, and of the `clients` too if asked for.

    What cannot be told is absent; audits then miss it.  A cluster that does not answer is left
    alone for a while: this never holds a run up for long.
    """
    if time.monotonic() < _resting.get(login, 0.0):
        return {}
    try:
        if login not in _watched:
            _watched[login] = Watched(login)
        watched = _watched[login]
        return watched.servers() | (watched.clients() if clients else {})
    except BackendError:
        forget(login)
        _resting[login] = time.monotonic() + REST
        return {}


def forget(login: Login) -> None:
    """Close the connection that is kept for it; a cluster that did not answer is asked again."""
    _resting.pop(login, None)
    watched = _watched.pop(login, None)
    if watched is not None:
        watched.cluster.close()


def kept() -> frozenset[Login]:
    """Of whom a connection is open."""
    return frozenset(_watched)


def _counted(cluster: Cluster, osd: int) -> dict[str, float]:
    answer = cluster.osd(osd, "perf dump", logger="osd")["osd"]
    return {name: float(answer[theirs]) for name, theirs in _COUNTERS.items()}


def _devices(metadata: list[dict[str, Json]]) -> tuple[str, ...]:
    """ "major:minor" of all these OSDs' devices; () if one is elsewhere or a plain file."""
    if any(entry.get("hostname") != platform.node() for entry in metadata):
        return ()
    nodes = [Path(str(entry.get("bluestore_bdev_dev_node", ""))) for entry in metadata]
    files = any(entry.get("bluestore_bdev_access_mode") != "blk" for entry in metadata)
    if files or not all(node.is_block_device() for node in nodes):
        return ()
    return tuple(devices.number_of(node) for node in nodes)


def counters(addresses: Sequence[str], login: Login | None = None) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen.

    With a `login`, the OSDs of this machine are asked what the interfaces cannot tell.
    """
    totals = provenance.counters_to(addresses)
    if login is None:
        return totals
    return totals | osd_counters(login, not totals and provenance.on_loopback(tuple(addresses)))


def client_keeps_nothing(details: JsonObject, state: str, client_cache: str) -> Evidence:
    """Evidence of `cold` or `bypass` with a client in which nothing is to be done.

    `details`: of the access; `client_cache`: why nothing is.
    """
    drop = state == "cold" and bool(details["drop_server_caches"])
    filesystem = text(details, "filesystem") if "filesystem" in details else None
    servers = server_caches(Login.of(details), drop, filesystem)
    method = "cache drop" if drop else "none"
    return Evidence(state, method, {"client_cache": client_cache, **servers})


def server_caches(login: Login, drop: bool, filesystem: str | None = None) -> dict[str, Json]:
    """Drop (if allowed) and describe; facts for the evidence of a cold cache.

    "server_caches": dropped, or unknown.  "server_data_caches": dropped, unused (the OSDs keep no
    data), or unknown; "server_metadata_caches": dropped or unknown.
    """
    try:
        with login.connect() as cluster:
            return _of(cluster, drop, filesystem)
    except BackendError as error:
        return {"server_caches": "unknown", "server_caches_error": str(error)}


def _of(cluster: Cluster, drop: bool, filesystem: str | None) -> dict[str, Json]:
    osds = facts.osds_up(cluster)
    settings = _settings(cluster, osds)
    evidence: dict[str, Json] = {"osds": len(osds), **settings}
    data = metadata = "unknown"
    if all(values == ["false"] for values in settings.values()):
        data = "unused"
    if drop:
        evidence["osd_cache_drop"] = dropped = _each(
            osds, lambda osd: cluster.osd(osd, "cache drop")
        )
        data = "dropped" if dropped == f"{len(osds)} of {len(osds)}" else data
        metadata = "dropped" if data == "dropped" else metadata
        if filesystem is not None:
            evidence["mds_cache_drop"] = dropped = _drop_mds(cluster, filesystem)
            metadata = metadata if _whole(dropped) else "unknown"
    else:
        evidence["osd_cache_drop"] = "not asked for (drop_server_caches)"
    whole = data == metadata == "dropped"
    return evidence | {
        "server_caches": "dropped" if whole else "unknown",
        "server_data_caches": data,
        "server_metadata_caches": metadata,
    }


def _settings(cluster: Cluster, osds: list[int]) -> dict[str, list[str]]:
    """Each setting's values over the OSDs; a reason where they do not tell."""
    values_of: dict[str, set[str]] = {name: set() for name in _SETTINGS}

    def ask(osd: int) -> None:
        for name in _SETTINGS:
            values_of[name].add(str(cluster.osd(osd, "config get", var=name)[name]))

    done = _each(osds, ask)
    if not _whole(done):
        values_of = {name: values | {f"not known: {done}"} for name, values in values_of.items()}
    return {name: sorted(values) for name, values in values_of.items()}


def _drop_mds(cluster: Cluster, filesystem: str) -> str:
    names = facts.active_mdss(cluster, filesystem)
    return _each(names, lambda name: cluster.mds(name, "cache drop", timeout=RECALL))


def _each(items: list[Any], action: Callable[[Any], Any]) -> str:
    """Do it for each, some at once: "3 of 3", or "2 of 3: first error"."""
    first, done = "", 0
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for error in workers.map(lambda item: _attempt(action, item), items):
            done += not error
            first = first or error
    return f"{done} of {len(items)}" + (f": {first}" if first else "")


def _attempt(action: Callable[[Any], Any], item: Any) -> str:
    try:
        action(item)
    except BackendError as error:
        return str(error)
    return ""


def _whole(done: str) -> bool:
    """Whether `_each` did all of them, and there were some."""
    first, _, rest = done.partition(" of ")
    return first == rest and first != "0"
