"""CephFS by the kernel's own client: mounted by the suite, or found mounted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.ceph import deployment, mounts
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.ceph.cephfs_mounted import CephfsMounted
from fsmatrix.backends.ceph.options import KernelOptions
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.local.mounts import mounting
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.evidence.values import Json, JsonObject, text


class CephfsKernel(CephfsMounted):
    """Its cache is the kernel's page cache and nothing else."""

    name = "cephfs-kernel"
    Options = KernelOptions
    fstype = mounts.KERNEL
    fstypes = frozenset({mounts.KERNEL})

    @classmethod
    def mount_refusal(cls) -> str:
        """No root, no ceph in the kernel, or no mount.ceph."""
        reasons = (
            mounting.root_refusal(),
            mounting.kernel_refusal(mounts.KERNEL),
            tools.missing(mounts.KERNEL_PROGRAM),
        )
        return "; ".join(reason for reason in reasons if reason)

    @classmethod
    def version(cls) -> str:
        """The kernel is the client."""
        return f"kernel {os.uname().release}"

    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """The options of mount(8) for this attachment."""
        del context
        return {"mount_options": cast(KernelOptions, self.options).mount_options}

    def client_deployment(self) -> Deployment:
        """All that it keeps are pages of the kernel; msgr2 only where the mount asks for it."""
        options = cast(KernelOptions, self.options)
        if options.path:
            return deployment.found(deployment.PAGES)
        return deployment.kernel_client(options.mount_options, options.object_size)

    @classmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """mount.ceph finds the monitors and the key as ceph.conf says."""
        own, options = Tree.of(details), text(details, "mount_options")
        login, point = Login.of(details), text(details, "point")
        return mounts.kernel_argv(login, own.filesystem, own.path, point, options)

    @classmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Mount by mount.ceph; ToolError with its words if that fails."""
        del point
        tools.run(argv, deadline=mounts.MOUNT_DEADLINE)

    @classmethod
    def client_of(cls, argv: Sequence[str]) -> Sequence[str]:
        """Empty: the kernel serves the mount, no process."""
        del argv
        return ()

    @classmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Never: all data that it keeps are pages of the kernel."""
        del details
        return False
