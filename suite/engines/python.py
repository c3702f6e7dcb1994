"""Engines that are libraries of a Python, which need not be fsmatrix's own.

Their programs import numpy and modules of `suite/workloads/streams` only.  These are found behind
all that the other Python has itself, so that no library of fsmatrix's own gets into its way.

ROOT with RNTuple, of PyPI or of the site, is told with its version and whether it was built with
DAOS; uproot, which reads and writes RNTuple in pure Python, with its version.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fsmatrix
from fsmatrix.backends.system import tools
from fsmatrix.suite.engines.engine import EngineError, EngineKind

PROGRAM = "fsmatrix.suite.workloads.streams.lhcb.program"
MARK = "fsmatrix-lhcb: "  # before an answer, on a line of its own (streams/lhcb/program.py)
OLDEST = (3, 10)
BOOT = f"""\
import sys
if sys.version_info < {OLDEST}: sys.exit("Python %d.%d is too old" % sys.version_info[:2])
sys.path = [path for path in sys.path if path] + [sys.argv.pop(1)]
from {PROGRAM} import main
sys.exit(main(sys.argv[1:]))
"""
ERROR = re.compile(r"^(\w+(?:Error|Exception): .*|Python .* too old)$", re.MULTILINE)


def words(*arguments: str) -> tuple[str, ...]:
    """What follows a Python on the command line that starts the program; it writes no bytecode."""
    return ("-B", "-c", BOOT, str(Path(fsmatrix.__file__).parents[1]), *arguments)


def answer(text: str) -> dict[str, object] | None:
    """What the program said last in its output; None if it said nothing."""
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    try:
        return dict(json.loads(lines[-1].removeprefix(MARK))) if lines else None
    except ValueError:
        return None


@dataclass(frozen=True)
class PythonKind(EngineKind):
    """An engine that is a module of a Python: the engine's path is that Python's."""

    module: str = ""

    def find(self, given: str = "") -> str:
        """The Python that is named, this one, or the first other one on PATH.

        EngineError if this one has no such module and there is no other.
        """
        asked = given or os.environ.get(self.variable, "")
        if not asked and importlib.util.find_spec(self.module) is not None:
            return sys.executable
        if not asked and (other := _other(self.program)):
            return other
        if not asked:
            raise EngineError(
                f"no {self.module} in {sys.executable}: {self.cure}, or name the Python that has "
                f"it by {self.variable}"
            )
        return super().find(asked)


def _other(program: str) -> str:
    """The first Python on PATH of another installation than this one; empty if there is none."""
    for folder in tools.folders():
        path = tools.find(program, folder)
        if path and Path(path).parent != Path(sys.executable).absolute().parent:
            return path
    return ""


def kind(name: str, module: str, cure: str, matters: frozenset[str] = frozenset()) -> PythonKind:
    """The engine of that name, which is that module.

    `matters`: features of which is told too that a build lacks them.
    """

    def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
        """Version, and features `has:imt`, `lacks:daos`...; EngineError with what it said else."""
        reply = answer(answers[0])
        if reply is None or "version" not in reply:
            reason = (
                str((reply or {}).get("error", ""))
                or ((ERROR.findall(answers[0]) or ["it says nothing"])[-1])
            )
            raise EngineError(
                f"its Python cannot use {module} ({reason[:300]}): {cure}, or name the Python that "
                f"has it by FSMATRIX_{name.upper()}"
            )
        features = reply.get("features")
        has = set(features) if isinstance(features, list) else set()
        lacks = {f"lacks:{feature}" for feature in matters - has}
        return str(reply["version"]), frozenset({f"has:{feature}" for feature in has} | lacks)

    questions = (words(name, "probe"),)
    return PythonKind(name, "python3", cure, questions, read, module=module)


ROOT = kind(
    "root",
    "ROOT",
    "install fsmatrix[hep] (pip install --pre root), or load the site's ROOT",
    frozenset({"daos", "imt"}),
)


UPROOT = kind("uproot", "uproot", "pip install uproot awkward cramjam xxhash")
