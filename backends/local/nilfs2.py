"""NILFS2 on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from pydantic import Field

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.allowed import NUMBER, PERCENT, Words, features, label, one_of
from fsmatrix.backends.contract import NO_LEVEL, Foreseen, ProvisionContext
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import cleaner as cleaners
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.local.cleaner import GC, CleanerOptions
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.stored import Level, text

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
    cleaner: CleanerOptions | None = Field(
        None, description="its garbage collection, with which the cleaner runs; none if absent"
    )

    mount_words = own_mounts.mount_keys(
        "barrier nobarrier discard nodiscard",
        {"errors": one_of("continue", "remount-ro"), "order": one_of("strict", "relaxed")},
    )


class Nilfs2(LocalBackend):
    """mkfs.nilfs2 with its defaults (more than 128 MiB), mounted without its cleaner unless asked.

    The cleaner (nilfs_cleanerd) that mount.nilfs2 would start is one that nobody here ends; one
    with the settings of the option `cleaner` is started and ended by `cleaner.py`.  Without it
    the space of what was removed or overwritten does not come back within one attachment; with
    its defaults neither would, for a protection period of an hour.  O_DIRECT writes go through
    the page cache in this file system: evidence comes from the counters, not from the flag.
    """

    name = "nilfs2"
    fstype = "nilfs2"
    program = "mkfs.nilfs2"
    dry_run = ("-n",)
    Options = Nilfs2Options

    def refusal(self) -> str:
        """The cleaner is missing, where it is wanted."""
        cleaner = cast(Nilfs2Options, self.options).cleaner
        return (tools.missing(cleaners.PROGRAM) if cleaner else "") or super().refusal()

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Its garbage collection: the factor `gc`."""
        cleaner = cast(Nilfs2Options, self.options).cleaner
        own = {GC: cleaner.level if cleaner else cleaners.NONE}
        return replace(super().foreseen(level), attributes=own)

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount it, and start the cleaner that was asked for."""
        super().mount(access, journal)
        if access.details["cleaner"]:
            cleaners.start(access.details, journal)

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """End the cleaner, and unmount."""
        if access.details["cleaner"]:
            cleaners.end(access.details, journal)
        super().unmount(access, journal)

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The cleaner: what it uses of the CPUs is the file system's."""
        return (
            own_mounts.client_processes(cleaners.argv(access.details))
            if access.details["cleaner"]
            else []
        )

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """As of others; or its cleaner has ended."""
        wrong = super().health(access)
        if access.details["cleaner"] and not cls.workers(access):
            wrong.append(f"{cleaners.PROGRAM} on {access.details['point']} has ended")
        return wrong

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
            own_mounts.remove_point(Path(text(access.details, "point")), context.journal)
            raise
        chosen = access.details["mount_options"]
        options = f"{NO_CLEANER},{chosen}" if chosen else NO_CLEANER
        cleaner = cast(Nilfs2Options, self.options).cleaner
        more = {"mount_options": options, "cleaner": cleaner.text() if cleaner else ""}
        return replace(access, details={**access.details, **more})
