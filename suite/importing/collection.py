"""A directory of IO500 submissions, read as import reads them: every run, with its own form.

What processes did each for itself (mdtest's CSV files) is not read: the sums are all that is
looked at, and a collection holds more bytes of the former than of all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.formats.io500.collected import Collected, Collection
from fsmatrix.results.formats.io500.declared import Declared, Place, declared, is_form, place_of
from fsmatrix.suite.campaign.problems import Origin, refuse
from fsmatrix.suite.importing import recognise
from fsmatrix.suite.importing.files import InputEntry, UnreadableError, find, read
from fsmatrix.suite.importing.recognise import Formats, NotRecognisedError

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
    if not recognise.is_run(without, formats):
        return []
    text, _ = recognise.of_directory(without, formats)
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
