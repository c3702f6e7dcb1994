"""What fio's output tells of its options, and which traps they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsmatrix.results.evidence.values import Level, Scalar
from fsmatrix.results.formats.base import Note
from fsmatrix.results.formats.fio.job import Job, is_set, kb_base, seconds_of, size_of

MIB = 1 << 20
LARGEST_OBJECT = 128 * MIB  # of RADOS: osd_max_object_size
FEWEST_OBJECTS = 64
_SIZES = ("bs", "size", "io_size")
_NUMBERS = (
    "iodepth", "rwmixread", "nrfiles", "fsync", "fdatasync", "number_ios", "verify_backlog",
)  # fmt: skip
_FLAGS = ("direct", "end_fsync", "fsync_on_close", "norandommap", "thread")
_TIMES = ("runtime", "ramp_time")
_WORDS = ("rw", "ioengine", "sync", "verify")
_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "timeout": "runtime",
    "nr_files": "nrfiles",
    "io_limit": "io_size",
}
LATENCIES = "latencies"  # a factor, so that runs that count from another moment are apart


def told_options(jobs: Sequence[Job]) -> Level:
    """Options that all jobs share, in the words of the workload; what is not told is absent.

    `latencies` is "lat" where fio has histograms of nothing else (lat_percentiles).
    """
    every = [_typed(job.options) | _latencies(job) for job in jobs]
    return {
        key: value
        for key, value in every[0].items()
        if all(key in options and options[key] == value for options in every)
    }


def _latencies(job: Job) -> dict[str, Scalar]:
    return {LATENCIES: "lat"} if any(direction.total for direction in job.directions) else {}


def _typed(options: Mapping[str, str]) -> dict[str, Scalar]:
    given = {_ALIASES.get(key, key): value for key, value in options.items()}
    base = kb_base(options)
    typed: dict[str, Scalar] = {}
    for key in _SIZES:
        if (size := size_of(given.get(key, ""), base)) is not None:
            typed[key] = size
    for key in _NUMBERS:
        if given.get(key, "").isdecimal() and len(given[key]) < 16:
            typed[key] = int(given[key])
    for key in _TIMES:
        if (seconds := seconds_of(given.get(key, ""))) is not None:
            typed[key] = seconds
    typed |= {key: is_set(given, key) for key in _FLAGS if key in given}
    return typed | {key: given[key] for key in _WORDS if key in given}


def traps(jobs: Sequence[Job]) -> list[Note]:
    """What makes fio's numbers with these options doubtful."""
    notes = []
    for job in jobs:
        if job.options.get("ioengine") == "rados" and job.kind and (remarks := _rados(job)):
            text = f"job {job.name} on rados: {'; '.join(remarks)}; fio ignores completion errors"
            notes.append(Note("rados-phantom", text, phase=job.kind))
    return list(dict.fromkeys(notes))


def _rados(job: Job) -> list[str]:
    options = _typed(job.options)
    objects = int(options.get("nrfiles", 1))
    remarks = []
    if objects < FEWEST_OBJECTS:
        remarks.append(f"nrfiles={objects}: with fewer than {FEWEST_OBJECTS} objects few OSDs work")
    size = options.get("size")
    if not isinstance(size, int):
        remarks.append("the size of its objects is not told")
    elif objects and size / objects > LARGEST_OBJECT:
        remarks.append(f"objects of {size // objects} bytes are above the limit of 128 MiB")
    reads = any(direction.kind != "write" for direction in job.directions)
    if reads and job.options.get("touch_objects", "1") != "0":
        remarks.append("reads without touch_objects=0: objects never written were made empty")
    return remarks
