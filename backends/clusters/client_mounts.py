"""Mounts of a cluster that the suite makes on each node, and proof and undoing of what is left.

On each node such a mount is made with a journal entry, looked at before each run, made again when
its client has died, and taken down.  Accesses of it have `point` in their details; those with
`tree` work on a mount that is somebody else's, which is left as it is.
"""

from __future__ import annotations

import os
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.clusters.levels import ClusterBackend
from fsmatrix.backends.contract import CacheMethod, Evidence, ProvisionContext, Settled
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal import proof, tree
from fsmatrix.backends.journal.journal import Journal, release_tree
from fsmatrix.backends.journal.proof import Facts, Kind, NotProvenOurs, OwnershipScope, Stage
from fsmatrix.backends.local import own_mounts, provenance
from fsmatrix.backends.local.own_mounts import DIED
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.mounts import Mount, mounted_at
from fsmatrix.results.evidence.stored import Json, JsonObject, StoredError, text


def place_of(details: JsonObject) -> str:
    """Where it is mounted; in a mount that is found, the directory of ours."""
    return text(details, "tree" if "tree" in details else "point")


class ClientMount(ClusterBackend):
    """The node-side half of backends whose mounts have clients."""

    access_type = PathAccess
    entry: ClassVar[str]  # kind of the mount's journal entry
    expected: ClassVar[str] = "ours"  # what must be mounted at our point, in a message
    asks_servers: ClassVar[bool] = False  # a look asks them, and not only the client

    # -- what a subclass says ------------------------------------------------------------
    @classmethod
    @abstractmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """The command that mounts it."""

    @classmethod
    @abstractmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Mount by that command; ToolError if that fails, with nothing left."""

    @classmethod
    @abstractmethod
    def is_ours(cls, mount: Mount, details: JsonObject) -> bool:
        """Whether it is the mount that `argv` makes."""

    @classmethod
    def client_of(cls, argv: Sequence[str]) -> Sequence[str]:
        """Arguments of the process that serves the mount; empty: the kernel does."""
        return argv

    @classmethod
    def identity(cls, details: JsonObject) -> dict[str, Json]:
        """What the mount is known by, beside `argv`, in the journal."""
        return {"path": str(details["point"])}

    @classmethod
    @abstractmethod
    def knows_cluster(cls, details: JsonObject) -> bool:
        """Whether its cluster can be asked."""

    @classmethod
    def unclean(cls, details: JsonObject) -> None:
        """Its client ended without taking its leave of the servers."""
        del details

    @classmethod
    @abstractmethod
    def dropped(cls, access: Access, files: Sequence[str], method: CacheMethod) -> Evidence:
        """Drop what the kernel keeps of `files`, while it stays mounted."""

    @classmethod
    def while_unmounted(cls, details: JsonObject) -> dict[str, Json]:
        """What else is done for a cold cache, and facts of it."""
        del details
        return {}

    # -- its life ------------------------------------------------------------------------
    @classmethod
    def answers(cls, details: JsonObject) -> bool:
        """Whether our mount is there and its client answers."""
        return bool(cls.present(details)) and not cls.trouble(Path(text(details, "point")))

    @classmethod
    def trouble(cls, path: Path) -> str:
        """Why a mount does not answer (empty: it does)."""
        return own_mounts.mount_trouble(path, servers=cls.asks_servers)

    @classmethod
    def present(cls, details: JsonObject) -> Mount | None:
        """The mount at our point; BackendError if something else is mounted there."""
        mount = mounted_at(text(details, "point"))
        if mount is not None and not cls.is_ours(mount, details):
            raise BackendError(
                f"{details['point']}: {mount.source} is mounted there, not {cls.expected}"
            )
        return mount

    @classmethod
    def begin(cls, details: JsonObject, journal: Journal) -> None:
        """Mount it, journalled, after what is left of an earlier one; ToolError if that fails."""
        point = Path(text(details, "point"))
        cls.take_down(details)
        own_mounts.make_point(point, journal)
        argv = cls.argv(details)
        os.environ.update(journal.identity.environment)  # a client inherits what proves it ours
        journal.end_all(cls.entry, path=str(point))
        entry = journal.begin(cls.entry, argv=argv, **cls.identity(details))
        try:
            cls.attach(argv, point)
        except ToolError:
            journal.end(entry)
            raise

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Unmount, and see the client end."""
        if "point" not in access.details:
            return
        point = Path(text(access.details, "point"))
        cls.take_down(access.details)
        journal.end_all(cls.entry, path=str(point))
        own_mounts.remove_made_point(point, journal)

    @classmethod
    def take_down(cls, details: JsonObject, force: bool = True) -> None:
        """Unmount what is ours; BackendError if it is in use (with `force`: even after that)."""
        point = Path(text(details, "point"))
        cls.present(details)
        try:
            in_order = own_mounts.detach_mount(point, cls.client_of(cls.argv(details)), force)
        except OSError as error:
            raise own_mounts.not_unmounted(point, error) from error
        if not in_order:
            cls.unclean(details)

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Unmount if a crash left it mounted, and remove what was made; or our directory."""
        details = access.details
        if "tree" in details:
            folder, tag = Path(text(details, "tree")), text(details, "tag")
            return release_tree(folder, tag, context.journal)
        self.unmount(access, context.journal)
        own_mounts.remove_point(Path(text(details, "point")), context.journal)
        return super()._detach(access, context)

    @classmethod
    def revive(cls, access: Access) -> None:
        """Mount again what has died since; the journal's entry of the first time still holds.

        BackendError if it hangs.
        """
        details = access.details
        if "point" not in details:
            return
        point = Path(text(details, "point"))
        trouble = cls.trouble(point) if cls.present(details) else DIED
        if DIED in trouble:
            cls.take_down(details)
            cls.attach(cls.argv(details), point)
        elif trouble:
            raise BackendError(trouble)

    @classmethod
    def ailment(cls, details: JsonObject) -> str:
        """What is wrong with the mount, ours or found (empty: nothing known)."""
        path = Path(place_of(details))
        if "point" in details and mounted_at(path) is None:
            return f"nothing is mounted at {path}"
        return cls.trouble(path)

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """What works for the cluster here, and the client of a mount of ours."""
        argv = cls.client_of(cls.argv(access.details)) if "point" in access.details else ()
        return super().workers(access) + (own_mounts.client_processes(argv) if argv else [])

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with the mount; and with the cluster, where it can be asked."""
        ailment = cls.ailment(access.details)
        cluster = super().health(access) if cls.knows_cluster(access.details) else []
        return [*([ailment] if ailment else []), *cluster]

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back; then wait for the cluster, where it can be asked."""
        client = provenance.settle(path_of(access), timeout)
        if not client.reached or not cls.knows_cluster(access.details):
            return client
        cluster = super().settle(access, timeout - client.seconds)
        seconds = client.seconds + cluster.seconds
        return Settled(cluster.reached, seconds, {**client.state, **cluster.state})

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """As usual; a client that died in an earlier run is started anew first."""
        cls.revive(access)
        super().make_run(access, name, programs)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """As usual; a client that died in the run is started anew first."""
        cls.revive(access)
        super().remove_run(access, name)

    @classmethod
    def remounted(cls, access: Access, files: Sequence[str]) -> Evidence:
        """Cold by a new mount; where it is in use, by dropping what the kernel keeps."""
        details, began = access.details, time.monotonic()
        try:
            cls.take_down(details, force=False)
        except BackendError as busy:
            evidence = cls.dropped(access, files, "auto")
            facts = {**evidence.facts, "not_remounted": str(busy)}
            return Evidence(evidence.state, evidence.method, facts)
        beside = cls.while_unmounted(details)
        cls.attach(cls.argv(details), Path(text(details, "point")))
        facts = {
            "client_cache": "dropped by remount",
            "metadata_caches": "dropped",
            "seconds": time.monotonic() - began,
        }
        return Evidence("cold", "remount", {**facts, **beside})


def require_marker(folder: Path, details: JsonObject, what: str) -> None:
    """BackendError if this node does not see the directory that was made in a found mount.

    `what`: that has to be mounted here too, in the message.
    """
    if tree.read_marker(folder) != details["tag"]:
        raise BackendError(
            f"{folder}: the directory made on host {details['host']} is not seen on "
            f"{socket.gethostname()}: is the same {what} mounted there?"
        )


# What a crash left of such mounts, as journal entries tell of it.


@dataclass(frozen=True)
class Recorded:
    """A mount of ours, from its journal entry."""

    point: Path
    client: Sequence[str]  # arguments of the process that serves it; empty: the kernel does
    is_ours: Callable[[Mount], bool]
    unclean: Callable[[], None] = lambda: None  # its client took no leave of the servers


def kind_of(expected: str, recorded: Callable[[Facts], Recorded]) -> Kind:
    """At a mount point of ours, and its client carries our proof in its environment.

    It is unmounted, and the client with the recorded arguments is ended.  `expected`: what must
    be mounted there, in a message.
    """

    def prove(facts: Facts, ground: OwnershipScope) -> None:
        try:
            own = recorded(facts)
        except StoredError as error:
            raise NotProvenOurs(str(error)) from error
        if not ground.holds(own.point) or not proof.POINT.fullmatch(own.point.name):
            raise NotProvenOurs(
                f"{own.point} is no mount point of this results directory: not unmounted"
            )
        for pid in own_mounts.client_processes(own.client):
            if not proof.carries(pid, ground.identity.store):
                raise NotProvenOurs(f"process {pid} is not of this results directory: not ended")

    def undo(facts: Facts, same_boot: bool) -> str:
        if not same_boot:
            return ""
        own = recorded(facts)
        mount = mounted_at(own.point)
        if mount is not None and not own.is_ours(mount):
            raise NotProvenOurs(f"{own.point}: {mount.source} is mounted there, not {expected}")
        if mount is None and not own_mounts.client_processes(own.client):
            return ""
        try:
            in_order = own_mounts.detach_mount(own.point, own.client)
        except OSError as error:
            raise proof.not_unmounted(str(own.point), error) from error
        if not in_order:
            own.unclean()
        return f"unmounted {own.point}"

    return Kind(Stage.NETWORK_MOUNT, prove, undo, ends_with_boot=True)
