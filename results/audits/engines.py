"""Audits of external engines, and of what is asked for between programs and storage.

Parsers leave notes (results/formats/parsed.py) in the evidence of their engine on what is known to
be wrong with its numbers; here they get a severity and an advice.  A note that more evidence can
confirm or refute has a judge of its own.  Whether a preloaded library or io_uring was at work is
told by what it counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fsmatrix.results.audits.audit import (
    Audit,
    Judge,
    Remark,
    data_bytes,
    reached,
    size,
    transferred,
)
from fsmatrix.results.evidence.evidence import Interception, Note
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.record import SEVERITIES, Phase, RunRecord, Severity

# whether the bytes that were read came from storage -> what that says of the read
OUTCOMES: Mapping[bool | None, Severity] = {True: "info", None: "warning", False: "invalid"}
# note key -> (name of the audit, severity, advice)
NOTES: Mapping[str, tuple[str, Severity, str]] = {
    "recovered": (
        "output-recovered",
        "warning",
        "the output was damaged: inspect it (it is kept with the run) before you use the number",
    ),
    "warning": ("engine-warning", "warning", "the engine itself warns: see its documentation"),
    "contradiction": (
        "engine-contradicts-itself",
        "invalid",
        "the output gives two values for the same quantity: inspect it before you use the number",
    ),
    "mean-of-rates": (
        "mean-of-rates",
        "info",
        "only the mean of the iterations' rates is known, which is higher than the rate over all "
        "of them: run one iteration at a time",
    ),
    "derived-amount": (
        "derived-amount",
        "warning",
        "only the rate was measured; bytes, operations and their window were computed from it: "
        "import the whole result directory",
    ),
    "rounded-bytes": ("rounded-bytes", "info", "the output prints amounts in rounded units"),
    "coarse-time": (
        "coarse-time",
        "warning",
        "the output prints the time with too few digits: the rate is as uncertain as the time",
    ),
    "rank-extremes": ("rank-extremes", "info", "how individual ranks differed is not known"),
    "fastest-rank": (
        "fastest-rank",
        "warning",
        "the rate is not that of all ranks: measure with mdtest 3.3 or newer, or with -v, which "
        "tells rank 0's time of each iteration",
    ),
    "left-out": ("left-out", "info", "see the output, which is kept with the run"),
    "miscounted": (
        "miscounted",
        "warning",
        "the program prints a different number of items from the one it worked on: the rate here "
        "counts the items that existed",
    ),
    "tpc-derived": (
        "tpc-derived",
        "info",
        "compare it with runs of this workload only, never with audited results",
    ),
    "block-size": ("block-size", "info", "another size needs a PostgreSQL that was built with it"),
    "embedded-database": (
        "embedded-database",
        "info",
        "compare it with runs of SQLite only: PostgreSQL, the engine of the flash study, has a "
        "server, one cache for all users, and another way to its files",
    ),
    "memory-limit": (
        "memory-limit",
        "info",
        "compare it with runs of the same limit only; the kernel's own memory is beside it",
    ),
    "sync-ignored": ("sync-ignored", "warning", "mdtest's -y syncs only what -w writes"),
    "empty-read": (
        "empty-read",
        "warning",
        "no byte was read: this is the rate of open and close; give the files data to read",
    ),
    "minimum-latency": (
        "minimum-latency",
        "info",
        "do not use it as a latency; the player and fio have histograms",
    ),
    "short-ios": ("short-ios", "warning", "reads met the end of a file: was it laid out fully?"),
    "less": (
        "less-than-asked",
        "warning",
        "the number is of less work than was asked for: see the command line and the output",
    ),
    "old-version": (
        "old-version",
        "warning",
        "its lines are read as those of newer versions are: compare the numbers with the output, "
        "which is kept with the run",
    ),
    "simultaneous": (
        "simultaneous-runs",
        "invalid",
        "several worlds were started instead of one (a launcher of another MPI?), or "
        "other runs took part: start one program at a time",
    ),
    "dropped-ios": ("dropped-ios", "invalid", "the engine abandoned operations: see its output"),
    "ended-early": ("engine-ended-early", "warning", "give it more data, or a shorter time"),
    "reread": (
        "read-again",
        "warning",
        "what is read a second time comes from the page cache: give a job more data, a shorter "
        "time, or direct",
    ),
    "verify-reads": (
        "verify-reads",
        "info",
        "nothing to do: its verification reads are not part of this number",
    ),
    "verify-in-window": (
        "verify-in-window",
        "warning",
        "the rate is too low by the time of the verification: measure without it, and verify in a "
        "run of its own",
    ),
    "not-apart": (
        "not-told-apart",
        "warning",
        "amounts, rate and latencies are not those of the work alone: leave the verification or "
        "unified_rw_reporting out",
    ),
    "steady": (
        "steady-state",
        "info",
        "nothing to do: it ended because its rate was steady, not early",
    ),
    "not-steady": (
        "steady-state-not-reached",
        "warning",
        "the rate still changed by more than was allowed: run longer, or allow more",
    ),
    "limited": ("time-limited", "info", "fewer iterations than asked: its time limit ended it"),
    "rate-limited": (
        "rate-limited",
        "warning",
        "the number is what was asked for, not what the storage can do: compare latencies at one "
        "limit, or leave it out",
    ),
    "no-window": (
        "no-window",
        "warning",
        "when the engine worked is known only roughly: use fio 3.36 or newer, or keep its logs",
    ),
    "clock-shifted": (
        "clock-shifted",
        "warning",
        "the engine's time stamps do not fit the time in which it ran: set the node's clock",
    ),
    "nodes-unaligned": (
        "nodes-unaligned",
        "warning",
        "the nodes' windows are not known: the rate is over the longest of them",
    ),
    "window-in-ramp": (
        "window-in-ramp",
        "invalid",
        "the time ended before or just after the ramp: make runtime longer than ramp_time",
    ),
    "rados-phantom": (
        "rados-phantom",
        "invalid",
        "fio's rados engine counts failed operations as done: write the objects first with the "
        "same name and nrfiles, keep size/nrfiles at 128 MiB or less, read without touch_objects",
    ),
    "group-reporting": (
        "group-reporting",
        "info",
        "the jobs are merged into one: how they differed is not known",
    ),
    "nodes-overlap": (
        "nodes-overlap",
        "warning",
        "the nodes did not work at the same time: run longer, or find out why one started late",
    ),
    "versions-differ": ("versions-differ", "warning", "use one version of the engine everywhere"),
    "unsynchronised": (
        "unsynchronised",
        "warning",
        "the clients did not wait for each other: make semaphores available to it (/dev/shm, "
        "kernel.sem)",
    ),
    "barrier-message": (
        "barrier-message",
        "info",
        "dbench misreads the number of its semaphore (0 is valid); its other lines show that "
        "the clients waited",
    ),
    "warm-up": (
        "implicit-warm-up",
        "info",
        "keep this in mind when you compare with other engines",
    ),
    "not-a-submission": (
        "not-a-submission",
        "info",
        "compare it with runs of the same kind only, not with the IO500 list",
    ),
    "invalid-run": ("declared-invalid", "invalid", "the benchmark itself calls this run invalid"),
}
REORDER = "reorder-shifts-nothing"

CALLS_SHARE = 0.9  # of the reads or writes that a program counted itself


def notes(record: RunRecord, *keys: str) -> Iterator[Note]:
    """The notes with one of these keys; the first of each phase and text."""
    seen = set()
    for note in _notes(record):
        mark = (note.key, note.phase, note.message)
        if note.key in keys and mark not in seen:
            seen.add(mark)
            yield note


def _notes(record: RunRecord) -> Sequence[Note]:
    engine = record.evidence.engine
    return (engine.notes if engine else None) or ()


def _judge(key: str, severity: Severity) -> Judge:
    def judge(record: RunRecord) -> Iterator[Remark]:
        for note in notes(record, key):
            evidence = {"line": note.line} if note.line else {}
            yield severity, note.phase, note.message, evidence

    return judge


def other_notes(record: RunRecord) -> Iterator[Remark]:
    """Notes that nothing here knows: of another package's parser."""
    judged = {*NOTES, REORDER}
    for note in _notes(record):
        if note.key not in judged:
            yield "info", note.phase, f"{note.key}: {note.message}", {}


