"""F2FS on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.local import LocalBackend


class F2fs(LocalBackend):
    """mkfs.f2fs with its defaults; its own reserve is large on a small device."""

    name = "f2fs"
    fstype = "f2fs"
    program = "mkfs.f2fs"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """-t 0: no discard, which would undo that the image was written once."""
        return [cls.program, "-q", "-f", "-t", "0", "-U", identity, *options, device]
