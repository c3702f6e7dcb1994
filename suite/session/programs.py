"""Programs that a step starts: full CPU set, an environment without MPI, a deadline.

subprocess starts children by vfork and exec here (no preexec_fn), which is safe in an MPI
process.  A program gets a process group of its own, so that its children end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

GRACE = 3.0
LOOK = 0.2  # seconds between two questions to `stop`
# What MPI libraries and process managers put into the environment of their ranks.
MPI_PREFIXES = (
    "OMPI_",
    "PMIX_",
    "PMI_",
    "PMI2_",
    "PRTE_",
    "OPAL_",
    "ORTE_",
    "HYDRA_",
    "HYDI_",
    "MPIR_",
    "MPI_LOCAL",
    "I_MPI_HYDRA",
    "MPIEXEC_",
    "PALS_",
    "MPI4PY_",
)


@dataclass(frozen=True)
class Finished:
    """How a program ended."""

    returncode: int  # negative: ended by that signal
    stdout: str
    stderr: str
    began: float  # Unix time
    ended: float
    timed_out: bool


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what MPI put there, plus `extra`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(MPI_PREFIXES)}
    return kept | dict(extra or {})


def run(
    argv: Sequence[str],
    cwd: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Finished:
    """Run a program to its end or its deadline (SIGTERM, then SIGKILL, to its group).

    `stop` is asked now and then; when it says so the program is ended in the same way.
    """
    began = time.time()
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Finished(127, "", f"{argv[0]}: {error.strerror}", began, time.time(), False)
    limit = time.monotonic() + timeout
    while True:
        left = max(limit - time.monotonic(), 0.0)
        try:
            out, err = process.communicate(timeout=left if stop is None else min(left, LOOK))
        except subprocess.TimeoutExpired:
            timed_out = time.monotonic() >= limit
            if timed_out or (stop is not None and stop()):
                out, err = end_group(process)
                break
        else:
            timed_out = False
            break
    return Finished(process.returncode, out, err, began, time.time(), timed_out)


def end_group(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a program that we started as a group leader, kindly first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=GRACE)
    return process.communicate()
