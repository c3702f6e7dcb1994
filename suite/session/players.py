"""The players of a step's ranks: in which process they work, and how they are opened.

A player may have a process of its own, with an environment that its rank does not have: a library
that is preloaded takes calls over from the start of a process to its end, where it says what it
took over.  So a rank starts a process for its part of a step, hands it the chunks over a socket,
and reads its last words.  Agreement with other ranks stays in the rank.

Ranks open their players each by itself, or all by rank 0's connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.backends.player.lanes import (
    FirstError,
    Latencies,
    Player,
    PlayerOptions,
    PlayerResult,
    checked_ops,
)
from fsmatrix.backends.player.ops import DRIVERS, OP, OR_POSIX, OUTCOME, Chunk
from fsmatrix.backends.player.player import driver_refusal, open_player
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import JsonObject, Stored
from fsmatrix.suite.session import programs, wire
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import Playing
from fsmatrix.suite.session.wire import Arrays

# A counter that the ranks of a node share: each of 0, 1, 2, ... is handed out once.
#
# It is eight bytes of a file without a name, changed under a lock: that needs nothing of MPI, no
# rank has to answer for another, and nothing is left of it when the ranks end, however they do.


BYTES = 8


@contextmanager
def taking_turns(node: int, comm: Comm) -> Iterator[Callable[[], int]]:
    """What gives this rank the next number of its node; called by all ranks of `comm`.

    `node`: index of the node that this rank is on.  OSError if the ranks of a node share no
    folder for temporary files, or if that has no locks.
    """
    if comm.size == 1:
        yield itertools.count().__next__
        return
    first = comm.bcast(comm.gather(node)).index(node)
    with ExitStack() as named:
        path = ""
        if comm.rank == first:
            path = str(named.enter_context(work_folder()) / "turns")
            Path(path).write_bytes(bytes(BYTES))
        paths = comm.bcast(comm.gather(path))
        file = os.open(paths[first], os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        comm.barrier()  # all have it open: its name is not needed any more
    try:
        yield lambda: next_turn(file)
    finally:
        os.close(file)


def next_turn(file: int) -> int:
    """Take a number.  Every process needs an open of its own: the lock belongs to it."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        turn = int.from_bytes(os.pread(file, BYTES, 0), "little")
        os.pwrite(file, (turn + 1).to_bytes(BYTES, "little"), 0)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
    return turn


END_SECONDS = 60.0  # for its last words: a client of a storage system may say goodbye to servers
WORDS = 1 << 16  # bytes kept of them
PRELOADABLE = {"posix": "posix-libc"}  # the one whose calls a library can take over
HISTOGRAMS = tuple(each.name for each in fields(Latencies))
SERIES = ("interval_bytes", "interval_operations", "timeline")


@dataclass(frozen=True, kw_only=True)
class Open(Stored):
    """Open the player; answered by `Done`."""

    driver: str
    root: str
    options: JsonObject


@dataclass(frozen=True, kw_only=True)
class Play(Stored):
    """Play a chunk: arrays `ops` and `names`; answered by `Done`, with the outcomes if asked."""

    first: int
    names: int
    batch: int
    outcomes: bool


@dataclass(frozen=True, kw_only=True)
class Do(Stored):
    """A method of the player without arguments, or with a moment; answered by `Done`."""

    method: str  # drain, begin, stop_at, left, result, close
    ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Done(Stored):
    """What came of it."""

    executed: int = 0
    result: JsonObject | None = None
    error: str = ""
    refused: bool = False  # the error is a ValueError


