"""Trees of the suite, journalled: made before use, removed after it."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.proof import PREFIX as PREFIX

DATA = "data"  # the folder in a tree that a run works in


def new_folder(
    parent: Path,
    name: str,
    journal: Journal,
    kind: str,
    *,
    mode: int = 0o777,
    at: int | None = None,
    failed: str = "{} cannot be made",
    **facts: str,
) -> Path:
    """Make the folder `name` (or `name-2`, ... where that exists), journalled as a `kind`.

    A present one is never taken: another shard may work in it, or something is still busy there.
    `at`: a descriptor of `parent`, whose path others may lead elsewhere.  BackendError if it cannot
    be made, with the text `failed` ({}: its path) before the reason.
    """
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        if os.path.lexists(folder):
            continue
        entry = journal.begin(kind, path=str(folder), **facts)
        try:
            os.mkdir(folder if at is None else folder.name, mode, dir_fd=at)
        except FileExistsError:
            journal.end(entry)
            continue
        except OSError as error:
            journal.end(entry)
            raise BackendError(f"{failed.format(folder)}: {error.strerror}") from error
        return folder
    raise AssertionError("itertools.count does not end")


def make_tree(parent: Path, tag: str, journal: Journal) -> Path:
    """Make `fsmatrix-<tag>` (or `...-2` where that exists) in `parent`, marked, with `data`.

    Not even a directory with our tag is taken over.  It is closed to others, and everything is
    done by descriptors.  BackendError if it cannot be made.
    """
    if not tag or "/" in tag or "\0" in tag:
        raise BackendError(f"a tag names a directory and must not be {tag!r}")
    with ExitStack() as opened:
        folder = parent.resolve()
        try:
            place = tree.walk(folder)
        except OSError as error:
            raise BackendError(f"{folder} cannot be used: {error.strerror}") from error
        opened.callback(os.close, place)
        name = f"{PREFIX}{tag}"
        folder = new_folder(folder, name, journal, "tree", mode=tree.MODE, at=place, tag=tag)
        try:
            made = tree.step(folder.name, place)
            opened.callback(os.close, made)
            tree.write_marker(tree.by_descriptor(made), tag, journal.identity.store)
            os.mkdir(DATA, dir_fd=made)
        except OSError as error:
            raise BackendError(f"{folder} cannot be used: {error.strerror}") from error
    return folder


def release_tree(folder: Path, tag: str, journal: Journal) -> None:
    """Remove a tree with everything in it; nothing if it is gone.

    BackendError if it cannot be: it is foreign (NotOurs), or the directory that it was made in is
    away.  The journal then keeps it, and what comes back is removed by whoever reads that next.
    A held tree (`tree.held`) that somebody has moved is emptied where it is, and that is said.
    """
    moved = tree.emptied_elsewhere(folder, tag)
    if not moved and not tree.is_gone(folder):
        tree.remove_tree(folder, tag)
    journal.end_all("tree", path=str(folder))
    tree.let_go(str(folder), tag)
    if moved:
        raise BackendError(
            f"{folder} was moved by somebody who may rename above it; its data are removed, an "
            "empty folder stays where it was moved to"
        )
