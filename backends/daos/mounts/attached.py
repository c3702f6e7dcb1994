"""DFUSE as node leaders see it: mounted, revived, made cold, watched, unmounted.

Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
left in the client; of a mount that is found the kernel's pages are dropped, and its names and
attributes stay.  dfuse itself keeps data only of files that are open.  Where caching is disabled
nothing is ever kept, so that `cold` and `bypass` hold and `warm` does not exist.  A program that
is intercepted reads from the servers whatever the kernel has: there is no `warm` either.  The
servers' caches are not emptied; the evidence says so.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import CacheMethod, Evidence, Settled
from fsmatrix.backends.daos.mounts import interception, program
from fsmatrix.backends.daos.mounts.options import DIRECT_IO_OFF, FOUND
from fsmatrix.backends.daos.ondaos import OnDaos, require_seen
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal import owned_dirs, tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import fuse, mounting, provenance
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.mounts import Mount, mounted_at
from fsmatrix.backends.system.removal import remove_tree
from fsmatrix.results.evidence.evidence import Interception

ENTRY = "dfuse-mount"  # kind of journal entry
MEMORY = 20.0  # seconds: names and attributes are remembered for up to 5 s, and servers are slow


class DfuseNode(OnDaos):
    """The node-side half of daos-dfuse."""

    access_type = PathAccess

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount the container; a mount whose client has died or hangs is taken down first."""
        details = access.details
        _require_library(access)
        if "tree" in details:
            return _require_tree(details)
        point = Path(details["point"])
        if cls._present(details) and not fuse.trouble(point, servers=True):
            return None
        require_seen(access)  # dfuse says less of why, where the container is not there
        cls._take_down(details)
        mounting.make_point(point, journal)
        argv = program.argv(details)
        os.environ.update(journal.identity.environment)  # a client inherits what proves it ours
        journal.end_all(ENTRY, path=str(point))
        entry = journal.begin(ENTRY, path=str(point), argv=argv)
        try:
            program.start(argv, point)
        except ToolError as error:
            journal.end(entry)
            raise BackendError(f"{socket.gethostname()}: {error}") from error
        if details["own"]:
            (point / owned_dirs.DATA).mkdir(exist_ok=True)
        return None

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Unmount, and see the client end."""
        if "tree" in access.details:
            return
        point = Path(access.details["point"])
        cls._take_down(access.details)
        journal.end_all(ENTRY, path=str(point))
        mounting.remove_made_point(point, journal)

    @classmethod
    def _present(cls, details: Mapping[str, Any]) -> Mount | None:
        """The mount at our point; BackendError if something else is mounted there."""
        mount = mounted_at(details["point"])
        if mount is not None and not program.is_dfuse(mount):
            raise BackendError(f"{details['point']}: {mount.source} is mounted there, not DFUSE")
        return mount

    @classmethod
    def _take_down(cls, details: Mapping[str, Any], force: bool = True) -> None:
        point = Path(details["point"])
        cls._present(details)
        try:
            fuse.detach(point, program.argv(details), force)
        except OSError as error:
            raise mounting.not_unmounted(point, error) from error

    @classmethod
    def _answering(cls, access: Access) -> None:
        """See the mount answer; one whose client has died is mounted again.

        The journal's entry of the first time still holds.  BackendError if it hangs.
        """
        details = access.details
        point = Path(details["tree"] if "tree" in details else details["point"])
        if "point" in details and cls._present(details) is None:
            trouble = fuse.DIED
        else:
            trouble = fuse.trouble(point, servers=True)
        if "point" in details and fuse.DIED in trouble:
            cls._take_down(details)
            program.start(program.argv(details), point)
        elif trouble:
            raise BackendError(trouble)

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """As usual; a client that died in an earlier run is started anew first."""
        cls._answering(access)
        super().make_run(access, name, programs)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """As usual; a client that died in the run is started anew first."""
        cls._answering(access)
        remove_tree(Path(path_of(access)) / name, MEMORY)

    # -- caches ------------------------------------------------------------------------
    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state: see the module."""
        cls._answering(access)
        evidence = cls._made(access, state, files, method)
        facts = {"caching": access.details["caching"], **evidence.facts, "server_caches": "unknown"}
        reached = evidence.state if not _pointless(access.details, state) else "unknown"
        return Evidence(reached, evidence.method, facts | _around(access.details))

    @classmethod
    def _made(
        cls, access: Access, state: str, files: Sequence[str], method: CacheMethod
    ) -> Evidence:
        if access.details["caching"] == "disabled":
            if state not in cls.cache_states:
                raise BackendError(f"unknown cache state {state!r}")
            nothing = {"client_cache": "none", "metadata_caches": "none"}
            return Evidence(state, "none", nothing)
        if state == "cold" and "point" in access.details and method == "auto":
            return cls._remounted(access, files)
        evidence = page_cache.bring(Path(path_of(access)), files, state, method)
        beside = {"client_cache": "none beside the kernel's"}
        return Evidence(evidence.state, evidence.method, {**evidence.facts, **beside})

    @classmethod
    def _remounted(cls, access: Access, files: Sequence[str]) -> Evidence:
        details, began = access.details, time.monotonic()
        try:
            cls._take_down(details, force=False)
        except BackendError as busy:
            evidence = page_cache.cold(Path(path_of(access)), files)
            return Evidence(
                evidence.state, evidence.method, {**evidence.facts, "not_remounted": str(busy)}
            )
        program.start(program.argv(details), Path(details["point"]))
        facts = {
            "client_cache": "dropped by remount",
            "metadata_caches": "dropped",
            "seconds": time.monotonic() - began,
        }
        return Evidence("cold", "remount", facts)

    # -- what it does ------------------------------------------------------------------
    @classmethod
    def environment(cls, access: Access) -> dict[str, str]:
        """LD_PRELOAD with the library that goes around the kernel, if there is one."""
        return interception.environment(access.details["interception"], access.preloaded)

    @classmethod
    def intercepted(cls, access: Access, texts: Iterable[str]) -> Interception | None:
        """What the library says that it took over."""
        kind = access.details["interception"]
        return None if kind == interception.NONE else interception.counted(kind, texts)

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The dfuse of the mount, and servers that run here."""
        servers = super().workers(access)
        if "point" in access.details:
            return servers + fuse.processes(program.argv(access.details))
        return servers + list(program.servers_of(access.details["found"]))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back; then wait as every backend on DAOS does."""
        began = time.monotonic()
        try:
            cls._answering(access)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        client = provenance.settle(path_of(access), timeout - (time.monotonic() - began))
        if not client.reached or "tree" in access.details:
            return client
        cluster = super().settle(access, timeout - (time.monotonic() - began))
        seconds = time.monotonic() - began
        return Settled(cluster.reached, seconds, {**client.state, **cluster.state})

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """The mount has died or hangs; what is wrong with the pool."""
        details = access.details
        if "tree" in details:
            trouble = fuse.trouble(Path(details["tree"]), servers=True)
            return [trouble] if trouble else []
        point = Path(details["point"])
        if mounted_at(point) is None:
            trouble = f"nothing is mounted at {point}"
        else:
            trouble = fuse.trouble(point, servers=True)
        return [*([trouble] if trouble else []), *super().health(access)]