class SubprocessPlayer:
    """See `Player`: the one in C, in a process with `environment` besides this one's own.

    There is no such player in Python: libraries take over a part of Python's own calls, and it
    crashes under some.  OSError and ValueError as from `open_player`.  After `close`, `printed`
    is what the process wrote on its standard error, the libraries in it included.
    """

    def __init__(
        self,
        driver: str,
        root: str,
        options: PlayerOptions,
        environment: Mapping[str, str],
    ) -> None:
        self.printed = ""
        self._socket, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._progress = os.memfd_create("progress", os.MFD_CLOEXEC)
        with theirs:
            shared = [theirs.fileno(), self._progress]
            argv = [sys.executable, "-P", "-m", __name__, *map(str, shared)]
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                programs.dying_with_us(programs.given(environment, argv)),
                env=programs.clean_environment(),
                pass_fds=shared,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
            )
        try:
            given = {each.name: getattr(options, each.name) for each in fields(options)}
            self._ask(Open(driver=PRELOADABLE.get(driver, driver), root=root, options=given))
        except BaseException:
            self.close()
            raise

    def _ask(self, message: Stored, arrays: Arrays | None = None) -> tuple[Done, Arrays]:
        try:
            wire.send(self._socket, message, arrays)
            done, answered = wire.unpack(wire.receive(self._socket), Done)
        except wire.ChannelClosed as error:
            code = self._end()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            text = f"the player's own process ended {how}: {self.printed.strip()}"
            raise OSError(text.rstrip(": ")) from error
        if done.error:
            raise ValueError(done.error) if done.refused else OSError(done.error)
        return done, answered

    def play(self, chunk: Chunk) -> int:
        """See `Player`."""
        arrays = {
            "ops": checked_ops(chunk).view(np.uint8),
            "names": np.frombuffer(b"\0".join(chunk.names), dtype=np.uint8),
        }
        asked = chunk.outcomes is not None
        done, answered = self._ask(
            Play(first=chunk.first, names=len(chunk.names), batch=chunk.batch, outcomes=asked),
            arrays,
        )
        if chunk.outcomes is not None:
            chunk.outcomes[:] = answered["outcomes"].view(OUTCOME)
        return done.executed

    def left(self, chunk: Chunk) -> Chunk:
        """See `Player`."""
        _, arrays = self._ask(Do(method="left"))
        return Chunk(arrays["ops"].view(OP), batch=chunk.batch)

    def drain(self) -> None:
        """See `Player`."""
        self._ask(Do(method="drain"))

    def share(self) -> str:
        """See `Player`: nobody joins it."""
        return ""

    def features(self) -> str:
        """See `Player`: its driver has none."""
        return ""

    def begin(self, origin_ns: int) -> None:
        """See `Player`."""
        self._ask(Do(method="begin", ns=origin_ns))

    def stop_at(self, monotonic_ns: int) -> None:
        """See `Player`."""
        self._ask(Do(method="stop_at", ns=monotonic_ns))

    def completed(self) -> int:
        """See `Player`: changes at most once in a second."""
        return int.from_bytes(os.pread(self._progress, wire.BYTES, 0), "little")

    def result(self) -> PlayerResult:
        """See `Player`."""
        done, arrays = self._ask(Do(method="result"))
        assert done.result is not None
        return _unpacked(done.result, arrays)

    def close(self) -> None:
        """See `Player`; waits for the end of the process."""
        if self._process is not None:
            with contextlib.suppress(wire.ChannelClosed):
                wire.send(self._socket, Do(method="close"))
        self._end()

    def _end(self) -> int:
        """The process's status; it is killed if it does not end.  What it printed is kept."""
        process, self._process = self._process, None
        if process is None:
            return 0
        self._socket.close()
        os.close(self._progress)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with self._words as words:
            words.seek(max(words.seek(0, os.SEEK_END) - WORDS, 0))
            self.printed = words.read().decode(errors="replace")
        return process.returncode


# -- the process ---------------------------------------------------------------------------------
class _Server:
    """Carries out what its rank asks, until that closes the socket."""

    def __init__(self, rank: socket.socket, progress_file: int) -> None:
        self.rank = rank
        self._progress = progress_file
        self.player: Player | None = None
        self.chunk = Chunk(np.zeros(0, dtype=OP))

    def serve(self) -> None:
        """Until the rank is gone or has closed the player."""
        try:
            while True:
                message, arrays = wire.unpack(wire.receive(self.rank), Open, Play, Do)
                if isinstance(message, Do) and message.method == "close":
                    break
                try:
                    answer = self._carried_out(message, arrays)
                except (OSError, ValueError) as error:
                    refused = isinstance(error, ValueError)
                    answer = Done(error=str(error), refused=refused), {}
                wire.send(self.rank, *answer)
        except wire.ChannelClosed:
            pass  # the rank is gone, and with it what this was for
        if self.player is not None:
            self.player.close()

    def _carried_out(self, message: Stored, arrays: Arrays) -> tuple[Done, Arrays]:
        if isinstance(message, Open):
            options: Any = message.options
            self.player = open_player(message.driver, message.root, PlayerOptions(**options), "c")
            return Done(), {}
        player = self.player
        assert player is not None  # the rank opens it first
        if isinstance(message, Play):
            return self._play(player, message, arrays)
        assert isinstance(message, Do)
        if message.method == "left":
            return Done(), {"ops": player.left(self.chunk).ops.view(np.uint8)}
        if message.method == "result":
            return _packed(player.result())
        if message.method == "drain":
            player.drain()
        elif message.method == "begin":
            player.begin(message.ns)
        else:
            player.stop_at(message.ns)
        return Done(), {}

    def _play(self, player: Player, message: Play, arrays: Arrays) -> tuple[Done, Arrays]:
        ops = arrays["ops"].view(OP)
        outcomes = np.zeros(len(ops), dtype=OUTCOME) if message.outcomes else None
        names = arrays["names"].tobytes().split(b"\0") if message.names else []
        self.chunk = Chunk(ops, names, message.first, outcomes, message.batch)
        with wire.writing(self._progress, 0, player.completed):
            executed = player.play(self.chunk)
        answered = {} if outcomes is None else {"outcomes": outcomes.view(np.uint8)}
        return Done(executed=executed), answered


