"""One run of the player's metadata for bench/daos.py, in a process and with its own connection.

    python bench/daos_names.py '{"root": ..., "files": 1000}'

Prints JSON: operations per second of create (with close), stat and unlink, by the player's own
window of each.
"""

from __future__ import annotations

import json
import sys
import time
import uuid

import numpy as np

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import open_player

PHASES = {"create": (Kind.CREATE, Kind.CLOSE), "stat": (Kind.STAT,), "unlink": (Kind.UNLINK,)}


def ops(files: np.ndarray, kinds: tuple[Kind, ...]) -> np.ndarray:
    """Each of the kinds on a file, then on the next."""
    made = np.zeros(len(files) * len(kinds), dtype=OP)
    made["file"], made["kind"] = np.repeat(files, len(kinds)), np.tile(kinds, len(files))
    return made


def main() -> None:
    """Play the three phases in a directory of their own, and remove it."""
    asked = json.loads(sys.argv[1])
    count, folder = int(asked["files"]), f"new-{uuid.uuid4().hex}"
    player = open_player("dfs", asked["root"], PlayerOptions(slots=count + 1, max_op_bytes=1), "c")
    names = (*(f"{folder}/file.{i}".encode() for i in range(count)), folder.encode())
    files, rates = np.arange(count), {}
    player.play(Chunk(ops(np.array([count]), (Kind.MKDIR,)), names))
    for phase, kinds in PHASES.items():
        chunk = Chunk(ops(files, kinds))
        began = time.monotonic_ns()
        player.play(chunk)
        rates[phase] = count / (time.monotonic_ns() - began) * 1e9
    player.play(Chunk(ops(np.array([count]), (Kind.RMDIR,))))
    failed = player.result().first_error
    player.close()
    if failed:
        raise RuntimeError(f"the player failed: {failed}")
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