def _require_library(access: Access) -> None:
    """BackendError if this node would not put the library into programs."""
    if access.preloaded and (reason := interception.distrust(access.preloaded)):
        raise BackendError(f"{socket.gethostname()}: interception: {reason}")


def _require_tree(details: Mapping[str, Any]) -> None:
    folder = Path(details["tree"])
    if trouble := fuse.trouble(folder, servers=True):
        raise BackendError(f"{socket.gethostname()}: {trouble}")
    if tree.read_marker(folder) != details["tag"]:
        raise BackendError(
            f"{folder}: the directory made on host {details['host']} is not seen on "
            f"{socket.gethostname()}: is the same container mounted there?"
        )


def _pointless(details: Mapping[str, Any], state: str) -> bool:
    """Whether the state does not exist, or cannot be shown, as the mount is used."""
    around = bool(details["interception"] != interception.NONE)
    if state == "warm":
        return around or details["caching"] == "disabled"
    direct = details["attributes"].get(DIRECT_IO_OFF) != "on"
    return state == "bypass" and not (around or direct)


def _around(details: Mapping[str, Any]) -> dict[str, str]:
    """What else the evidence says of reads that do not come from the kernel, or may."""
    kind = details["interception"]
    if kind != interception.NONE:
        return {"reads": f"by lib{kind} from the servers, around the kernel's caches"}
    return {"o_direct": "as the mount was made"} if details["caching"] == FOUND else {}
