"""Files of other programs: finding them, and reading them as text, compressed or not.

Directories are walked in the order of names; links in them are not followed, hidden entries
are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsmatrix.results.files import safefile
from fsmatrix.results.units import format_size
from fsmatrix.suite.campaign.problems import CampaignError, Problem
from fsmatrix.traces.importing.base import encoding_problem

LIMIT = 256 << 20  # bytes of one file, uncompressed
PIECE = 1 << 20  # bytes read at once
DEEPEST = 100  # directories in each other
HEAD = 1024  # bytes that tell whether a file is text
GZIP = b"\x1f\x8b"


class UnreadableError(Exception):
    """A file cannot be read as text; the text says why."""


class BinaryError(UnreadableError):
    """A file is not text."""


@dataclass(frozen=True)
class InputEntry:
    """A file, or a directory that may be one run."""

    path: Path
    shown: str  # as in messages
    names: tuple[str, ...]  # what a pattern may call it, if it begins with a literal name
    inside: str  # what any pattern may call it: from the directory that was named, if any
    recorded: str  # in the provenance: without the places of this machine
    named: bool = False  # on the command line, not found in a directory
    members: tuple[InputEntry, ...] = ()  # of a directory


@dataclass(frozen=True)
class Content:
    """A file's text and the digest of its bytes."""

    text: str  # what is not UTF-8 is replaced
    sha256: str  # of the bytes, uncompressed


def find(
    paths: Sequence[Path], summaries: frozenset[str], but: Path | None = None
) -> list[InputEntry]:
    """All files below `paths`; a directory with one of the files `summaries` as a whole.

    `but` (the output) is left out.  CampaignError for paths that are not there.
    """
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise CampaignError([Problem(str(path), 0, "", "no such file") for path in missing])
    by_name: dict[str, InputEntry] = {}
    for path in paths:
        for file in _below(path, summaries) if path.is_dir() else [_named(path)]:
            if but is None or not _same(file.path, but):
                by_name.setdefault(str(file.path.absolute()), file)
    return list(by_name.values())


def _named(path: Path) -> InputEntry:
    parts = [part for part in path.parts if part != ".."]
    recorded = path.name if path.is_absolute() else str(PurePosixPath(*parts))
    return InputEntry(path, str(path), (path.as_posix(),), path.as_posix(), recorded, named=True)


def _below(root: Path, summaries: frozenset[str]) -> Iterator[InputEntry]:
    """What is in a directory that was named."""
    name = root.resolve().name

    def entry(path: Path, members: tuple[InputEntry, ...] = ()) -> InputEntry:
        inside = path.relative_to(root).as_posix()
        whole = f"{name}/{inside}" if inside != "." else name
        return InputEntry(path, str(path), (path.as_posix(), whole), inside, whole, members=members)

    for directory, files in _walk(root):
        members = tuple(entry(file) for file in files)
        if any(file.name in summaries for file in files):
            yield entry(directory, members)
        else:
            yield from members


def _walk(directory: Path, depth: int = 0) -> Iterator[tuple[Path, list[Path]]]:
    """Each directory with its files, by name; an unreadable directory is an OSError."""
    if depth > DEEPEST:
        reason = f"more than {DEEPEST} directories are in each other here"
        raise CampaignError([Problem(str(directory)[:200], 0, "", reason)])
    with os.scandir(directory) as entries:
        seen = sorted(entries, key=lambda entry: entry.name)
    shown = [e for e in seen if not e.name.startswith(".") and not e.is_symlink()]
    yield directory, [directory / e.name for e in shown if e.is_file(follow_symlinks=False)]
    for entry in shown:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(directory / entry.name, depth + 1)


def _same(path: Path, other: Path) -> bool:
    return other.exists() and path.exists() and path.samefile(other)


def read(path: Path, follow: bool = True) -> Content:
    """The text of a file, uncompressed if it is gzip.  UnreadableError, BinaryError.

    `follow`: it may be a link, since the user named it.
    """
    try:
        with os.fdopen(safefile.descriptor(path, follow), "rb") as file:
            head = file.read(HEAD)
            file.seek(0)
            data = _bounded(gzip.GzipFile(fileobj=file) if head.startswith(GZIP) else file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableError(f"damaged gzip data: {error}") from error
    except safefile.UnusableFileError as error:
        raise UnreadableError(error.reason) from error
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from error
    return Content(data.decode("utf-8-sig", "replace"), hashlib.sha256(data).hexdigest())


def _bounded(file: io.BufferedIOBase | gzip.GzipFile) -> bytes:
    """All of a file that is text and not too long."""
    head = file.read(HEAD)
    if b"\0" in head:
        raise BinaryError(encoding_problem(head) or "is not text")
    parts, size = [head], len(head)
    while part := file.read(PIECE):
        parts.append(part)
        size += len(part)
        if size > LIMIT:
            raise UnreadableError(
                f"is longer than {format_size(LIMIT)}: cut out the results, without the rest"
            )
    return b"".join(parts)
