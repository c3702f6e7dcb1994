"""Whether MPI and DAOS's libraries load into one process, as they must in every rank.

Both may bring a libfabric, and a process has one only.  With DAOS's folders in LD_LIBRARY_PATH, as
its modules set it, the Open MPI that pip installs gets theirs, and may not load.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fsmatrix.backends.daos.bindings.libdfs import DAOS, DFS

PATH = "LD_LIBRARY_PATH"
SECONDS = 60.0  # for a process that loads them
_SCRIPT = """
import ctypes, json, sys
stage, libraries = "DAOS", sys.argv[2:]
try:
    if sys.argv[1] == "MPI":
        stage = "MPI"
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        stage = "DAOS"
    for name in libraries:
        ctypes.CDLL(name)
    stage = ""
    error = ""
except (ImportError, OSError, RuntimeError) as problem:
    error = " ".join(str(problem).split())
print(json.dumps([stage, error]))
"""


def clash(library: str = "") -> str:
    """Why they cannot be in one process (empty: they can, or one of them cannot be at all).

    `library`: folder of DAOS's libraries; empty: where the loader finds them.
    """
    return _clash(library, os.environ.get(PATH, ""))


@functools.cache
def _clash(library: str, path: str) -> str:
    names = [str(Path(library, name)) if library else name for name in (DAOS, DFS)]
    stage, error = _loaded("MPI", names, os.environ)
    if not stage:
        return ""
    without = {name: value for name, value in os.environ.items() if name != PATH}
    if stage == "MPI" and path and _loaded("MPI", [], without)[0] == "":
        return (
            f"MPI does not load with {PATH}={path} ({error}): its folders bring other libraries "
            f"than MPI's own, such as libfabric. Unset {PATH}: DAOS's programs know where theirs "
            "are, and option library names the folder of libdfs; or use the MPI of the cluster"
        )
    if stage == "DAOS" and _loaded("alone", names, os.environ)[0] == "":
        return (
            f"libdaos does not load beside MPI ({error}): both bring a libfabric. Use the MPI of "
            "the cluster (MPI4PY_LIBMPI names its library), built with the same one"
        )
    return ""


def _loaded(what: str, names: list[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """What did not load (empty: all did), and why."""
    argv = [sys.executable, "-P", "-c", _SCRIPT, what, *names]
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        stage, error = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as problem:
        return what, f"the process that tried gave no answer: {problem}"
    return str(stage), str(error)
