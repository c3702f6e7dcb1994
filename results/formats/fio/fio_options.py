"""What fio's output tells of its options, and which traps they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from fsmatrix.results.evidence.stored import JsonObject, Level, Scalar, inside
from fsmatrix.results.formats.fio.documents import Document
from fsmatrix.results.formats.fio.job import DIRECTIONS, Job, is_set, kb_base, seconds_of, size_of
from fsmatrix.results.formats.parsed import Note

# States of a run that fio printed on the way (--status-interval): which documents are one run.


SLACK = 100.0  # ms by which the time of a state may be off


def final(parsed: Sequence[Document]) -> list[Document]:
    """Without those that --status-interval printed on the way, and without doubles."""
    kept: list[Document] = []
    for document in parsed:
        if kept and _goes_on(kept[-1], document):
            kept.pop()
        kept.append(document)
    return kept


def _goes_on(before: Document, after: Document) -> bool:
    """Whether `after` is a later state of the same run (or the same text again)."""
    if len(before.jobs) != len(after.jobs) or before.damage or after.damage:
        return before.damage != "" and before.jobs == after.jobs[: len(before.jobs)]
    if before.jobs == after.jobs:
        return True
    if any(
        a.get("jobname") != b.get("jobname") for a, b in zip(before.jobs, after.jobs, strict=True)
    ):
        return False
    starts = [[job.get("job_start") for job in document.jobs] for document in (before, after)]
    if any(starts[0]):
        return starts[0] == starts[1]
    passed = printed(after) - printed(before)
    grown = _grown(before, after)
    if not any(map(_moved, before.jobs)):  # it laid out its files, or waited for its ramp
        failed = any(job.get("error") for job in before.jobs)
        return not failed and _began(after)[0] < _began(before)[1]
    if grown is None:
        return False
    # groups one after the other lay out files between them
    between = passed / 2 if _began(after)[1] <= printed(before) else 0.0
    return grown > 0 and -between - SLACK <= grown - passed <= SLACK


def printed(document: Document) -> float:
    """Unix time in ms; 0 if it is not told."""
    return number(document.header.get("timestamp_ms"))


def _began(document: Document) -> tuple[float, float]:
    """The first and the last moment, ms, at which this fio may have begun: it tells whole seconds.

    Without them it may be any.
    """
    elapsed = max((number(job.get("elapsed")) for job in document.jobs), default=0.0)
    if not elapsed:
        return 0.0, math.inf
    return printed(document) - 1000 * elapsed, printed(document) - 1000 * (elapsed - 1)


def _grown(before: Document, after: Document) -> float | None:
    """ms by which the groups have worked longer in all; None if `after` is no later state."""
    groups: dict[object, float] = {}
    for old, new in zip(before.jobs, after.jobs, strict=True):
        begun = _runtime(old) if _runtime(old) <= _runtime(new) else 0.0
        again = not begun and "ramp_time" in options_of(after.header, new)  # counted anew
        if _moved(new) < _moved(old) and not again:
            return None
        group = new.get("groupid")
        groups[group] = max(groups.get(group, 0.0), _runtime(new) - begun)
    return sum(groups.values())


def options_of(header: JsonObject, job: JsonObject) -> JsonObject:
    return {**inside(header, "global options"), **inside(job, "job options")}


def _moved(job: JsonObject) -> float:
    """Bytes in all directions."""
    return sum(number(inside(job, kind).get("io_bytes")) for kind in DIRECTIONS)


def _runtime(job: JsonObject) -> float:
    return max(number(inside(job, kind).get("runtime")) for kind in DIRECTIONS)


def longest(document: Document) -> float:
    return max(map(_runtime, document.jobs), default=0.0)


def number(value: object) -> float:
    return float(value) if isinstance(value, int) and 0 <= value < 1 << 53 else 0.0


MIB = 1 << 20
LARGEST_OBJECT = 128 * MIB  # of RADOS: osd_max_object_size
FEWEST_OBJECTS = 64
_SIZES = ("bs", "size", "io_size")
_NUMBERS = (
    "iodepth", "rwmixread", "nrfiles", "fsync", "fdatasync", "number_ios", "verify_backlog",
)  # fmt: skip
_FLAGS = ("direct", "end_fsync", "fsync_on_close", "norandommap", "thread")
_TIMES = ("runtime", "ramp_time")
_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "timeout": "runtime",
    "nr_files": "nrfiles",
    "io_limit": "io_size",
}
LIMITS = {"rate": "rate_limit", "rate_iops": "iops_limit"}  # of each job: bytes/s, operations/s
_LIMITED = ("rate", "rate_iops", "thinktime")
# what says where, for whom and by what name something is done, or how it is reported: no other work
_NO_WORK = re.compile(
    r"name|description|directory|filename|filename_format|opendir|unique_filename|hostname|port"
    r"|numjobs|group_reporting|new_group|stonewall|wait_for(_previous)?|startdelay|exitall\w*"
    r"|randseed|rand\w*repeat|allrandrepeat|write_\w*_log|log_\w+|per_job_logs|\w*percentiles"
    r"|percentile_list|significant_figures|unified_rw_reporting|kb_base|unit_base|disk_util"
    r"|exec_(pre|post)run|unlink\w*|create_\w+|ignore_error|continue_on_error|error_dump|do_verify"
    r"|ss\w*|steadystate\w*|uid|gid|disable_\w+|gtod_\w+|clocksource|clock"
)
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
    share = given.get("rwmixwrite", "")
    if "rwmixread" not in given and share.isdecimal() and len(share) < 3:
        typed["rwmixread"] = 100 - int(share)
    if (rate := size_of(given.get("rate", ""), base)) is not None:
        typed["rate_limit"] = rate
    if given.get("rate_iops", "").isdecimal():
        typed["iops_limit"] = int(given["rate_iops"])
    told = {*typed, *(option for option, name in LIMITS.items() if name in typed)}
    told |= {"rwmixwrite"} if "rwmixread" in typed else set()
    # words, and whatever is no plain number or not known here: other work all the same
    rest = {k: v for k, v in given.items() if k not in told and not _NO_WORK.fullmatch(k)}
    return typed | rest


def traps(jobs: Sequence[Job]) -> list[Note]:
    """What makes fio's numbers with these options doubtful."""
    notes = []
    for job in jobs:
        if job.kind and (limits := [f"{k}={job.options[k]}" for k in _LIMITED if k in job.options]):
            text = f"job {job.name} was held back: {', '.join(limits)}"
            notes.append(Note("rate-limited", text, phase=job.kind))
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
