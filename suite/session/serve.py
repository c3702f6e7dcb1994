"""The commands of a session, as its ranks and node leaders carry them out.

A node leader works for its kernel: backend calls, cache states, counters, sampling.  Backends are
imported when first needed and by leaders only: ranks stay small.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import os
import platform
import select
import socket
import threading
import time
from collections.abc import Set
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.player.ops import Place
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, inside, text
from fsmatrix.suite.session import programs, stream, wire
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import (
    COMMANDS,
    Answer,
    Answers,
    Argv,
    Call,
    Command,
    Function,
    Hello,
    Joined,
    KernelUse,
    Quit,
    RankOutput,
    RankUse,
    SampledKernel,
    Samples,
    StepAnswer,
    StepCommand,
    Watch,
)
from fsmatrix.suite.session.programs import Finished
from fsmatrix.suite.session.stream import Offset, run_stream
from fsmatrix.suite.session.survey import survey
from fsmatrix.suite.session.wire import PROGRAMS_LOOK, Arrays, telling

if TYPE_CHECKING:
    from fsmatrix.backends.access import Access
    from fsmatrix.backends.contract import Backend

SAMPLE_SECONDS = 0.1

# The session as one of its ranks sees it: leaders, and the channels between ranks.
#
# Ranks of a node wait on a socket of their node's leader and burn nothing.  Rank 0 waits on
# the conductor's socket; the other leaders poll MPI with a back-off from 1 to 20 ms.


BACKOFF = (0.001, 0.020)
FAN = 8  # leaders that one leader passes a command on to
LOST = 5.0  # seconds in which a launcher ends the session of which it has seen a rank end


def backend_of(access: JsonObject) -> tuple[type[Backend], Access]:
    """The backend's class and the access of an access's JSON."""
    from fsmatrix.backends.contract import BACKENDS

    backend = BACKENDS.load(text(access, "backend"))
    return backend, backend.access_type.from_json(access)


def call_backend(command: Call) -> Json:
    """Call one node-side method of a backend; its answer as JSON-able data."""
    from fsmatrix.backends.journal.journal import Journal

    backend, where = backend_of(command.access)
    function = command.function
    if function in ("mount", "unmount"):
        getattr(backend, function)(
            where, Journal(Path(command.journal) / f"{platform.node()}.jsonl")
        )
        return None
    if function in ("cache", "settle", "counters", "health", "make_run", "remove_run"):
        answer = getattr(backend, function)(where, **command.arguments)
        plain: Json = dataclasses.asdict(answer) if dataclasses.is_dataclass(answer) else answer  # type: ignore[arg-type]
        return plain
    raise ValueError(f"no node-side method {function!r}")


def cpu_times() -> dict[str, float]:
    """Seconds of this kernel's CPUs so far (/proc/stat); `user` is a part of `busy`."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(x) / 100 for x in fields[:8])
    return {
        "cpu_busy": user + nice + system + irq + softirq,
        "cpu_idle": idle,
        "cpu_iowait": iowait,
        "cpu_steal": steal,
        "cpu_user": user + nice,
    }


