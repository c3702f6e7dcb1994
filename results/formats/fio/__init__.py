"""fio's JSON (`--output-format=json` or `json+`, fio 3.0 and newer): one run per reporting group.

A worker is a job.  Its window is fio's runtime: from the loop's begin (opening files included)
to the last completion, a final fsync (end_fsync) included, closing and a verification after it
not.  Where all jobs tell their `job_start` (3.36 and newer) the windows stand on one clock;
otherwise every window begins at 0 and `facts["window_source"]` is "runtime" until logs tell more
(phase.py).
Latencies are fio's completion latencies (clat); where it has histograms from submission only
(lat_percentiles), of those, in kinds of their own.  Means of slat, clat and lat are in the facts.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.formats.fio.documents import MARK, Document, documents
from fsmatrix.results.formats.fio.fio_options import (
    final,
    longest,
    options_of,
    printed,
    told_options,
    traps,
)
from fsmatrix.results.formats.fio.job import (
    RANGES,
    DamagedError,
    Job,
    amount_of,
    is_set,
    job_of,
    kb_base,
    runtime_of,
    rw_of,
    seconds_of,
    size_of,
)
from fsmatrix.results.formats.fio.phase import (
    LATENCIES_DIFFER,
    in_turn,
    past_cache,
    phase_of,
    unknown_turns,
)
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    Span,
    headless,
    is_older,
    overlapping,
)
from fsmatrix.results.record import Phase
from fsmatrix.results.units import format_size

MOST_NOTES = 20
OLDEST = "3.0"
NO_HISTOGRAM = (
    "the latencies: fio's format json has their means and percentiles, which cannot be added up, "
    "and no histogram: run fio with --output-format=json+"
)
ADVICE = "run fio with --output-format=json+"
_SAID = re.compile(r"^(?:fio|note|warning): ?[^\n]+", re.M | re.I)
# lines of the formats normal and terse
_TEXT = re.compile(
    r"^[^\n]{1,200}: \((?:g=\d+\): rw=|groupid=\d+, jobs=\d+\): err=)|^[2-5];fio-\d", re.M
)
_ENDED = re.compile(r"terminating on signal \d")
_VERSION = re.compile(r"^(?:\d;)?fio[- ](\d[\w.-]{0,40})", re.M)
# what a job of this kind does not do: then the output is that of several jobs
OTHER = {"read": "write", "randread": "write", "write": "read", "randwrite": "read"}
LONGER = ("runtime", "timeout", "io_size", "io_limit", "number_ios", "loops")  # than its size
# of jobs that rightly move less than their amount
UNEVEN = frozenset(
    {"number_ios", "offset", "offset_increment", "nrfiles", "bssplit", "bsrange", "zonemode",
     "zonesize", "latency_target", "fill_device", "verify", "filesize", "blocksize_range",
     "continue_on_error", "read_iolog"}
)  # fmt: skip
PRINTING = 0.1  # seconds by which the time of an output may be off
TOGETHER = 0.25  # seconds within which fio ends all jobs by exitall: it looks every 0.1 s
EARLY = 0.98  # of the asked runtime; below it a time_based job ended early


def parse(text: str, source: str) -> list[Parsed]:
    """Every reporting group of every document is a run; ParseError if there is none."""
    whole = final(documents(text, source))
    starts = [_runs(document, source) for document in whole]
    runs = overlapping(starts, [_span(document) for document in whole])
    warnings = _warnings(text)
    ended = next((note.message for note in warnings if _ENDED.search(note.message)), "")
    return [
        replace(
            run,
            notes=(*run.notes, *warnings),
            failure=run.failure or ended * any(n.key in ("less", "ended-early") for n in run.notes),
        )
        for run in runs
    ]


def _span(document: Document) -> Span:
    """Where its first job worked, and when: for so long as the longest, until it was printed."""
    options = options_of(document.header, document.jobs[0])
    names = [options.get("directory"), options.get("filename"), document.jobs[0].get("jobname")]
    ended = printed(document) / 1000
    begun = ended - longest(document) / 1000 + PRINTING
    return (" ".join(map(str, filter(None, names))) if ended else "", begun, ended)


def _warnings(text: str) -> list[Note]:
    """What fio says beside its JSON, each once."""
    first_line: dict[str, int] = {}
    line, position = 1, 0
    for match in _SAID.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        first_line.setdefault(match[0].strip()[:300], line)
        if len(first_line) == MOST_NOTES:
            break
    return [Note("warning", warning, number) for warning, number in first_line.items()]


def is_text(text: str) -> bool:
    """Whether fio wrote it in another format than JSON: normal, terse."""
    return MARK.search(text) is None and _TEXT.search(text) is not None


def refuse_text(text: str, source: str) -> list[Parsed]:
    """ParseError with what to do instead."""
    match = _VERSION.search(text)
    version = match[1] if match else ""
    old = f"fio {version}: needs fio 3.0 or newer; " if is_older(version, OLDEST) else ""
    reason = f"{old}fio's normal and terse output have too little: {ADVICE}"
    raise ParseError(source, 0, reason)


FORMATS: tuple[Format, ...] = (
    Format("fio json", lambda text: MARK.search(text) is not None, parse),
)
TEXTS: tuple[Format, ...] = (Format("fio text", is_text, refuse_text),)
# keys of a job, which no other program has together
_JOB_KEYS = tuple(
    re.compile(rf'"{key}"\s*:')
    for key in (
        "io_kbytes",
        "bw_bytes",
        "total_ios",
        "drop_ios",
        "clat_ns",
        "usr_cpu",
        "latency_ms",
    )
)


def _is_rest(text: str) -> bool:
    """Whether it is JSON of fio 3 that lost its beginning, where the version stands."""
    return MARK.search(text) is None and all(key.search(text) for key in _JOB_KEYS)


HEADLESS = headless("fio", _is_rest)


# -- runs ------------------------------------------------------------------------------------
def _runs(document: Document, source: str) -> list[Parsed]:
    version = str(document.header.get("fio version", "")).removeprefix("fio-")
    if is_older(version, OLDEST):
        raise ParseError(source, document.line, f"fio {version[:20]}: needs fio 3.0 or newer")
    common = inside(document.header, "global options")
    jobs, damages = [], [document.damage] if document.damage else []
    for number, data in zip(document.numbers, document.jobs, strict=True):
        if data.get("jobname") == "All clients":  # the sum that fio's client mode adds
            continue
        try:
            jobs.append(job_of(data, number, common))
        except DamagedError as error:
            damages.append(f"job {number} is left out: {error}")
    if not jobs:
        reason = "; ".join(damages) or "it has no job"
        raise ParseError(source, document.line, f"fio's JSON gives no result: {reason}")
    jobs = in_turn(jobs)
    groups = sorted({job.group for job in jobs})
    why = "was it ended" + ", or exitall" * _ended_together(jobs) + "?"
    return [
        _run(document, version, [job for job in jobs if job.group == group], damages, why)
        for group in groups
    ]


def _run(
    document: Document, version: str, jobs: Sequence[Job], damages: Sequence[str], why: str
) -> Parsed:
    notes = [*document.notes, *(Note("recovered", text, document.line) for text in damages)]
    merged = _merged_by_fio(jobs)
    for job in jobs:
        sum_of = _merged_into(job) if merged else 1
        ended = _how_it_ended(job, sum_of, _exits_together(document), why)
        notes += [*_job_notes(job, sum_of), *ended]
    if merged:
        notes.append(Note("group-reporting", merged))
    moment = printed(document) / 1000.0
    starts = [job.start for job in jobs if job.kind]
    plausible = all(_plausible(job, moment) for job in jobs if job.kind)
    if not plausible and any(starts):
        notes.append(Note("contradiction", "job_start does not fit the time of the output"))
    kinds = list(dict.fromkeys(job.kind for job in jobs if job.kind))
    phases = [
        phase_of(kind, [job for job in jobs if job.kind == kind], min(starts) if plausible else 0.0)
        for kind in kinds
    ]
    notes += [note for phase in phases if (note := _differ(phase, jobs))]
    notes += traps(jobs)
    hosts = sorted({job.host for job in jobs if job.host})
    return Parsed(
        engine="fio",
        version=version,
        phases=tuple(phases),
        options=told_options(jobs),
        nodes=len(hosts) or None,
        processes=None if merged else len(jobs),
        started=_iso(min(starts)) if plausible and starts else "",
        failure=_failure(jobs, damages) or ("" if plausible else unknown_turns(jobs)),
        notes=tuple(list(dict.fromkeys(notes))[:MOST_NOTES]),
        facts={
            "printed": moment,  # Unix time of the output
            "groupid": jobs[0].group,
            "job_options": [dict(job.options) for job in jobs[:1]],
        },
    )


def _plausible(job: Job, printed: float) -> bool:
    """Whether job_start is told and fits the time at which the output was made."""
    if job.start <= 0:
        return False
    return not printed or job.start + job.seconds <= printed + 1.0


def _merged_into(job: Job) -> int:
    """How many jobs an entry of group_reporting is the sum of; 0: of different ones."""
    asked = job.options.get("numjobs", "1")[:9]
    told = asked.isdecimal() and not _foreign(job) and (not job.several or int(asked) > 1)
    return int(asked) if told else 0


def _foreign(job: Job) -> str:
    """A direction in which a job of its kind moves nothing: then it is the sum of several."""
    other = OTHER.get(rw_of(job.options), "")
    kinds = [direction.kind for direction in job.directions]
    return other if other in kinds and not is_set(job.options, "verify") else ""


def _exits_together(document: Document) -> bool:
    """Whether all jobs end with the first (exitall)."""
    every = [inside(document.header, "global options")]
    every += [inside(data, "job options") for data in document.jobs]
    return any(is_set({"": str(options.get("exitall", "0"))}, "") for options in every)


def _ended_together(jobs: Sequence[Job]) -> bool:
    """Whether all jobs ended when one had done what it was asked to.

    So they do by --exitall, which is in no output when it is on the command line.
    """
    worked = [job for job in jobs if job.kind]
    told = all(job.start for job in worked)
    ends = [(job.start if told else job.delay or 0.0) + job.seconds for job in worked]
    done = any(0 < (amount_of(job.options) or 0) <= job.covered for job in worked)
    return done and len(ends) > 1 and max(ends) - min(ends) <= TOGETHER


def _job_notes(job: Job, sum_of: int) -> list[Note]:
    """`sum_of`: how many jobs it is the sum of, 0 = unknown."""
    notes = []
    # fio counts each fdatasync as a short read, each sync_file_range as a short write
    counted = any(is_set(job.options, name) for name in ("fdatasync", RANGES))
    syncs = job.syncs.operations if job.syncs and counted else 0
    for direction in (*job.directions, *((job.syncs,) if job.syncs else ())):
        phase = job.kind
        notes += [
            Note("contradiction", f"job {job.name}: {p}", phase=phase) for p in direction.problems
        ]
        if direction.short > syncs:
            short = direction.short - syncs
            text = f"job {job.name}: {short} {direction.kind}s moved less than asked"
            notes.append(Note("short-ios", text, phase=phase))
        if direction.dropped:
            text = f"job {job.name}: {direction.dropped} {direction.kind}s were dropped"
            notes.append(Note("dropped-ios", text, phase=phase))
    for key, text in job.remarks:
        notes.append(Note(key, f"job {job.name}: {text}", phase=job.kind))
    return [*notes, *_read_again(job, sum_of)]


def _read_again(job: Job, sum_of: int) -> Iterator[Note]:
    """More bytes than its files have, buffered: what it reads then comes from the page cache."""
    shared = "filename" in job.options and not is_set(job.options, "offset_increment")
    size = (_size_of_files(job) or 0) * (min(sum_of, 1) if shared else sum_of)
    longer = any(name in job.options for name in LONGER)
    if not longer or not 0 < size < job.covered or past_cache(job) or _emptied(job):
        return
    if any(direction.kind in ("read", "mixed") for direction in job.directions):
        text = (
            f"job {job.name} went over its {format_size(size, 1)} {job.covered / size:.1f} times "
            f"({format_size(job.covered, 1)}): it read again, from cache"
        )
        yield Note("reread", text, phase=job.kind)


def _size_of_files(job: Job) -> int | None:
    """Bytes of a job's files; None if they are not told plainly."""
    base, files = kb_base(job.options), job.options.get("nrfiles", "1")
    size, each = (size_of(job.options.get(name, ""), base) for name in ("size", "filesize"))
    whole = each * int(files[:9]) if each and files.isdecimal() else None
    return min((told for told in (size, whole) if told), default=None)


