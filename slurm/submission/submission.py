"""What was submitted for a results directory: the parts of the campaign and their jobs.

slurm/submission.json    the parts, and how their jobs are made
slurm/submitted.jsonl    one line per job, appended when Slurm has taken it
slurm/<part>.sh          the scripts; <part>-<job>.log is what a job printed
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import filelock
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsmatrix.results.files import safefile, trust
from fsmatrix.results.files.atomic_write import write_whole
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.store import CAMPAIGN, MARKER, RUNS, StoreError
from fsmatrix.slurm.submission.division import Part

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
