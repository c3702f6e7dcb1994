"""Which MPI library mpi4py loads in the ranks, and with which program's MPI it belongs."""

from __future__ import annotations

import os
from pathlib import Path

OPEN_MPI, MPICH = "openmpi", "mpich"
MPICH_NAME = "libmpi.so.12"  # what mpi4py asks for (Intel MPI's too); Debian: libmpich.so.12


def family(library: str) -> str:
    """OPEN_MPI or MPICH by the library's file name; "" if there is none."""
    if not library:
        return ""
    return MPICH if "mpich" in Path(library).name or library.endswith(".so.12") else OPEN_MPI


def environment(library: str, scratch: str) -> dict[str, str]:
    """What makes mpi4py load `library`; {} without one: its own choice.

    For Open MPI, mpi4py loads the file itself, but only if MPI4PY_MPIABI is not set.  MPICH's
    is found by its name: in its own folder, or as the link that `prepare` makes in `scratch`.
    """
    if family(library) == OPEN_MPI:
        return {"MPI4PY_LIBMPI": library}
    if family(library) == MPICH:
        named = Path(library).name == MPICH_NAME
        folder = str(Path(library).parent) if named else scratch
        before = os.environ.get("LD_LIBRARY_PATH", "")
        path = f"{folder}:{before}" if before else folder
        return {"MPI4PY_MPIABI": MPICH, "LD_LIBRARY_PATH": path}
    return {}


def memory_in(folder: str) -> dict[str, str]:
    """What makes Open MPI, whichever build, keep its shared memory in a folder of ours.

    It leaves the memory where a program ends without MPI_Finalize, also by its own `exit`.
    """
    names = ("sm", "vader")  # since 5.0, and before
    memory = {f"OMPI_MCA_btl_{name}_backing_directory": folder for name in names}
    return memory | {"UCX_POSIX_DIR": folder}  # Open MPI of distributions speaks by UCX


def prepare(library: str, scratch: str) -> None:
    """Give MPICH's library the name that mpi4py asks for, where it has another.

    The link is in this machine's scratch folder: other machines need a library of that name.
    """
    if family(library) == MPICH and Path(library).name != MPICH_NAME:
        (Path(scratch) / MPICH_NAME).symlink_to(library)
