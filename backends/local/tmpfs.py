"""tmpfs: memory, a declared reference and never a competitor."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from pydantic import field_validator

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.contract import (
    Availability,
    Backend,
    BackendOptions,
    CacheMethod,
    Evidence,
    ProvisionContext,
    Settled,
    Space,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal, tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import own_mounts, provenance
from fsmatrix.backends.local.provenance import memory_deployment, path_of
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, text
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.process import boot_id
from fsmatrix.results.units import PositiveSize, format_size

SHARED_MEMORY = "/dev/shm"


class TmpfsOptions(BackendOptions):
    """How large a new tmpfs is, or which existing one is used."""

    size: PositiveSize = 1 << 30  # of the mount, bytes
    path: str = ""  # an existing tmpfs instead of a mount; without root /dev/shm

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError(f"path must be absolute, not {value!r}")
        return value


class Tmpfs(Backend):
    """A mount of its own as root, else a directory on an existing tmpfs."""

    name = "tmpfs"
    Options = TmpfsOptions
    access_type = PathAccess
    network = False
    cache_states = frozenset({"warm"})
    reference = True

    @property
    def _chosen(self) -> TmpfsOptions:
        return cast(TmpfsOptions, self.options)

    @classmethod
    def check(cls) -> Availability:
        """Root that may mount, or a writable tmpfs at /dev/shm."""
        if not own_mounts.root_refusal() or not _path_refusal(SHARED_MEMORY):
            return Availability(True, f"kernel {os.uname().release}")
        return Availability(
            False, reason=f"{own_mounts.root_refusal()}; {_path_refusal(SHARED_MEMORY)}"
        )

    def refusal(self) -> str:
        """Larger than the memory, or the path is no tmpfs."""
        if self._existing:
            return _path_refusal(self._existing)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        size = self._chosen.size
        if size > memory:
            return f"size {format_size(size)} exceeds the memory, {format_size(memory, 1)}"
        return ""

    def unusable(self) -> str:
        """A tmpfs that is there can be had also where none can be mounted."""
        return self.refusal() if self._chosen.path else super().unusable()

    @property
    def _existing(self) -> str:
        if self._chosen.path or not own_mounts.root_refusal():
            return self._chosen.path
        return SHARED_MEMORY

    def provision(self, level: Level, context: ProvisionContext) -> PathAccess:
        """Choose the mount point, or make a directory on the existing tmpfs."""
        self.refuse_level(level)
        reason = self.refusal()
        if reason:
            raise BackendError(reason)
        details: dict[str, Json] = {"boot_id": boot_id(), "host": socket.gethostname()}
        if self._existing:
            folder = journal.make_tree(Path(self._existing).resolve(), context.tag, context.journal)
            path = folder / journal.DATA
            details |= {"tree": str(folder), "tag": context.tag}
        else:
            context.state.mkdir(parents=True, exist_ok=True)
            point = own_mounts.new_point(context.state, context.journal)
            path = point / journal.DATA
            details |= {
                "point": str(point),
                "source": f"fsmatrix-{context.tag}",
                "size": self._chosen.size,
            }
        return PathAccess(backend=self.name, target=context.target, path=str(path), details=details)

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Unmount if a crash left it mounted, or remove the directory."""
        self.unmount(access, context.journal)
        if "point" in access.details:
            own_mounts.remove_point(Path(text(access.details, "point")), context.journal)
        if "tree" in access.details:
            journal.release_tree(
                Path(text(access.details, "tree")), text(access.details, "tag"), context.journal
            )

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of the mount; it is memory."""
        facts = provenance.filesystem_facts(path_of(access))
        return facts | {"managed": "point" in access.details, "memory": True}

    def deployment(self, described: JsonObject) -> Deployment:
        """In memory."""
        return memory_deployment(described)

    def space(self, access: Access | None = None) -> Space:
        """Of the mount, else its size."""
        if access is not None:
            return provenance.space(path_of(access))
        if self._existing:
            return provenance.space(self._existing)
        return Space(self._chosen.size, None, "size of the mount")

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount with the size; memory is of this kernel alone."""
        details = access.details
        if details["boot_id"] != boot_id():
            raise BackendError(
                f"tmpfs of target {access.target} is memory of host {details['host']}: it cannot "
                f"be reached from {socket.gethostname()}"
            )
        if "point" in details:
            point, options = Path(text(details, "point")), f"size={details['size']}"
            own_mounts.mount_at(journal, "tmpfs", text(details, "source"), point, options)

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Unmount; what was in it is gone."""
        if "point" in access.details:
            point = Path(text(access.details, "point"))
            own_mounts.unmount_at(journal, text(access.details, "source"), point)

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Files are memory always; `warm` reads them once (they may have been swapped out)."""
        del method
        if state not in cls.cache_states:
            raise BackendError(f"tmpfs is memory: cache state {state} does not exist, only warm")
        evidence = page_cache.warm(Path(path_of(access)), files)
        return Evidence("memory", evidence.method, evidence.facts)

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """None: there is no device."""
        del access
        return {}

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Nothing is ever written back; other file systems of the kernel may be."""
        return provenance.settle(path_of(access), timeout)


def _path_refusal(path: str) -> str:
    place = Path(path)
    if not place.is_dir():
        return f"{path} does not exist or is no directory"
    fstype = mount_of(place).fstype
    if fstype != "tmpfs":
        return f"{path} is {fstype}, not tmpfs"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{path} is not writable"
    return shared_refusal(place) or tree.inside_refusal(place)
