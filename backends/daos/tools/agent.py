"""`daos_agent` on this node: whether it is there and answers, told from its socket alone.

libdaos waits for ever for an agent that hangs.  So before anything is asked of DAOS its socket is
connected to and the connection ended at once: an agent that works then ends its side too, which
takes it no more than reading an end of file.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fsmatrix.backends.errors import BackendError

FOLDER = "/var/run/daos_agent"  # unless DAOS_AGENT_DRPC_DIR says otherwise
PATIENCE = 5.0  # seconds for it to end a connection that was ended


def socket_path() -> Path:
    """Where libdaos looks for the agent."""
    return Path(os.environ.get("DAOS_AGENT_DRPC_DIR") or FOLDER) / "daos_agent.sock"


def require() -> None:
    """BackendError, within PATIENCE seconds, if no agent answers on this node."""
    path, host = socket_path(), socket.gethostname()
    start = "start it (systemctl start daos_agent)"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(path))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
    except FileNotFoundError:
        reason = f"does not run: there is no socket {path}: {start}, or set DAOS_AGENT_DRPC_DIR"
    except ConnectionRefusedError:
        reason = f"has died: nobody listens at its socket {path}: {start}"
    except ConnectionResetError:
        return  # it ended its side, and how does not matter
    except PermissionError:
        reason = f"cannot be reached: this user may not open its socket {path}"
    except (TimeoutError, BlockingIOError):
        reason = (
            f"hangs: at its socket {path} a connection was not ended within {PATIENCE:g} s: "
            "restart it"
        )
    except OSError as error:
        reason = f"cannot be reached at its socket {path}: {error}"
    else:
        return
    raise BackendError(f"daos_agent on {host} {reason}")
