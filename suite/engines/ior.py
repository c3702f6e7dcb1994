"""The external engine `ior`: version and what this build of it can do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsmatrix.results.formats.ior import failure_of
from fsmatrix.results.formats.ior.as_text import BANNER
from fsmatrix.suite.engines.engine import EngineError, EngineKind

OLDEST = (3, 2)
# one write of 8 bytes by the API that does no I/O: shows the version, which -h does not
BANNER_QUESTION = ("-a", "DUMMY", "-w", "-b", "8", "-t", "8", "-o", "/dev/null")
CURE = (
    "load the cluster's IOR module (module avail ior), install it with Spack (spack install ior) "
    "or build https://github.com/hpc/ior"
)
RANKS_CSV = "saveRankPerformanceDetailsCSV"
RANDOM_OFFSETS = "option:random-offsets"  # -z -z; other versions refuse it or shuffle
_APIS = re.compile(r"-a=\w+ +API for I/O \[([\w|-]+)\]", re.ASCII)
_MODULE = re.compile(r"^Module (\w+)\s*$", re.MULTILINE)
_LONG = re.compile(r"^ *(?:-\w, *)?--([\w.-]+)", re.MULTILINE)
_SHORT = re.compile(r"^  -(\w)[ ,=]", re.MULTILINE)
_RANDOM = re.compile(r"^  -z .*\btwice for random\b", re.MULTILINE)  # since December 2024
_DIRECTIVE = re.compile(r"^ *-O (\w+)=", re.MULTILINE)
# options whose presence differs between versions and builds, and matters here
_TOLD = re.compile(r"(?:dfs|rados|cephfs)\.[\w.]+|posix\.odirect|dryRun|random-offset-seed")


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version and features from the answers to -h and to BANNER_QUESTION.

    Features: `api:POSIX`, `api:DFS`...; `api:?` where the build does not tell them all (3.3.0
    prints its list from memory that is already gone); `option:dfs.group`..., `option:B` (O_DIRECT
    before 3.3), `option:ranks-csv` (times of each rank), `packet:random`,
    `option:random-offsets` (drawn ones, not a shuffle).
    """
    text = "\n".join(answers)
    match = BANNER.search(text)
    if match is None:
        printed = failure_of(text) or " | ".join(text.strip().splitlines()[:3]) or "nothing"
        raise EngineError(
            f"ior does not print its version, it says: {printed[:300]}. It must start by itself, "
            f"outside of mpirun: {CURE}"
        )
    version = match[1]
    if _ordered(version) < OLDEST:
        raise EngineError(f"ior {version} is too old, 3.2 or later is needed: {CURE}")
    return version, _features(text)


def _ordered(version: str) -> tuple[int, ...]:
    """(4, 1) of "4.1.0+dev"; (0,) of a text without numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) or (0,)


def _features(text: str) -> frozenset[str]:
    features = {f"option:{name}" for name in _LONG.findall(text) if _TOLD.fullmatch(name)}
    modules = {f"api:{name}" for name in _MODULE.findall(text)}
    if listed := _APIS.search(text):
        features |= {f"api:{name}" for name in listed[1].split("|")}
    else:
        features |= modules | {"api:?"}
    if "B" in _SHORT.findall(text):
        features.add("option:B")
    directives = _DIRECTIVE.findall(text)
    if RANKS_CSV in directives:
        features.add("option:ranks-csv")
    if "stoneWallingStatusFile" in directives:
        features.add("option:stonewall-status-file")
    if _RANDOM.search(text):
        features.add(RANDOM_OFFSETS)
    if "|random|" in text:
        features.add("packet:random")
    return frozenset(features)


KIND = EngineKind(
    name="ior",
    program="ior",
    cure=CURE,
    questions=(("-h",), BANNER_QUESTION),
    read=read,
    # a single process, started without mpirun, also as root
    environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
)
