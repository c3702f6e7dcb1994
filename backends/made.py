"""Trees of the suite, journalled: made before use, removed after it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from fsmatrix.backends import tree
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import Journal

DATA = "data"  # the folder in a tree that a run works in
PREFIX = "fsmatrix-"


def make_tree(parent: Path, tag: str, journal: Journal) -> Path:
    """Make `fsmatrix-<tag>` (or `...-2` where that exists) in `parent`, marked, with `data`.

    An existing directory is never taken over, not even one with our tag: another shard of
    the campaign may work in it.  BackendError if the directory cannot be made.
    """
    if not tag or "/" in tag or "\0" in tag:
        raise BackendError(f"a tag names a directory and must not be {tag!r}")
    for number in itertools.count(1):
        folder = parent / (f"{PREFIX}{tag}" if number == 1 else f"{PREFIX}{tag}-{number}")
        if os.path.lexists(folder):
            continue
        entry = journal.begin("tree", path=str(folder), tag=tag)
        try:
            folder.mkdir()
        except FileExistsError:
            journal.end(entry)
            continue
        except OSError as error:
            journal.end(entry)
            raise BackendError(f"{folder} cannot be made: {error.strerror}") from error
        break
    try:
        tree.write_marker(folder, tag)
        (folder / DATA).mkdir()
    except OSError as error:
        raise BackendError(f"{folder} cannot be used: {error.strerror}") from error
    return folder


def release_tree(folder: Path, tag: str, journal: Journal) -> None:
    """Remove a tree with everything in it; nothing if it is gone.  NotOurs if it is foreign."""
    if os.path.lexists(folder):
        tree.remove_tree(folder, tag)
    for entry in journal.pending("tree", path=str(folder)):
        journal.end(entry)