def _packed(result: PlayerResult) -> tuple[Done, Arrays]:
    """A result as a message and its arrays."""
    arrays: Arrays = {name: getattr(result, name) for name in (*HISTOGRAMS, *SERIES)}
    if result.service is not None:
        arrays |= {f"service.{name}": getattr(result.service, name) for name in HISTOGRAMS}
    own: dict[str, Any] = {
        each.name: getattr(result, each.name)
        for each in fields(result)
        if each.name not in (*HISTOGRAMS, *SERIES, "service", "first_error")
    }
    if result.first_error is not None:
        first = result.first_error
        own["first_error"] = {each.name: getattr(first, each.name) for each in fields(first)}
    return Done(result=own), arrays


def _unpacked(document: JsonObject, arrays: Arrays) -> PlayerResult:
    """What `_packed` was given."""
    own: dict[str, Any] = dict(document)
    first = own.pop("first_error", None)
    whole: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
    service = (
        Latencies(**{name: arrays[f"service.{name}"] for name in HISTOGRAMS})
        if len(arrays) > len(whole)
        else None
    )
    bare = PlayerResult(**own, **whole, service=service, first_error=None)
    return bare if first is None else replace(bare, first_error=FirstError(**first))


def settled(playing: Playing, comm: Comm) -> tuple[Playing, JsonObject]:
    """How it is really played, the same at all ranks of `comm`, and the facts about that.

    If io_uring may be replaced and some rank cannot have it, all play by posix, at a depth of 1.
    """
    stream = playing.stream
    if stream.io == "auto":
        return playing, {}
    if stream.io != OR_POSIX:
        return playing, {"driver": playing.driver}
    own = driver_refusal(playing.driver, stream.depth, playing.implementation)
    gathered = comm.gather(own)
    reason = comm.bcast(None if gathered is None else next(filter(None, gathered), ""))
    if not reason:
        return playing, {"driver": playing.driver}
    played = replace(playing, driver="posix", stream=replace(stream, depth=1))
    return played, {"driver": played.driver, "iodepth": 1, "driver_refused": reason}


def open_together(playing: Playing, root: str, threads: int, comm: Comm) -> Player:
    """This rank's player for a Stream step; called by all ranks of `comm`.

    With a driver that shares connections rank 0 connects and the others join it: a storage
    system sees one client more instead of thousands.  OSError with the reason, at every rank if
    it is rank 0 that cannot connect.
    """
    stream = playing.stream
    options = PlayerOptions(
        slots=stream.slots,
        threads=threads,
        depth=stream.depth,
        seed=playing.seed,
        max_op_bytes=stream.max_op_bytes,
        fill_ratio=stream.fill_ratio,
        count_metadata=stream.metadata,
        stop_on_error=stream.stop_on_error,
        pauses=stream.pauses,
        read_ahead=stream.read_ahead,
    )

    def opened(text: str) -> Player:
        if playing.environment:
            return SubprocessPlayer(playing.driver, text, options, playing.environment)
        return open_player(playing.driver, text, options, playing.implementation)

    if not _shared(playing.driver, comm):
        return opened(root)
    if comm.rank:
        answer = comm.bcast(None)
        if "error" in answer:
            raise OSError(answer["error"])
        return opened(f"{root}\n{answer['lines']}")
    try:
        player = opened(root)
        lines = player.share()
    except Exception as error:
        comm.bcast({"error": str(error)})
        raise
    comm.bcast({"lines": lines})
    return player


def last_words(player: Player, comm: Comm) -> tuple[str, ...]:
    """What processes of players, which must be closed, have printed; at rank 0 of `comm`."""
    if not isinstance(player, SubprocessPlayer):
        return ()
    return tuple(comm.gather(player.printed) or ())


def leave(driver: str, player: Player, comm: Comm) -> None:
    """Close the players that joined another's connection, while that one is still open."""
    if _shared(driver, comm):
        if comm.rank:
            player.close()
        comm.sleeping_barrier()


def _shared(driver: str, comm: Comm) -> bool:
    return comm.size > 1 and DRIVERS[driver].shared


if __name__ == "__main__":
    _Server(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve()
