"""CephFS by ceph-fuse: mounted by the suite with a process of its own, or found mounted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.ceph import deployment, mounts
from fsmatrix.backends.ceph.cephfs_mounted import CephfsMounted
from fsmatrix.backends.ceph.options import FuseOptions
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.local.mounts import fuse, mounting
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.evidence.values import Json, JsonObject, mapping, text


class CephfsFuse(CephfsMounted):
    """One ceph-fuse for each kernel; it writes no log and has no admin socket."""

    name = "cephfs-fuse"
    Options = FuseOptions
    fstype = mounts.FUSE
    fstypes = frozenset({mounts.FUSE, "fuse.ceph"})

    @classmethod
    def mount_refusal(cls) -> str:
        """No root, no ceph-fuse, or no /dev/fuse."""
        program = tools.missing(mounts.FUSE_PROGRAM)
        reasons = (mounting.root_refusal(), program, fuse.device_refusal())
        return "; ".join(reason for reason in reasons if reason)

    @classmethod
    def version(cls) -> str:
        """What ceph-fuse says of its version."""
        return tools.version(mounts.FUSE_PROGRAM, "--version")

    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """The client's options, and a name for the mount."""
        options = cast(FuseOptions, self.options)
        return {"client": options.client, "source": f"fsmatrix-{context.tag}"}

    def client_deployment(self) -> Deployment:
        """The kernel's pages serve reads; writes go to the object cache of ceph-fuse."""
        options = cast(FuseOptions, self.options)
        if options.path:
            return deployment.found()
        return deployment.client_of(options.client, options.object_size, deployment.PAGES)

    @classmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """In the foreground: its pid is known from the beginning."""
        own, client = Tree.of(details), mapping(details, "client")
        point, source = text(details, "point"), text(details, "source")
        options = {name: text(client, name) for name in client}
        return mounts.fuse_argv(own.login, own.filesystem, own.path, point, source, options)

    @classmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Start it, and wait until it is mounted."""
        mounts.start_fuse(argv, point)

    @classmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Yes, unless the suite has turned its object cache off."""
        return "tree" in details or mapping(details, "client").get("client_oc") != "false"
