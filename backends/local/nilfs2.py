"""NILFS2 on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.allowed import NUMBER, PERCENT, Words, features, label, one_of
from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.local.mounts import mounting
from fsmatrix.backends.system import tools

NO_CLEANER = "nogc"  # read by mount.nilfs2; the kernel does not see it


class Nilfs2Options(LocalOptions):
    """mkfs.nilfs2 2.2; mounted as a whole, not one of its checkpoints (cp)."""

    mkfs_words = Words(
        "mkfs.nilfs2",
        {
            "-b": NUMBER,
            "-B": NUMBER,
            "-L": label(80),
            "-m": PERCENT,
            "-O": features("block_count none"),
        },
    )
    mount_words = mounting.mount_keys(
        "barrier nobarrier discard nodiscard",
        {"errors": one_of("continue", "remount-ro"), "order": one_of("strict", "relaxed")},
    )


class Nilfs2(LocalBackend):
    """mkfs.nilfs2 with its defaults (more than 128 MiB), mounted without its cleaner.

    The cleaner (nilfs_cleanerd, started by mount.nilfs2) would be a process that nobody here
    ends, works while we measure and keeps the mount busy.  Without it the space of what was
    removed or overwritten does not come back within one attachment; with it neither would,
    for its default protection period of an hour.  O_DIRECT writes go through the page cache
    in this file system: evidence comes from the counters, not from the flag.
    """

    name = "nilfs2"
    fstype = "nilfs2"
    program = "mkfs.nilfs2"
    Options = Nilfs2Options

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """-K: no discard.  mkfs.nilfs2 takes no UUID: `_formatted` sets it afterwards."""
        del identity
        return [cls.program, "-q", "-f", "-K", *options, device]

    def _formatted(
        self, context: ProvisionContext, device: str, image: str, identity: str
    ) -> PathAccess:
        """Format, then give the file system its UUID.

        After a crash in between, a device carries a file system that is not known as ours:
        the user is told to erase it.
        """
        access = super()._formatted(context, device, image, identity)
        try:
            tools.run(["nilfs-tune", "-U", identity, device])
        except ToolError:
            mounting.remove_point(Path(access.details["point"]), context.journal)
            raise
        chosen = access.details["mount_options"]
        options = f"{NO_CLEANER},{chosen}" if chosen else NO_CLEANER
        return replace(access, details={**access.details, "mount_options": options})
