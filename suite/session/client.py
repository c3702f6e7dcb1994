"""A session as the conductor sees it: start, ask, and end whatever happens.

The conductor sleeps on the session's channel, on the launcher's end and on its own wake-up
pipe (signals).  A session that died or passed a deadline is ended: SIGTERM to the launcher
first, then SIGKILL to the launcher and to those ranks of this kernel that are still the
processes that reported themselves (pid and start time).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsmatrix.results.case import Geometry
from fsmatrix.results.process import Process, boot_id
from fsmatrix.suite.launchers.base import Launcher
from fsmatrix.suite.leftovers import SCRATCH, Scratch, remove_program_scratch
from fsmatrix.suite.session import loopback, wire
from fsmatrix.suite.session.death import (
    DeadlinePassed,
    NodeError,
    SessionDied,
    SessionError,
    explain_death,
)
from fsmatrix.suite.session.programs import clean_environment
from fsmatrix.suite.session.wire import Arrays, ChannelClosed
from fsmatrix.suite.workloads.base import Where

START_SECONDS = 120.0
END_SECONDS = 10.0
STOP_SECONDS = 2.0  # between the first and the last process of a job that hears of its end
AT_ONCE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TERM_SECONDS = 5.0
KEPT_STDERR = 65536


class Interrupted(Exception):
    """The user or the batch system asked to stop."""


class StopFlag:
    """Signals become a number and a byte in a pipe; nothing is raised inside a handler."""

    def __init__(self) -> None:
        self.signal = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        for number in (*AT_ONCE, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        self.signal = number
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """For select."""
        return self._read

    @property
    def at_once(self) -> bool:
        """SIGINT, SIGTERM and SIGHUP abandon the current run; SIGUSR1 lets it end."""
        return self.signal in AT_ONCE


@dataclass(frozen=True)
class Reply:
    """What a session answered."""

    message: dict[str, Any]
    arrays: Arrays


class Session:
    """One MPI world that stays up; use as a context manager."""

    def __init__(
        self,
        launcher: Launcher,
        geometry: Geometry,
        stop: StopFlag,
        start_seconds: float = START_SECONDS,
        scratch: Scratch | None = None,
        in_job: bool = False,
    ) -> None:
        """`in_job`: a batch system tells all processes of its job, this one too, to end."""
        self._scratch = scratch
        self._folder = _folder(scratch)
        self.launcher = replace(launcher, scratch=self._folder)
        if scratch is not None:
            memory = str(scratch.folders[1]) if len(scratch.folders) > 1 else ""
            self.launcher = replace(self.launcher, memory=memory, store=scratch.own.store)
        self.geometry = geometry
        self.stop = stop
        self._start_seconds = start_seconds
        self._in_job = in_job
        self.hello: dict[str, Any] = {}
        self.launched: tuple[str, ...] = ()  # the launcher's own words, before the program's
        self._ranks: list[Process] = []  # of this kernel
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.alive = False

    # -- life ------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the world and wait for its hello; SessionError if it does not come up."""
        self.launcher.prepare()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address = str(Path(self._folder) / "channel")
        listener.bind(address)
        listener.listen(1)
        argv = [sys.executable, "-P", "-m", "fsmatrix.suite.session", "--channel", address]
        if not self.launcher.needs_mpi:
            argv.append("--solo")
        env = self.launcher.environment() | self.launcher.proof
        command = self.launcher.command(argv, self.geometry, env)
        own = command[: len(command) - len(argv)]
        self.launched = tuple(map(self._told, own))
        self._process = subprocess.Popen(
            command,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=self._capture("stdout"),
            stderr=self._capture("stderr"),
            start_new_session=True,
        )
        self.alive = True
        try:
            self._accept(listener)
        except BaseException:
            self.kill()
            raise
        finally:
            listener.close()

    def _told(self, word: str) -> str:
        """A word of the launcher, without what is drawn for each session or store."""
        known = {self.launcher.memory: "$MEMORY", self._folder: "$SCRATCH"}
        known[self.launcher.store] = "$STORE"
        for drawn, name in known.items():
            word = word.replace(drawn, name) if drawn else word
        return word

    def _capture(self, name: str) -> int:
        return os.open(Path(self._folder) / name, os.O_CREAT | os.O_WRONLY, 0o600)

    def _accept(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + self._start_seconds
        self._wait(listener, deadline, "the session did not start")
        self._channel, _ = listener.accept()
        self.hello = self._receive(deadline, "the session did not start").message
        asked, got = self.geometry.processes, len(self.hello["ranks"])
        if asked != got:
            raise SessionError(
                f"asked for a world of {asked} ranks, MPI made one of {got}: the launcher "
                f"{self.launcher.name!r} ({self.launcher.found.program}) does not belong to the "
                f"MPI library of mpi4py ({self.hello['mpi']}){self._cure()}"
            )
        here = boot_id()
        pids = [rank["pid"] for rank in self.hello["ranks"] if rank["boot_id"] == here]
        self._ranks = [rank for pid in pids if (rank := Process.of(pid)) is not None]
        if self.only_here and self._process is not None:
            loopback.keep_local(self._process.pid)

    @property
    def only_here(self) -> bool:
        """Whether nobody on another machine must reach the launcher or a rank."""
        here = boot_id()
        alone = all(rank["boot_id"] == here for rank in self.hello["ranks"])
        return alone and self.launcher.stays_here(self.geometry)

    def close(self) -> None:
        """End in good order, or by force; removes the session's folder."""
        if self.alive:
            try:
                self.request({"do": "quit", "to": self.everybody()}, END_SECONDS, urgent=True)
                assert self._process is not None
                self._process.wait(END_SECONDS)
                self.alive = False
            except (SessionError, subprocess.TimeoutExpired):
                self.kill()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._scratch is not None:
            self._scratch.remove()
        else:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End everything that this session started, by pid."""
        self.alive = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERM_SECONDS)
        for rank in self._ranks:
            with rank.held() as handle, contextlib.suppress(ProcessLookupError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERM_SECONDS)  # a call into a file system that hangs ends with that
        remove_program_scratch(rank.pid for rank in self._ranks)

    # -- talk ------------------------------------------------------------------------------
    def everybody(self) -> list[int]:
        """All ranks."""
        return [rank["rank"] for rank in self.hello["ranks"]]

    @property
    def kernels(self) -> list[int]:
        """One leader per kernel and mount namespace."""
        return list(self.hello["kernels"])

    @property
    def pids(self) -> list[int]:
        """Processes of this kernel: the launcher and the ranks."""
        own = [self._process.pid] if self._process else []
        return [*own, *(rank.pid for rank in self._ranks)]

    def members(self, geometry: Geometry) -> list[int]:
        """World ranks of a run, node after node: the same number on each of its nodes."""
        ranks = sorted(self.hello["ranks"], key=lambda rank: (rank["node"], rank["node_rank"]))
        return [
            rank["rank"]
            for rank in ranks
            if rank["node"] < geometry.nodes and rank["node_rank"] < geometry.processes_per_node
        ]

    def addressed(self, where: Where, geometry: Geometry) -> list[int]:
        """Who carries a step out: every rank, one on each node, or rank 0.

        The others sleep on: nothing runs beside a program.
        """
        members = self.members(geometry)
        if where == "rank":
            return members
        ranks = self.hello["ranks"]
        leaders = [rank for rank in members if ranks[rank]["node_rank"] == 0]
        return leaders if where == "node" else leaders[:1]

    def request(self, command: Mapping[str, Any], seconds: float, urgent: bool = False) -> Reply:
        """Send a command and wait for its answer.

        DeadlinePassed after `seconds`, SessionDied with the reason if the session ended,
        Interrupted when the user wants to stop at once (not if `urgent`).  After each of them
        the session is ended: its late answer would be taken for that of the next command.
        """
        if self._channel is None:
            raise SessionDied("the session has ended")
        try:
            wire.send(self._channel, command)
        except ChannelClosed as error:
            raise self._death(urgent) from error
        deadline = time.monotonic() + seconds
        try:
            return self._receive(deadline, f"no answer within {seconds:g} s", urgent)
        except (SessionError, Interrupted):
            self.kill()
            raise

    def call(
        self,
        function: str,
        access: Mapping[str, Any],
        journal: Path,
        seconds: float,
        urgent: bool = False,
        only_first: bool = False,
        **arguments: Any,
    ) -> list[dict[str, Any]]:
        """A backend's node-side method on every kernel (or one); NodeError with what failed."""
        reply = self.request(
            {
                "do": "call",
                "to": self.kernels[:1] if only_first else self.kernels,
                "function": function,
                "access": dict(access),
                "journal": str(journal),
                "arguments": arguments,
            },
            seconds,
            urgent,
        )
        return self.checked(reply, function)

    @staticmethod
    def checked(reply: Reply, what: str) -> list[dict[str, Any]]:
        """The answers of all kernels, none of which failed."""
        answers: list[dict[str, Any]] = reply.message["answers"]
        for answer in answers:
            if "error" in answer:
                raise NodeError(
                    f"{what} on {answer['host']}: {answer['error']}", host=answer["host"]
                )
        return answers

    def _receive(self, deadline: float, late: str, urgent: bool = False) -> Reply:
        assert self._channel is not None
        self._wait(self._channel, deadline, late, urgent)
        self._channel.settimeout(max(deadline - time.monotonic(), 1.0))
        try:
            return Reply(*wire.receive(self._channel))
        except TimeoutError as error:
            raise DeadlinePassed(late) from error
        except ChannelClosed as error:
            raise self._death(urgent) from error

    def _wait(self, sock: socket.socket, deadline: float, late: str, urgent: bool = False) -> None:
        """Until `sock` can be read; sleeps, except for a look at the launcher now and then."""
        assert self._process is not None
        watched: Sequence[Any] = [sock] if urgent else [sock, self.stop]
        while True:
            if self.stop.at_once and not urgent:
                raise Interrupted
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(late)
            ready = select.select(watched, [], [], min(left, 0.5))[0]
            if sock in ready:
                return
            if ready:
                watched = [sock]  # a signal that lets the run end
            if self._process.poll() is not None and not select.select([sock], [], [], 0.2)[0]:
                raise self._death(urgent)

    # -- what its end tells ------------------------------------------------------------------
    def output(self, name: str) -> str:
        """The last 64 KiB of what the session printed on "stdout" or "stderr"."""
        with (Path(self._folder) / name).open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(stream.tell() - KEPT_STDERR, 0))
            return stream.read().decode(errors="replace")

    def _death(self, urgent: bool) -> SessionDied | Interrupted:
        """Why the session is gone; Interrupted if everything here is being stopped."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        if not urgent and self._is_stopped():
            return Interrupted()
        text = self.output("stdout") + self.output("stderr")  # hydra speaks on stdout
        died = explain_death(text, self._process.poll(), self.hello.get("ranks", []))
        if self.hello or "rank" in died.facts:
            return died
        return SessionDied(f"{died}{self._cure('if MPI did not start: ')}", **died.facts)

    def _is_stopped(self) -> bool:
        """Whether everything is being stopped: of all processes of a job this one may hear last."""
        if self._in_job and not self.stop.at_once:
            select.select([self.stop], [], [], STOP_SECONDS)
        return self.stop.at_once

    def _cure(self, when: str = "") -> str:
        return f"; {when}{self.launcher.cure}" if self.launcher.cure else ""


def _folder(scratch: Scratch | None) -> str:
    """The session's own folder, made."""
    if scratch is None:
        return tempfile.mkdtemp(prefix=SCRATCH)
    scratch.make()
    return str(scratch.folders[0])