def reorder_shifts_nothing(record: RunRecord) -> Iterator[Remark]:
    """IOR's -C on one client node: each task reads what its own node has just written."""
    for note in notes(record, REORDER):
        severities: list[Severity] = []
        message, evidence = note.message, {}
        for phase in record.phases:
            reads = phase.name.partition("-")[0] == "read"
            counters = transferred(record, phase, "read") if reads else None
            if counters is None:
                continue
            wanted, came = float(phase.bytes.sum()), sum(counters.values())
            severities.append(OUTCOMES[reached(counters, wanted)])
            message += f"; of {size(wanted)} read, {size(came)} came from the device or the network"
            evidence = {**counters, "bytes_read": wanted}
        severity: Severity = max(severities, key=SEVERITIES.index, default="warning")
        yield severity, note.phase, message, evidence


def engine_changed(record: RunRecord) -> Iterator[Remark]:
    """The campaign was begun with another version of the engine."""
    before = record.evidence.engine_before
    if before:
        message = (
            f"{record.engine} is version {record.engine_version}; the campaign began with {before}"
        )
        yield "warning", "", message, {"before": before, "now": record.engine_version}


def interception_missed(record: RunRecord) -> Iterator[Remark]:
    """The library says that it took over none of a program's calls, of one kind or of all."""
    for phase, seen in _phases(record):
        if missed := _missed(phase, seen):
            message = f"interception {seen.library}: {missed}"
            yield "invalid", phase.name, message, _facts(seen)


