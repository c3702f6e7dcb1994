"""Import: files of other people's benchmarks become a campaign file, one at a time.

Files are found (`suite/finding.py`), recognised by content, parsed, labelled and written in
a stream; memory holds one of them.  A campaign file that an import made is added to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsmatrix
from fsmatrix.results import campaignread, imported, merge
from fsmatrix.results.campaignfile import CampaignWriter
from fsmatrix.results.formats import registry
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.record import RunRecord
from fsmatrix.results.schema import ResultError
from fsmatrix.suite.files import Found, Unreadable, contents
from fsmatrix.suite.labels import Labeller
from fsmatrix.suite.problems import CampaignError, Problem

CAMPAIGN = {"name": "imported results", "imported": True}
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Formats:
    """What is recognised; tests bring their own."""

    files: Sequence[registry.Known]
    directories: Sequence[registry.DirectoryFormat] = ()

    @classmethod
    def all(cls) -> Formats:
        """Everything that the registry has."""
        return cls(registry.formats(), registry.directory_formats())


@dataclass(frozen=True)
class Taken:
    """A file, or a directory that is one run, that was imported."""

    file: str
    format: str
    run_ids: tuple[str, ...]
    failed: tuple[str, ...]  # why runs of it are failed
    target: str


@dataclass
class Outcome:
    """What became of everything that was found."""

    taken: list[Taken] = field(default_factory=list)
    known: list[tuple[str, str]] = field(default_factory=list)  # file, which has the same text
    not_recognised: list[tuple[str, str]] = field(default_factory=list)  # file, why
    refused: list[tuple[str, str]] = field(default_factory=list)  # file, why
    kept: int = 0  # runs that were in the campaign file before

    @property
    def runs(self) -> int:
        """Runs that were added."""
        return sum(len(one.run_ids) for one in self.taken)


@dataclass(frozen=True)
class _Text:
    """A recognised text, or several that are one run."""

    found: Found
    format: str
    sha256: str
    texts: dict[str, str]
    parse: Callable[[], list[Parsed]]


@dataclass(frozen=True)
class _Seen:
    """A text that is in the file."""

    file: str
    labels: dict[str, Any]


class Import:
    """One import.  `run` does it."""

    def __init__(self, out: Path, labeller: Labeller, formats: Formats | None = None) -> None:
        self.out = out
        self.labeller = labeller
        self.formats = formats or Formats.all()
        self.outcome = Outcome()
        self._seen: dict[str, _Seen] = {}
        self._problems: list[Problem] = []
        self._now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def run(
        self, found: Sequence[Found], dry: bool = False, progress: Progress = lambda seen: None
    ) -> Outcome:
        """Import all that was found; `dry`: write nothing.  `progress` is told how many are done.

        CampaignError with everything that is wrong with files that were named, or with
        labels; ResultError if `out` is something else than a campaign file of imported runs.
        Then nothing is written.
        """
        before = _identity(self.out)
        with ExitStack() as stack:
            writer = None if dry else stack.enter_context(_writing(self.out))
            self._keep(writer)
            for done, one in enumerate(found, 1):
                self._take(one, writer)
                progress(done)
            if self._problems:
                raise CampaignError(self._problems)
            if not self.outcome.taken and not self.outcome.known:
                raise CampaignError([Problem(str(self.out), 0, "", self._nothing())])
            if writer is not None and not self.outcome.taken:
                raise _Unchanged
            if writer is not None:
                writer.finish(json.dumps(CAMPAIGN), self._left_out())
                if _identity(self.out) != before:
                    raise ResultError(self.out, "was changed by somebody else meanwhile: again")
        return self.outcome
