"""What was submitted for a results directory: the parts of the campaign and their jobs.

slurm/submission.json    the parts, and how their jobs are made
slurm/submitted.jsonl    one line per job, appended when Slurm has taken it
slurm/<part>.sh          the scripts; <part>-<job>.log is what a job printed
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import filelock
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsmatrix.results.files import safefile, trust
from fsmatrix.results.files.atomic_write import write_whole
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.store import CAMPAIGN, MARKER, RUNS, StoreError
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
    trust.make_folder(folder(out))
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


def read(out: Path) -> Submission | None:
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
    descriptor = os.open(folder(out) / JOBS, flags, trust.FILE_MODE)
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
