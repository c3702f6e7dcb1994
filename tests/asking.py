"""What the machine and the user can do: the product's own questions, one place for all tests.

`why_not(what)` gives the reason why something cannot be used here, or "" if it can.  The
markers `root`, `loop`, `setuid` and `needs` of tests/conftest.py ask it.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from fsmatrix.backends.contract import BACKENDS
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.local import images, own_mounts
from fsmatrix.backends.player import player
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import ceph_testbed as ceph
from fsmatrix.slurm import testbed as slurm
from fsmatrix.suite.engines.engine import EngineError
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.registry import ENGINES, LAUNCHERS
from fsmatrix.traces.capture import strace as program

OPEN_MPI_4 = Path("/usr/bin/mpirun.openmpi")
COMPILER = tools.install("cc")


def loops() -> str:
    """Attaching images to loop devices, and mounting these."""
    return own_mounts.root_refusal() or images.loop_refusal()


def others() -> str:
    """Becoming another user."""
    return "" if os.geteuid() == 0 else "needs root (to become another user)"


def own_folders() -> str:
    """Another user in pytest's folders, as the one of a database, where root may bind them."""
    return own_mounts.root_refusal() if os.geteuid() == 0 else ""


def c_player() -> str:
    """The C player, in this installation."""
    return "" if player._native is not None else f"the C player is not built: {COMPILER}"


def io_uring() -> str:
    """The kernel's io_uring, by the C player."""
    return c_player() or player.driver_refusal("uring", 1024)


def compiler() -> str:
    """A C compiler that makes libraries."""
    return "" if _compiles("cc", "stdio.h") else f"no C compiler: {COMPILER}"


def extensions() -> str:
    """What builds an extension of this Python."""
    words = shlex.split(os.environ.get("CC", "") or sysconfig.get_config_var("CC") or "cc")
    folder = sysconfig.get_path("include")
    if _compiles(words[0], "Python.h", f"-I{folder}"):
        return ""
    return f"no C compiler with Python's headers: {tools.install('cc', 'Python.h')}"


def _compiles(program: str, header: str, *options: str) -> bool:
    if shutil.which(program) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        argv = [program, "-shared", "-fPIC", *options, "-x", "c", "-", "-o", f"{folder}/it.so"]
        text = f"#include <{header}>\n".encode()
        return subprocess.run(argv, input=text, capture_output=True, check=False).returncode == 0


def open_mpi_4() -> str:
    """The distribution's Open MPI."""
    if os.access(OPEN_MPI_4, os.X_OK):
        return ""
    return tools.lacking("mpirun.openmpi")


def bare_debian() -> str:
    """Making a bare Debian in a folder, and its file systems on loop devices."""
    return loops() or tools.missing("debootstrap")


def strace() -> str:
    """Tracing the calls of programs."""
    try:
        program.options()
    except ToolError as error:
        return str(error)
    return ""


QUESTIONS: Mapping[str, Callable[[], str]] = {
    "mounts": own_mounts.root_refusal,
    "loops": loops,
    "others": others,
    "own folders": own_folders,
    "bare debian": bare_debian,
    "emulated nodes": mpirun.refusal,
    "ceph": ceph.missing,
    "slurm": slurm.missing,
    "c player": c_player,
    "io_uring": io_uring,
    "compiler": compiler,
    "extensions": extensions,
    "open mpi 4": open_mpi_4,
    "strace": strace,
}


@functools.cache
def why_not(what: str) -> str:
    """The reason why `what` cannot be used here, "" if it can.

    `what`: one of QUESTIONS, or the name of an engine, a launcher or a backend.
    """
    if what in QUESTIONS:
        return QUESTIONS[what]()
    if what in ENGINES.names():
        try:
            ENGINES.load(what).probe()
        except EngineError as error:
            return str(error)
        return ""
    if what in LAUNCHERS.names():
        found = LAUNCHERS.load(what).probe()
        return "" if found.ok else f"launcher {what}: {found.reason}"
    usable = BACKENDS.load(what).check()
    return "" if usable.ok else f"{what}: {usable.reason}"


def first_refusal(*names: str) -> str:
    """The first reason why one of them cannot be used, "" if all can."""
    return next(filter(None, map(why_not, names)), "")
