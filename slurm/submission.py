"""What was submitted for a results directory: parts of the campaign, their jobs, and their state.

slurm/submission.json    the parts, and how their jobs are made
slurm/submitted.jsonl    one line per job, appended when Slurm has taken it
slurm/<part>.sh          the scripts; <part>-<job>.log is what a job printed

Where a campaign stands follows from its store and the batch system together.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import statistics
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import filelock
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsmatrix.results.audits.audit import Tally
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files import safefile
from fsmatrix.results.files.runfile import read_outline
from fsmatrix.results.files.safefile import ResultError, write_whole
from fsmatrix.results.files.schema import from_json
from fsmatrix.results.files.store import CAMPAIGN, MARKER, NAME, RUNS, Store, StoreError
from fsmatrix.slurm.scheduler import JobState, Scheduler, SchedulerError
from fsmatrix.suite.plan import order
from fsmatrix.suite.plan.estimate import attach_seconds, run_seconds
from fsmatrix.suite.plan.plan import Plan

# How a campaign is divided into jobs.  Pure functions of the plan.
#
# A job carries out some blocks of one shard: one client-node count on one storage system.  The
# jobs of a block stand together and in random order, so that the geometry is confounded neither
# with time nor with nodes; targets of one system share jobs, and so their nodes.
MOST_JOBS = 500  # more blocks per job than asked for beyond this
JOB_SECONDS = 5.0  # from a job's start to its first attachment: Python, the checks, the store
SHARED = "storage"  # names the system of targets that name none

# What is stored of a submitted campaign's runs: verdicts and times, each file opened once.
SEEN = "seen.json"  # what run files say: they are not opened twice


@dataclass(frozen=True)
class Part:
    """The runs of a campaign that one job does."""

    shard: int  # from 1
    shards: int
    blocks: tuple[int, int]  # first and last
    system: str
    nodes: int
    tasks_per_node: int
    threads: int
    engines: tuple[str, ...]
    runs: tuple[tuple[str, int], ...]  # case id, repetition
    seconds: float  # estimated, of all its runs

    @property
    def key(self) -> str:
        """Name of the part, the same in every submission that divides alike."""
        first, last = self.blocks
        return f"s{self.shard}of{self.shards}-b{first}-{last}"

    @property
    def words(self) -> list[str]:
        """The arguments of `fsmatrix run` that choose it."""
        first, last = self.blocks
        return ["--shard", f"{self.shard}/{self.shards}", "--blocks", f"{first}-{last}"]


def divide(plan: Plan, blocks_per_job: int, speed: Mapping[str, float] | None = None) -> list[Part]:
    """The parts of a plan, in the order of submission.

    `speed`: measured seconds of a run / estimated ones, by entry of the campaign.
    """
    shards = _shards(plan)
    numbers = order.blocks(plan.settings.campaign.repetitions, plan.settings.campaign.order.block)
    most = max(1, MOST_JOBS // len(shards))
    step = max(blocks_per_job, math.ceil(len(numbers) / most))
    parts = []
    for start in numbers[::step]:
        blocks = range(start, min(start + step, numbers.stop))
        for k in order.shuffled(map(str, shards), plan.order_seed, "jobs", start):
            part = _part(plan, int(k), len(shards), shards[int(k)], blocks, speed or {})
            parts.append(part)
    return parts


def left(part: Part, done: Set[tuple[str, int]]) -> Part:
    """Without the runs (case id, repetition) in `done`, and their share of its time."""
    rest = tuple(run for run in part.runs if run not in done)
    return replace(part, runs=rest, seconds=part.seconds * len(rest) / max(len(part.runs), 1))


def _shards(plan: Plan) -> dict[int, order.Groups]:
    count = len(order.divisions(plan.groups, plan.system))
    return {k: order.shard(plan.groups, k, count, plan.system) for k in range(1, count + 1)}


def _part(
    plan: Plan,
    k: int,
    shards: int,
    groups: order.Groups,
    blocks: range,
    speed: Mapping[str, float],
) -> Part:
    cases = [planned for group in groups.values() for planned in group]
    geometries = [planned.case.geometry for planned in cases]
    repetitions = range(
        blocks.start * plan.settings.campaign.order.block,
        min(blocks.stop * plan.settings.campaign.order.block, plan.settings.campaign.repetitions),
    )
    seconds = JOB_SECONDS + len(blocks) * sum(
        attach_seconds(g, plan.pace(g[0])) for g in groups.values()
    )
    seconds += len(repetitions) * sum(
        run_seconds(planned, plan.pace(planned)) * speed.get(planned.entry, 1.0)
        for planned in cases
    )
    system = {plan.system(key.target) for key in groups}.pop()
    return Part(
        shard=k,
        shards=shards,
        blocks=(blocks.start, blocks.stop - 1),
        system=system or SHARED,
        nodes=max(geometry.nodes for geometry in geometries),
        tasks_per_node=max(geometry.processes_per_node for geometry in geometries),
        threads=max(geometry.threads for geometry in geometries),
        engines=tuple(sorted({planned.engine for planned in cases})),
        runs=tuple((p.case.case_id, repetition) for repetition in repetitions for p in cases),
        seconds=seconds,
    )


def lanes(parts: list[Part], parallel: int) -> Iterator[tuple[Part, str]]:
    """Each part with its job's name: of jobs with one name, one runs at a time.

    `parallel` names for each storage system, dealt out in turn.
    """
    seen: dict[str, int] = {}
    for part in parts:
        number = seen.get(part.system, 0)
        seen[part.system] = number + 1
        lane = f"-{number % parallel + 1}" if parallel > 1 else ""
        yield part, f"fsmatrix-{part.system}{lane}"


FOLDER = "slurm"
FILE = "submission.json"
JOBS = "submitted.jsonl"
COLLECT = "collect"  # the key of the last job
VERSION = 1


@dataclass(frozen=True)
class Submission:
    """A submitted campaign; `write` keeps it, `read` gives it back."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    token: str  # of this directory: begins the token of each of its jobs
    scheduler: str
    directory: str  # in which relative paths of the campaign hold
    only: tuple[str, ...]
    parts: tuple[Part, ...]
    parallel: int = 1
    names: dict[str, str] = field(default_factory=dict)  # key of a part -> name of its job

    def token_of(self, key: str) -> str:
        """What a job of this part is found again by."""
        return f"fsmatrix:{self.token}:{key}"


