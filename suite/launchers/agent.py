"""The launch agent: plays ssh for emulated client nodes of this machine.

`agent [options] HOST COMMAND...` runs COMMAND in a UTS namespace of its own with HOST as its
host name, so that MPI takes it for another node.  No network, no ssh, no /etc/hosts.  Without
CAP_SYS_ADMIN it needs unprivileged user namespaces.
"""

from __future__ import annotations

import os
import sys

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.rights import Capability, has

ASK_SECONDS = 20
LEAVING = "setpriv --ambient-caps -all --inh-caps -all"


def main() -> None:
    """Become the command, inside the namespace."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)  # ssh's own options, such as hydra's -x
    if len(words) < 2:
        sys.exit("usage: agent [options] HOST COMMAND...")
    host, command = words[0], " ".join(words[1:])
    inner = f'hostname "$1" && exec {LEAVING} sh -c "$2"'
    argv = [*_entering(), "sh", "-c", inner, "agent", host, command]
    os.execve(argv[0], argv, {**os.environ, "PATH": tools.path()})


def refusal() -> str:
    """Why no client nodes can be emulated here (empty: they can): it is tried."""
    argv = [*_entering(), "sh", "-c", f'hostname "$(hostname)" && exec {LEAVING} true']
    try:
        done = tools.run(argv, ASK_SECONDS, check=False)
    except ToolError as error:
        reason = str(error)
    else:
        if not done.returncode:
            return ""
        reason = " ".join(done.stderr.split())
    return f"client nodes cannot be emulated here, which needs a UTS namespace: {reason}"


def _entering() -> list[str]:
    """The beginning of an argv that goes on in a UTS namespace of its own.

    In a user namespace the user stays who it is (Open MPI's daemons refuse to be root's there),
    with what it takes to set the host name; LEAVING gives that up.
    """
    may_mount = has(Capability.CAP_SYS_ADMIN)
    namespaces = [] if may_mount else ["--user", "--map-current-user", "--keep-caps"]
    return [tools.find("unshare") or "/usr/bin/unshare", *namespaces, "--uts"]


if __name__ == "__main__":
    main()
