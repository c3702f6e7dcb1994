"""How each kind of journal entry is taken down again, and when it is left alone.

Every function looks first whether the thing is the very one that was recorded.  It returns
what it did ("" if nothing was left), or raises LeftAlone with the reason.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fsmatrix.backends.ceph.levels import levelstate
from fsmatrix.backends.ceph.mounts import clients, sessions
from fsmatrix.backends.ceph.places import spaces, trees
from fsmatrix.backends.daos import tool as daos_tool
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.proof import LeftAlone as LeftAlone
from fsmatrix.backends.system import loopdev, mounts, signature, users

Facts = Mapping[str, Any]


def undo_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount `path` if `source` is mounted exactly there."""
    path, source = str(facts["path"]), str(facts["source"])
    mount = mounts.mounted_at(path)
    if mount is None or not same_boot:
        return ""
    if mount.source != source:
        raise LeftAlone(f"{path}: {mount.source} is mounted there, not {source}")
    try:
        mounts.unmount(path)
    except OSError as error:
        raise _not_unmounted(path, error) from error
    return f"unmounted {path}"


def _not_unmounted(path: str, error: OSError) -> LeftAlone:
    if error.errno != errno.EBUSY:
        return LeftAlone(f"{path} cannot be unmounted: {error.strerror}")
    return LeftAlone(f"{path} is still in use by {users.described(users.of_place(path))}")


def undo_loop(facts: Facts, same_boot: bool) -> str:
    """Detach the loop devices whose file is the recorded image (`inode`, `filesystem`)."""
    if not same_boot:
        return ""
    image, done = str(facts["image"]), []
    for behind in loopdev.attached_to(int(facts["inode"]), int(facts["filesystem"])):
        if behind.device != (facts.get("device") or behind.device):
            continue
        if not loopdev.detach(behind):
            who = users.described(users.of_device(behind.device))
            raise LeftAlone(f"{behind.device} ({image}) is still in use by {who}")
        done.append(behind.device)
    return f"detached {', '.join(done)} from {image}" if done else ""


def undo_image(facts: Facts, same_boot: bool) -> str:
    """Remove the image file `path` if it is the recorded inode inside `folder`."""
    path, folder = Path(facts["path"]), Path(facts["folder"])
    if path.parent != folder:
        raise LeftAlone(f"{path} is not inside {folder}")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise LeftAlone(f"{path}: {folder} is not there any more; was it moved?") from error
    try:
        found = os.stat(path.name, dir_fd=descriptor, follow_symlinks=False)
        if "inode" not in facts:
            raise LeftAlone(f"{path} was being made, and it is not sure that this one is it")
        same = stat.S_ISREG(found.st_mode) and found.st_ino == int(facts["inode"])
        if same_boot:  # device numbers may change with a boot
            same = same and found.st_dev == int(facts["filesystem"])
        if not same:
            raise LeftAlone(f"{path} is another file than the one that was made")
        if same_boot and loopdev.attached_to(found.st_ino, found.st_dev):
            raise LeftAlone(f"{path} is still attached to a loop device")
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
    path, tag = Path(facts["path"]), str(facts["tag"])
    try:
        if tree.is_gone(path):
            return ""
        if tree.read_marker(path) is None:
            return undo_folder(facts, same_boot=True)
        tree.remove_tree(path, tag)
    except (BackendError, OSError) as error:
        raise LeftAlone(str(error)) from error
    return f"removed directory {path}"


def undo_folder(facts: Facts, same_boot: bool) -> str:
    """Remove the directory `path` (a mount point) if it is empty."""
    del same_boot
    path = Path(facts["path"])
    if mounts.mounted_at(path):
        raise LeftAlone(f"{path} is a mount point in use")
    try:
        path.rmdir()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise LeftAlone(f"{path} cannot be removed: {error.strerror}") from error
    return f"removed directory {path}"


def undo_device(facts: Facts, same_boot: bool) -> str:
    """Erase the signature of the file system `uuid`, which the suite made on `device`."""
    del same_boot
    device, uuid = str(facts["device"]), str(facts["uuid"])
    if not Path(device).exists():
        raise LeftAlone(f"{device} is not there")
    user = signature.in_use(device)
    if user:
        raise LeftAlone(f"{device}: {user}")
    return f"erased our file system on {device}" if signature.wipe(device, uuid) else ""


def undo_daos_container(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS container `label` of `pool`, if it has the recorded `uuid`.

    Without one (a crash while it was made) the label, which holds random digits, is proof.
    """
    del same_boot  # it is on the servers
    gone = daos_tool.remove_recorded(facts)
    return f"destroyed container {facts['label']} of pool {facts['pool']}" if gone else ""


def undo_cephfs_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount our CephFS at `path`, and end the ceph-fuse with the recorded arguments."""
    if not same_boot:
        return ""
    path = Path(facts["path"])
    client = facts["argv"] if facts["fstype"] == clients.FUSE else ()
    mount = mounts.mounted_at(path)
    if mount is not None and not clients.is_ours(mount, facts):
        raise LeftAlone(f"{path}: {mount.source} is mounted there, not our CephFS")
    if mount is None and not clients.processes(client):
        return ""
    try:
        in_order = clients.detach(path, client)
    except OSError as error:
        raise _not_unmounted(str(path), error) from error
    if not in_order:
        sessions.farewell(facts)
    return f"unmounted {path}"


def undo_cephfs_tree(facts: Facts, same_boot: bool) -> str:
    """Remove our directory from a CephFS, if its marker holds the recorded tag.

    An empty one without a marker too: its name holds the tag, as in `undo_tree`.
    """
    del same_boot  # it is on the servers
    gone = trees.Tree.of(facts).remove(unmarked=True)
    return f"removed directory {facts['path']} of CephFS {facts['filesystem']}" if gone else ""


def undo_rados_space(facts: Facts, same_boot: bool) -> str:
    """Remove our namespaces from a RADOS pool, if their marker holds the recorded tag."""
    del same_boot  # they are on the servers
    gone = spaces.Space.of(facts).remove()
    return f"removed namespaces {facts['prefix']} of pool {facts['pool']}" if gone else ""


def undo_ceph_level(facts: Facts, same_boot: bool) -> str:
    """Remove our pool, rule and CRUSH root, which share a name that holds random digits."""
    del same_boot  # they are on the servers
    gone = levelstate.remove(facts)
    return f"removed CRUSH root, rule and pool {facts['name']}" if gone else ""


UNDO: dict[str, Callable[[Facts, bool], str]] = {
    "mount": undo_mount,
    "cephfs-mount": undo_cephfs_mount,
    "loop": undo_loop,
    "device": undo_device,
    "image": undo_image,
    "folder": undo_folder,
    "tree": undo_tree,
    "daos-container": undo_daos_container,
    "cephfs-tree": undo_cephfs_tree,
    "rados-space": undo_rados_space,
    "ceph-level": undo_ceph_level,
}
ORDER = tuple(UNDO)  # what must be gone before the next kind can go
