"""How the ranks of a step open their players: each by itself, or all by rank 0's connection."""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.backends.player.base import Player, PlayerOptions
from fsmatrix.backends.player.ops import DRIVERS, OR_POSIX
from fsmatrix.backends.player.player import driver_refusal, open_player
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import Playing
from fsmatrix.suite.session.players.subprocess_player import SubprocessPlayer


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