def _emptied(job: Job) -> bool:
    """Whether fio drops the cache of its files between two passes."""
    return is_set(job.options, "loops") and is_set({"invalidate": "1", **job.options}, "invalidate")


def _how_it_ended(job: Job, sum_of: int, exitall: bool, why: str) -> list[Note]:
    """By its time, its amount, its steady state, another job (`exitall`), or too early.

    `why`: the question to ask then.
    """
    notes = []
    asked = seconds_of(runtime_of(job.options))
    if not job.kind:
        return []
    if job.steady is not None:
        ended = "attained" if job.steady else "did not attain"
        text = f"job {job.name} {ended} its steady state in {job.seconds:g} s"
        notes.append(Note("steady" if job.steady else "not-steady", text, phase=job.kind))
    elif (
        asked
        and _time_based(job, sum_of)
        and job.seconds < EARLY * asked
        and not exitall
        and "latency_target" not in job.options  # its numbers are those of the last window
    ):
        text = f"job {job.name} ran {job.seconds:g} s of the {asked:g} s it was asked to: {why}"
        notes.append(Note("ended-early", text, phase=job.kind))
    elif not exitall:
        notes += _less(job, sum_of, asked, why)
    ramp = seconds_of(job.options.get("ramp_time", "")) or 0.0
    shortest = min(job.seconds, asked) if asked else job.seconds
    if ramp and shortest < ramp:
        text = (
            f"job {job.name}: the window of {shortest:g} s is shorter than its ramp of {ramp:g} s"
        )
        notes.append(Note("window-in-ramp", text, phase=job.kind))
    return notes


