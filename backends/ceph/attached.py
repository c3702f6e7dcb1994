"""CephFS at a path, as node leaders see it: mounted, revived, made cold, watched, unmounted.

Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
left in the client; otherwise the kernel's pages are dropped, and what ceph-fuse keeps is unknown
unless its object cache is off.  OSDs and MDSs: see caches.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access
from fsmatrix.backends.base import CacheMethod, Evidence, Settled
from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.mounts import clients
from fsmatrix.backends.ceph.mounts.clients import Mounted
from fsmatrix.backends.ceph.mounts.sessions import farewell
from fsmatrix.backends.ceph.oncephfs import OnCephfs, require_seen
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.ceph.state import caches
from fsmatrix.backends.ceph.state.health import Watch
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import provenance
from fsmatrix.backends.local.mounts import fuse
from fsmatrix.backends.local.mounts.client_mount import ClientMount, require_marker
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.mounts import Mount, mount_of, mounted_at
from fsmatrix.results.evidence.values import Json, JsonObject, text

FILE_SYSTEM = "file system"


class Attached(ClientMount, OnCephfs):
    """The node-side half of cephfs-fuse and cephfs-kernel."""

    entry = "cephfs-mount"
    fstype: ClassVar[str]  # of a mount that the suite makes

    # -- what a subclass says ------------------------------------------------------------
    @classmethod
    @abstractmethod
    def mount_refusal(cls) -> str:
        """Why this kernel cannot mount it (empty: it can)."""

    @classmethod
    @abstractmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Whether the client may keep data that are in no page of the kernel."""

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount the directory; one whose client has died is taken down first."""
        details = access.details
        if "tree" in details:
            return require_marker(Path(text(details, "tree")), details, FILE_SYSTEM)
        if cls.answers(details):
            return None
        try:
            cls.begin(details, journal)
        except ToolError as error:
            require_seen(
                Tree.of(details), text(details, "host")
            )  # says more, where that is the reason
            raise BackendError(f"{socket.gethostname()}: {error}") from error
        return require_marker(Path(text(details, "point")), details, FILE_SYSTEM)

    @classmethod
    def identity(cls, details: JsonObject) -> dict[str, Json]:
        """All of `mounted`."""
        return cls.mounted(details).document()

    @classmethod
    def mounted(cls, details: JsonObject) -> Mounted:
        """What a mount of ours is known by."""
        own = Tree.of(details)
        return Mounted(
            path=text(details, "point"),
            filesystem=own.filesystem,
            fstype=cls.fstype,
            source=str(details.get("source", "")),
            root=own.path,
            conf=own.login.conf,
            user=own.login.user,
            keyring=own.login.keyring,
        )

    @classmethod
    def is_ours(cls, mount: Mount, details: JsonObject) -> bool:
        """By type, source and root."""
        return clients.is_ours(mount, cls.mounted(details))

    @classmethod
    def unclean(cls, details: JsonObject) -> None:
        """Its session is ended at the MDSs."""
        farewell(cls.mounted(details))

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state: see the module."""
        root = Path(path_of(access))
        if state != "cold":
            return page_cache.bring(root, files, state)
        if "tree" not in access.details and method != "fadvise":
            return cls.remounted(access, files)
        return cls.dropped(access, files, method)

    @classmethod
    def while_unmounted(cls, details: JsonObject) -> dict[str, Json]:
        """The servers' caches, as the options say."""
        return cls._servers(details)

    @classmethod
    def dropped(cls, access: Access, files: Sequence[str], method: CacheMethod) -> Evidence:
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
    def _servers(cls, details: JsonObject) -> dict[str, Json]:
        if not details["fsid"]:
            return {"server_caches": "unknown"}
        drop = bool(details["drop_server_caches"])
        return caches.server_caches(Login.of(details), drop, text(details, "filesystem"))

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
        path = Path(text(details, "tree") if "tree" in details else text(details, "point"))
        ailments = [fuse.trouble(path)]
        if "point" in details and mounted_at(path) is None:
            ailments = [f"nothing is mounted at {path}"]
        elif not ailments[0] and mount_of(path).read_only:
            ailments = [f"{path} has become read-only"]
        cluster = super().health(access) if details["fsid"] else []
        return [text for text in ailments if text] + cluster

    @classmethod
    def responds(cls, access: Access) -> list[str]:
        """The same as of every way to a cluster, where that can be asked."""
        return super().responds(access) if access.details["fsid"] else cls.health(access)

    @classmethod
    def health_watch(cls, access: Access) -> Watch | None:
        """What the conductor asks while a step runs; None if the cluster cannot be reached."""
        return super().health_watch(access) if access.details["fsid"] else None
