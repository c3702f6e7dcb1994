"""Loop devices as the kernel sees them: which file is behind, is it direct, detach."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

# linux/loop.h
_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_INFO64 = struct.Struct("=QQQQQIIII64s64s32s2Q")  # struct loop_info64, 232 bytes
PATIENCE = 5.0  # seconds


@dataclass(frozen=True)
class Backing:
    """What is behind a loop device."""

    device: str  # /dev/loopN
    file: str  # path at the time of attaching
    inode: int
    filesystem: int  # st_dev of the file
    direct_io: bool


def backing(device: str) -> Backing | None:
    """What is behind `device` ("/dev/loopN"); None if it is no loop device or not attached."""
    folder = Path("/sys/block") / Path(device).name / "loop"
    try:
        file = os.fsdecode((folder / "backing_file").read_bytes()).rstrip("\n")
        direct = (folder / "dio").read_text().strip() == "1"
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        answer = fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_INFO64.size))
    except OSError as error:
        if error.errno == errno.ENXIO:  # detached since
            return None
        raise
    finally:
        os.close(descriptor)
    numbers = _INFO64.unpack(answer)
    # lo_device is huge_encode_dev: for all numbers that exist, the C library's dev_t
    return Backing(device, file, inode=numbers[1], filesystem=numbers[0], direct_io=direct)


def direct_io(device: str) -> bool:
    """Whether the loop device reads and writes its file without the page cache."""
    try:
        return (Path("/sys/block") / Path(device).name / "loop/dio").read_text().strip() == "1"
    except FileNotFoundError:
        return False


def attached_to(inode: int, filesystem: int) -> list[Backing]:
    """All loop devices whose file is that inode.

    PermissionError if it lies behind one that this user may not open.
    """
    attached = []
    for folder in sorted(Path("/sys/block").glob("loop*/loop")):
        try:
            behind = backing(f"/dev/{folder.parent.name}")
        except PermissionError:
            if _names(folder, inode, filesystem):
                raise
            continue
        if behind and (behind.inode, behind.filesystem) == (inode, filesystem):
            attached.append(behind)
    return attached


def _names(folder: Path, inode: int, filesystem: int) -> bool:
    """Whether the path that a loop device was attached by leads to that inode.

    Not if it is gone, or in a folder that this user may not enter: none of his files is there.
    """
    try:
        file = os.fsdecode((folder / "backing_file").read_bytes()).rstrip("\n")
        there = Path(file).stat()
    except (FileNotFoundError, PermissionError):
        return False
    return (there.st_ino, there.st_dev) == (inode, filesystem)


def detach(behind: Backing) -> bool:
    """Detach a loop device if that very file is still behind it.

    True if it is gone afterwards.  The kernel detaches a device that is still open when it
    is closed for the last time: PATIENCE seconds are given to that.
    """
    if backing(behind.device) != behind:
        return True
    descriptor = os.open(behind.device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _LOOP_CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + PATIENCE
    while backing(behind.device) == behind:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
