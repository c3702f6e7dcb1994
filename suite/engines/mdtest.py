"""The external engine `mdtest`: version and what this build of it can do.

Its help does not tell the version, only a run does: one file by the API DUMMY, which
touches no storage (about a second, most of which mdtest sleeps).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsmatrix.suite.engines.engine import EngineError, EngineKind

VERSION_QUESTION = ("-a", "DUMMY", "-C", "-F", "-n", "1", "-d", "/nonexistent/fsmatrix")
OLDEST = (1, 9)  # mdtest of IOR 3.2 calls itself 1.9.3; from 3.3 it has IOR's version
CURE = (
    "load the cluster's IOR module, which brings mdtest (module avail ior), install it with "
    "Spack (spack install ior) or build https://github.com/hpc/ior"
)
RANKS_CSV = "option:saveRankPerformanceDetails"
UNTOLD = "api:?"  # 3.3.0 prints its list of APIs from memory that is already gone
_HELP = "only create files/dirs"
_APIS = re.compile(r"-a=\w+ +API for I/O \[([\w|-]+)\]", re.ASCII)
_MODULE = re.compile(r"^Module (\w+)\s*$", re.MULTILINE)
_SHORT = re.compile(r"^  -(\w)[ ,=]", re.ASCII | re.MULTILINE)
_LONG = re.compile(r"^ *(?:-\w, *)?--([\w.-]+)", re.ASCII | re.MULTILINE)
_LAUNCHED = re.compile(r"^mdtest-(\S+) was launched with", re.MULTILINE)


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version and features from the answers to --help and to VERSION_QUESTION.

    Features: `api:POSIX`, `api:DFS`...; `api:?` where the build does not tell them all;
    `option:U`, `option:dfs.pool`... for every option.
    """
    text, run = answers
    if _HELP not in text:
        raise EngineError(f"this is not mdtest, it answers --help with: {_short(text)}. {CURE}")
    version = _LAUNCHED.search(run)
    if version is None:
        raise EngineError(
            f"mdtest does not print its version, it says: {_short(run)}. It must start by "
            f"itself, outside of mpirun: {CURE}"
        )
    release = tuple(int(part) for part in re.findall(r"\d+", version[1])[:2])
    if release < OLDEST:
        raise EngineError(f"mdtest {version[1]} is too old, IOR 3.2 or later is needed: {CURE}")
    return version[1], _features(text)


def _short(text: str) -> str:
    return " ".join(text.split())[:300] or "nothing"


def _features(text: str) -> frozenset[str]:
    options = {f"option:{name}" for name in (*_SHORT.findall(text), *_LONG.findall(text))}
    if listed := _APIS.search(text):
        return frozenset(options | {f"api:{name}" for name in listed[1].split("|")})
    return frozenset(options | {f"api:{name}" for name in _MODULE.findall(text)} | {UNTOLD})


KIND = EngineKind(
    name="mdtest",
    program="mdtest",
    cure=CURE,
    questions=(("--help",), VERSION_QUESTION),
    read=read,
    # a program that is started by itself, and may be started by root
    environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
)
