"""How what was journalled of DAOS proves to be ours, and is taken down again."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.backends.daos import containers, dfuse_mount, levels, libraries
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
from fsmatrix.results.evidence.stored import text, texts


def undo_daos_container(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS container `label` of `pool`, if it has the recorded `uuid`.

    Without one (a crash while it was made) the label, which holds random digits, is proof.
    """
    del same_boot  # it is on the servers
    gone = containers.destroy_recorded(facts)
    return f"destroyed container {facts['label']} of pool {facts['pool']}" if gone else ""


def undo_daos_tree(facts: Facts, same_boot: bool) -> str:
    """Remove our directory `name` from a container that is not ours, if that is the recorded."""
    del same_boot  # it is on the servers
    gone = containers.remove_recorded_tree(facts, libraries.library_folder(""))
    return f"removed /{facts['name']} from container {facts['container']}" if gone else ""


def undo_daos_pool(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS pool `name`, if it has the recorded `uuid`; as the container otherwise."""
    del same_boot  # it is on the servers
    return f"destroyed pool {facts['name']}" if levels.destroy_recorded(facts) else ""


def of_dfuse_mount(facts: Facts, ground: OwnershipScope) -> None:
    """At a mount point of ours; its dfuse carries our proof in its environment."""
    path = Path(str(facts["path"]))
    if not ground.holds(path) or not POINT.fullmatch(path.name):
        raise NotProvenOurs(f"{path} is no mount point of this results directory: not unmounted")
    for pid in own_mounts.client_processes(texts(facts, "argv")):
        if not carries(pid, ground.identity.store):
            raise NotProvenOurs(f"process {pid} is not of this results directory: not ended")


def undo_dfuse_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount our DFUSE at `path`, and end the dfuse with the recorded arguments."""
    if not same_boot:
        return ""
    path, argv = Path(text(facts, "path")), texts(facts, "argv")
    mount = mounts.mounted_at(path)
    if mount is not None and not dfuse_mount.is_dfuse(mount):
        raise NotProvenOurs(f"{path}: {mount.source} is mounted there, not DFUSE")
    if mount is None and not own_mounts.client_processes(argv):
        return ""
    try:
        own_mounts.detach_mount(path, argv)
    except OSError as error:
        raise not_unmounted(str(path), error) from error
    return f"unmounted {path}"


DFUSE_MOUNT = Kind(Stage.NETWORK_MOUNT, of_dfuse_mount, undo_dfuse_mount, ends_with_boot=True)
DAOS_CONTAINER = Kind(Stage.CONTAINER, of_server_thing, undo_daos_container)
DAOS_TREE = Kind(Stage.SERVER_TREE, of_server_thing, undo_daos_tree)
DAOS_POOL = Kind(Stage.POOL, of_server_thing, undo_daos_pool)
