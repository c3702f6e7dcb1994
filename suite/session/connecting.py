"""How the ranks of a step open their players: each by itself, or all by rank 0's connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsmatrix.backends.player.drivers import DRIVERS
from fsmatrix.backends.player.player import Player, PlayerOptions, open_player
from fsmatrix.suite.session.comm import Comm


def open_together(spec: Mapping[str, Any], root: str, threads: int, comm: Comm) -> Player:
    """This rank's player for a Stream step; called by all ranks of `comm`.

    With a driver that shares connections rank 0 connects and the others join it: a storage
    system sees one client more instead of thousands.  OSError with the reason, at every rank if
    it is rank 0 that cannot connect.
    """
    options = PlayerOptions(
        slots=spec["slots"],
        threads=threads,
        depth=spec["depth"],
        seed=spec["seed"],
        max_op_bytes=spec["max_op_bytes"],
        fill_ratio=spec["fill_ratio"],
        count_metadata=spec["metadata"],
        stop_on_error=spec["stop_on_error"],
        pauses=spec["pauses"],
        read_ahead=spec["read_ahead"],
    )

    def opened(text: str) -> Player:
        return open_player(spec["driver"], text, options, spec["implementation"])

    if not _shared(spec, comm):
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


def leave(spec: Mapping[str, Any], player: Player, comm: Comm) -> None:
    """Close the players that joined another's connection, while that one is still open."""
    if _shared(spec, comm):
        if comm.rank:
            player.close()
        comm.patient_barrier()


def _shared(spec: Mapping[str, Any], comm: Comm) -> bool:
    return comm.size > 1 and DRIVERS[spec["driver"]].shared
