"""fio: its version, its I/O engines, and whether its JSON tells when jobs started."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsmatrix.suite.engines.engine import EngineError, EngineKind

OLDEST = (3, 0)
JOB_START = (3, 36)  # from here on the JSON has job_start
CURE = "install it (Debian, Ubuntu: apt install fio; clusters: module load fio)"
_VERSION = re.compile(r"^fio-(\d+)\.(\d+)(\S*)", re.M)
_ENGINE = re.compile(r"^\s+([a-z0-9_-]+)\s*$", re.M)


def read(answers: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Version and features from `--version`, `--enghelp` and `--enghelp=rados`.

    Features: "ioengine:NAME", "job_start", and "rados:touch_objects".
    """
    version = _VERSION.search(answers[0])
    if version is None:
        raise EngineError(f"this is not fio: it answers --version with {answers[0][:80]!r}")
    number = (int(version[1]), int(version[2]))
    text = version[0].removeprefix("fio-")
    if number < OLDEST:
        raise EngineError(f"fio {text} is too old: fsmatrix needs 3.0 or newer; {CURE}")
    features = {f"ioengine:{name}" for name in _ENGINE.findall(answers[1])}
    if not features:
        raise EngineError(f"fio {text} names no I/O engine in {answers[1][:80]!r}")
    if number >= JOB_START:
        features.add("job_start")
    if "ioengine:rados" in features and re.search(r"^touch_objects\b", answers[2], re.M):
        features.add("rados:touch_objects")
    return text, frozenset(features)


KIND = EngineKind(
    name="fio",
    program="fio",
    cure=CURE,
    questions=(("--version",), ("--enghelp",), ("--enghelp=rados",)),
    read=read,
)
