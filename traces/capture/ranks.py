"""The ranks of an MPI program: each has a strace of its own, whose texts become one trace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.files import atomic_write
from fsmatrix.traces.capture import program
from fsmatrix.traces.capture.text import HEADER

# Where launchers tell a process its rank, the surest first.
VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
END = ".strace"


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Our rank.  ToolError if no launcher has started us."""
    for variable in VARIABLES:
        value = environment.get(variable, "")
        if value.isdecimal() and len(value) < 8:
            return int(value)
    raise ToolError(
        f"no rank: none of {', '.join(VARIABLES)} is set; start it by mpirun, mpiexec or srun"
    )


def run(command: Sequence[str], roots: Sequence[Path], folder: Path) -> int:
    """Run our rank's part of a command; its text appears in `folder`.  The exit status.

    ToolError if it cannot be started; OSError if the text cannot be written.
    """
    number = rank()
    path = folder / f"rank-{number}{END}"
    with work_folder() as work:
        text = work / "text"
        facts = {
            "rank": number,
            "folder": str(Path.cwd()),
            "roots": [str(root.absolute()) for root in roots],
            "command": list(command),
        }
        status = program.run(command, text)
        with (
            atomic_write.naming(path),
            atomic_write.replacing(path) as aside,
            text.open("rb") as source,
            aside.open("xb") as target,
        ):
            target.write(HEADER + json.dumps(facts).encode("ascii") + b"\n")
            shutil.copyfileobj(source, target)
    return status