def _less(job: Job, sum_of: int, asked: float | None, why: str) -> Iterator[Note]:
    """Less than its amount, and no time ended it: it was killed, or its file is shorter.

    Only of plain jobs: others pass over a part of their files.
    """
    amount = (amount_of(job.options) or 0) * sum_of
    plain = not UNEVEN & job.options.keys() and not set(",:") & set(_pattern(job.options))
    in_time = not asked or job.seconds < EARLY * asked
    if plain and in_time and job.kind in ("read", "write") and job.covered < EARLY * amount:
        of_time = f" of {asked:g} s" if asked else ""
        text = (
            f"job {job.name} moved {format_size(job.covered, 1)} of the {format_size(amount, 1)} "
            f"it was asked to, in {job.seconds:g} s{of_time}: {why}"
        )
        yield Note("less", text, phase=job.kind)


def _pattern(options: Mapping[str, str]) -> str:
    """What says in which order and sizes it goes through its files."""
    return "".join(options.get(name, "") for name in ("rw", "readwrite", "bs", "blocksize"))


def _time_based(job: Job, sum_of: int) -> bool:
    """Told, or shown by more bytes than its amount (fio does not tell a flag without a value).

    By number_ios it ends before its time, unless the flag is told.
    """
    amount = (amount_of(job.options) or 0) * sum_of
    looped = 0 < amount < job.covered and not {"number_ios", "loops"} & job.options.keys()
    return is_set(job.options, "time_based") or looped


