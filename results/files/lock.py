"""One writer per shard of a store: lock files that a crash does not leave standing.

locks/shard-<k>-of-<n>.json, or shard-<k>-of-<n>-blocks-<a>-<b>.json for a part of its
blocks, says who holds it.  Whether the holder lives is told by boot id, pid and the process's
start time; of another machine only by the scheduler of its job.  Lock files appear whole (a
hard link), which also holds on NFS.  The lock of a dead holder is removed by one process alone,
the one that has made <lock file>.after-<the dead holder's digest>: two that found it dead could
else remove the lock that a faster third has taken since.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import from_json
from fsmatrix.results.process import NO_JOB, CurrentJob, Process, boot_id, start_of

FOLDER = "locks"
NAME = re.compile(r"shard-(\d+)-of-(\d+)(?:-blocks-(\d+)-(\d+))?\.json")
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
TRIES = 5
PATIENCE = 100  # looks
PAUSE = 0.05  # seconds between two looks at what another process is about to finish
LIMIT = 1 << 16  # bytes of a lock file
JobEnded = Callable[[str, str], bool]  # (scheduler's name, job) -> it is known to have ended


class LockedError(ResultError):
    """Another run is writing to this store."""


@dataclass(frozen=True)
class Holder:
    """Who holds the lock of a shard, as its lock file says."""

    k: int
    n: int
    host: str
    boot_id: str
    namespace: str  # of pids: a pid means nothing in another one
    pid: int
    started: int  # start of the process in clock ticks since boot
    scheduler: str  # whose job it is part of; "" of none
    job: str
    restart: int  # how often the scheduler queued the job again
    since: str

    @classmethod
    def me(cls, k: int, n: int, job: CurrentJob) -> Holder:
        """This process, in its job."""
        pid = os.getpid()
        return cls(
            k=k,
            n=n,
            host=os.uname().nodename,
            boot_id=boot_id(),
            namespace=_namespace(),
            pid=pid,
            started=start_of(pid),
            scheduler=job.scheduler,
            job=job.id,
            restart=job.restarts,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def gone(self, me: Holder, job_ended: JobEnded) -> bool:
        """Whether this holder is certainly dead, seen from `me`."""
        if self.boot_id == me.boot_id and self.namespace == me.namespace:
            return not Process(self.pid, self.started, self.boot_id).runs
        if self.boot_id != me.boot_id and self.host == me.host:
            return True  # the machine was booted since
        if not self.job:
            return False
        if (self.scheduler, self.job) == (me.scheduler, me.job) and self.restart < me.restart:
            return True  # the same job, queued again
        return job_ended(self.scheduler, self.job)


class ShardLock:
    """Context manager: the right to write shard `k` of `n` (1 <= k <= n) to a store.

    `blocks`: only these of its blocks; others of the same shard may be written by others.
    `job` is the job that this process is part of, `job_ended` tells whether a scheduler (its
    name) knows that a job has ended.  LockedError if another process writes this shard, or
    divides the store otherwise.
    """

    def __init__(
        self,
        directory: Path | str,
        k: int = 1,
        n: int = 1,
        job: CurrentJob = NO_JOB,
        job_ended: JobEnded = lambda _scheduler, _job: False,
        blocks: range | None = None,
    ) -> None:
        if not 1 <= k <= n:
            raise ValueError(f"shard {k}/{n}: k must lie between 1 and n")
        self.directory = Path(directory)
        self.folder = self.directory / FOLDER
        part = "" if blocks is None else f"-blocks-{blocks.start}-{blocks.stop - 1}"
        self.path = self.folder / f"shard-{k}-of-{n}{part}.json"
        self._k, self._n, self._job, self._job_ended = k, n, job, job_ended
        self._mine: Holder | None = None

    def __enter__(self) -> ShardLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock; stale ones are removed."""
        me = Holder.me(self._k, self._n, self._job)
        try:
            safefile.make_folder(self.folder)
            self._take(me)
        except OSError as error:
            raise ResultError(self.folder, f"cannot lock: {error.strerror}") from error
        self._mine = me
        try:
            self._refuse_overlaps(me)
        except LockedError:
            self.release()
            raise

    def release(self) -> None:
        """Give it back; only what this process itself took."""
        holder, self._mine = self._mine, None
        if holder is not None and holder.pid == os.getpid() and _read(self.path) == holder:
            self.path.unlink(missing_ok=True)

    def lost(self) -> str:
        """Why the lock is no longer ours although nobody gave it back; "" if it is.

        A batch system that takes a node for dead starts its job again elsewhere, where the lock
        then looks stale.
        """
        if self._mine is None or _read(self.path) == self._mine:
            return ""
        return f"the lock {self.path} was taken over: another run goes on with this part"

    def _take(self, me: Holder) -> None:
        for _ in range(TRIES):
            if _create(self.path, me):
                return
            self._clear(self.path, me)
        raise LockedError(self.directory, f"the lock {self.path} changes hands all the time")

    def _refuse_overlaps(self, me: Holder) -> None:
        """Another number of shards, or a part of this one with a block in common, must not live."""
        for path in sorted(self.folder.iterdir()):
            match = NAME.fullmatch(path.name)
            if match is None or path == self.path:
                continue
            same = (int(match[1]), int(match[2])) == (self._k, self._n)
            if int(match[2]) != self._n or (same and self._shares_blocks(match)):
                self._clear(path, me)

    def _shares_blocks(self, other: re.Match[str]) -> bool:
        own = NAME.fullmatch(self.path.name)
        assert own is not None
        if own[3] is None or other[3] is None:
            return True  # one of them is the whole shard
        return int(own[3]) <= int(other[4]) and int(other[3]) <= int(own[4])

    def _clear(self, path: Path, me: Holder) -> None:
        """Remove a stale lock file; LockedError if its holder lives or may live."""
        for _ in range(PATIENCE):
            holder = self._dead(path, me)
            if holder is None or self._remove(path, holder, me):
                return
            time.sleep(PAUSE)
        raise LockedError(self.directory, f"another run has been removing {path} for seconds")

    def _dead(self, path: Path, me: Holder) -> Holder | None:
        """Its dead holder; None if it is gone.  LockedError as for `_clear`."""
        holder = _read_patiently(path)
        if holder is not None and not holder.gone(me, self._job_ended):
            raise LockedError(self.directory, _refusal(holder, path, me, self.directory))
        return holder

    def _remove(self, path: Path, dead: Holder, me: Holder) -> bool:
        """Remove the lock file of `dead` by a claim; False if another process has one.

        Who died with a claim of his own is succeeded in the same way.  Nobody makes `dead` the
        holder again: once the lock file is another's, or gone, claims on `dead` mean nothing.
        """
        claims, last = [], dead
        while True:
            claims.append(path.with_name(f"{path.name}.after-{_digest(last)}"))
            if _create(claims[-1], me):
                break
            other = _read_patiently(claims[-1])
            if other is None or not other.gone(me, self._job_ended):
                return False
            last = other
        if _read(path) == dead:
            path.unlink(missing_ok=True)
        for claim in claims:
            claim.unlink(missing_ok=True)
        return True


