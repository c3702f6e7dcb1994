"""Whether MPI and DAOS's libraries load into one process, as they must in every rank.

Both may bring a libfabric, and a process has one only.  With DAOS's folders in LD_LIBRARY_PATH, as
its modules set it, the Open MPI that pip installs gets theirs, and may not load.  mpi4py then takes
another libmpi where the machine has one, and does not say so.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fsmatrix.backends.daos.bindings import DAOS, DFS

PATH = "LD_LIBRARY_PATH"
SECONDS = 60.0  # for a process that loads them
_CURE = (
    "the folders in it bring other libraries than MPI's own, such as libfabric. "
    f"Unset {PATH}: DAOS's programs know where theirs are, and option library names the folder of "
    "libdfs; or use the MPI of the cluster"
)
_SCRIPT = """
import ctypes, json, re, sys
stage, libraries, library = "DAOS", sys.argv[2:], ""
try:
    if sys.argv[1] == "MPI":
        stage = "MPI"
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        with open("/proc/self/maps") as maps:
            library = next(iter(re.findall(r"(/.*/libmpi(?:ch)?\\.so.*)", maps.read())), "")
        stage = "DAOS"
    for name in libraries:
        ctypes.CDLL(name)
    stage = ""
    error = ""
except (ImportError, OSError, RuntimeError) as problem:
    error = " ".join(str(problem).split())
print(json.dumps([stage, error, library]))
"""


def clash(library: str = "") -> str:
    """Why they cannot be in one process (empty: they can, or one of them cannot be at all).

    `library`: folder of DAOS's libraries; empty: where the loader finds them.
    """
    return _clash(library, os.environ.get(PATH, ""))


@functools.cache
def _clash(library: str, path: str) -> str:
    names = [str(Path(library, name)) if library else name for name in (DAOS, DFS)]
    stage, error, library = _loaded("MPI", names, os.environ)
    if path:
        without = {name: value for name, value in os.environ.items() if name != PATH}
        stage_without, _, own = _loaded("MPI", [], without)
        if stage_without == "" and stage == "MPI":
            return f"MPI does not load with {PATH}={path} ({error}): {_CURE}"
        if stage_without == "" and own != library and not _holds(path, library):
            return (
                f"with {PATH}={path} mpi4py takes {library} without a word, since {own} does not "
                f"load: {_CURE}"
            )
    if not stage:
        return ""
    if stage == "DAOS" and _loaded("alone", names, os.environ)[0] == "":
        return (
            f"libdaos does not load beside MPI ({error}): both bring a libfabric. Use the MPI of "
            "the cluster (MPI4PY_LIBMPI names its library), built with the same one"
        )
    return ""


def _holds(path: str, library: str) -> bool:
    """Whether a library lies in a folder of LD_LIBRARY_PATH: then it is meant to be taken."""
    folders = (Path(folder).resolve() for folder in path.split(":") if folder)
    return Path(library).resolve().parent in folders


def _loaded(what: str, names: list[str], environment: Mapping[str, str]) -> tuple[str, str, str]:
    """What did not load (empty: all did), why, and the file of the MPI library."""
    argv = [sys.executable, "-P", "-c", _SCRIPT, what, *names]
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            start_new_session=True,  # a Ctrl-C is not for it
        )
        stage, error, library = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as problem:
        return what, f"the process that tried gave no answer: {problem}", ""
    return str(stage), str(error), str(library)
