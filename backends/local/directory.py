"""Any existing directory: the way to a file system that somebody else mounted."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from pydantic import Field, field_validator

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    Backend,
    BackendOptions,
    CacheMethod,
    Evidence,
    Foreseen,
    ProvisionContext,
    Settled,
    Space,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal, tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import provenance, underneath
from fsmatrix.backends.local.provenance import local_deployment, network_deployment, path_of
from fsmatrix.backends.system import devices
from fsmatrix.backends.system.files import expand, wrong_path
from fsmatrix.backends.system.mounts import Mount, mount_of
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, text
from fsmatrix.results.evidence.target import Deployment


class DirectoryOptions(BackendOptions):
    """Which directory is used, and what it must be on."""

    path: str  # absolute, or with ~, $HOME, $SCRATCH, variables of its node ($TMPDIR: or /tmp)
    expect_mount: bool = False  # refuse a path on the root file system
    expect_fs: str = ""  # refuse another type of file system: "lustre", "nfs", "xfs"
    shared_place: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="root, where others may rename what is above the path; accept: with the "
        "built-in player alone",
    )

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if reason := wrong_path(value):
            raise ValueError(reason)
        return value


class Directory(Backend):
    """A directory of ours, `fsmatrix-<tag>`, inside a given one."""

    name = "directory"
    Options = DirectoryOptions
    access_type = PathAccess
    network = False

    @property
    def _chosen(self) -> DirectoryOptions:
        return cast(DirectoryOptions, self.options)

    @classmethod
    def check(cls) -> Availability:
        """Always usable; each path is looked at by `refusal`."""
        return Availability(True, f"kernel {os.uname().release}")

    def refusal(self) -> str:
        """Why nothing may be written there."""
        written = self._chosen.path
        try:
            reason = place_refusal(expand(written))
            if not reason and not self._shared:
                reason = shared_refusal(expand(written, follow=False))
            return reason or self._unexpected()
        except BackendError as error:
            return str(error)

    @property
    def _shared(self) -> bool:
        """Whether others may rename above it, and root works there all the same."""
        return self._chosen.shared_place == "accept" and os.geteuid() == 0

    def engine_refusal(self, level: Level, engine: str, program: str = "") -> str:
        """Programs are given paths, which others may lead elsewhere."""
        del level, program
        if engine == "player" or not self._shared:
            return ""
        return (
            f"shared_place: accept is for the built-in player, which holds its directory open; "
            f"{engine} opens paths, and others could lead root's elsewhere"
        )

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Its place."""
        return replace(super().foreseen(level), places=(self._chosen.path,))

    def _unexpected(self) -> str:
        path = expand(self._chosen.path)
        mount = mount_of(path)
        if self._chosen.expect_mount and mount.point == "/":
            return (
                f"{path} is on the root file system ({mount.fstype}), and a mount was promised "
                "(expect_mount): is the file system mounted?"
            )
        expected = self._chosen.expect_fs
        client = underneath.recognise_at(str(path), mount)
        names = {mount.fstype, client.name if client else mount.fstype}
        if expected and expected not in names:
            return f"{path} is {mount.fstype}, mounted at {mount.point}, not {expected} (expect_fs)"
        return f"{mount.point} is mounted read-only" if mount.read_only else ""

    def provision(self, level: Level, context: ProvisionContext) -> PathAccess:
        """Make our own tree in the directory."""
        self.refuse_level(level)
        reason = self.refusal()
        if reason:
            raise BackendError(reason)
        folder = journal.make_tree(
            expand(self._chosen.path).resolve(), context.tag, context.journal
        )
        if self._shared:
            tree.held(str(folder), context.tag)  # until it is released
        return PathAccess(
            backend=self.name,
            target=context.target,
            path=str(folder / journal.DATA),
            details={
                **{"tree": str(folder), "tag": context.tag, "host": socket.gethostname()},
                "shared_place": self._shared,
            },
        )

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Remove our own tree and nothing else."""
        journal.release_tree(
            Path(text(access.details, "tree")), text(access.details, "tag"), context.journal
        )

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of the file system, and what a network file system's own tools tell."""
        path = path_of(access)
        mount = mount_of(path)
        place = str(Path(text(access.details, "tree")).parent)
        facts = provenance.filesystem_facts(path) | {
            **{"managed": False, "path_written": self._chosen.path, "path": place},
        }
        client = underneath.recognise_at(path, mount)
        return facts | (underneath.client_facts(client, path, mount) if client else {})

    def deployment(self, described: JsonObject) -> Deployment:
        """Of a local or a network file system, as it was found."""
        if not described:
            return Deployment()
        of_mount = network_deployment if "network_filesystem" in described else local_deployment
        return of_mount(described)

    def space(self, access: Access | None = None) -> Space:
        """By statfs and the user's quota."""
        return provenance.space(path_of(access)) if access else space_of(self._chosen.path)

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this kernel sees the very tree that the conductor made."""
        del journal
        folder = Path(text(access.details, "tree"))
        host = socket.gethostname()
        if tree.read_marker(folder) != access.details["tag"]:
            raise BackendError(
                f"{folder}, made on host {access.details['host']}, is not seen on {host}: is the "
                "same file system mounted there?"
            )
        if access.details.get("shared_place"):
            tree.reached(str(folder), access.details)
        elif reason := shared_refusal(folder):
            raise BackendError(f"{reason} (on {host})")

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Of this kernel; what servers keep in memory stays."""
        root = path_of(access)
        reached = Path(tree.reached(root, access.details))
        evidence = page_cache.bring(reached, files, state, method)
        servers = "unknown" if underneath.recognise_at(root, mount_of(root)) else "none"
        facts = {**evidence.facts, "server_caches": servers}
        return Evidence(evidence.state, evidence.method, facts)

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Of the devices below, or of the network for a network file system."""
        mount = mount_of(path_of(access))
        if underneath.recognise_at(path_of(access), mount):
            return provenance.network_counters()
        return provenance.device_counters(devices.devices_of(mount))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back and wait until this kernel's devices are quiet; servers are not seen."""
        return provenance.settle(path_of(access), timeout)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """The tree has gone, or its mount has become read-only."""
        if not Path(path_of(access)).is_dir():
            return [f"{path_of(access)} has gone"]
        mount: Mount = mount_of(path_of(access))
        return [f"{mount.point} has become read-only"] if mount.read_only else []


def space_of(path: str) -> Space:
    """Of a path as it was written; unknown where one of its variables is not set."""
    try:
        return provenance.space(expand(path))
    except BackendError:
        return Space(None, None, "unknown")


def place_refusal(path: Path) -> str:
    """Why the suite does not make a directory in `path` (empty: it may)."""
    try:
        if path.is_symlink():
            return f"{path} is a symbolic link to {path.resolve()}: name that path itself"
        if not path.exists():
            return f"{path} does not exist"
        if not path.is_dir():
            return f"{path} is a file, not a directory"
    except (OSError, RuntimeError) as error:
        return f"{path} cannot be looked at: {error}"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"{path} is not writable for user {os.geteuid()}"
    return tree.inside_refusal(path)
