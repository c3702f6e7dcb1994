"""CephFS at a path, as node leaders see it: mounted, revived, made cold, watched, unmounted.

Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
left in the client; otherwise the kernel's pages are dropped, and what ceph-fuse keeps is unknown
unless its object cache is off.  OSDs and MDSs: see caches.
"""

from __future__ import annotations

import os
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import CacheMethod, Evidence, Settled
from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.mounts import clients
from fsmatrix.backends.ceph.mounts.sessions import farewell
from fsmatrix.backends.ceph.oncephfs import OnCephfs, require_seen
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.ceph.state import caches
from fsmatrix.backends.ceph.state.health import Watch
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import fuse, mounting, provenance
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.mounts import Mount, mount_of, mounted_at

ENTRY = "cephfs-mount"  # kind of journal entry


class Attached(OnCephfs):
    """The node-side half of cephfs-fuse and cephfs-kernel."""

    access_type = PathAccess
    fstype: ClassVar[str]  # of a mount that the suite makes

    # -- what a subclass says ------------------------------------------------------------
    @classmethod
    @abstractmethod
    def mount_refusal(cls) -> str:
        """Why this kernel cannot mount it (empty: it can)."""

    @classmethod
    @abstractmethod
    def argv(cls, details: Mapping[str, Any]) -> list[str]:
        """The command that mounts it."""

    @classmethod
    @abstractmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Mount by that command; ToolError if that fails, with nothing left."""

    @classmethod
    @abstractmethod
    def client_of(cls, argv: Sequence[str]) -> Sequence[str]:
        """Arguments of the process that serves the mount; empty: the kernel does."""

    @classmethod
    @abstractmethod
    def keeps_data(cls, details: Mapping[str, Any]) -> bool:
        """Whether the client may keep data that are in no page of the kernel."""

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount the directory; one whose client has died is taken down first."""
        details = access.details
        if "tree" in details:
            return _require_marker(Path(details["tree"]), details)
        point = Path(details["point"])
        if cls._present(details) and not fuse.trouble(point):
            return None
        cls._take_down(details)
        mounting.make_point(point, journal)
        argv = cls.argv(details)
        os.environ.update(journal.identity.environment)  # a client inherits what proves it ours
        journal.end_all(ENTRY, path=str(point))
        entry = journal.begin(ENTRY, argv=argv, **cls._identity(details))
        try:
            cls.attach(argv, point)
        except ToolError as error:
            journal.end(entry)
            require_seen(Tree.of(details), details["host"])  # says more, where that is the reason
            raise BackendError(f"{socket.gethostname()}: {error}") from error
        return _require_marker(point, details)

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
    def _identity(cls, details: Mapping[str, Any]) -> dict[str, str]:
        """What a mount of ours is known by; for clients.is_ours and the journal."""
        own, source = Tree.of(details), str(details.get("source", ""))
        identity = {"fstype": cls.fstype, "source": source, "root": own.path}
        return {
            "path": str(details["point"]),
            "filesystem": own.filesystem,
            **identity,
            **own.login.facts,
        }

    @classmethod
    def _present(cls, details: Mapping[str, Any]) -> Mount | None:
        """The mount at our point; BackendError if something else is mounted there."""
        mount = mounted_at(details["point"])
        if mount is not None and not clients.is_ours(mount, cls._identity(details)):
            raise BackendError(f"{details['point']}: {mount.source} is mounted there, not ours")
        return mount

    @classmethod
    def _take_down(cls, details: Mapping[str, Any], force: bool = True) -> None:
        point = Path(details["point"])
        cls._present(details)
        try:
            in_order = fuse.detach(point, cls.client_of(cls.argv(details)), force)
        except OSError as error:
            raise mounting.not_unmounted(point, error) from error
        if not in_order:
            farewell(cls._identity(details))

    @classmethod
    def _revive(cls, access: Access) -> None:
        """Mount again what has died since; the journal's entry of the first time still holds."""
        details = access.details
        if "tree" in details:
            return
        point = Path(details["point"])
        trouble = fuse.trouble(point) if cls._present(details) else fuse.DIED
        if fuse.DIED in trouble:
            cls._take_down(details)
            cls.attach(cls.argv(details), point)
        elif trouble:
            raise BackendError(trouble)

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """As usual; a client that died in an earlier run is started anew first."""
        cls._revive(access)
        super().make_run(access, name, programs)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """As usual; a client that died in the run is started anew first."""
        cls._revive(access)
        super().remove_run(access, name)

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state: see the module."""
        root = Path(path_of(access))
        if state != "cold":
            return page_cache.bring(root, files, state)
        if "tree" not in access.details and method == "auto":
            return cls._remounted(access, files)
        return cls._dropped(access, files, method)

    @classmethod
    def _remounted(cls, access: Access, files: Sequence[str]) -> Evidence:
        details, began = access.details, time.monotonic()
        try:
            cls._take_down(details, force=False)
        except BackendError as busy:
            evidence = cls._dropped(access, files, "auto")
            client_facts = {**evidence.facts, "not_remounted": str(busy)}
            return Evidence(evidence.state, evidence.method, client_facts)
        servers = cls._servers(details)
        cls.attach(cls.argv(details), Path(details["point"]))
        client_facts = {
            "client_cache": "dropped by remount",
            "metadata_caches": "dropped",
            "seconds": time.monotonic() - began,
        }
        return Evidence("cold", "remount", {**client_facts, **servers})

    @classmethod
    def _dropped(cls, access: Access, files: Sequence[str], method: CacheMethod) -> Evidence:
        """The kernel's pages only; state unknown where the client may keep more."""
        evidence = page_cache.cold(Path(path_of(access)), files, method)
        kept = cls.keeps_data(access.details)
        client_facts = {"client_cache": "unknown" if kept else "none beside the kernel's"}
        if kept:
            client_facts["metadata_caches"] = "kept"
        servers = cls._servers(access.details)
        state = "unknown" if kept else evidence.state
        return Evidence(state, evidence.method, {**evidence.facts, **client_facts, **servers})

    @classmethod
    def _servers(cls, details: Mapping[str, Any]) -> dict[str, Any]:
        if not details["fsid"]:
            return {"server_caches": "unknown"}
        drop = details["drop_server_caches"]
        return caches.server_caches(Login.of(details), drop, details["filesystem"])

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Those of the network; all of its bytes where the OSDs' addresses are not known."""
        if not access.details["osd_addresses"]:
            return provenance.network_counters()
        return super().counters(access)

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The client of the mount, if it is a process, and what `Levelled` knows."""
        pids = super().workers(access)
        argv = cls.client_of(cls.argv(access.details)) if "point" in access.details else ()
        return pids + (fuse.processes(argv) if argv else [])

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back; then wait for placement groups and the purge queue."""
        client = provenance.settle(path_of(access), timeout)
        if not client.reached or not access.details["fsid"]:
            return client
        cluster = super().settle(access, timeout - client.seconds)
        seconds = client.seconds + cluster.seconds
        return Settled(cluster.reached, seconds, {**client.state, **cluster.state})

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """The mount has died, hangs or is read-only; what is wrong with the cluster."""
        details = access.details
        path = Path(details["tree"] if "tree" in details else details["point"])
        ailments = [fuse.trouble(path)]
        if "point" in details and mounted_at(path) is None:
            ailments = [f"nothing is mounted at {path}"]
        elif not ailments[0] and mount_of(path).read_only:
            ailments = [f"{path} has become read-only"]
        cluster = super().health(access) if details["fsid"] else []
        return [text for text in ailments if text] + cluster

    @classmethod
    def health_watch(cls, access: Access) -> Watch | None:
        """What the conductor asks while a step runs; None if the cluster cannot be reached."""
        return super().health_watch(access) if access.details["fsid"] else None


def _require_marker(folder: Path, details: Mapping[str, Any]) -> None:
    if tree.read_marker(folder) != details["tag"]:
        raise BackendError(
            f"{folder}: the directory made on host {details['host']} is not seen on "
            f"{socket.gethostname()}: is the same file system mounted there?"
        )
