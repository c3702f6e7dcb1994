"""How things of this machine are taken down again, whatever backend made them.

Every function looks first whether the thing is the very one that was recorded.  It returns
what it did ("" if nothing was left), or raises NotProvenOurs with the reason.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, tree
from fsmatrix.backends.journal.proof import Facts, Kind, NotProvenOurs, Stage
from fsmatrix.backends.system import devices, mounts
from fsmatrix.results.evidence.stored import text, whole


def undo_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount `path` if `source` is mounted exactly there."""
    path, source = str(facts["path"]), str(facts["source"])
    mount = mounts.mounted_at(path)
    if mount is None or not same_boot:
        return ""
    if mount.source != source:
        raise NotProvenOurs(f"{path}: {mount.source} is mounted there, not {source}")
    try:
        mounts.unmount(path)
    except OSError as error:
        raise not_unmounted(path, error) from error
    return f"unmounted {path}"


def not_unmounted(path: str, error: OSError) -> NotProvenOurs:
    """Why a mount stays, and which processes use it."""
    if error.errno != errno.EBUSY:
        return NotProvenOurs(f"{path} cannot be unmounted: {error.strerror}")
    return NotProvenOurs(f"{path} is still in use by {mounts.described(mounts.of_place(path))}")


def undo_loop(facts: Facts, same_boot: bool) -> str:
    """Detach the loop devices whose file is the recorded image (`inode`, `filesystem`)."""
    if not same_boot:
        return ""
    image, done = str(facts["image"]), []
    for behind in devices.loops_attached_to(whole(facts, "inode"), whole(facts, "filesystem")):
        if behind.device != (facts.get("device") or behind.device):
            continue
        if not devices.detach_loop(behind):
            who = mounts.described(mounts.of_device(behind.device))
            raise NotProvenOurs(f"{behind.device} ({image}) is still in use by {who}")
        done.append(behind.device)
    return f"detached {', '.join(done)} from {image}" if done else ""


def undo_image(facts: Facts, same_boot: bool) -> str:
    """Remove the image file `path` if it is the recorded inode inside `folder`."""
    path, folder = Path(text(facts, "path")), Path(text(facts, "folder"))
    if path.parent != folder:
        raise NotProvenOurs(f"{path} is not inside {folder}")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotProvenOurs(f"{path}: {folder} is not there any more; was it moved?") from error
    try:
        status = os.stat(path.name, dir_fd=descriptor, follow_symlinks=False)
        if "inode" not in facts:
            raise NotProvenOurs(f"{path} was being made, and it is not sure that this one is it")
        same = stat.S_ISREG(status.st_mode) and status.st_ino == whole(facts, "inode")
        if same_boot:  # device numbers may change with a boot
            same = same and status.st_dev == whole(facts, "filesystem")
        if not same:
            raise NotProvenOurs(f"{path} is another file than the one that was made")
        if same_boot and devices.loops_attached_to(status.st_ino, status.st_dev):
            raise NotProvenOurs(f"{path} is still attached to a loop device")
        os.unlink(path.name, dir_fd=descriptor)
    except FileNotFoundError:
        return ""
    finally:
        os.close(descriptor)
    return f"removed image {path}"


def undo_tree(facts: Facts, same_boot: bool) -> str:
    """Remove the directory `path` if its marker holds `tag`; an empty one without marker too.

    The empty one is what a crash between making and marking leaves; its name is unique.
    """
    del same_boot
    path, tag = Path(text(facts, "path")), text(facts, "tag")
    try:
        if tree.is_gone(path):
            return ""
        if tree.read_marker(path) is None:
            return undo_folder(facts, same_boot=True)
        tree.remove_tree(path, tag)
    except (BackendError, OSError) as error:
        raise NotProvenOurs(str(error)) from error
    return f"removed directory {path}"


def undo_folder(facts: Facts, same_boot: bool) -> str:
    """Remove the directory `path` (a mount point) if it is empty."""
    del same_boot
    path = Path(text(facts, "path"))
    if mounts.mounted_at(path):
        raise NotProvenOurs(f"{path} is a mount point in use")
    try:
        path.rmdir()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise NotProvenOurs(f"{path} cannot be removed: {error.strerror}") from error
    return f"removed directory {path}"


def undo_device(facts: Facts, same_boot: bool) -> str:
    """Erase the signature of the file system `uuid`, which the suite made on `device`."""
    del same_boot
    device, uuid = str(facts["device"]), str(facts["uuid"])
    if not Path(device).exists():
        raise NotProvenOurs(f"{device} is not there")
    user = devices.in_use(device)
    if user:
        raise NotProvenOurs(f"{device}: {user}")
    return f"erased our file system on {device}" if devices.wipe(device, uuid) else ""


MOUNT = Kind(Stage.MOUNT, proof.of_mount, undo_mount, ends_with_boot=True)
LOOP = Kind(Stage.LOOP, proof.of_loop, undo_loop, ends_with_boot=True)
DEVICE = Kind(Stage.DEVICE, proof.of_device, undo_device)
IMAGE = Kind(Stage.IMAGE, proof.of_image, undo_image)
FOLDER = Kind(Stage.FOLDER, proof.of_folder, undo_folder)
TREE = Kind(Stage.TREE, proof.of_tree, undo_tree)
