"""A run of IO500 out of a directory of many, with what its submission says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.formats.io500.declared import Declared, Place


@dataclass(frozen=True)
class Collected:
    """A run as it was read."""

    file: str  # the summary that tells it, below the directory that was named
    place: Place
    declared: Declared
    sha256: str  # of the summary
    parsed: Parsed


@dataclass(frozen=True)
class Collection:
    """All runs below a directory, by path, and what could not be read."""

    runs: tuple[Collected, ...]
    unread: tuple[tuple[str, str], ...]  # path, why
    without: tuple[str, ...]  # submissions in which no file is the summary of a run
