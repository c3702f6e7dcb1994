"""Child process of `folders`: makes or removes one directory of a container and says so.

The request is one JSON object on standard input; the answer is the last line of standard output:
{"error": reason}, empty if it is done.  The parent kills the process if it does not come in time.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from fsmatrix.backends.daos.bindings.libdfs import Dfs, DfsError
from fsmatrix.backends.system.libc import libc

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """When the parent dies, so does this process: it may hang, and nobody else would end it."""
    request = json.load(sys.stdin)
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:
        os._exit(1)  # it died before that
    reason = ""
    try:
        where = (request[name] for name in ("pool", "container", "system", "library"))
        with Dfs(*where) as dfs:
            {"make": dfs.make, "remove": dfs.remove}[request["do"]](request["path"])
    except DfsError as error:
        reason = str(error)
    print(json.dumps({"error": reason}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
