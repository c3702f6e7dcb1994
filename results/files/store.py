"""The store: a directory of run files, one per run, that makes resume trivial.

    store.json          marker: format, schema, created
    campaign.json       what was planned (written by the conductor)
    runs/<xx>/<run_id>.h5
    nodes/<xx>/<run_id>.h5   series of storage nodes that were imported for it (nodefile.py)
    locks/              one file per live shard (lock.py)
    campaign.h5         merged

A run is written once and never changed.

Whether campaign.h5 was made of the very run files that are there now is not told by times alone: a
run that is copied keeps its time, and one that is removed leaves none.  A campaign file keeps two
digests.  The first is over name, size, times and inode of each file, one look at each (10,000 take
0.1 s).  Where it differs, as in a copied store, the second tells: over names and the checksums
that end the files, 24 bytes of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fsmatrix.results.files import campaignread, hdf, hdf_check, nodefile, runfile, safefile
from fsmatrix.results.files.campaignfile import Progress, merge_files
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import (
    SCHEMA_VERSION,
    STORE_FORMAT,
    NewerSchemaError,
    from_json,
)
from fsmatrix.results.record import Finding, RunRecord

LOOKS = "made_of"  # attribute: digest over what a look at each file tells
CONTENTS = "made_of_contents"  # attribute: digest over what they hold
TICK = 100_000_000  # ns: a file may change so soon after a change without other times

MARKER = "store.json"
MARKER_LIMIT = 1 << 20  # bytes; it has some hundred
DEEPEST = 8  # folders below runs/; there is one
CAMPAIGN = "campaign.json"
MERGED = "campaign.h5"
RUNS = "runs"
NODES = "nodes"
IGNORED = frozenset({"lost+found"})
_ALREADY = "is a store already: --resume adds what is missing, another -o begins afresh"
NAME = re.compile(
    r"(?P<case>[A-Za-z0-9_][A-Za-z0-9_.-]*)-r(?P<repetition>\d{4,})-a(?P<attempt>\d+)"
)


def stamps(files: Sequence[Path], root: Path, campaign: str) -> dict[str, str]:
    """Attributes of a campaign file of `files`; `campaign` is the text of its campaign.json.

    To be asked before the files are read: what changes then is noticed later.
    """
    current = {CONTENTS: contents_of(files, root, campaign)}
    digest, newest = looks_of(files, root, campaign)
    return current | ({LOOKS: digest} if newest < time.time_ns() - TICK else {})


def is_fresh(merged: Path, files: Sequence[Path], root: Path, campaign: str) -> bool:
    """Whether `merged` was made of these files; without files it is left as it is."""
    if not files:
        return True
    try:
        noted = campaignread.attributes(merged)
    except (ResultError, OSError):
        return False
    if noted.get(LOOKS) == looks_of(files, root, campaign)[0]:
        return True
    return CONTENTS in noted and noted[CONTENTS] == contents_of(files, root, campaign)


def looks_of(files: Iterable[Path], root: Path, campaign: str) -> tuple[str, int]:
    """Digest over names, sizes, times and inodes; and the newest change (ns, Unix time)."""
    digest, newest = _begun(campaign), 0
    first = len(os.fspath(root)) + 1
    for path in files:
        name = os.fspath(path)
        try:
            seen = os.lstat(name)
        except OSError:  # it went while we looked
            digest.update(b"gone\0")
            continue
        look = f"{name[first:]}\0{seen.st_mode} {seen.st_size} {seen.st_mtime_ns} "
        look += f"{seen.st_ctime_ns} {seen.st_ino}\0"
        digest.update(look.encode(errors="surrogateescape"))
        newest = max(newest, seen.st_ctime_ns)
    return digest.hexdigest(), newest


def contents_of(files: Iterable[Path], root: Path, campaign: str) -> str:
    """Digest over names and checksums: the same wherever the files are copied to."""
    digest = _begun(campaign)
    for path in files:
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + _held(path) + b"\0")
    return digest.hexdigest()


def _begun(campaign: str) -> hashlib.blake2b:
    return hashlib.blake2b(campaign.encode(errors="surrogateescape") + b"\0", digest_size=16)


def _held(path: Path) -> bytes:
    """The checksum at the end of a run file; of one without, a digest of all of it."""
    try:
        handle = safefile.descriptor(path)
    except ResultError as error:
        return error.reason.encode()
    except OSError as error:
        return str(error.errno).encode()
    try:
        size = os.fstat(handle).st_size
        end = os.pread(handle, hdf.SEAL_SIZE, max(0, size - hdf.SEAL_SIZE))
        if end.startswith(hdf.SEAL):
            return f"{size} ".encode() + end
        return hashlib.sha256(safefile.contents(handle, path, hdf_check.RUN_FILE)).digest()
    except ResultError as error:  # too long: it is not read either
        return error.reason.encode()
    except OSError as error:
        return str(error.errno).encode()
    finally:
        os.close(handle)


class StoreError(ResultError):
    """A directory cannot be used as a store, or a run cannot be stored in it."""


class Store:
    """An open store.  Reads need no lock; writers hold a ShardLock."""

    def __init__(self, directory: Path) -> None:
        """Use `Store.create` or `Store.open`."""
        self.directory = Path(directory)
        self.runs = self.directory / RUNS

    @classmethod
    def create(cls, directory: Path | str, exist_ok: bool = False) -> Store:
        """Make a store in a new or empty directory.

        With `exist_ok` an existing store is opened (shards may do so at the same time).
        StoreError for a file, a directory with other contents, one inside a store, or one that
        others may write.
        """
        path = Path(directory)
        if path.exists() and not path.is_dir():
            raise StoreError(path, "is a file, not a directory")
        safefile.require_trusted(path)
        if (path / MARKER).exists():
            if exist_ok:
                return cls.open(path)
            raise StoreError(path, _ALREADY)
        _refuse_inside(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            safefile.make_folder(path)
            strange = sorted(e.name for e in path.iterdir() if not _may_be_there(e.name))
            if strange and exist_ok and (path / MARKER).exists():  # another shard made it meanwhile
                return cls.open(path)
            if strange:
                raise StoreError(path, f"is not empty (holds {strange[0]!r}) and is not a store")
            _write_marker(path)
            if exist_ok:
                safefile.make_folder(path / RUNS)
            else:
                (path / RUNS).mkdir(safefile.FOLDER_MODE)
        except FileExistsError as error:  # of two at once, one has made it
            raise StoreError(path, _ALREADY) from error
        except OSError as error:
            raise StoreError(path, f"cannot be a store: {error.strerror}") from error
        return cls(path)

    @classmethod
    def open(cls, directory: Path | str) -> Store:
        """Open an existing store.  StoreError if it is none, NewerSchemaError if too new."""
        path = Path(directory)
        try:
            marker = from_json(safefile.read_text(path / MARKER, MARKER_LIMIT))
        except FileNotFoundError:
            why = f"is not a store (it has no {MARKER})" if path.is_dir() else "does not exist"
            raise StoreError(path, why) from None
        except OSError as error:
            raise StoreError(path, f"cannot be opened: {error.strerror}") from error
        except ValueError as error:
            raise StoreError(path / MARKER, f"damaged: {error}") from error
        if not isinstance(marker, dict) or marker.get("format") != STORE_FORMAT:
            raise StoreError(path, f"{MARKER} is of another program, not of a store")
        version = marker.get("schema")
        if not isinstance(version, int):
            raise StoreError(path / MARKER, "damaged: no schema version")
        if version > SCHEMA_VERSION:
            raise NewerSchemaError(path, version)
        try:
            (path / RUNS).mkdir(safefile.FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise StoreError(path, f"cannot hold runs: {error.strerror}") from error
        return cls(path)

    def require(self) -> None:
        """StoreError if it was moved or removed since: it is never made again beside its place."""
        if not (self.directory / MARKER).exists():
            raise StoreError(
                self.directory, f"has no {MARKER} any more: was it moved, or removed, meanwhile?"
            )

    # -- runs ------------------------------------------------------------------------------
    def path(self, run_id: str) -> Path:
        """Where the file of a run is or would be."""
        if not NAME.fullmatch(run_id):
            raise StoreError(self.directory, f"{run_id!r} is not the id of a run")
        return self.runs / run_id[:2] / f"{run_id}.h5"

    def write(self, record: RunRecord) -> Path:
        """Store a run.  StoreError if there is one of this id: a run is never overwritten."""
        path = self.path(record.run_id)
        if path.exists():
            raise StoreError(path, "this run is stored already: a new attempt has a new number")
        if not path.parent.is_dir():
            path.parent.mkdir(safefile.FOLDER_MODE, exist_ok=True)
            safefile.sync_directory(self.runs)
        runfile.write_run(path, record)
        return path

    def append(self, records: Iterable[RunRecord]) -> int:
        """Store many runs; gives their number."""
        count = 0
        for record in records:
            self.write(record)
            count += 1
        return count

    def read(self, run_id: str) -> RunRecord:
        """The record of a run, with what was imported of its storage nodes.

        KeyError if there is none, ResultError if it is damaged.
        """
        path = self.path(run_id)
        if not path.exists():
            raise KeyError(run_id)
        return self.with_nodes(runfile.read_run(path))

    def nodes_path(self, run_id: str) -> Path:
        """Where the series of storage nodes that were imported for a run are or would be."""
        return self.directory / NODES / self.path(run_id).relative_to(self.runs)

    def with_nodes(self, record: RunRecord) -> RunRecord:
        """The record with the nodes that were imported for it.  ResultError if they are damaged."""
        path = self.nodes_path(record.run_id)
        if not path.exists():
            return record
        watched = nodefile.read_watched(path)
        return nodefile.added(record, watched) if watched.started == record.started else record

    def status(self, run_id: str) -> str:
        """ok, failed or timeout; KeyError and ResultError as `read`."""
        path = self.path(run_id)
        if not path.exists():
            raise KeyError(run_id)
        return runfile.read_status(path)

    def __contains__(self, run_id: object) -> bool:
        named = isinstance(run_id, str) and NAME.fullmatch(run_id) is not None
        return named and self.path(str(run_id)).exists()

    def ids(self) -> list[str]:
        """Ids of all runs, damaged ones too, ordered by case, repetition and attempt."""
        return [path.stem for path in self.files() if path.suffix and NAME.fullmatch(path.stem)]

    def repetitions(self) -> int:
        """Repetitions of which there is some run: the highest number and 1."""
        numbers = (NAME.fullmatch(run) for run in self.ids())
        return max((int(match["repetition"]) + 1 for match in numbers if match), default=0)

    def files(self) -> list[Path]:
        """All run files, whatever else ends in .h5 below runs/, and links, ordered by run id.

        What is no regular file cannot be read (`runfile`), and is so named by who tries.
        """
        return sorted(_below(self.runs), key=_order)

    def damaged(self) -> list[tuple[Path, str]]:
        """Files that cannot be read, and why.  Opens every file."""
        errors = []
        for path in self.files():
            try:
                runfile.read_run(path)
            except ResultError as error:
                errors.append((path, error.reason))
        return errors

    def remove_abandoned(self) -> list[Path]:
        """Remove what killed processes of this host were writing aside; what it was."""
        inside = [path for path in self.directory.iterdir() if path.is_dir()]
        parents = [path for path in (self.runs, self.directory / NODES) if path.is_dir()]
        below = [path for parent in parents for path in parent.iterdir() if path.is_dir()]
        folders = [path for path in [*inside, *below] if not path.is_symlink()]
        return safefile.remove_abandoned([self.directory, *folders])

    # -- resume ----------------------------------------------------------------------------
    def attempts(self, case_id: str, repetition: int) -> list[int]:
        """Numbers of the stored attempts, ascending; damaged ones too."""
        stem = f"{case_id}-r{repetition:04d}-a"
        folder = self.path(f"{stem}0").parent
        try:
            names = [entry.name for entry in folder.iterdir()]
        except FileNotFoundError:
            return []
        tails = (name[len(stem) : -3] for name in names if name.startswith(stem))
        return sorted(int(tail) for tail in tails if tail.isdecimal())

    def next_attempt(self, case_id: str, repetition: int) -> int:
        """The number of the next attempt; the first is 1."""
        return max(self.attempts(case_id, repetition), default=0) + 1

    def done(
        self, case_id: str, repetition: int, retry_failed: bool = False
    ) -> tuple[str, tuple[Finding, ...]] | None:
        """Status and findings of an attempt that makes this run unnecessary; None: there is none.

        Such an attempt is ok, or failed and not retried.  One whose file is damaged does not count.
        """
        for attempt in reversed(self.attempts(case_id, repetition)):
            try:
                run = self.path(f"{case_id}-r{repetition:04d}-a{attempt}")
                status, findings = runfile.read_verdict(run)
            except ResultError:
                continue
            if counts_as_done(status, retry_failed):
                return status, findings
        return None

    # -- merge -----------------------------------------------------------------------------
    def merge(self, path: Path | None = None, progress: Progress | None = None) -> Path:
        """Merge all runs into campaign.h5 (or `path`); what cannot be read is left out."""
        target = Path(path) if path is not None else self.directory / MERGED
        text, wrong = self.campaign()
        files = self.files()
        made_of = stamps(files, self.directory, text)
        merge_files(files, target, text, self.directory, progress, made_of, wrong)
        return target

    def campaign(self) -> tuple[str, list[ResultError]]:
        """The text of campaign.json, empty without one; and what is wrong with it."""
        path = self.directory / CAMPAIGN
        try:
            return safefile.read_text(path), []
        except FileNotFoundError:
            return "", []
        except UnicodeDecodeError as error:
            return "", [ResultError(path, f"is not UTF-8 text: {error.reason}")]
        except ResultError as error:
            return "", [error]

    def merged(self) -> Path | None:
        """campaign.h5 if it was made of the runs that are here now, else None.

        Without any run it is as its maker left it: a bundle may have it alone.
        """
        path, files = self.directory / MERGED, self.files()
        if path.is_symlink() or not path.is_file():
            return None
        text = self.campaign()[0]
        return path if is_fresh(path, files, self.directory, text) else None


def counts_as_done(status: str, retry_failed: bool) -> bool:
    """Whether an attempt of this status makes another one unnecessary."""
    return status == "ok" or not retry_failed


def _refuse_inside(path: Path) -> None:
    for parent in path.resolve().parents:
        if (parent / MARKER).exists():
            raise StoreError(path, f"is inside another store ({parent})")


def _may_be_there(name: str) -> bool:
    """What may be in a directory that becomes a store: also another shard's first steps."""
    return name in {*IGNORED, MARKER, RUNS} or name.startswith(f".{MARKER}.")


def _write_marker(path: Path) -> None:
    """The marker, once: the first of several shards makes it."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"format": STORE_FORMAT, "schema": SCHEMA_VERSION, "created": created})
    safefile.write_whole(path / MARKER, f"{text}\n".encode())


def _below(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Files that end in .h5 in `folder` and its subfolders, and links, which are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                path = Path(entry.path)
                yield from _below(path, depth + 1) if depth < DEEPEST else (path,)
            elif entry.name.startswith("."):
                continue
            elif entry.name.endswith(".h5") or entry.is_symlink():
                yield Path(entry.path)


def _order(path: Path) -> tuple[str, int, int, str]:
    match = NAME.fullmatch(path.stem)
    if match is None:
        return (path.stem, -1, -1, str(path))
    return (match["case"], int(match["repetition"]), int(match["attempt"]), str(path))
