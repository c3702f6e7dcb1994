"""How a container that was journalled proves to be ours, and is taken down again."""

from __future__ import annotations

from fsmatrix.backends.daos import containers
from fsmatrix.backends.journal.kinds import Kind, Stage
from fsmatrix.backends.journal.proof import Facts, of_server_thing


def undo_daos_container(facts: Facts, same_boot: bool) -> str:
    """Destroy the DAOS container `label` of `pool`, if it has the recorded `uuid`.

    Without one (a crash while it was made) the label, which holds random digits, is proof.
    """
    del same_boot  # it is on the servers
    gone = containers.destroy_recorded(facts)
    return f"destroyed container {facts['label']} of pool {facts['pool']}" if gone else ""


DAOS_CONTAINER = Kind(Stage.CONTAINER, of_server_thing, undo_daos_container)
