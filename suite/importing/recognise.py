"""What a file, or a directory, of another program is: its format, its text, its runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats import parsed
from fsmatrix.results.formats.io500_text import (
    Collected,
    Collection,
    Declared,
    Place,
    declared,
    is_form,
    place_of,
)
from fsmatrix.results.formats.parsed import Parsed, runs_of, unlabelled
from fsmatrix.results.units import format_size
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, Problem, refuse
from fsmatrix.traces.importing.importer import encoding_problem, format_of, head

# Files of other programs: finding them, and reading them as text, compressed or not.
#
# Directories are walked in the order of names; links in them are not followed, hidden entries
# are left out.


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


class NotRecognisedError(Exception):
    """A file is nothing that can be imported; the text says why."""


@dataclass(frozen=True)
class Formats:
    """What is recognised; tests bring their own."""

    files: Sequence[parsed.KnownFormat]
    directories: Sequence[parsed.DirectoryFormat] = ()

    @classmethod
    def all(cls) -> Formats:
        """Everything that the registry has."""
        return cls(parsed.formats(), parsed.directory_formats())

    @property
    def summaries(self) -> frozenset[str]:
        """Names of files that may tell that a directory is one run."""
        return frozenset(
            name for known_format in self.directories for name in known_format.summaries
        )


@dataclass(frozen=True)
class Text:
    """A recognised text, or the texts of a directory that is one run."""

    entry: InputEntry
    place: InputEntry  # the file that a pattern is matched with
    format: str
    sha256: str
    texts: dict[str, str]
    parse: Callable[[], list[Parsed]]
    others: tuple[str, ...] = ()  # families of formats that recognise it too


def of_file(entry: InputEntry, formats: Formats) -> Text:
    """A file by its content.  NotRecognisedError, UnreadableError."""
    try:
        content = _read(entry)
        texts = unlabelled(content.text)
        matching = parsed.matching(texts[0], formats.files)
        if not matching:
            raise NotRecognisedError("not the output of a program that is known here")
    except NotRecognisedError as error:
        if trace := format_of(head(entry.path)):
            text = f"a trace of the format {trace}: `fsmatrix trace import` reads it"
            raise NotRecognisedError(text) from error
        raise
    first = matching[0].format
    return Text(
        entry,
        entry,
        first.name,
        content.sha256,
        {entry.path.name: content.text},
        lambda: runs_of(first.parse, texts, entry.shown),
        tuple(known_format.family for known_format in matching[1:]),
    )


def is_run(entry: InputEntry, formats: Formats) -> bool:
    """Whether a directory is one run; if not, its files tell what they are, each for itself."""
    try:
        return _summary(entry, formats) is not None
    except (UnreadableError, NotRecognisedError):
        return False


def of_directory(
    entry: InputEntry, formats: Formats
) -> tuple[Text, list[tuple[InputEntry, NotRecognisedError | UnreadableError]]]:
    """A directory that is one run, and those of its files that could not be read, with why."""
    summary = _summary(entry, formats)
    if summary is None:
        raise NotRecognisedError("no file of it tells that it is a run")
    form, place, content = summary
    texts: dict[str, str] = {}
    skipped: list[tuple[InputEntry, NotRecognisedError | UnreadableError]] = []
    for member in entry.members:
        try:
            text = _read(member).text
            if sum(map(len, texts.values())) + len(text) > LIMIT:
                raise UnreadableError(f"with it the files are longer than {format_size(LIMIT)}")
            texts[member.path.name] = text
        except (NotRecognisedError, UnreadableError) as error:
            skipped.append((member, error))
    return Text(
        entry, place, form.name, content.sha256, texts, lambda: [form.parse(texts, entry.shown)]
    ), skipped


def _summary(
    entry: InputEntry, formats: Formats
) -> tuple[parsed.DirectoryFormat, InputEntry, Content] | None:
    """The format of a directory that is one run, and the text that tells it."""
    members = {member.path.name: member for member in entry.members}
    for known_format in formats.directories:
        for name in known_format.summaries:
            content = _read(members[name]) if name in members else None
            if content is not None and known_format.format.recognises(content.text):
                return known_format, members[name], content
    return None


def _read(entry: InputEntry) -> Content:
    try:
        return read(entry.path, follow=entry.named)
    except BinaryError as error:
        raise NotRecognisedError(str(error)) from error


# A directory of IO500 submissions, read as import reads them: every run, with its own form.
#
# What processes did each for itself (mdtest's CSV files) is not read: the sums are all that is
# looked at, and a collection holds more bytes of the former than of all else.


FORMAT = "io500 directory"
PER_PROCESS = ".csv"
Progress = Callable[[int, int], None]


def collection(root: Path, progress: Progress | None = None) -> Collection:
    """Every run of IO500 below `root`; `progress` is told how many places of all are done.

    CampaignError if it is no directory or holds none.
    """
    if not root.is_dir():
        why = "is no directory" if root.exists() else "no such directory"
        raise refuse(Origin(str(root)), "", why)
    formats = Formats.all()
    formats = Formats((), [entry for entry in formats.directories if entry.name == FORMAT])
    folders = find([root], formats.summaries)
    forms = _forms(folders)
    runs: list[Collected] = []
    unread: list[tuple[str, str]] = []
    for done, entry in enumerate(folders, 1):
        if entry.members:
            place = _place(entry)
            try:
                runs += _run(entry, formats, place, forms.get(place.submission, Declared()))
            except (ResultError, UnreadableError, NotRecognisedError) as error:
                unread.append((entry.inside, getattr(error, "reason", str(error))))
        if progress is not None:
            progress(done, len(folders))
    if not runs:
        why = f"; {unread[0][0]}: {unread[0][1]}" if unread else ""
        names = " or ".join(sorted(formats.summaries))
        raise refuse(Origin(str(root)), "", f"no results of IO500 below it ({names}){why}")
    with_runs = {run.place.submission for run in runs}
    places = {_place(entry) for entry in folders}
    without = {entry.submission for entry in places if entry.filesystem} - with_runs
    return Collection(tuple(runs), tuple(unread), tuple(sorted(without)))


def _place(entry: InputEntry) -> Place:
    """Of a run's directory, or of the one that a loose file is in."""
    inside = PurePosixPath(entry.inside)
    return place_of((inside if entry.members else inside.parent).as_posix())


def _run(entry: InputEntry, formats: Formats, place: Place, stated: Declared) -> list[Collected]:
    """The run of a directory; none if its summary is that of something else."""
    members = tuple(member for member in entry.members if member.path.suffix != PER_PROCESS)
    without = replace(entry, members=members)
    if not is_run(without, formats):
        return []
    text, _ = of_directory(without, formats)
    return [Collected(text.place.inside, place, stated, text.sha256, run) for run in text.parse()]


def _forms(entries: Iterable[InputEntry]) -> dict[str, Declared]:
    """Submission -> what the forms in it say."""
    texts: dict[str, list[str]] = {}
    for entry in entries:
        place = _place(entry)
        for member in entry.members or (entry,):
            if is_form(member.path.name):
                try:
                    texts.setdefault(place.submission, []).append(read(member.path, False).text)
                except UnreadableError:
                    continue  # what is no text is no form
    return {name: declared(each) for name, each in texts.items()}
