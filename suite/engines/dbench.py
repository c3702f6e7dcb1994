"""dbench: its version, its options, and the loadfile that it takes by itself.

`dbench 0` starts no client and touches no file: version 4 then tells which loadfile it
would take, and whether it can read it; version 5 has none of its own and says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsmatrix.suite.engines.engine import EngineError, EngineKind

OLDEST = (4, 0)
VERSION = re.compile(r"^dbench version (\d+)\.(\d+)\S*", re.MULTILINE)
OPTION = re.compile(r"^ +(?:-\w, +)?--([a-z][a-z-]+)", re.MULTILINE)
LOADFILE = re.compile(r"^Running for \d+ seconds with load '(.+)' and minimum", re.MULTILINE)
CURE = "install the package dbench"


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version as printed; features `option:warmup` of each long option, `loadfile:PATH`.

    `answers`: to `--help` and to `0`.  EngineError if this is no dbench that can be used.
    """
    about, nothing = answers
    version = VERSION.search(about + "\n" + nothing)
    if version is None:
        raise EngineError(f"does not print its version as dbench does: {CURE}")
    text = version[0].rpartition(" ")[2]
    if (int(version[1]), int(version[2])) < OLDEST:
        raise EngineError(f"dbench {text} counts no operations: version 4.00 or later is needed")
    features = {f"option:{name}" for name in OPTION.findall(about)}
    own = LOADFILE.search(nothing)
    if own and "error opening" not in nothing:
        features.add(f"loadfile:{own[1]}")
    return text, frozenset(features)


KIND = EngineKind(
    name="dbench",
    program="dbench",
    cure=CURE,
    questions=(("--help",), ("0",)),
    read=read,
)
