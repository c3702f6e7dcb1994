"""Plays chunks of operations, given as JSON on the standard input, and prints what came of it.

A process of its own: a library is replaced (LD_LIBRARY_PATH) only when a process starts.
"""

import json
import sys

import numpy as np

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk
from fsmatrix.backends.player.player import open_player

asked = json.load(sys.stdin)
names = tuple(name.encode() for name in asked["names"])
one = open_player(asked["driver"], asked["root"], PlayerOptions(**asked["options"]), "c")
for ops in asked["chunks"]:
    one.play(Chunk(np.array([tuple(op) for op in ops], dtype=OP), names))
    names = ()
if asked["drain"]:
    one.drain()
result = one.result()
one.close()
told = ("ops", "bytes", "operations", "errors", "errors_by_errno")
facts = {name: getattr(result, name) for name in told}
facts["first_error"] = result.first_error and vars(result.first_error)
print(json.dumps({**facts, "counts": result.counts.sum(axis=1).tolist()}))
