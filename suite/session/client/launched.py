"""The processes of a session on this machine: started, what they printed, ended by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from fsmatrix.results.evidence.rank import Rank
from fsmatrix.results.process import Process, boot_id
from fsmatrix.suite.session.programs import clean_environment

TERM_SECONDS = 5.0
KEPT = 65536  # bytes of the end of an output
OUTPUTS = ("stdout", "stderr")


class Launched:
    """The launcher, and those ranks of this kernel that reported themselves."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        network: AbstractContextManager[None],
    ) -> None:
        """Start it in a network.  What it prints is kept in memory: a full disk may be told of."""
        self._printed = {name: os.memfd_create(name, os.MFD_CLOEXEC) for name in OUTPUTS}
        self._ranks: list[Process] = []  # of this kernel
        with network:
            self._process = subprocess.Popen(
                command,
                env=clean_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=self._printed["stdout"],
                stderr=self._printed["stderr"],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Processes of this kernel: the launcher and the ranks."""
        return [self.pid, *(rank.pid for rank in self._ranks)]

    def meet(self, ranks: Iterable[Rank]) -> None:
        """Remember those of a session's ranks that are on this kernel."""
        here = boot_id()
        pids = [rank.pid for rank in ranks if rank.boot_id == here]
        self._ranks = [rank for pid in pids if (rank := Process.of(pid)) is not None]

    def poll(self) -> int | None:
        """The launcher's exit status; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Whether the launcher ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the launcher, kindly first, and the ranks that are still the same processes."""
        if self.poll() is None:
            self._process.terminate()
            self.wait(TERM_SECONDS)
        for rank in self._ranks:
            with rank.held() as handle, contextlib.suppress(ProcessLookupError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        if self.poll() is None:
            self._process.kill()
            self.wait(TERM_SECONDS)  # a call into a file system that hangs ends with that

    def output(self, name: str) -> str:
        """The last 64 KiB of what was printed on "stdout" or "stderr"."""
        descriptor = self._printed[name]
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, KEPT, max(size - KEPT, 0)).decode(errors="replace")

    def close(self) -> None:
        """Forget what was printed."""
        while self._printed:
            os.close(self._printed.popitem()[1])