@dataclass(frozen=True)
class Submitted:
    """A job that the batch system has taken."""

    key: str  # of its part, or COLLECT
    job: str
    at: str  # UTC


def folder(out: Path) -> Path:
    """Where the scripts and logs of a results directory are."""
    return out / FOLDER


def log(out: Path, key: str, job: str) -> Path:
    """What a job of a part printed."""
    return folder(out) / f"{key}-{job}.log"


@contextmanager
def submit_lock(out: Path) -> Iterator[None]:
    """One `submit` at a time; StoreError if another is at work, NotTrusted if not ours."""
    safefile.make_folder(folder(out))
    try:
        with filelock.FileLock(folder(out) / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise StoreError(out, "another `fsmatrix submit` of it is at work") from error


def scripts_written(out: Path) -> bool:
    """Whether a job's script was written: the batch system may have it."""
    return any(folder(out).glob("*.sh"))


def withdraw(out: Path) -> None:
    """Remove a directory of which no job was queued; what `submit` did not write stays."""
    own = (FILE, JOBS, ".lock")
    for path in folder(out).glob("*") if folder(out).is_dir() else ():
        if path.name in own or path.suffix == ".sh":
            path.unlink()
    (out / CAMPAIGN).unlink(missing_ok=True)
    for place in (folder(out), out / RUNS):
        with suppress(OSError):  # somebody has put something there
            place.rmdir()
    if out.is_dir() and {path.name for path in out.iterdir()} <= {MARKER}:
        (out / MARKER).unlink(missing_ok=True)
        out.rmdir()


def new_token() -> str:
    """A new token, by which jobs in the queue are known: eight random hexadecimal digits."""
    return secrets.token_hex(4)


def read_submission(out: Path) -> Submission | None:
    """The submission of a results directory; None if there is none, StoreError if damaged."""
    path = folder(out) / FILE
    try:
        data = from_json(safefile.read_text(path))
        if data.pop("version") != VERSION:
            raise StoreError(path, "was written by another version of fsmatrix")
        return TypeAdapter(Submission).validate_python(data)
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(path, f"damaged: {place}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(path, f"damaged: {error}") from error


def write(out: Path, submission: Submission) -> None:
    """Replace the stored submission as a whole."""
    text = json.dumps({"version": VERSION, **asdict(submission)})
    write_whole(folder(out) / FILE, text.encode())


def note(out: Path, key: str, job: str) -> None:
    """Write down that a job was taken; on the disk on return."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder(out) / JOBS, flags, safefile.FILE_MODE)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "job": job, "at": at}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def submitted(out: Path) -> list[Submitted]:
    """All jobs, oldest first; a line that a crash tore is left out."""
    try:
        lines = safefile.read_text(folder(out) / JOBS).splitlines()
    except FileNotFoundError:
        return []
    jobs = []
    for line in lines:
        try:
            jobs.append(Submitted(**from_json(line)))
        except (ValueError, TypeError):
            continue
    return jobs


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
    cache = folder(store.directory) / SEEN
    before = dict(_remembered(cache))
    seen: dict[str, Stored] = {}
    runs: dict[tuple[str, int], Stored] = {}
    for run_id in store.ids():  # attempts of a run follow each other
        try:
            seen[run_id] = before.get(run_id) or _read_seen(store.path(run_id))
        except (ResultError, FileNotFoundError):  # damaged: it does not count, as on resume
            continue
        match = NAME.fullmatch(run_id)
        assert match is not None
        runs[match["case"], int(match["repetition"])] = seen[run_id]
    if seen.keys() != before.keys():
        _remember(cache, seen)
    return runs


def _read_seen(path: Path) -> Stored:
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
    parts = tuple(_part_status(out, part, runs, states.get(part.key)) for part in submission.parts)
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
    newest = {noted.key: noted.job for noted in submitted(out)}
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


def _part_status(
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
    path = log(out, key, job)
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
