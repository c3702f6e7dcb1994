"""What a file, or a directory, of another program is: its format, its text, its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsmatrix.results.formats import registry
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.formats.labels import runs_of, unlabelled
from fsmatrix.results.units import format_size
from fsmatrix.suite.importing.files import (
    LIMIT,
    BinaryError,
    Content,
    InputEntry,
    UnreadableError,
    read,
)
from fsmatrix.traces.importing.base import head
from fsmatrix.traces.importing.importing import format_of


class NotRecognisedError(Exception):
    """A file is nothing that can be imported; the text says why."""


@dataclass(frozen=True)
class Formats:
    """What is recognised; tests bring their own."""

    files: Sequence[registry.KnownFormat]
    directories: Sequence[registry.DirectoryFormat] = ()

    @classmethod
    def all(cls) -> Formats:
        """Everything that the registry has."""
        return cls(registry.formats(), registry.directory_formats())

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
        matching = registry.matching(texts[0], formats.files)
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
) -> tuple[registry.DirectoryFormat, InputEntry, Content] | None:
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
