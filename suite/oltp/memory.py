"""The memory of a database while its users work: limited, and what became of it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fsmatrix.backends.journal.journal import Journal, limited
from fsmatrix.backends.system import cgroups
from fsmatrix.suite.oltp.account import OltpError, Task
from fsmatrix.suite.oltp.answers import Answer

MIB = 1 << 20


def within(task: Task, do: Callable[[Path | None], Answer]) -> Answer:
    """The answer of `do`, which gets the cgroup of a task that limits memory, or None.

    With what the memory was used for.  OltpError if the kernel killed a process because the
    memory was too little, whatever `do` says; BackendError if memory cannot be limited.
    """
    if not task.memory:
        return do(None)
    journal = Journal(Path(task.journal) / f"{platform.node()}.jsonl")
    with limited(task.memory, journal) as folder:
        try:
            answer = do(folder)
        except OltpError as error:
            if killed := _killed(folder):
                raise OltpError(f"{killed}; {error}") from error
            raise
        if killed := _killed(folder):
            raise OltpError(killed)
        return replace(answer, memory=cgroups.memory_used(folder))


def _killed(folder: Path) -> str:
    """That the memory was too little, in a sentence (empty: it was not)."""
    use = cgroups.memory_used(folder)
    if not use.oom_kills:
        return ""
    killed = "1 process" if use.oom_kills == 1 else f"{use.oom_kills} processes"
    return (
        f"out of memory: the kernel killed {killed} of the database, which had memory: "
        f"{use.limit // MIB} MiB (page cache included)"
    )