def _missed(phase: Phase, seen: Interception) -> str:
    """Why the program went by the kernel, and not by the library (empty: it did not)."""
    if not seen.summaries:
        return "no process reported what its library intercepted"
    if not any(seen.calls.values()):
        return "the library intercepted no call"
    for kind, moved in zip(("read", "write"), data_bytes(phase), strict=True):
        if moved and not seen.calls.get(kind):
            return f"the library intercepted no {kind}"
    return ""


def interception_partly(record: RunRecord) -> Iterator[Remark]:
    """It took over some reads or writes of a phase, and fewer than the program did."""
    for phase, seen in _phases(record):
        if phase.name not in ("read", "write"):  # whose operations are such calls
            continue
        calls, operations = seen.calls.get(phase.name, 0), int(phase.operations.sum())
        if 0 < calls < CALLS_SHARE * operations:
            message = (
                f"interception {seen.library}: the library intercepted {calls} of {operations} "
                f"{phase.name}s"
            )
            yield "warning", phase.name, message, _facts(seen)


def fell_back(record: RunRecord) -> Iterator[Remark]:
    """io_uring was not to be had, and the campaign says that posix may take its place."""
    for phase in record.phases:
        if reason := phase.facts.get("driver_refused"):
            message = f"not by io_uring, but by posix, one operation at a time: {reason}"
            yield "warning", phase.name, message, {"reason": reason}


def _phases(record: RunRecord) -> Iterator[tuple[Phase, Interception]]:
    for phase in record.phases:
        if (seen := record.evidence.interception.get(phase.name)) is not None:
            yield phase, seen


def _facts(seen: Interception) -> dict[str, Json]:
    return {"summaries": seen.summaries, "calls": dict(seen.calls)}


ENGINES = (
    *(
        Audit(name, 1, "run", _judge(key, severity), advice)
        for key, (name, severity, advice) in NOTES.items()
    ),
    Audit(
        REORDER,
        2,
        "run",
        reorder_shifts_nothing,
        "with one client node, write and read in separate runs with the cache emptied in between "
        "(cache: cold), or use two or more nodes",
    ),
    Audit("engine-note", 1, "run", other_notes, "see the output, which is kept with the run"),
    Audit(
        "engine-changed",
        1,
        "run",
        engine_changed,
        "finish a campaign with the engine it began with",
    ),
)
AUDITS = (
    *ENGINES,
    Audit(
        "io-fell-back",
        1,
        "phase",
        fell_back,
        "allow io_uring on every client node (sysctl kernel.io_uring_disabled, the container's "
        "seccomp profile), and do not compare the number with one of io_uring",
    ),
    Audit(
        "interception-missed",
        1,
        "phase",
        interception_missed,
        "the program is statically linked, forks, ends without its exit handlers, or does not "
        "work on the mount: use another engine, or interception: none",
    ),
    Audit(
        "interception-partly",
        1,
        "phase",
        interception_partly,
        "some processes, or some kinds of calls, went through the kernel: the number is a mixture",
    ),
)
