"""A directory of the suite's own in a CephFS, journalled: made before use, removed after it."""

from __future__ import annotations

import contextlib
import errno
import itertools

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.ceph.bindings.librados import CephError, Cluster
from fsmatrix.backends.ceph.options import CephfsOptions, ClientOptions
from fsmatrix.backends.ceph.places.trees import NothingDone, Tree
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import PREFIX

ENTRY = "cephfs-tree"  # kind of journal entry


def refusal(options: CephfsOptions) -> str:
    """Why these options cannot work: no cluster, access, file system, data pool, or option."""
    client = options.client if isinstance(options, ClientOptions) else {}
    try:
        with options.login.connect(options=client) as cluster:
            return _unfit(cluster, options)
    except BackendError as error:
        return str(error)


def _unfit(cluster: Cluster, options: CephfsOptions) -> str:
    found = facts.filesystem_of(cluster, options.filesystem)
    if options.data_pool and (reason := unfit(cluster, options.filesystem, options.data_pool)):
        return reason
    if not facts.active_mdss(cluster, found.name):
        return f"file system {found.name} has no active MDS"
    return ""


def unfit(cluster: Cluster, filesystem: str, pool: str) -> str:
    """Why a pool cannot hold files of a file system (empty: it can)."""
    found = facts.filesystem_of(cluster, filesystem)
    if pool in found.data_pools:
        return ""
    return (
        f"pool {pool} is no data pool of file system {found.name} (it has: "
        f"{', '.join(found.data_pools)}): ceph fs add_data_pool {found.name} {pool}"
    )


def make(options: CephfsOptions, context: ProvisionContext) -> Tree:
    """Make `fsmatrix-<tag>` (or `...-2` where that exists) in the given directory.

    An existing directory is never taken over, not even one with our tag.  BackendError if it
    cannot be made; what was made of it then is removed.
    """
    reason = refusal(options)
    if reason:
        raise BackendError(reason)
    with options.login.connect() as cluster:
        filesystem = facts.filesystem_of(cluster, options.filesystem).name
    for number in itertools.count(1):
        name = f"{PREFIX}{context.tag}" if number == 1 else f"{PREFIX}{context.tag}-{number}"
        tree = Tree(options.login, filesystem, options.directory, name, context.tag)
        entry = context.journal.begin(ENTRY, target=context.target, path=tree.path, **tree.facts)
        try:
            tree.make(options.layout)
        except NothingDone as error:
            context.journal.end(entry)
            if error.errno == errno.EEXIST:
                continue
            raise
        except CephError as error:
            if error.errno != errno.ETIMEDOUT:  # else the entry stays, and `finish` does it
                with contextlib.suppress(BackendError):
                    tree.remove(unmarked=True)
                    context.journal.end(entry)
            raise
        return tree
    raise AssertionError("itertools.count does not end")


def release(tree: Tree, context: ProvisionContext) -> None:
    """Remove it with everything in it; nothing if it is gone.  CephError if it is foreign."""
    tree.remove()
    context.journal.end_all(ENTRY, directory=tree.directory, name=tree.name)


def finish(context: ProvisionContext) -> None:
    """Remove what a failed provision or release of this process left."""
    for entry in context.journal.pending(ENTRY, target=context.target):
        if entry.is_own:
            Tree.of(entry.facts).remove(unmarked=True)
            context.journal.end(entry)
