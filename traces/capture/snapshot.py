"""What lies below the roots before a program starts: the length of every file."""

from __future__ import annotations

import os
import stat

from fsmatrix.traces.capture.files import DIRECTORY, LOOSE, Sizes
from fsmatrix.traces.model import Roots

MOST_FILES = 1_000_000


def sizes(roots: Roots, most: int = MOST_FILES) -> Sizes | None:
    """Name in the trace -> bytes; None if there are more than `most` files.

    A link to a file has the length of that file; what is below a link to a directory, or in a
    directory that cannot be read, is not looked at (LOOSE).
    """
    lengths: dict[bytes, int] = {}
    waiting = [(root or b"/", label) for root, label in zip(roots.paths, roots.labels, strict=True)]
    for _, label in waiting:
        if label:
            lengths[label] = DIRECTORY
    while waiting:
        path, label = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = label + b"/" + entry.name if label else entry.name
                    lengths[name] = _length(entry)
                    if lengths[name] == DIRECTORY:
                        waiting.append((entry.path, name))
                    if len(lengths) > most:
                        return None
        except OSError:
            lengths[label] = LOOSE  # the program itself may not look into it either
    return lengths


def _length(entry: os.DirEntry[bytes]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            return DIRECTORY
        if entry.is_dir():
            return LOOSE
        facts = entry.stat()
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    except OSError:
        return LOOSE  # a link that leads nowhere, or it just went
