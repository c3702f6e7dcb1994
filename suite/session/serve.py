"""The commands of a session, as its ranks carry them out."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.player.ops import Place
from fsmatrix.suite.session import clock, programs, wire
from fsmatrix.suite.session.clock import Offset
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.sampling import KernelUse
from fsmatrix.suite.session.stream import run_stream
from fsmatrix.suite.session.wire import Arrays
from fsmatrix.suite.session.world import World

Reply = tuple[dict[str, Any], Arrays]


class Server:
    """One rank: waits for a command, does its part, waits again."""

    def __init__(self, comm: Comm, conductor: socket.socket | None, library: str) -> None:
        self.world = World(comm, conductor)
        self.allowed = frozenset(self.world.me.cpus)
        self._watching: Any = None  # a sampler, beside a program of the conductor's
        self._commands = {
            "call": self._call,
            "step": self._step,
            "watch": self._watch,
            "quit": self._quit,
        }
        if conductor is not None:
            hello = {"ranks": [asdict(rank) for rank in self.world.ranks], "mpi": library}
            wire.send(conductor, hello | {"kernels": self.world.kernel_leaders()})
            self.world.watch_conductor()

    def serve(self) -> None:
        """Until the channel closes or the conductor says quit."""
        while True:
            command = self.world.next_command()
            self._commands[command["do"]](command)

    def _answer(self, reply: Reply | None) -> None:
        if reply is not None and self.world.conductor is not None:
            wire.send(self.world.conductor, *reply)

    # -- commands ------------------------------------------------------------------------
    def _quit(self, _command: Mapping[str, Any]) -> None:
        self._answer(({"ok": True}, {}))
        if self.world.comm.size > 1:
            from mpi4py import MPI

            MPI.Finalize()
        os._exit(0)

    def _call(self, command: Mapping[str, Any]) -> None:
        """A backend's node-side method, on one leader of each kernel."""
        from fsmatrix.suite.session import node

        comm = self.world.comm.part(command["to"])
        answer: dict[str, Any] = {"host": self.world.me.host}
        try:
            answer["value"] = node.call(
                command["function"], command["access"], command["journal"], command["arguments"]
            )
        except Exception as error:  # noqa: BLE001 - every failure of a backend is an answer
            worded = isinstance(error, BackendError)  # in a sentence that is for the user
            answer["error"] = str(error) if worded else f"{type(error).__name__}: {error}"
        gathered = comm.gather(answer)
        if gathered is not None:
            self._answer(({"answers": gathered}, {}))

    def _watch(self, command: Mapping[str, Any]) -> None:
        """Begin or end sampling this kernel."""
        answer: dict[str, Any] = {"host": self.world.me.host}
        if command["begin"]:
            from fsmatrix.suite.session import node

            self._watching = node.Sampler(command["access"])
            self._watching.start()
        elif self._watching is not None:
            answer |= _sampled(self._watching.stop())
            self._watching = None
        gathered = self.world.comm.part(command["to"]).gather(answer)
        if gathered is not None:
            self._answer(({"answers": gathered}, {}))

    def _step(self, command: Mapping[str, Any]) -> None:
        """One step of a run, on the ranks of its geometry."""
        comm = self.world.comm.part(command["to"])
        place = self._place(command, comm)
        roots = command["roots"]
        command = {**command, "root": roots[place.rank % len(roots)]}
        self._set_affinity(command)
        offset = self._offset(comm, command)
        sampler = self._sampler(command)
        user = user_seconds()
        cpus = sorted(os.sched_getaffinity(0))
        try:
            comm.barrier()
            if sampler is not None:
                sampler.start()
            comm.barrier()
            reply = self._DO[command["kind"]](self, command, place, comm, offset)
            comm.barrier()
            seen = sampler.stop() if sampler is not None else None
        finally:
            os.sched_setaffinity(0, self.allowed)
        own = {"user": user_seconds() - user, "cpus": cpus}
        if seen is not None:
            own |= _sampled(seen)
        reply = self._collect(comm, reply, command, own)
        if comm.rank == 0:
            self._answer(reply)

    # -- parts of a step -------------------------------------------------------------------
    def _place(self, command: Mapping[str, Any], comm: Comm) -> Place:
        return Place(
            rank=comm.rank,
            ranks=comm.size,
            node=self.world.me.node,
            nodes=command["nodes"],
            threads=command["threads"],
            seed=command["seed"],
        )

    def _offset(self, comm: Comm, command: Mapping[str, Any]) -> Offset:
        first: dict[str, int] = {}
        for index, rank in enumerate(command["to"]):
            first.setdefault(self.world.ranks[rank].boot_id, index)
        return clock.measure(comm, first, self.world.me.boot_id)

    def _sampler(self, command: Mapping[str, Any]) -> Any:
        """A sampler on one rank of each kernel that takes part."""
        first: dict[str, int] = {}
        for rank in command["to"]:
            first.setdefault(self.world.ranks[rank].kernel, rank)
        if not command["sample"] or self.world.me.rank not in first.values():
            return None
        from fsmatrix.suite.session import node

        return node.Sampler(command["access"])

    def _set_affinity(self, command: Mapping[str, Any]) -> None:
        """Policy "core": each rank gets `threads` CPUs of its own; "none": all of them.

        Ranks that a message woke tend to sit on one CPU and then spin in turns, 4 ms each.
        Under "none" they are therefore moved apart, and then left to the kernel.
        """
        cpus = sorted(self.allowed)
        me, threads = self.world.me, command["threads"]
        here = [rank for rank in command["to"] if self.world.ranks[rank].boot_id == me.boot_id]
        first = here.index(me.rank) * threads
        own = {cpus[(first + i) % len(cpus)] for i in range(threads)}
        os.sched_setaffinity(0, own)
        if command["affinity"] != "core":
            os.sched_setaffinity(0, self.allowed)

    def _collect(
        self,
        comm: Comm,
        reply: Reply,
        command: Mapping[str, Any],
        own: Mapping[str, Any],
    ) -> Reply:
        """Add what every rank and every sampled kernel tells."""
        answer = {"name": self.world.me.kernel, "host": self.world.me.host, **own}
        gathered = comm.gather(answer)
        if gathered is None:
            return {}, {}
        message, arrays = reply
        message = dict(message)
        message["kernels"] = [entry for entry in gathered if "kernel" in entry]
        for entry in message["kernels"]:
            ranks = [rank for rank in gathered if rank["name"] == entry["name"]]
            entry["user"] = sum(rank["user"] for rank in ranks)
        message["ranks"] = [
            {**asdict(self.world.ranks[rank]), "cpus": of["cpus"], "affinity": command["affinity"]}
            for rank, of in zip(command["to"], gathered, strict=True)
        ]
        return message, arrays

    def _stream(
        self,
        command: Mapping[str, Any],
        place: Place,
        comm: Comm,
        offset: Offset,
    ) -> Reply:
        return run_stream(
            command["what"], command["root"], place, comm, offset, command["oversubscribed"]
        )

    def _function(
        self,
        command: Mapping[str, Any],
        place: Place,
        comm: Comm,
        _offset: Offset,
    ) -> Reply:
        """A Python function in every rank; what it raises is the run's error."""
        module, function = str(command["what"]["function"]).split(":")
        own: dict[str, Any] = {"host": self.world.me.host, "rank": place.rank}
        begin = time.time()
        try:
            called = getattr(importlib.import_module(module), function)
            own["value"] = called(command["what"]["params"], place, command["root"])
        except Exception as error:  # noqa: BLE001 - the answer carries it to the record
            own["error"] = f"{type(error).__name__}: {error}"
        own |= {"began": begin, "ended": time.time()}
        return {"outputs": comm.gather(own)}, {}

    def _argv(
        self,
        command: Mapping[str, Any],
        place: Place,
        comm: Comm,
        offset: Offset,
    ) -> Reply:
        """A program, by every rank that was addressed, started together."""
        what = command["what"]
        os.sched_setaffinity(0, self.allowed)

        def filled(text: str) -> str:
            return text.replace("{node}", str(place.node)).replace("{rank}", str(place.rank))

        argv = [filled(word) for word in what["argv"]]
        files = {name: filled(text) for name, text in what["files"].items()}
        done = programs.run(
            argv,
            command["root"] or "/",
            command["timeout"],
            what["env"],
            files=files,
            collect=what["collect"],
        )
        comm.patient_barrier()
        own = {"host": self.world.me.host, "rank": place.rank, **asdict(done)}
        own["clock_correction"] = clock.wall_correction(comm, offset)
        own["clock_uncertainty"] = offset.uncertainty / 1e9
        return {"outputs": comm.gather(own)}, {}

    _DO: ClassVar = {"stream": _stream, "function": _function, "argv": _argv}


def user_seconds() -> float:
    """User time of this rank and of the programs that it has waited for."""
    usage = os.times()
    return usage.user + usage.children_user


def _sampled(seen: tuple[KernelUse, Arrays]) -> dict[str, Any]:
    """As an answer holds it (`SampledKernel.of`)."""
    use, series = seen
    samples = {name: values.tolist() for name, values in series.items()}
    return {"kernel": use.document(), "samples": samples}
