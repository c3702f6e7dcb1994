"""CephFS at a path: mounted by the suite for itself, or found mounted.

Mounted by the suite: the conductor makes a directory `fsmatrix-<tag>` in the file system through
libcephfs, and each kernel mounts that very directory, so that nothing else of the file system is
even reachable.  Found mounted (option `path`): the directory is made through the mount, which stays
as it is; the cluster is asked only if it can be reached as the options say.
"""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, cast

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import ProvisionContext, Space, Usable
from fsmatrix.backends.ceph.attached import Attached
from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.oncephfs import ceph_facts, cluster_details, library_refusal
from fsmatrix.backends.ceph.options import LAYOUT, MountedOptions
from fsmatrix.backends.ceph.places import own
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.errors import BackendError, value_or_error
from fsmatrix.backends.journal import owned_dirs
from fsmatrix.backends.local import provenance
from fsmatrix.backends.local.directory import place_refusal
from fsmatrix.backends.local.mounts import mounting
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.files.trusted import shared_refusal
from fsmatrix.backends.system.mounts import mount_of, mounts
from fsmatrix.results.evidence.values import Json, JsonObject, text


class CephfsMounted(Attached):
    """Base of cephfs-fuse and cephfs-kernel."""

    fstypes: ClassVar[frozenset[str]]  # of a mount that is found

    @property
    def _chosen(self) -> MountedOptions:
        return cast(MountedOptions, self.options)

    @classmethod
    @abstractmethod
    def mount_refusal(cls) -> str:
        """Why this kernel cannot mount it (empty: it can)."""

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """What the client that mounts says of its version."""

    @abstractmethod
    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """What `argv` needs of the options; into the access's details."""

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Usable:
        """It can be mounted, or one is mounted already."""
        reason = cls.mount_refusal() or library_refusal()
        if reason and any(mount.fstype in cls.fstypes for mount in mounts()):
            return Usable(True, f"found mounted only ({reason})")
        return Usable(False, reason=reason) if reason else Usable(True, cls.version())

    def refusal(self) -> str:
        """Why these options cannot work here."""
        path = self._chosen.path
        if path:
            where = Path(path)
            return place_refusal(where) or shared_refusal(where) or self._other_mount(where)
        return self.mount_refusal() or library_refusal() or own.refusal(self._chosen)

    def _other_mount(self, path: Path) -> str:
        mount = mount_of(path)
        if mount.fstype in self.fstypes:
            return f"{mount.point} is mounted read-only" if mount.read_only else ""
        kinds = " or ".join(sorted(self.fstypes))
        return f"{path} is {mount.fstype}, mounted at {mount.point}, not {kinds}"

    def _attach(self, context: ProvisionContext) -> PathAccess:
        """Make the directory, with its layout."""
        reason = self.refusal()
        if reason:
            raise BackendError(reason)
        shared: JsonObject = {
            **self._chosen.login.facts,
            "drop_server_caches": self._chosen.drop_server_caches,
            "host": socket.gethostname(),
        }
        attach = self._in_found if self._chosen.path else self._mounted
        return attach(context, shared)

    def _mounted(self, context: ProvisionContext, shared: JsonObject) -> PathAccess:
        context.state.mkdir(parents=True, exist_ok=True)
        own_tree = own.make(self._chosen, context)
        point = mounting.new_point(context.state, context.journal)
        details = {
            **shared,
            **own_tree.facts,
            **cluster_details(own_tree.login),
            "point": str(point),
            **self.settings(context),
        }
        return PathAccess(self.name, context.target, details, str(point / owned_dirs.DATA))

    def _in_found(self, context: ProvisionContext, shared: JsonObject) -> PathAccess:
        parent = Path(self._chosen.path).resolve()
        folder = owned_dirs.make_tree(parent, context.tag, context.journal)
        data = folder / owned_dirs.DATA
        details = {**shared, "tree": str(folder), "tag": context.tag}
        details |= {"filesystem": self._chosen.filesystem, "fsid": "", "osd_addresses": []}
        try:
            for name, value in self._chosen.layout.items():
                os.setxattr(data, name, value.encode())
        except OSError as error:
            owned_dirs.release_tree(folder, context.tag, context.journal)
            raise BackendError(
                f"layout {self._chosen.layout} of {data} cannot be set: {error.strerror}; the "
                "user needs the MDS capability `p`, and the pool must be a data pool"
            ) from error
        cluster = value_or_error(lambda: cluster_details(self._chosen.login))
        details |= {"cluster_error": cluster["error"]} if "error" in cluster else cluster
        return PathAccess(
            self.name, context.target, {**details, **self.settings(context)}, str(data)
        )

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Unmount if a crash left it mounted, and remove the directory."""
        if "tree" in access.details:
            owned_dirs.release_tree(
                Path(text(access.details, "tree")), text(access.details, "tag"), context.journal
            )
            return
        self.unmount(access, context.journal)
        mounting.remove_point(Path(text(access.details, "point")), context.journal)
        own.release(Tree.of(access.details), context)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of mount, layout and cluster; what cannot be told is recorded as such."""
        details, path = access.details, path_of(access)
        described: dict[str, Json] = {"managed": "point" in details, "mount_command": []}
        if described["managed"]:
            described["mount_command"] = self.argv(details)
            described["layout"] = value_or_error(Tree.of(details).layout)
        else:
            described["layout"] = _layout_of(path)
        if details["fsid"]:
            described["ceph"] = ceph_facts(Login.of(details), text(details, "filesystem"))
        else:
            described["ceph"] = {"error": details["cluster_error"]}
        return provenance.filesystem_facts(path) | described | self.level_facts(access)

    def space(self, access: Access | None = None) -> Space:
        """What the data pool may still take; of a found mount, what statfs says."""
        if self._chosen.path:
            return provenance.space(path_of(access) if access else self._chosen.path)
        return super().space(access)


def _layout_of(path: str) -> str:
    """Of a directory at a mount: its own, or that it has none of its own."""
    try:
        return os.getxattr(path, LAYOUT).decode(errors="replace")
    except OSError as error:
        return f"inherited ({error.strerror})"
