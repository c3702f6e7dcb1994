"""The pair of external engines `ior+mdtest`, which the workload `io500` starts by turns."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from fsmatrix.suite.engines import ior, mdtest
from fsmatrix.suite.engines.engine import Engine, EngineKind

NAME = "ior+mdtest"
PROGRAM = "mdtest:"  # feature: the path of mdtest follows
FEATURE = "mdtest-"  # before each feature of mdtest: both programs have an option -B


@dataclass(frozen=True)
class Pair(EngineKind):
    """IOR, which is found as the engine `ior` is, and the mdtest that belongs to it."""

    @property
    def variable(self) -> str:
        """Environment variable that names IOR; FSMATRIX_MDTEST names mdtest."""
        return ior.KIND.variable

    def find(self, given: str = "") -> str:
        """Path of IOR: the one given, the environment's, or the first on PATH."""
        return ior.KIND.find(given)

    def probe(self, given: str = "") -> Engine:
        """Both programs as one engine: path and version are IOR's; EngineError if one lacks.

        mdtest is the one that FSMATRIX_MDTEST names, the one beside IOR, or the one on PATH.
        """
        ior_probe = ior.KIND.probe(given)
        beside = Path(ior_probe.path).with_name(mdtest.KIND.program)
        named = os.environ.get(mdtest.KIND.variable, "")
        own = "" if named or not os.access(beside, os.X_OK) else str(beside)
        other = mdtest.KIND.probe(own)
        features = {f"{FEATURE}{feature}" for feature in other.features}
        return replace(
            ior_probe,
            name=NAME,
            features=ior_probe.features | features | {f"{PROGRAM}{other.path}"},
        )


def mdtest_of(engine: Engine) -> str:
    """Path of the mdtest in a pair."""
    paths = [name.removeprefix(PROGRAM) for name in engine.features if name.startswith(PROGRAM)]
    return paths[0] if paths else mdtest.KIND.program


KIND = Pair(
    name=NAME,
    program=ior.KIND.program,
    cure=ior.KIND.cure,
    questions=ior.KIND.questions,
    read=ior.KIND.read,
    environment=ior.KIND.environment,
)
