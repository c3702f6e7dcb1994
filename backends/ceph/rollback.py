"""How what Ceph's backends journal proves to be ours, and is taken down again."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.backends.ceph import levelstate, rados, trees
from fsmatrix.backends.ceph.mounts import FUSE, Mounted, evict_session, is_ours
from fsmatrix.backends.journal.proof import (
    POINT,
    Facts,
    Kind,
    NotProvenOurs,
    OwnershipScope,
    Stage,
    carries,
    not_unmounted,
    of_server_thing,
)
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.system import mounts
from fsmatrix.results.evidence.stored import StoredError, read, texts


def _mounted(facts: Facts) -> tuple[Mounted, tuple[str, ...]]:
    """A mount, and the arguments of the process that serves it (empty: the kernel does)."""
    try:
        own = read(Mounted, facts, "facts")
    except StoredError as error:
        raise NotProvenOurs(str(error)) from error
    return own, texts(facts, "argv") if own.fstype == FUSE else ()


def of_cephfs_mount(facts: Facts, ground: OwnershipScope) -> None:
    """At a mount point of ours; a ceph-fuse carries our proof in its environment."""
    own, argv = _mounted(facts)
    path = Path(own.path)
    if not ground.holds(path) or not POINT.fullmatch(path.name):
        raise NotProvenOurs(f"{path} is no mount point of this results directory: not unmounted")
    for pid in own_mounts.client_processes(argv):
        if not carries(pid, ground.identity.store):
            raise NotProvenOurs(f"process {pid} is not of this results directory: not ended")


def undo_cephfs_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount our CephFS at `path`, and end the ceph-fuse with the recorded arguments."""
    if not same_boot:
        return ""
    own, client = _mounted(facts)
    path = Path(own.path)
    mount = mounts.mounted_at(path)
    if mount is not None and not is_ours(mount, own):
        raise NotProvenOurs(f"{path}: {mount.source} is mounted there, not our CephFS")
    if mount is None and not own_mounts.client_processes(client):
        return ""
    try:
        in_order = own_mounts.detach_mount(path, client)
    except OSError as error:
        raise not_unmounted(str(path), error) from error
    if not in_order:
        evict_session(own)
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
    gone = rados.Space.of(facts).remove()
    return f"removed namespaces {facts['prefix']} of pool {facts['pool']}" if gone else ""


def undo_ceph_level(facts: Facts, same_boot: bool) -> str:
    """Remove our pool, rule and CRUSH root, which share a name that holds random digits."""
    del same_boot  # they are on the servers
    gone = levelstate.remove(read(levelstate.Recorded, facts, "facts"))
    return f"removed CRUSH root, rule and pool {facts['name']}" if gone else ""


CEPHFS_MOUNT = Kind(Stage.NETWORK_MOUNT, of_cephfs_mount, undo_cephfs_mount, ends_with_boot=True)
CEPHFS_TREE = Kind(Stage.SERVER_TREE, of_server_thing, undo_cephfs_tree)
RADOS_SPACE = Kind(Stage.NAMESPACE, of_server_thing, undo_rados_space)
CEPH_LEVEL = Kind(Stage.POOL, of_server_thing, undo_ceph_level)
