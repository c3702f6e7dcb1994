"""Loop devices on images: attached with verified direct I/O, without discards, detached."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry, Journal
from fsmatrix.backends.journal.proof import LeftAlone
from fsmatrix.backends.journal.rollback import undo_loop
from fsmatrix.backends.local.images import BLOCK
from fsmatrix.backends.system import loopdev, packages, tools
from fsmatrix.backends.system.files import extents
from fsmatrix.results.evidence.values import text, whole

_LOOP_CONTROL = Path("/dev/loop-control")


def loop_refusal() -> str:
    """Why there are no loop devices here (empty: there are)."""
    if reason := packages.missing("losetup"):
        return reason
    if not os.access(_LOOP_CONTROL, os.R_OK | os.W_OK) or not _is_loop_control(_LOOP_CONTROL):
        cure = "modprobe loop (in a container: start it with --privileged)"
        return f"no loop devices, {_LOOP_CONTROL} is missing or not accessible: {cure}"
    return ""


def is_direct(device: str) -> bool:
    """A disk, or a loop device that does not go through the page cache below it."""
    is_loop = stat.S_ISBLK(Path(device).stat().st_mode) and loopdev.backing(device) is not None
    return not is_loop or loopdev.direct_io(device)


def _is_loop_control(path: Path) -> bool:
    """Whether it is the kernel's device 10:237 (Linux, Documentation/admin-guide/devices.txt)."""
    facts = path.stat()
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == os.makedev(10, 237)


def attach(image: Entry, journal: Journal, direct_io: str) -> tuple[str, bool]:
    """Attach an image; returns the device and whether its I/O is direct.

    BackendError if direct I/O is `required` and the kernel refuses it.  If the disk below
    has larger sectors than 512 bytes, the loop device gets the same.
    """
    place = {name: whole(image.facts, name) for name in ("inode", "filesystem")}
    device = _attached(journal, text(image.facts, "path"), place, direct_io == "required")
    return device, loopdev.direct_io(device)


def attach_part(device: str, offset: int, size: int, journal: Journal) -> str:
    """Attach a part (bytes) of another loop device as one of its own, with direct I/O.

    BackendError if the kernel refuses that.
    """
    status = Path(device).stat()
    place = {"inode": status.st_ino, "filesystem": status.st_dev}
    part = ("--offset", str(offset), "--sizelimit", str(size))
    return _attached(journal, device, place, True, part)


def _attached(
    journal: Journal, file: str, place: Mapping[str, int], direct: bool, part: Sequence[str] = ()
) -> str:
    entry = journal.begin("loop", image=file, **place)
    for sector in ("512", "4096"):
        argv = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", sector]
        try:
            device = tools.run([*argv, *part, file], deadline=30.0).stdout.strip()
        except ToolError:
            undo_loop(entry.facts, True)
            journal.end(entry)
            raise
        entry = journal.confirm(entry, device=device)
        if loopdev.direct_io(device):
            break
        if sector == "512":
            _detach(entry)
            entry = journal.confirm(entry, device=None)
    if direct and not loopdev.direct_io(device):
        _detach(entry)
        journal.end(entry)
        raise BackendError(
            f"{file}: the kernel refuses direct I/O on this image's file system, so "
            "reads could come from the page cache below the device; put `image` on another "
            "file system, or set `direct_io: preferred` (then cache state bypass is refused)"
        )
    return device


def forbid_discard(device: str) -> None:
    """Discards would punch holes into the image: the device no longer takes any."""
    setting = Path("/sys/block") / Path(device).name / "queue/discard_max_bytes"
    try:
        setting.write_text("0\n")
    except OSError as error:
        raise BackendError(f"discards cannot be turned off: {setting}: {error.strerror}") from error


def detach(device: str, journal: Journal, image: str = "") -> None:
    """Detach a loop device that the journal knows; BackendError if it stays in use.

    Where somebody removed the journal under us, the device goes if `image` is behind it.
    """
    entries = journal.pending("loop", device=device)
    for entry in entries:
        _detach(entry)
        journal.end(entry)
    behind = loopdev.backing(device) if image and not entries else None
    if behind is not None and behind.file.removesuffix(" (deleted)") == image:
        loopdev.detach(behind)


def rewrite_unwritten(image: str, device: str) -> int | None:
    """Write zeros, through the device, where mkfs left unwritten extents in the image.

    mkfs zeroes ranges by "write zeroes", which the image's file system turns into unwritten
    extents; the first real write to each would cost more than later ones.  Returns bytes
    written; None where the image's file system does not tell.
    """
    descriptor = os.open(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        spans = extents.unwritten(descriptor)
    finally:
        os.close(descriptor)
    if not spans:
        return None if spans is None else 0
    zeros = mmap.mmap(-1, BLOCK)  # page-aligned, as O_DIRECT wants it
    target = os.open(device, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        for span in spans:
            _write_zeros(target, span, memoryview(zeros))
        os.fsync(target)
    finally:
        os.close(target)
    return sum(span.length for span in spans)


def _write_zeros(target: int, span: extents.Span, zeros: memoryview) -> None:
    offset, end = span.offset, span.offset + span.length
    while offset < end:
        offset += os.pwrite(target, zeros[: min(BLOCK, end - offset)], offset)


def _detach(entry: Entry) -> None:
    try:
        undo_loop(entry.facts, True)
    except LeftAlone as reason:
        raise BackendError(str(reason)) from reason