def _differ(phase: Phase, jobs: Sequence[Job]) -> Note | None:
    """Latencies that are not added up although jobs of the phase have histograms of them.

    Nothing of those of reads that verified: `verify-reads` says it.
    """
    every = [d for job in jobs if job.kind == phase.name for d in (*job.directions, job.syncs) if d]
    kept = {kind.partition("/")[0] for kind in phase.latency}
    lost = [d.kind for d in every if d.latency is not None and d.kind not in kept]
    if lost and any(_are_of_both(job) for job in jobs if job.kind == phase.name):
        return None
    if lost:  # one kind may be lost for the sake of another
        blank = [d.kind for d in every if d.latency is None]
        text = LATENCIES_DIFFER.format([*blank, *lost][0])
        return Note("left-out", text, phase=phase.name)
    plain = any(d.means and d.latency is None and not d.problems for d in every) and not kept
    return Note("left-out", NO_HISTOGRAM, phase=phase.name) if plain else None


def _are_of_both(job: Job) -> bool:
    """Whether the latencies of its reads are left out, as they are of its verification too."""
    told = any(key == "verify-reads" for key, _ in job.remarks)
    return told and any(d.latency is None and not d.means for d in job.directions)


def _merged_by_fio(jobs: Sequence[Job]) -> str:
    """What group_reporting merged: the workers' own times and bytes are lost."""
    if several := next((f"job {job.name}: {job.several}" for job in jobs if job.several), ""):
        return several
    if any(is_set(job.options, "group_reporting") for job in jobs):
        return "group_reporting: the jobs of the group are one worker, their own windows are lost"
    seen = Counter(job.name for job in jobs)
    for job in jobs:
        asked = job.options.get("numjobs", "1")
        if asked.isdigit() and len(asked) < 9 and not job.host and seen[job.name] < int(asked):
            return (
                f"job {job.name}: {seen[job.name]} of numjobs={asked} in the output: "
                "merged by group_reporting, or missing"
            )
        if other := _foreign(job):
            rw = rw_of(job.options)
            return (
                f"job {job.name}: rw={rw}, with {other}s: several jobs, merged by group_reporting"
            )
    return ""


def _failure(jobs: Sequence[Job], damages: Sequence[str]) -> str:
    texts = list(damages)
    for job in jobs:
        if job.error:
            texts.append(f"job {job.name} ({job.number}) failed: error {error_text(job.error)}")
        elif job.ignored_errors:
            texts.append(
                f"job {job.name} ({job.number}) went on after {job.ignored_errors} errors, "
                f"the first: {error_text(job.first_error)}"
            )
    layout = any(is_set(job.options, "create_only") for job in jobs)
    if not texts and not layout and not any(job.kind for job in jobs):
        texts.append("no job moved any data")
    more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
    return "; ".join(texts[:3]) + more


def error_text(number: int) -> str:
    """fio's error number with its name and text: "28 (ENOSPC: No space left on device)"."""
    name = errno.errorcode.get(number)
    return f"{number} ({name}: {os.strerror(number)})" if name else str(number)


def _iso(seconds: float) -> str:
    """UTC, ISO 8601; empty for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