def _refusal(holder: Holder, path: Path, me: Holder, directory: Path) -> str:
    job = f", {holder.scheduler} job {holder.job}" if holder.job else ""
    shard = f", shard {holder.k}/{holder.n}" if holder.n > 1 or me.n > 1 else ""
    text = (
        f"another fsmatrix run (pid {holder.pid} on {holder.host} since {holder.since}"
        f"{job}{shard}) is writing to {directory}"
    )
    if holder.n != me.n:
        text += f"; it divides the campaign into {holder.n}, not {me.n}: wait for its end"
    if (holder.boot_id, holder.namespace) != (me.boot_id, me.namespace):
        text += f"; whether it lives cannot be seen from {me.host}: if it does not, remove {path}"
    return text


def _create(path: Path, holder: Holder) -> bool:
    """Make the lock file, whole; False if there is one."""
    text = json.dumps(asdict(holder)) + "\n"
    aside = safefile.beside(path, end="")
    try:
        safefile.create_note(aside, text.encode(), replace=True)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return _create_without_link(path, text)
        return True
    finally:
        aside.unlink(missing_ok=True)


def _create_without_link(path: Path, text: str) -> bool:
    try:
        safefile.create_note(path, text.encode())
    except FileExistsError:
        return False
    return True


def _digest(holder: Holder) -> str:
    return hashlib.sha256(repr(holder).encode()).hexdigest()[:16]


def _read_patiently(path: Path) -> Holder | None:
    """The holder in a lock file; None if there is none.  LockedError if it stays damaged."""
    for _ in range(TRIES):
        holder = _read(path)
        if holder is not None or not path.exists():
            return holder
        time.sleep(PAUSE)
    text = f"the lock file {path} is damaged; if no run is live, remove it"
    raise LockedError(path.parent.parent, text)


def _read(path: Path) -> Holder | None:
    """The holder in a lock file; None if there is no whole one."""
    try:
        data = from_json(safefile.read_note(path, LIMIT).decode())
    except (FileNotFoundError, ValueError):
        return None
    kinds = {field.name: int if field.type == "int" else str for field in fields(Holder)}
    if not isinstance(data, dict) or set(data) != set(kinds):
        return None
    if any(type(data[name]) is not kind for name, kind in kinds.items()):
        return None
    return Holder(**data)


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
