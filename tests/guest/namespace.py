"""A network namespace with one address, in which a cluster and a guest meet."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS = "10.9.9.1"  # not 127.x: to the guest that is itself
_MAKE = f"ip link set lo up && ip address add {ADDRESS}/32 dev lo && echo ready && exec sleep 3600"
_END_SECONDS = 10.0


@contextmanager
def network() -> Iterator[list[str]]:
    """What to put in front of an argv so that it runs in the namespace.

    The namespace has no name: it is gone with the last process in it.
    """
    argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", _MAKE]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            raise OSError(f"no network namespace: {holder.stderr.read().strip()}")
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
    finally:
        holder.kill()
        holder.communicate(timeout=_END_SECONDS)
