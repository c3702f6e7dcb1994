"""How what was journalled of DAOS proves to be ours, and is taken down again."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.backends.clusters import client_mounts
from fsmatrix.backends.clusters.client_mounts import Recorded
from fsmatrix.backends.daos import containers, dfuse_mount, levels, libraries
from fsmatrix.backends.journal.proof import Facts, Stage, kind_on_servers
from fsmatrix.results.evidence.stored import text, texts


def _mount(facts: Facts) -> Recorded:
    """All DFUSE mounts have the same type and source."""
    return Recorded(Path(text(facts, "path")), texts(facts, "argv"), dfuse_mount.is_dfuse)


def _tree(facts: Facts) -> bool:
    """By the recorded container, which is not ours."""
    return containers.remove_recorded_tree(facts, libraries.library_folder(""))


DFUSE_MOUNT = client_mounts.kind_of("DFUSE", _mount)
# By its `uuid`; without one (a crash while it was made) the label, which holds random digits, is
# proof; and so of the pool.
DAOS_CONTAINER = kind_on_servers(
    Stage.CONTAINER, containers.destroy_recorded, "destroyed container {label} of pool {pool}"
)
DAOS_TREE = kind_on_servers(Stage.SERVER_TREE, _tree, "removed /{name} from container {container}")
DAOS_POOL = kind_on_servers(Stage.POOL, levels.Levels.remove, "destroyed pool {name}")
