"""ext2 on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.local import LocalBackend


class Ext2(LocalBackend):
    """mkfs.ext2 with its defaults, everything initialised at once."""

    name = "ext2"
    fstype = "ext2"
    program = "mkfs.ext2"
    extended = "nodiscard,lazy_itable_init=0"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """No discard, and no lazy initialisation: the kernel would do it while we measure."""
        return [cls.program, "-q", "-F", "-U", identity, "-E", cls.extended, *options, device]
