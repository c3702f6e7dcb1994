"""Sessions of dead clients at the MDSs: ended, so that nobody waits for what they held.

An MDS keeps the capabilities of a client that vanished until its session times out (60 s), and
whoever needs them waits.  Only sessions of this very host are ended, with every recorded value.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.mounts.clients import FUSE, Mounted
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.errors import BackendError


def evict(login: Login, filesystem: str, *dead: Mapping[str, str]) -> int:
    """End the sessions of clients of this host with such metadata; returns how many.

    `dead`: for each client some values of client_metadata (pid, mount_point, root), at least one.
    BackendError if it is not allowed or the cluster does not answer: the MDSs end them, later.
    """
    if not all(dead):
        raise ValueError("one's host alone says not which client is meant")
    host, ended = {"hostname": socket.gethostname()}, 0
    with login.connect() as cluster:
        for mds in facts.active_mdss(cluster, filesystem):
            for session in cluster.mds(mds, "session ls"):
                metadata = session["client_metadata"].items()
                if any({**host, **values}.items() <= metadata for values in dead):
                    cluster.mds(mds, "client evict", filters=[f"id={session['id']}"])
                    ended += 1
    return ended


def farewell(mount: Mounted) -> None:
    """End the session of a mount that did not do so itself.

    If that is not possible now, the MDSs do it when its time is over.
    """
    recorded = {"root": mount.root}
    if mount.fstype == FUSE:
        recorded["mount_point"] = mount.path
    with contextlib.suppress(BackendError):
        evict(mount.login, mount.filesystem, recorded)
