"""XFS on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.local import LocalBackend


class Xfs(LocalBackend):
    """mkfs.xfs with its defaults; at least 300 MiB."""

    name = "xfs"
    fstype = "xfs"
    program = "mkfs.xfs"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """-K: no discard, which would undo that the image was written once."""
        return [cls.program, "-q", "-f", "-K", "-m", f"uuid={identity}", *options, device]