def user_time(pid: int) -> float:
    """User time of a process, seconds (proc(5) stat, field 14); 0 if it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(text.rpartition(")")[2].split()[11]) / os.sysconf("SC_CLK_TCK")


class Sampler:
    """Samples one kernel while a step runs; what it saw before, after and between."""

    def __init__(self, access: JsonObject) -> None:
        self._backend, self._access = backend_of(access)
        self._workers = self._backend.workers(self._access)
        self._stop = threading.Event()
        self._rows: list[tuple[float, dict[str, float]]] = []
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def _look(self) -> dict[str, float]:
        counters: dict[str, float] = dict(self._backend.counters(self._access))
        if self._workers:
            counters["storage_user_seconds"] = sum(map(user_time, self._workers))
        return counters | cpu_times()

    def _sample(self) -> None:
        self._rows.append((time.time(), self._look()))

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def start(self) -> None:
        """Take the first sample now, the next ones in a thread."""
        self._sample()
        self._thread.start()

    def stop(self) -> SampledKernel:
        """Before and after, and the series: "time" and every counter."""
        self._stop.set()
        self._thread.join()
        self._sample()
        times, looks = zip(*self._rows, strict=True)
        names = sorted(set().union(*looks))
        samples: dict[str, tuple[float, ...]] = {"time": times}
        samples |= {name: tuple(look.get(name, math.nan) for look in looks) for name in names}
        before, after = looks[0], looks[-1]
        cpu = {
            name: after[f"cpu_{name}"] - before[f"cpu_{name}"]
            for name in ("busy", "idle", "iowait", "steal")
        }
        whole = sum(cpu.values())
        shares = {name: value / whole if whole else 0.0 for name, value in cpu.items()}
        storage = [look.get("storage_user_seconds", 0.0) for look in (before, after)]
        use = KernelUse(
            before=before,
            after=after,
            cpu=shares,
            cpu_seconds=whole,
            user_seconds=after["cpu_user"] - before["cpu_user"],
            storage_user_seconds=max(0.0, storage[1] - storage[0]),
        )
        return SampledKernel(host=platform.node(), use=use, samples=samples)


class World:
    """The session as one of its ranks sees it."""

    def __init__(self, comm: Comm, conductor: socket.socket | None) -> None:
        self.comm = comm
        self.ranks = survey(comm)
        self.me = self.ranks[comm.rank]
        self.leaders = [rank.rank for rank in self.ranks if rank.node_rank == 0]
        self.conductor = conductor
        self._members: dict[int, socket.socket] = {}  # a leader's sockets, by world rank
        self._up: socket.socket | None = None  # a member's socket to its leader
        self._connect_node()

    @property
    def is_leader(self) -> bool:
        """Whether this rank leads its node."""
        return self.me.node_rank == 0

    def kernel_leaders(self) -> list[int]:
        """The lowest leader of each kernel and mount namespace."""
        first: dict[str, int] = {}
        for rank in self.ranks:
            if rank.node_rank == 0:
                first.setdefault(rank.kernel, rank.rank)
        return sorted(first.values())

    # -- channels ------------------------------------------------------------------------
    def _connect_node(self) -> None:
        own = [r.rank for r in self.ranks if r.node == self.me.node]
        with contextlib.ExitStack() as meanwhile:
            listener = None
            address = ""
            if self.is_leader and len(own) > 1:
                address = str(meanwhile.enter_context(work_folder()) / "leader")
                listener = meanwhile.enter_context(wire.listener(Path(address), len(own)))
            addresses = self.comm.bcast(self.comm.gather(address))
            if listener is not None:
                for _ in own[1:]:
                    member, _ = listener.accept()
                    joined, _ = wire.unpack(wire.receive(member), Joined)
                    self._members[joined.rank] = member
            elif not self.is_leader:
                self._up = wire.connect(Path(addresses[own[0]]))
                wire.send(self._up, Joined(rank=self.me.rank))

    def next_command(self) -> Command:
        """Wait for the next command and pass it on; raises ChannelClosed when it is over."""
        channel = self._up or self.conductor
        frame = wire.receive(channel) if channel else self._poll()
        command, _ = wire.unpack(frame, *COMMANDS)
        if not self.is_leader:
            return command
        addressed = set(command.ranks)
        for leader in self._next_leaders(addressed):
            self.comm.post(frame, leader)
        for rank, member in self._members.items():
            if rank in addressed:
                self._pass_on(frame, rank, member)
        return command

    def _pass_on(self, frame: bytes, rank: int, member: socket.socket) -> None:
        """To a rank of this node; ConnectionError that names it, if it is gone.

        The launcher knows how that rank ended, so it has time to say so and to end this one.
        """
        try:
            wire.deliver(member, frame)
        except wire.ChannelClosed:
            time.sleep(LOST)
            raise ConnectionError(f"rank {rank} has ended: it takes no commands") from None

    def _next_leaders(self, addressed: Set[int]) -> list[int]:
        """Whom this leader passes a command on to: a tree over the nodes that are addressed.

        Every hop may wait for a leader to wake, so the tree is wide: 64 nodes are two hops.
        """
        nodes = sorted({self.ranks[rank].node for rank in addressed} - {0})
        line = [self.leaders[node] for node in (0, *nodes)]  # node 0 is the conductor's
        at = FAN * line.index(self.me.rank)
        return line[at + 1 : at + FAN + 1]

    def _poll(self) -> bytes:
        wait, longest = BACKOFF
        while (frame := self.comm.fetch()) is None:
            time.sleep(wait)
            wait = min(2 * wait, longest)
        return frame

    def watch_conductor(self) -> None:
        """End this rank (and so the session) as soon as the conductor is gone."""
        if self.conductor is None:
            return
        poller = select.poll()
        poller.register(self.conductor, select.POLLHUP | select.POLLRDHUP | select.POLLERR)

        def wait() -> None:
            with contextlib.suppress(OSError):
                poller.poll()
            time.sleep(0.2)  # let an orderly end, which closes the channel too, come first
            programs.end_running()
            os._exit(70)

        threading.Thread(target=wait, name="conductor-watch", daemon=True).start()


class Server:
    """One rank: waits for a command, does its part, waits again."""

    def __init__(self, comm: Comm, conductor: socket.socket | None, library: str) -> None:
        self.world = World(comm, conductor)
        self.allowed = frozenset(self.world.me.cpus)
        self._watching: Sampler | None = None  # beside a program of the conductor's
        if conductor is not None:
            leaders = tuple(self.world.kernel_leaders())
            self._answer(Hello(ranks=self.world.ranks, mpi=library, kernels=leaders))
            self.world.watch_conductor()

    def serve(self) -> None:
        """Until the channel closes or the conductor says quit."""
        while True:
            match self.world.next_command():
                case Quit():
                    self._quit()
                case Call() as call:
                    self._call(call)
                case Watch() as watch:
                    self._watch(watch)
                case StepCommand() as step:
                    self._step(step)

    def _answer(self, message: Stored, arrays: Arrays | None = None) -> None:
        if self.world.conductor is not None:
            wire.send(self.world.conductor, message, arrays)

    # -- commands ------------------------------------------------------------------------
    def _quit(self) -> None:
        self._answer(Answers())
        if self.world.comm.size > 1:
            from mpi4py import MPI

            MPI.Finalize()
        os._exit(0)

    def _call(self, command: Call) -> None:
        """A backend's node-side method, on one leader of each kernel."""

        host = self.world.me.host
        try:
            answer = Answer(host=host, value=call_backend(command))
        except Exception as error:  # noqa: BLE001 - every failure of a backend is an answer
            worded = isinstance(error, BackendError)  # in a sentence that is for the user
            text = str(error) if worded else f"{type(error).__name__}: {error}"
            answer = Answer(host=host, error=text)
        self._answer(Answers(answers=wire.gather(self.world.comm.subgroup(command.ranks), answer)))

    def _watch(self, command: Watch) -> None:
        """Begin or end sampling this kernel."""
        own = Samples()
        if command.begin:
            self._watching = Sampler(command.access)
            self._watching.start()
        elif self._watching is not None:
            own = Samples(kernels=(self._watching.stop(),))
            self._watching = None
        gathered = wire.gather(self.world.comm.subgroup(command.ranks), own)
        self._answer(Samples(kernels=tuple(kernel for each in gathered for kernel in each.kernels)))

    def _step(self, command: StepCommand) -> None:
        """One step of a run, on the ranks of its geometry."""
        comm = self.world.comm.subgroup(command.ranks)
        self._set_affinity(command)
        offset = self._offset(comm, command)
        sampler = self._sampler(command)
        user = user_seconds()
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        try:
            comm.barrier()
            if sampler is not None:
                sampler.start()
            comm.barrier()
            answer, arrays = self._do(command, comm, offset)
            comm.barrier()
            sampled = sampler.stop() if sampler is not None else None
        finally:
            os.sched_setaffinity(0, self.allowed)
        kernel, spent = self.world.me.kernel, user_seconds() - user
        own = RankUse(kernel=kernel, user=spent, cpus=cpus, sampled=sampled)
        uses = wire.gather(comm, own)
        if comm.rank == 0:
            self._answer(_with_uses(answer, uses), arrays)

    # -- parts of a step -------------------------------------------------------------------
    def _offset(self, comm: Comm, command: StepCommand) -> Offset:
        first: dict[str, int] = {}
        for index, rank in enumerate(command.ranks):
            first.setdefault(self.world.ranks[rank].boot_id, index)
        return stream.measure(comm, first, self.world.me.boot_id)

    def _sampler(self, command: StepCommand) -> Sampler | None:
        """A sampler on one rank of each kernel that takes part."""
        first: dict[str, int] = {}
        for rank in command.ranks:
            first.setdefault(self.world.ranks[rank].kernel, rank)
        if not command.sample or self.world.me.rank not in first.values():
            return None

        return Sampler(command.access)

    def _set_affinity(self, command: StepCommand) -> None:
        """Policy "core": each rank gets `threads` CPUs of its own; "none": all of them.

        Ranks that a message woke tend to sit on one CPU and then spin in turns, 4 ms each.
        Under "none" they are therefore moved apart, and then left to the kernel.
        """
        cpus = sorted(self.allowed)
        me, threads = self.world.me, command.threads
        here = [rank for rank in command.ranks if self.world.ranks[rank].boot_id == me.boot_id]
        first = here.index(me.rank) * threads
        own = {cpus[(first + i) % len(cpus)] for i in range(threads)}
        os.sched_setaffinity(0, own)
        if command.affinity != "core":
            os.sched_setaffinity(0, self.allowed)

    def _do(self, command: StepCommand, comm: Comm, offset: Offset) -> tuple[StepAnswer, Arrays]:
        """The step itself; what it gave, at rank 0 of `comm`."""
        place = Place(
            rank=comm.rank,
            ranks=comm.size,
            node=self.world.me.node,
            nodes=command.nodes,
            threads=command.threads,
            seed=command.seed,
        )
        if command.playing is not None and command.playing.ceiling:
            return StepAnswer(ceiling=stream.measure_ceiling(command.playing, place, comm)), {}
        root = command.roots[place.rank % len(command.roots)]
        root = tree.reached(root, inside(command.access, "details"))
        if command.playing is not None:
            merged, arrays = run_stream(command, command.playing, root, place, comm, offset)
            return StepAnswer(merged=merged), arrays
        if command.function is not None:
            own = self._function(command.function, place, root)
        else:
            assert command.program is not None
            with telling(command.progress, place.rank, programs.moved, PROGRAMS_LOOK):
                own = self._program(command.program, place, root, command.timeout)
            comm.sleeping_barrier()
            own = replace(
                own,
                clock_correction=stream.wall_correction(comm, offset),
                clock_uncertainty=offset.uncertainty / 1e9,
            )
        return StepAnswer(outputs=wire.gather(comm, own)), {}

    def _function(self, what: Function, place: Place, root: str) -> RankOutput:
        """A Python function in every rank; what it raises is the run's error."""
        module, function = what.function.split(":")
        value: Json = None
        error: str | None = None
        began = time.time()
        try:
            value = getattr(importlib.import_module(module), function)(what.params, place, root)
        except Exception as problem:  # noqa: BLE001 - the answer carries it to the record
            error = f"{type(problem).__name__}: {problem}"
        done = Finished(0, "", "", began, time.time())
        host = self.world.me.host
        return RankOutput(host=host, rank=place.rank, done=done, value=value, error=error)

    def _program(self, what: Argv, place: Place, root: str, timeout: float) -> RankOutput:
        """A program, by every rank that was addressed, started together."""
        os.sched_setaffinity(0, self.allowed)

        def filled(text: str) -> str:
            return text.replace("{node}", str(place.node)).replace("{rank}", str(place.rank))

        argv = [filled(word) for word in what.argv]
        files = {name: filled(text) for name, text in what.files.items()}
        with nullcontext(root) if root else work_folder() as folder:
            where = str(folder)
            done = programs.run(argv, where, timeout, what.env, files=files, collect=what.collect)
        return RankOutput(host=self.world.me.host, rank=place.rank, done=done)


def user_seconds() -> float:
    """User time of this rank and of the programs that it has waited for."""
    usage = os.times()
    return usage.user + usage.children_user


def _with_uses(answer: StepAnswer, uses: tuple[RankUse, ...]) -> StepAnswer:
    """The answer with what every rank and every sampled kernel tells."""
    user: dict[str, float] = {}
    for use in uses:
        user[use.kernel] = user.get(use.kernel, 0.0) + use.user
    kernels = [
        replace(use.sampled, user=user[use.kernel]) for use in uses if use.sampled is not None
    ]
    return replace(answer, cpus=tuple(use.cpus for use in uses), kernels=tuple(kernels))
