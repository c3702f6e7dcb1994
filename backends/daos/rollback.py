"""How what was journalled of DAOS proves to be ours, and is taken down again."""

from __future__ import annotations

from fsmatrix.backends.daos import containers, trees
from fsmatrix.backends.daos.levels import levels
from fsmatrix.backends.journal.kinds import Kind, Stage
from fsmatrix.backends.journal.proof import Facts, of_server_thing


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
    gone = trees.remove_recorded(facts)
    return f"removed /{facts['name']} from container {facts['container']}" if gone else ""


def undo_daos_pool(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS pool `name`, if it has the recorded `uuid`; as the container otherwise."""
    del same_boot  # it is on the servers
    return f"destroyed pool {facts['name']}" if levels.destroy_recorded(facts) else ""


DAOS_CONTAINER = Kind(Stage.CONTAINER, of_server_thing, undo_daos_container)
DAOS_TREE = Kind(Stage.SERVER_TREE, of_server_thing, undo_daos_tree)
DAOS_POOL = Kind(Stage.POOL, of_server_thing, undo_daos_pool)
