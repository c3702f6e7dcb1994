"""btrfs on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.local import LocalBackend


class Btrfs(LocalBackend):
    """mkfs.btrfs with its defaults.

    With checksums (the default) an O_DIRECT write is buffered by newer kernels: evidence
    comes from the counters, not from the flag.
    """

    name = "btrfs"
    fstype = "btrfs"
    program = "mkfs.btrfs"
    version_option = "--version"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """--nodiscard: the image stays written."""
        return [cls.program, "-q", "-f", "--nodiscard", "-U", identity, *options, device]
