"""A rank of a session: `python -P -m fsmatrix.suite.session --channel SOCKET [...]`.

Imports numpy, mpi4py and the player and nothing else (leaders import their backend when it
is first needed).  A rank that raises prints one line that the conductor understands and ends
the whole session: the conductor records the run as failed and starts a new session.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fsmatrix.backends.system.libc import enter_network, libc
from fsmatrix.suite.session import wire

if TYPE_CHECKING:
    from fsmatrix.suite.session.comm import Comm

_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_SLACK = 20_000_000  # ns


@contextmanager
def _lazily() -> Iterator[None]:
    """Short sleeps last until the kernel's next tick meanwhile.

    In MPI_Init Open MPI looks every 0.1 ms whether all ranks are there: 128 ranks on two CPUs
    left nothing to the daemons that they wait for, and took minutes.
    """
    libc().prctl(_PR_SET_TIMERSLACK, _SLACK, 0, 0, 0)
    try:
        yield
    finally:
        libc().prctl(_PR_SET_TIMERSLACK, 0, 0, 0, 0)  # as it was


def _world_comm(solo: bool) -> tuple[Comm, str]:
    from fsmatrix.suite.session.comm import MpiComm, SoloComm

    if solo:
        return SoloComm(), "none"
    with _lazily():
        from mpi4py import MPI

    # objects travel between our ranks as JSON, never as pickles
    MPI.pickle.__init__(  # type: ignore[misc]
        lambda value, protocol=None: json.dumps(value).encode(),  # noqa: ARG005
        lambda data: json.loads(bytes(data)),
    )
    return MpiComm(MPI.COMM_WORLD), MPI.Get_library_version().split("\n")[0].strip("\0 ")


def _out_of_the_session(folder: Path) -> None:
    """Folders of programs lie beside the session's, which MPI needs and no other user may enter."""
    if os.environ.get("TMPDIR") == str(folder):
        os.environ["TMPDIR"] = str(folder.parent)


def main() -> None:
    """Serve commands until the conductor closes its channel."""
    channel = Path(sys.argv[sys.argv.index("--channel") + 1])
    identity: dict[str, str | int] = {"host": platform.node()}
    try:
        comm, library = _world_comm("--solo" in sys.argv)
        if "--network" in sys.argv:  # MPI listens where it began, in a network of its own
            enter_network(sys.argv[sys.argv.index("--network") + 1])
        identity["rank"] = comm.rank
        _out_of_the_session(channel.parent)
        from fsmatrix.suite.session.serve import Server

        conductor = None if comm.rank else wire.connect(channel)
        Server(comm, conductor, library).serve()
    except wire.ChannelClosed:
        sys.stdout.flush()
        os._exit(0 if comm.rank else 70)
    except BaseException as error:  # noqa: BLE001 - told to the conductor, then it ends
        facts = identity | {
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        print(wire.ERROR_MARK + json.dumps(facts), file=sys.stderr, flush=True)
        os._exit(71)


if __name__ == "__main__":
    main()
