"""A mount of the suite's that a client serves, a program or the kernel: its life on one node.

It is mounted with a journal entry, looked at before each run, mounted again when its client has
died, and taken down.  Accesses of it have `point` in their details; those without work on a mount
that is somebody else's, which is left as it is.
"""

from __future__ import annotations

import os
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import Backend, CacheMethod, Evidence
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local.mounts import fuse, mounting
from fsmatrix.backends.system.mounts import Mount, mounted_at
from fsmatrix.results.evidence.values import Json, JsonObject, text


class ClientMount(Backend):
    """The node-side half of backends whose mounts have clients; see the module."""

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
        return fuse.trouble(path, servers=cls.asks_servers)

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
        mounting.make_point(point, journal)
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
        mounting.remove_made_point(point, journal)

    @classmethod
    def take_down(cls, details: JsonObject, force: bool = True) -> None:
        """Unmount what is ours; BackendError if it is in use (with `force`: even after that)."""
        point = Path(text(details, "point"))
        cls.present(details)
        try:
            in_order = fuse.detach(point, cls.client_of(cls.argv(details)), force)
        except OSError as error:
            raise mounting.not_unmounted(point, error) from error
        if not in_order:
            cls.unclean(details)

    @classmethod
    def revive(cls, access: Access) -> None:
        """Mount again what has died since; the journal's entry of the first time still holds.

        BackendError if it hangs.
        """
        details = access.details
        if "point" not in details:
            return
        point = Path(text(details, "point"))
        trouble = cls.trouble(point) if cls.present(details) else fuse.DIED
        if fuse.DIED in trouble:
            cls.take_down(details)
            cls.attach(cls.argv(details), point)
        elif trouble:
            raise BackendError(trouble)

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
