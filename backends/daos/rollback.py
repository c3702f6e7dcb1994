"""How containers and pools that were journalled prove to be ours, and are taken down again."""

from __future__ import annotations

from fsmatrix.backends.daos import containers
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


def undo_daos_pool(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS pool `name`, if it has the recorded `uuid`; as the container otherwise."""
    del same_boot  # it is on the servers
    return f"destroyed pool {facts['name']}" if levels.destroy_recorded(facts) else ""


DAOS_CONTAINER = Kind(Stage.CONTAINER, of_server_thing, undo_daos_container)
DAOS_POOL = Kind(Stage.POOL, of_server_thing, undo_daos_pool)
