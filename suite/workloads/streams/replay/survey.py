"""One pass over a trace: what of it is chosen, how large it is, and how it went when captured."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import MAX_OP_BYTES, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject, Stored, read
from fsmatrix.results.histogram import BINS, bin_of
from fsmatrix.traces.trace_model import UNKNOWN, Columns, Operations

# What every rank is told of a replay, and the trace that it opens.


NAME_MAX = 255  # bytes of one part of a path
ALIGNMENT = 4096  # of O_DIRECT; safe on every device
PIECE = 1 << 20  # bytes of one write that fills a file of the tree
LARGEST = MAX_OP_BYTES - 2 * ALIGNMENT  # of one operation, so that it can still be widened
MOST_OFFSET = (1 << 63) - 1 - (1 << 31)  # that a player takes
MOST_TIME = 1 << 57  # ns that it waits for an operation, some four years
ON_HANDLES = (int(Kind.READ), int(Kind.WRITE), int(Kind.FSYNC), int(Kind.CLOSE), int(Kind.TRUNCATE))
OPENING = (int(Kind.OPEN), int(Kind.CREATE))


@dataclass(frozen=True)
class ReplayParams(Stored):
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


def work_of(params: JsonObject) -> ReplayParams:
    """From the params of a step; StoredError if they are none."""
    return read(ReplayParams, params, "params", exact=True)


@contextmanager
def opened_trace(work: ReplayParams) -> Iterator[Operations]:
    """The trace, or what makes its operations."""
    if work.generator:
        from fsmatrix.traces.page_cache import generate

        yield generate(work.generator, work.scale, work.seed)
        return
    from fsmatrix.traces.tracefile import opened

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


KINDS = len(Kind)
CLASSES = 8  # with names; all others are one more
OTHERS = "others"
NO_EXTENSION = "no extension"
MOST_LETTERS = 16
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass
class Captured:
    """How the chosen operations went when they were captured, by kind."""

    operations: Integers = field(default_factory=lambda: np.zeros(KINDS, np.int64))
    bytes: Integers = field(default_factory=lambda: np.zeros(KINDS, np.int64))
    failed: Integers = field(default_factory=lambda: np.zeros(KINDS, np.int64))
    latency: Integers = field(default_factory=lambda: np.zeros((KINDS, BINS), np.int64))
    total_ns: Integers = field(default_factory=lambda: np.zeros(KINDS, np.int64))


@dataclass
class Survey:
    """What one pass over a trace tells.  Arrays have one element for each file or thread."""

    first: int  # operations of the window: first, ... stop - 1
    stop: int
    begin_ns: int  # issue time of the first, and of the last
    end_ns: int
    chosen: Mask  # [file]
    file_class: npt.NDArray[np.uint8]  # [file]
    classes: tuple[str, ...] = ()
    captured: Captured = field(default_factory=Captured)
    class_operations: Integers = field(default_factory=lambda: np.zeros(CLASSES + 1, np.int64))
    class_bytes: Integers = field(default_factory=lambda: np.zeros(CLASSES + 1, np.int64))
    class_ns: Integers = field(default_factory=lambda: np.zeros(CLASSES + 1, np.int64))
    left_out: Integers = field(default_factory=lambda: np.zeros(KINDS, np.int64))
    end: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # [file] last byte + 1
    asked: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # [file] bytes written
    data: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))  # [file] is read or written
    used: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))  # [file] with success
    made: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))  # [file] by mkdir or rename
    written: int = 0  # bytes asked for
    read: int = 0
    largest: int = 0  # bytes of one operation
    unaligned: int = 0  # reads and writes that O_DIRECT could not do
    no_latency: int = 0  # operations without one
    thread_first: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # -1: none
    thread_last: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    thread_count: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def operations(self) -> int:
        """Chosen ones."""
        return int(self.captured.operations.sum())


def survey(trace: Operations, work: ReplayParams) -> Survey:
    """Look through the window; ValueError if it is empty."""
    first, stop, begin, end = window(trace, work)
    chosen = chosen_files(trace, work)
    result = Survey(first, stop, begin, end, chosen, np.zeros(len(trace.files), np.uint8))
    result.end = np.zeros(len(trace.files), np.int64)
    result.asked = np.zeros(len(trace.files), np.int64)
    result.data = np.zeros(len(trace.files), np.bool_)
    result.used = np.zeros(len(trace.files), np.bool_)
    result.made = np.zeros(len(trace.files), np.bool_)
    threads = len(trace.threads)
    result.thread_first = np.full(threads, -1, np.int64)
    result.thread_last = np.full(threads, -1, np.int64)
    result.thread_count = np.zeros(threads, np.int64)
    per_file = np.zeros((3, len(trace.files)), np.int64)  # operations, bytes, ns
    at = first
    for block in trace.blocks(first=first, stop=stop):
        _add(result, trace, work, block, at, per_file)
        at += len(block["kind"])
    _classes(result, trace, per_file)
    return result


def window(trace: Operations, work: ReplayParams) -> tuple[int, int, int, int]:
    """First operation, the one after the last, and the issue times of the first and the last."""
    low, high = (round(seconds * 1e9) for seconds in work.window)
    first, stop, begin, end, at = -1, 0, 0, 0, 0
    for block in trace.blocks(("time",)):
        times = block["time"]
        inside = np.flatnonzero((times >= low) & ((times < high) if high else True))
        if len(inside):
            if first < 0:
                first, begin = at + int(inside[0]), int(times[inside[0]])
            stop, end = at + int(inside[-1]) + 1, int(times[inside[-1]])
        at += len(times)
        if high and len(times) and times[-1] >= high:
            break
    if first < 0:
        raise ValueError("no operation of the trace lies in the window")
    return first, stop, begin, end


def chosen_files(trace: Operations, work: ReplayParams) -> Mask:
    """Files whose path fits one of the patterns, and the directories above them."""
    if not work.files:
        return np.ones(len(trace.files), np.bool_)
    patterns = [os.fsencode(pattern) for pattern in work.files]
    names = list(trace.files.names())
    fits = [any(fnmatch.fnmatchcase(name, p) for p in patterns) for name in names]
    above = {
        parent for name, fit in zip(names, fits, strict=True) if fit for parent in parents(name)
    }
    both = zip(names, fits, strict=True)
    return np.array([fit or name in above for name, fit in both], np.bool_)


def parents(name: bytes) -> Iterator[bytes]:
    """The directories above a path, the outermost first."""
    at = name.find(b"/")
    while at >= 0:
        yield name[:at]
        at = name.find(b"/", at + 1)


def selected(trace: Operations, work: ReplayParams, chosen: Mask, block: Columns) -> Mask:
    """Which operations of a block are to be played; what opens files comes with their use."""
    if chosen.all():
        wanted = np.ones(len(block["kind"]), np.bool_)
    else:
        wanted = chosen[trace.slots[block["slot"]]]
    if work.kinds:
        kinds = set(work.kinds)
        if work.mode != "queue" and kinds & set(ON_HANDLES):
            kinds |= {*OPENING, int(Kind.CLOSE)}
        wanted = wanted & np.isin(block["kind"], list(kinds))
    return wanted


def moved(block: Columns) -> Integers:
    """Bytes that each read or write moved; where that was not captured, what was asked for."""
    result = block["result"]
    size = block["size"].astype(np.int64)
    data = is_data(block["kind"])
    return np.where(data, np.where(result == UNKNOWN, size, np.maximum(result, 0)), 0)


def _add(
    survey: Survey,
    trace: Operations,
    work: ReplayParams,
    block: Columns,
    at: int,
    per_file: Integers,
) -> None:
    """Count a block, whose first operation is number `at`."""
    mask = selected(trace, work, survey.chosen, block)
    survey.left_out += np.bincount(block["kind"][~mask], minlength=KINDS)
    part = {name: values[mask] for name, values in block.items()}
    index = at + np.flatnonzero(mask)
    kind, file = part["kind"], trace.slots[part["slot"]]
    _threads(survey, part["thread"], index)
    captured, came, latency = survey.captured, moved(part), part["latency"]
    captured.operations += np.bincount(kind, minlength=KINDS)
    np.add.at(captured.bytes, kind, came)
    failed = (part["result"] < 0) & (part["result"] != UNKNOWN)
    captured.failed += np.bincount(kind[failed], minlength=KINDS)
    survey.used[file[~failed]] = True
    target = trace.slots[part["slot2"][~failed & (kind == Kind.RENAME)]]
    survey.used[target] = survey.made[target] = True
    survey.made[file[~failed & (kind == Kind.MKDIR)]] = True
    seen = latency >= 0
    survey.no_latency += int((~seen).sum())
    bins = kind[seen].astype(np.int64) * BINS + bin_of(latency[seen])
    captured.latency += np.bincount(bins, minlength=KINDS * BINS).reshape(KINDS, BINS)
    np.add.at(captured.total_ns, kind[seen], latency[seen])
    each = (np.ones(len(kind), np.int64), came, np.maximum(latency, 0))
    for row, values in zip(per_file, each, strict=True):
        np.add.at(row, file, values)
    _sizes(survey, part, file)


def _threads(survey: Survey, thread: npt.NDArray[np.uint32], index: Integers) -> None:
    numbers, firsts = np.unique(thread, return_index=True)
    new = survey.thread_first[numbers] < 0
    survey.thread_first[numbers[new]] = index[firsts[new]]
    survey.thread_last[thread] = index  # the last of equal ones stays
    survey.thread_count += np.bincount(thread, minlength=len(survey.thread_count))


def _sizes(survey: Survey, part: Columns, file: npt.NDArray[np.uint32]) -> None:
    kind, size, offset = part["kind"], part["size"].astype(np.int64), part["offset"]
    is_write, is_read = kind == Kind.WRITE, kind == Kind.READ
    data = is_write | is_read
    survey.written += int(size[is_write].sum())
    survey.read += int(size[is_read].sum())
    survey.data[file[data]] = True
    np.add.at(survey.asked, file[is_write], size[is_write])
    np.maximum.at(survey.end, file, _reached(part))
    if data.any():
        survey.largest = max(survey.largest, int(size[data].max()))
        askew = (offset[data] % ALIGNMENT != 0) | (size[data] % ALIGNMENT != 0)
        survey.unaligned += int(askew.sum())


def _reached(part: Columns) -> Integers:
    """Last byte + 1 of its file that each operation reached; 0 if it failed or is not played."""
    kind, offset, result = part["kind"], part["offset"], part["result"]
    is_truncate = (kind == Kind.TRUNCATE) & ((result >= 0) | (result == UNKNOWN))
    counts = (is_truncate | is_data(kind)) & (offset <= MOST_OFFSET)
    return np.where(counts, offset.astype(np.int64) + moved(part), 0)


def class_name(name: bytes) -> str:
    """The class of a file: its extension, in lower case."""
    extension = os.path.splitext(name.rpartition(b"/")[2])[1]  # noqa: PTH122 - bytes
    text = extension.decode("ascii", "replace").lower()
    if not text:
        return NO_EXTENSION
    return text if text.isprintable() and text.isascii() and len(text) <= MOST_LETTERS else OTHERS


def _classes(survey: Survey, trace: Operations, per_file: Integers) -> None:
    """Divide the files into the classes with the most operations and all others."""
    names = [class_name(name) for name in trace.files.names()]
    counts: dict[str, int] = {}
    for name, count in zip(names, per_file[0].tolist(), strict=True):
        counts[name] = counts.get(name, 0) + count
    counts.pop(OTHERS, None)
    most = sorted((n for n in counts if counts[n]), key=lambda n: (-counts[n], n))[:CLASSES]
    number = {name: i for i, name in enumerate(most)}
    survey.classes = (*most, OTHERS)
    survey.file_class = np.array([number.get(name, len(most)) for name in names], np.uint8)
    for row, total in zip(
        per_file, (survey.class_operations, survey.class_bytes, survey.class_ns), strict=True
    ):
        np.add.at(total, survey.file_class, row)
