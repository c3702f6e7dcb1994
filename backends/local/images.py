"""Images: files that file systems are made in, fully allocated and written once.

An image stays until the campaign ends, so that each attachment costs only a mkfs; the
journal knows which one is ours.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry, Journal
from fsmatrix.backends.journal.proof import NotProvenOurs, undo_image, undo_loop
from fsmatrix.backends.system import devices, files, tools
from fsmatrix.backends.system.files import expand, place_of
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.backends.system.trusted import RESULTS, shared_refusal
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import text, whole
from fsmatrix.results.units import format_size

BLOCK = 4 << 20  # bytes per write when an image is filled
STAMP = 4096  # one stamp per this many bytes makes blocks differ (deduplicating storage)
MARGIN = 64 << 20  # bytes that stay free beside an image
MIB = 1 << 20
MOST_LEAST = 8 << 30  # bytes; an mkfs that needs more fails for another reason


def folder_refusal(folder: Path, size: int, direct: bool) -> str:
    """Why no image of `size` bytes can be in `folder` (empty: it can); nothing stays there.

    `direct`: its file system must do O_DIRECT.  A folder that does not exist will be made: the
    nearest one above it is asked.
    """
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if reason := shared_refusal(place, RESULTS):
        return reason
    try:
        descriptor = os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return f"no image can be made in {place}: {error.strerror}; choose another directory (-o)"
    try:
        if direct:
            flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
            os.close(os.open(f"/proc/self/fd/{descriptor}", flags))
    except OSError:
        return (
            f"{place} ({mount_of(place).fstype}) does no direct I/O, which images need: choose "
            "another directory (-o), or set `direct_io: preferred`"
        )
    finally:
        os.close(descriptor)
    free = _free(place)
    if free < size + MARGIN:
        return (
            f"images need {format_size(size, 1)} and {format_size(MARGIN)} beside them, {place} "
            f"has {format_size(free, 1)} free: choose another directory (-o)"
        )
    return ""


def least_size(format_with: Callable[[str], list[str]], size: int) -> int:
    """The fewest bytes, in MiB, of which mkfs makes a file system; 0: `size` are enough.

    `format_with`: its argv for a file.  It is tried on sparse files.  0 too if it refuses any size.
    """
    if _formats(format_with, size):
        return 0
    low, high = size // MIB * MIB, max(size // MIB * MIB, MIB) * 2
    while not _formats(format_with, high):
        low, high = high, 2 * high
        if high > MOST_LEAST:
            return 0
    while high - low > MIB:
        middle = (low + high) // 2 // MIB * MIB
        low, high = (low, middle) if _formats(format_with, middle) else (middle, high)
    return high


def _formats(format_with: Callable[[str], list[str]], size: int) -> bool:
    with work_folder() as folder:
        file = folder / "image"
        with file.open("wb") as stream:
            stream.truncate(size)
        return tools.run(format_with(str(file)), check=False).returncode == 0


def place_refusal(path: str, size: int) -> str:
    """Why no image of `size` bytes can be at `path` that a campaign names (empty: it can).

    A regular file of that very size may be this campaign's own image, after a crash: only its
    journal can tell, when the image is made.
    """
    try:
        file = expand(path, follow=False)
        facts = file.lstat()
    except BackendError as error:
        return f"image {error}"
    except FileNotFoundError:
        if file.parent.is_dir():
            return shared_refusal(file.parent)
        return f"image {file}: the directory {file.parent} does not exist"
    except OSError as error:
        return f"image {file}: {error.strerror}"
    if stat.S_ISREG(facts.st_mode) and facts.st_size == size:
        return shared_refusal(file.parent)
    return f"image {file} exists and was not made by this campaign: name a path that does not"


def commands(size: int, file: str = "") -> list[str]:
    """How an image is made and attached by hand; `file`: where, if that is known before."""
    named = shlex.quote(file) if file else "IMAGE"
    attach = f"losetup --find --show --direct-io=on {named}"
    return [f"fallocate --length {size} {named}  # once", attach]


def image_for(context: ProvisionContext, size: int, path: str = "") -> Entry:
    """The journal entry of this target's image: kept from the last attachment, or new.

    `path`: where the user wants it; it must not exist yet.  Default inside `context.state`.
    """
    for entry in context.journal.pending("image", target=context.target, size=size, written=True):
        if entry.is_own and (not path or entry.facts["path"] == str(place_of(path))):
            if _intact(entry):
                return entry
            remove_image(entry, context.journal)
    return make_image(context, size, path)


def make_image(context: ProvisionContext, size: int, path: str = "") -> Entry:
    """Allocate and write an image once; BackendError if there is no room or it exists."""
    file = place_of(path) if path else context.state.resolve() / f"{secrets.token_hex(8)}.img"
    _check_place(file, size)
    entry = context.journal.begin(
        "image", path=str(file), folder=str(file.parent), size=size, target=context.target
    )
    complete = False
    try:
        descriptor = os.open(file.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        context.journal.end(entry)
        hint = " (it has no unnamed files)" if error.errno == errno.EOPNOTSUPP else ""
        raise BackendError(f"no image in {file.parent}: {error.strerror}{hint}") from error
    try:
        facts = os.fstat(descriptor)
        entry = context.journal.confirm(entry, inode=facts.st_ino, filesystem=facts.st_dev)
        _fill(descriptor, file, size, context.progress)
        _link(descriptor, file)
        complete = True
    except OSError as error:
        raise BackendError(f"image {file} cannot be made: {error.strerror}") from error
    finally:
        os.close(descriptor)
        if not complete:
            context.journal.end(entry)
    return context.journal.confirm(entry, written=True)


def remove_image(entry: Entry, journal: Journal) -> None:
    """Remove an image of ours; BackendError if the file there is another one."""
    try:
        undo_image(entry.facts, True)
    except NotProvenOurs as reason:
        raise BackendError(str(reason)) from reason
    journal.end(entry)


def remove_own(context: ProvisionContext) -> None:
    """Remove the images that this campaign has made for the target."""
    for entry in context.journal.pending("image", target=context.target):
        if entry.is_own:
            remove_image(entry, context.journal)


def _check_place(file: Path, size: int) -> None:
    if os.path.lexists(file):
        raise BackendError(
            f"image {file} exists and was not made by this campaign: name a path that does not"
        )
    if not file.parent.is_dir():
        raise BackendError(f"image {file}: the directory {file.parent} does not exist")
    free = _free(file.parent)
    if free < size + MARGIN:
        raise BackendError(
            f"image {file} needs {format_size(size)} and {format_size(MARGIN)} beside it, "
            f"{file.parent} has {format_size(free, 1)} free"
        )


def _free(folder: Path) -> int:
    sizes = os.statvfs(folder)
    return sizes.f_bavail * sizes.f_frsize


def _fill(descriptor: int, file: Path, size: int, progress: Callable[[str], None]) -> None:
    """Allocate, then write every byte, around the page cache where that is possible."""
    os.posix_fallocate(descriptor, 0, size)
    block = mmap.mmap(-1, BLOCK)
    block.write(os.urandom(BLOCK))
    direct = _direct_twin(descriptor, size)
    target = descriptor if direct is None else direct
    try:
        tenth = 0
        for number, offset in enumerate(range(0, size, BLOCK)):
            for start in range(0, BLOCK, STAMP):
                block[start : start + 8] = (number + 1).to_bytes(8, "little")
            length = min(BLOCK, size - offset)
            if os.pwrite(target, memoryview(block)[:length], offset) != length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if direct is None:
                os.fdatasync(target)
            if offset * 10 // size > tenth:
                tenth = offset * 10 // size
                progress(f"writing image {file.name} once: {tenth}0 % of {format_size(size, 1)}")
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        if direct is not None:
            os.close(direct)


def _direct_twin(descriptor: int, size: int) -> int | None:
    """The same file opened with O_DIRECT; None where that is refused or sizes do not fit."""
    if size % STAMP:
        return None
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


def _link(descriptor: int, file: Path) -> None:
    """Give the unnamed file its name; FileExistsError if somebody was quicker."""
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # with a dst_dir_fd Python calls linkat and follows /proc's link to the file
        os.link(f"/proc/self/fd/{descriptor}", file.name, dst_dir_fd=folder, follow_symlinks=True)
        os.fsync(folder)
    finally:
        os.close(folder)


def _intact(entry: Entry) -> bool:
    """Whether the image is still the inode that we made, whole and fully allocated."""
    try:
        facts = Path(text(entry.facts, "path")).lstat()
    except FileNotFoundError:
        return False
    same = (facts.st_ino, facts.st_dev) == (entry.facts["inode"], entry.facts["filesystem"])
    size = whole(entry.facts, "size")
    return same and facts.st_size == size and facts.st_blocks * 512 >= size


# Loop devices on images: attached with verified direct I/O, without discards, detached.


_LOOP_CONTROL = Path("/dev/loop-control")


def loop_refusal() -> str:
    """Why there are no loop devices here (empty: there are)."""
    if reason := tools.missing("losetup"):
        return reason
    if not os.access(_LOOP_CONTROL, os.R_OK | os.W_OK) or not _is_loop_control(_LOOP_CONTROL):
        cure = "modprobe loop (in a container: start it with --privileged)"
        return f"no loop devices, {_LOOP_CONTROL} is missing or not accessible: {cure}"
    return ""


def is_direct(device: str) -> bool:
    """A disk, or a loop device that does not go through the page cache below it."""
    is_loop = stat.S_ISBLK(Path(device).stat().st_mode) and devices.loop_backing(device) is not None
    return not is_loop or devices.loop_direct_io(device)


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
    return device, devices.loop_direct_io(device)


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
        if devices.loop_direct_io(device):
            break
        if sector == "512":
            _detach(entry)
            entry = journal.confirm(entry, device=None)
    if direct and not devices.loop_direct_io(device):
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
    behind = devices.loop_backing(device) if image and not entries else None
    if behind is not None and behind.file.removesuffix(" (deleted)") == image:
        devices.detach_loop(behind)


def rewrite_unwritten(image: str, device: str) -> int | None:
    """Write zeros, through the device, where mkfs left unwritten extents in the image.

    mkfs zeroes ranges by "write zeroes", which the image's file system turns into unwritten
    extents; the first real write to each would cost more than later ones.  Returns bytes
    written; None where the image's file system does not tell.
    """
    descriptor = os.open(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        spans = files.unwritten(descriptor)
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


def _write_zeros(target: int, span: files.Span, zeros: memoryview) -> None:
    offset, end = span.offset, span.offset + span.length
    while offset < end:
        offset += os.pwrite(target, zeros[: min(BLOCK, end - offset)], offset)


def _detach(entry: Entry) -> None:
    try:
        undo_loop(entry.facts, True)
    except NotProvenOurs as reason:
        raise BackendError(str(reason)) from reason
