"""Where a submitted campaign stands, from its store and the batch system together."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from fsmatrix.results.audits.base import Tally
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files import safefile
from fsmatrix.results.files.atomic_write import write_whole
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.run.runfile import read_outline
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import NAME, Store
from fsmatrix.slurm.scheduler import JobState, Scheduler, SchedulerError
from fsmatrix.slurm.submission import submission as files
from fsmatrix.slurm.submission.submission import COLLECT, JOB_SECONDS, Part, Submission

# What is stored of a submitted campaign's runs: verdicts and times, each file opened once.


SEEN = "seen.json"  # what run files say: they are not opened twice


class Stored(NamedTuple):
    """The newest attempt of a run; seconds since 1970 (UTC), NaN where the file has no time."""

    verdict: Tally  # of this run alone
    begin: float
    end: float

    @property
    def status(self) -> str:
        """As in the run's file."""
        return "timeout" if self.verdict.timeout else "failed" if self.verdict.failed else "ok"


def stored(store: Store) -> dict[tuple[str, int], Stored]:
    """(case id, repetition) -> its newest attempt, of all runs that can be read."""
    cache = files.folder(store.directory) / SEEN
    before = dict(_remembered(cache))
    seen: dict[str, Stored] = {}
    runs: dict[tuple[str, int], Stored] = {}
    for run_id in store.ids():  # attempts of a run follow each other
        try:
            seen[run_id] = before.get(run_id) or _read(store.path(run_id))
        except (ResultError, FileNotFoundError):  # damaged: it does not count, as on resume
            continue
        match = NAME.fullmatch(run_id)
        assert match is not None
        runs[match["case"], int(match["repetition"])] = seen[run_id]
    if seen.keys() != before.keys():
        _remember(cache, seen)
    return runs


def _read(path: Path) -> Stored:
    status, findings, started, duration = read_outline(path)
    try:
        begin = datetime.fromisoformat(started).timestamp()
    except ValueError:
        begin = math.nan
    return Stored(Tally().plus(status, findings), begin, begin + duration)


def _remembered(cache: Path) -> Iterator[tuple[str, Stored]]:
    """What was seen before; what is not of today's form is read again."""
    try:
        cached = from_json(safefile.read_text(cache))
    except (FileNotFoundError, ValueError):
        return
    for run_id, values in cached.items() if isinstance(cached, dict) else ():
        match values:
            case [dict(verdict), float(begin), float(end)]:
                with contextlib.suppress(StoredError):
                    yield run_id, Stored(read(Tally, verdict, run_id), begin, end)


def _remember(cache: Path, seen: Mapping[str, Stored]) -> None:
    try:
        known = {run: (one.verdict.document(), one.begin, one.end) for run, one in seen.items()}
        write_whole(cache, json.dumps(known).encode())
    except OSError:  # somebody else's directory, or a full one: it is only a cache
        return


LOG_BYTES = 4096
MOST_LINES = 5  # of a job's error
MOST_READ = 200  # failed runs whose reasons are read
Word = Literal["done", "running", "waiting", "unknown", "stopped", "not submitted"]
UNASKED = "UNKNOWN"  # what is said of jobs while the batch system does not answer


@dataclass(frozen=True)
class PartStatus:
    """One part: its runs, and its newest job."""

    part: Part
    word: Word
    tally: Tally  # newest attempts
    job: JobState | None = None
    says: str = ""  # why it waits, or what a stopped job printed last

    @property
    def rest(self) -> int:
        """Runs that are not stored."""
        return len(self.part.runs) - self.tally.runs


@dataclass(frozen=True)
class Status:
    """All parts, and when they will be done."""

    parts: tuple[PartStatus, ...]
    collect: JobState | None
    scheduler_says: str  # why the batch system could not be asked; "" it could
    expected: datetime | None  # local time; not before this; None if nothing is under way
    failures: tuple[tuple[str, str, str], ...] = ()  # run id, status, reason; newest attempts

    @property
    def tally(self) -> Tally:
        """Runs that are stored: their newest attempts."""
        return sum((part.tally for part in self.parts), Tally())

    @property
    def running(self) -> int:
        """Runs that are being carried out: one in each job that runs and is not done."""
        return sum(part.word == "running" and part.rest > 0 for part in self.parts)

    @property
    def waiting(self) -> int:
        """Runs of jobs that wait or run, but those being carried out."""
        under_way = (p for p in self.parts if p.word in ("running", "waiting"))
        return sum(part.rest for part in under_way) - self.running

    @property
    def lost(self) -> int:
        """Runs that no job will carry out: `submit --resume` does."""
        return sum(p.rest for p in self.parts if p.word in ("stopped", "not submitted"))

    @property
    def under_way(self) -> bool:
        """Whether some job may still do something: one that can start, or is not known."""
        jobs = [(p.job, p.word in ("running", "waiting", "unknown")) for p in self.parts]
        jobs.append((self.collect, self.collect is not None and self.collect.state != "ended"))
        return any(live and not (job and job.never) for job, live in jobs)


