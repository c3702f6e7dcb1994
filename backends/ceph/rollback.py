"""How what Ceph's backends journal proves to be ours, and is taken down again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fsmatrix.backends.ceph import levelstate, rados, trees
from fsmatrix.backends.ceph.mounts import FUSE, Mounted, evict_session, is_ours
from fsmatrix.backends.clusters import client_mounts
from fsmatrix.backends.clusters.client_mounts import Recorded
from fsmatrix.backends.journal.proof import Facts, Stage, kind_on_servers
from fsmatrix.results.evidence.stored import read, texts


def _mount(facts: Facts) -> Recorded:
    """By type, source and root."""
    own = read(Mounted, facts, "facts")
    client = texts(facts, "argv") if own.fstype == FUSE else ()
    return Recorded(Path(own.path), client, partial(is_ours, own=own), partial(evict_session, own))


def _tree(facts: Facts) -> bool:
    """By its marker; an empty one without it too: its name holds the tag, as in `undo_tree`."""
    return trees.Tree.of(facts).remove(unmarked=True)


def _space(facts: Facts) -> bool:
    """By its marker."""
    return rados.Space.of(facts).remove()


def _level(facts: Facts) -> bool:
    """By the mark of its pool; pool, rule and root share a name that holds random digits."""
    return levelstate.remove(read(levelstate.Recorded, facts, "facts"))


CEPHFS_MOUNT = client_mounts.kind_of("our CephFS", _mount)
CEPHFS_TREE = kind_on_servers(
    Stage.SERVER_TREE, _tree, "removed directory {path} of CephFS {filesystem}"
)
RADOS_SPACE = kind_on_servers(Stage.NAMESPACE, _space, "removed namespaces {prefix} of pool {pool}")
CEPH_LEVEL = kind_on_servers(Stage.POOL, _level, "removed CRUSH root, rule and pool {name}")
