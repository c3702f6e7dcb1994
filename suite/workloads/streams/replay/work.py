"""What every rank is told of a replay, and the trace that it opens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import MAX_OP_BYTES, Kind, Place
from fsmatrix.results.evidence.stored import Stored, read
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.traces.model import Operations

NAME_MAX = 255  # bytes of one part of a path
ALIGNMENT = 4096  # of O_DIRECT; safe on every device
PIECE = 1 << 20  # bytes of one write that fills a file of the tree
LARGEST = MAX_OP_BYTES - 2 * ALIGNMENT  # of one operation, so that it can still be widened
MOST_OFFSET = (1 << 63) - 1 - (1 << 31)  # that a player takes
MOST_TIME = 1 << 57  # ns that it waits for an operation, some four years
ON_HANDLES = (int(Kind.READ), int(Kind.WRITE), int(Kind.FSYNC), int(Kind.CLOSE), int(Kind.TRUNCATE))
OPENING = (int(Kind.OPEN), int(Kind.CREATE))


@dataclass(frozen=True)
class Work(Stored):
    """The params of the streams."""

    trace: str = ""  # path of a trace file
    sha256: str = ""  # of that file
    generator: str = ""  # instead of a trace file
    scale: float = 1.0  # of the generator
    seed: int = 0  # of the generator
    mode: str = "closed"
    time_scale: float = 0.0  # timed: of the issue times; closed: of the pauses, 0 = none
    window: tuple[float, float] = (0.0, 0.0)  # seconds of the trace; an end of 0: to its end
    files: tuple[str, ...] = ()  # patterns of paths; none: all files
    kinds: tuple[int, ...] = ()  # none: all
    private: bool = False  # each rank has a tree of its own and plays all of the trace
    direct: bool | None = None  # None: as captured
    widened: bool = True  # what is not aligned for O_DIRECT is; otherwise it is buffered
    filled: bool = False  # files of the tree are written; otherwise only made as long
    able: tuple[int, ...] = tuple(range(len(Kind)))  # kinds that the driver can do
    longest_path: int = 4095  # bytes that the driver takes
    slots: int = 1  # of the trace

    def prefix(self, place: Place) -> bytes:
        """What stands before every path of the trace in this rank."""
        return b"client%08d/" % place.rank if self.private else b""

    @property
    def twins(self) -> bool:
        """Whether a slot may have a second handle, without O_DIRECT."""
        return bool(self.direct) and not self.widened


def is_data(kind: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which operations are reads or writes; np.isin takes ten times as long."""
    data: npt.NDArray[np.bool_] = (kind == int(Kind.READ)) | (kind == int(Kind.WRITE))
    return data


def work_of(params: JsonObject) -> Work:
    """From the params of a step; StoredError if they are none."""
    return read(Work, params, "params", exact=True)


@contextmanager
def opened_trace(work: Work) -> Iterator[Operations]:
    """The trace, or what makes its operations."""
    if work.generator:
        from fsmatrix.traces.generators.page_cache import generate

        yield generate(work.generator, work.scale, work.seed)
        return
    from fsmatrix.traces.reader import opened

    with opened(work.trace) as trace:
        yield trace


def digest(params: JsonObject, place: Place, root: str) -> JsonObject:
    """A Function step on each node: its trace file is the one of the plan, or ValueError."""
    del root
    work = work_of(params)
    with open(work.trace, "rb") as file:  # noqa: PTH123 - as it is named
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != work.sha256:
        raise ValueError(
            f"the trace {work.trace} on node {place.node} is not the one of the plan: its "
            f"SHA-256 is {sha256}, not {work.sha256}"
        )
    return {"sha256": sha256}
