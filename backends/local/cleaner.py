"""The cleaner of NILFS2 (nilfs_cleanerd): started on a mount of ours, found again, and ended.

It makes itself a daemon, so nobody waits for it.  It is known by its whole argument list, which
holds the mount point, and by the store's proof in its environment; it is ended before the unmount.
What a killed session leaves of it is ended with the other processes of that session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.proof import carries
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.units import Duration

GC = "gc"  # attribute of targets
PROGRAM = "nilfs_cleanerd"
NONE = "none"
START_SECONDS = 10.0
_LOOK = 0.02
_CONFIGURATION = 9  # descriptor; a shell knows those of one digit


class CleanerOptions(BaseModel):
    """How NILFS2 collects its garbage: three settings of nilfs_cleanerd.conf(5)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protection_period: Duration = Field(
        3600.0, description="how long what was overwritten stays for recovery; whole seconds"
    )
    segments: Annotated[int, Field(strict=True, ge=1, le=32)] = Field(
        2, description="segments that are cleaned in one step"
    )
    interval: Duration = Field(5.0, description="time between two steps")

    @field_validator("protection_period", "interval")
    @classmethod
    def _whole(cls, value: float) -> float:
        if not value.is_integer():
            raise ValueError(f"nilfs_cleanerd takes whole seconds, not {value:g}")
        return value

    @field_validator("interval")
    @classmethod
    def _pause(cls, value: float) -> float:
        if value < 1:
            raise ValueError("must be at least one second between two steps")
        return value

    @property
    def level(self) -> str:
        """As the factor `gc` has it: "protection=1,segments=2,interval=5"."""
        return (
            f"protection={self.protection_period:g},segments={self.segments},"
            f"interval={self.interval:g}"
        )

    def text(self) -> str:
        """As the cleaner reads it: it cleans always, however much is free."""
        return (
            f"protection_period {self.protection_period:g}\n"
            "min_clean_segments 0\n"
            f"clean_check_interval {self.interval:g}\n"
            "selection_policy timestamp\n"
            f"nsegments_per_clean {self.segments}\n"
            f"mc_nsegments_per_clean {self.segments}\n"
            f"cleaning_interval {self.interval:g}\n"
            f"mc_cleaning_interval {self.interval:g}\n"
            "retry_interval 60\n"
            "use_mmap\n"
            "log_priority info\n"
        )


def argv(details: JsonObject) -> list[str]:
    """The command; it inherits its configuration, so that no file of it can be left."""
    configuration = f"/proc/self/fd/{_CONFIGURATION}"
    return [PROGRAM, "-c", configuration, str(details["device"]), str(details["point"])]


def start(details: JsonObject, journal: Journal) -> None:
    """Start it on the mount; harmless if it runs.  ToolError if it does not work."""
    words = argv(details)
    if own_mounts.client_processes(words):
        return
    if reason := tools.missing(PROGRAM):
        raise ToolError(reason)
    script = f'exec {_CONFIGURATION}<&0; exec "$@"'
    with os.fdopen(os.memfd_create(PROGRAM), "w+b") as configuration:
        configuration.write(str(details["cleaner"]).encode())
        configuration.flush()
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", script, "sh", *words],
                cwd="/",
                env={**os.environ, "PATH": tools.path(), **journal.identity.environment},
                stdin=configuration,
                stdout=subprocess.DEVNULL,  # a daemon keeps what it gets
                stderr=subprocess.DEVNULL,
                timeout=START_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolError(f"{PROGRAM} cannot be started: {error}") from error
    deadline = time.monotonic() + START_SECONDS
    while not any(_works(pid) for pid in own_mounts.client_processes(words)):
        if done.returncode or time.monotonic() > deadline:
            end(details, journal)
            raise ToolError(
                f"{PROGRAM} does not work on {details['device']}: it says why in the syslog only "
                "(it needs /dev/shm)"
            )
        time.sleep(_LOOK)


def _works(pid: int) -> bool:
    """It has its lock: the last thing that it takes before it reads its configuration."""
    try:
        return "/dev/shm/sem." in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def end(details: JsonObject, journal: Journal) -> None:
    """End it; harmless if there is none.  BackendError if it does not end."""
    words, store = argv(details), journal.identity.store
    for number in (signal.SIGTERM, signal.SIGKILL):
        ours = [pid for pid in own_mounts.client_processes(words) if carries(pid, store)]
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + START_SECONDS
        while any(pid in ours for pid in own_mounts.client_processes(words)):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK)
        else:
            return
    raise BackendError(f"{PROGRAM} on {details['point']} cannot be ended")
