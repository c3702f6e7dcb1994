"""A batch system whose jobs are processes: `plain`, an entry point of another package.

PLAIN_HOME/<job>/ holds a job: its script, token, log, and the process of each of its starts.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fsmatrix.results.process import NO_JOB, CurrentJob, Process
from fsmatrix.slurm.scheduler import BatchJob, JobState, Scheduler


class Plain(Scheduler):
    """One process for each start of a job; no limits, no nodes, no queue."""

    name = "plain"

    def current(self, environ: Mapping[str, str]) -> CurrentJob:
        job = environ.get("PLAIN_JOB", "")
        return CurrentJob(self.name, job, int(environ["PLAIN_RESTARTS"])) if job else NO_JOB

    def script(self, job: BatchJob) -> str:
        lines = ["#!/bin/sh", f"# {job.token}", f"cd {shlex.quote(str(job.directory))}"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()]
        return "\n".join([*lines, f"exec {shlex.join(job.command)}"]) + "\n"

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        home = Path(os.environ["PLAIN_HOME"])
        job = str(500 + len(list(home.iterdir())))
        (home / job).mkdir()
        text = script.read_text()
        (home / job / "script").write_text(text)
        (home / job / "token").write_text(text.splitlines()[1].removeprefix("# "))
        self._start(job, [self._process(other).pid for other in after])
        return job

    def jobs_of_user(self) -> dict[str, JobState]:
        found = {}
        for place in Path(os.environ["PLAIN_HOME"]).iterdir():
            alive = self._process(place.name).runs
            token = (place / "token").read_text()
            state = "running" if alive else "ended"
            found[place.name] = JobState(place.name, state, state.upper(), token)
        return found

    def cancel(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            with self._process(job).held() as handle:
                if handle is not None:
                    signal.pidfd_send_signal(handle, signal.SIGTERM)

    def requeue(self, job: str) -> None:
        self._start(job, [self._process(job).pid])

    def _start(self, job: str, after: Sequence[int]) -> None:
        """Start it when these processes have ended."""
        place = Path(os.environ["PLAIN_HOME"]) / job
        starts = len(list(place.glob("start-*")))
        lives = "grep -qs '^State:.[^ZX]'"  # a zombie is one that its parent has not asked after
        waits = [f"while {lives} /proc/{pid}/status; do sleep 0.05; done" for pid in after]
        env = {**os.environ, "PLAIN_JOB": job, "PLAIN_RESTARTS": str(starts)}
        with (place / "log").open("a") as log:
            child = subprocess.Popen(
                ["sh", "-c", "; ".join([*waits, f"exec sh {shlex.quote(str(place / 'script'))}"])],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = Process.of(child.pid)
        assert process is not None
        (place / f"start-{starts}").write_text(f"{process.pid} {process.start} {process.boot_id}")

    def _process(self, job: str) -> Process:
        place = Path(os.environ["PLAIN_HOME"]) / job
        newest = max(place.glob("start-*"), key=lambda path: int(path.name.partition("-")[2]))
        pid, start, boot_id = newest.read_text().split()
        return Process(int(pid), int(start), boot_id)
