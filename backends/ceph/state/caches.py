"""Caches on the servers of a Ceph cluster: what can be dropped, and what is known.

OSDs: BlueStore keeps what it reads only with bluestore_default_buffered_read, and what it writes
only with bluestore_default_buffered_write; `cache drop` empties the rest (data and onodes).  MDSs:
`cache drop` recalls capabilities, flushes the journal and trims the cache.  Below BlueStore, the
page cache of the OSD's host serves RocksDB where bluefs_buffered_io is on; devices have caches of
their own.  Neither is seen from here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsmatrix.backends.base import Evidence
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, text

RECALL = 3  # seconds that other clients get to give capabilities back
AT_ONCE = 8
_SETTINGS = ("bluestore_default_buffered_read", "bluestore_default_buffered_write")


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