def status(out: Path, submission: Submission, scheduler: Scheduler) -> Status:
    """Ask the batch system once and look at the store."""
    store = Store.open(out)
    states, says = _jobs(out, submission, scheduler)
    runs = stored(store)
    parts = tuple(_part(out, part, runs, states.get(part.key)) for part in submission.parts)
    end = expected(parts, datetime.now(), speed(parts, runs))
    return Status(parts, states.get(COLLECT), says, end, tuple(_failures(store, parts, runs)))


def _failures(
    store: Store, parts: Iterable[PartStatus], runs: Mapping[tuple[str, int], Stored]
) -> Iterator[tuple[str, str, str]]:
    """Runs of these parts whose newest attempt failed, with their reasons: the first MOST_READ."""
    own = (run for part in parts if part.tally.failed for run in part.part.runs)
    bad = [run for run in own if run in runs and runs[run].status != "ok"]
    for case, repetition in bad[:MOST_READ]:
        attempt = store.next_attempt(case, repetition) - 1
        run_id = f"{case}-r{repetition:04d}-a{attempt}"
        try:
            record = store.read(run_id)
        except (ResultError, KeyError) as error:  # removed or spoiled meanwhile
            yield run_id, runs[case, repetition].status, str(error)
            continue
        yield run_id, record.status, record.error


def _jobs(
    out: Path, submission: Submission, scheduler: Scheduler
) -> tuple[dict[str, JobState], str]:
    """Key of a part -> its newest job, with what the batch system knows of it."""
    newest = {noted.key: noted.job for noted in files.submitted(out)}
    try:
        queued = scheduler.jobs_of_user()
    except SchedulerError as error:
        return {key: JobState(job, "ended", UNASKED) for key, job in newest.items()}, str(error)
    tokens = {state.token: state for state in queued.values() if state.state != "ended"}
    keys = [*(part.key for part in submission.parts), COLLECT]
    gone = {newest[key] for key in keys if key in newest and newest[key] not in queued}
    past = scheduler.past(sorted(gone))
    states: dict[str, JobState] = {}
    for key in keys:
        job = newest.get(key, "")
        state = tokens.get(submission.token_of(key)) or queued.get(job) or past.get(job)
        if state is None and job:
            state = JobState(job, "ended", "ENDED")
        if state is not None:
            states[key] = state
    return states, ""


def _part(
    out: Path, part: Part, runs: Mapping[tuple[str, int], Stored], job: JobState | None
) -> PartStatus:
    tally = sum((runs[run].verdict for run in part.runs if run in runs), Tally())
    word: Word
    if job is not None and job.state != "ended":
        word = "running" if job.state == "running" else "waiting"
        says = (job.never or job.reason) if word == "waiting" else job.nodes
    elif tally.runs == len(part.runs):
        word, says = "done", ""
    elif job is None:
        word, says = "not submitted", ""
    elif job.said == UNASKED:
        word, says = "unknown", ""
    else:
        word, says = "stopped", f"{job.said}: {last_words(out, part.key, job.job)}"
    return PartStatus(part, word, tally, job, says)


def last_words(out: Path, key: str, job: str) -> str:
    """What a job printed last: its last error with what follows, else its last line."""
    path = files.log(out, key, job)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return f"it left no log ({path.name})"
    printed = [" ".join(line.split()) for line in lines if line.strip()]
    if not printed:
        return f"it printed nothing ({path.name})"
    errors = [row for row, line in enumerate(printed) if line.startswith("error: ")]
    last = printed[errors[-1] if errors else -1 :]
    if len(last) > MOST_LINES:
        last = [*last[: MOST_LINES - 1], last[-1]]
    return " | ".join(last)


def speed(parts: Iterable[PartStatus], runs: Mapping[tuple[str, int], Stored]) -> float:
    """Seconds that parts took / seconds that were estimated: the median, 1 if none is known.

    From the begin of a part's first stored run to the end of its last: parts of two and more.
    """
    ratios = []
    for status in parts:
        stored = (runs[run] for run in status.part.runs if run in runs)
        times = [each for each in stored if math.isfinite(each.end)]
        took = max((t.end for t in times), default=0) - min((t.begin for t in times), default=0)
        share = len(times) / max(len(status.part.runs), 1)
        guess = (status.part.seconds - JOB_SECONDS) * share
        if len(times) > 1 and guess > 0 and took > 0:
            ratios.append(took / guess)
    return statistics.median(ratios) if ratios else 1.0


def expected(parts: Iterable[PartStatus], now: datetime, speed: float) -> datetime | None:
    """When the last part will end, if each lane of jobs went on without waiting for nodes.

    Estimated seconds that are left x `speed`, added up over the jobs of one storage system.
    """
    seconds: dict[str, float] = {}
    for part in parts:
        if part.word in ("running", "waiting"):
            left = part.part.seconds * speed * part.rest / max(len(part.part.runs), 1)
            seconds[part.part.system] = seconds.get(part.part.system, 0.0) + left
    if not seconds:
        return None
    return now + timedelta(seconds=math.ceil(max(seconds.values())))
