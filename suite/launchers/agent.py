"""The launch agent: plays ssh for emulated client nodes of this machine.

`agent [options] HOST COMMAND...` runs COMMAND in a UTS namespace of its own with HOST as its
host name, so that MPI takes it for another node.  No network, no ssh, no /etc/hosts.  Without
root it needs unprivileged user namespaces.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become the command, inside the namespace."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)  # ssh's own options, such as hydra's -x
    if len(words) < 2:
        sys.exit("usage: agent [options] HOST COMMAND...")
    host, command = words[0], " ".join(words[1:])
    namespaces = ["--uts"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--uts"]
    inner = 'hostname "$1" && exec sh -c "$2"'
    os.execvp("unshare", ["unshare", *namespaces, "sh", "-c", inner, "agent", host, command])


if __name__ == "__main__":
    main()
