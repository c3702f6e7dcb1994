"""The batch job that a process is part of, as its scheduler says (slurm/scheduler.py asks it)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CurrentJob:
    """Whose job it is, its id, and how often it was queued again; all empty outside of jobs."""

    scheduler: str = ""
    id: str = ""
    restarts: int = 0

    def __bool__(self) -> bool:
        return bool(self.id)


NO_JOB = CurrentJob()
