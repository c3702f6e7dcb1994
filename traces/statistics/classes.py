"""Classes of files, by their extensions, and what is done to each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, Kind
from fsmatrix.results.evidence.trace import FileClass
from fsmatrix.traces.model import Files

DIRECTORY, NONE, OTHER = "directories", "no extension", "others"
MOST = 200  # classes; the extensions of fewest files are OTHER
LONGEST = 12  # bytes of an extension; what is longer is part of a name


@dataclass(frozen=True)
class Classes:
    """Names of classes, and the class of each file."""

    names: tuple[str, ...]
    of: npt.NDArray[np.uint8]  # [file]


def extension(name: bytes) -> str:
    """The class of a file: its extension in small letters with the dot, or NONE.

    A version behind it (libc.so.6) is no extension; nor is a number (0001.00042), or what stands
    behind the first dot of a hidden file.
    """
    last = name.rsplit(b"/", 1)[-1].lstrip(b".")
    while b"." in last:
        last, _, end = last.rpartition(b".")
        if end and not end.isdigit():
            text = end.lower().decode("utf-8", "backslashreplace")
            return f".{text}" if len(end) <= LONGEST else NONE
    return NONE


def classes(files: Files) -> Classes:
    """Classes of all files of a trace; those of most files have names of their own."""
    directory = files.directory.tolist()
    names = [
        DIRECTORY if is_directory else extension(name)
        for name, is_directory in zip(files.names(), directory, strict=True)
    ]
    frequent = [name for name, _ in Counter(names).most_common(MOST)]
    number = {name: i for i, name in enumerate(frequent)}
    of = np.array([number.get(name, len(frequent)) for name in names], dtype=np.uint8)
    return Classes((*frequent, OTHER), of)


class ClassCounts:
    """Takes operations with the class of each one's file."""

    def __init__(self, files: int, classes: Classes) -> None:
        self._classes, self._used = classes, np.zeros(files, dtype=np.bool_)
        self._counts = np.zeros((5, len(classes.names)), dtype=np.int64)

    @property
    def used(self) -> int:
        """Files that an operation names."""
        return int(np.count_nonzero(self._used))

    def add(self, kind: npt.NDArray[np.uint8], file: Integers, moved: Integers) -> None:
        """Operations in any order."""
        self._used[file] = True
        of = self._classes.of[file]
        read, written = kind == Kind.READ, kind == Kind.WRITE
        for row, chosen, weights in (
            (0, np.ones_like(read), None),
            (1, read, None),
            (2, written, None),
            (3, read, moved),
            (4, written, moved),
        ):
            some = None if weights is None else weights[chosen].astype(np.float64)
            sums = np.bincount(of[chosen], some, minlength=len(self._classes.names))
            self._counts[row] += np.rint(sums).astype(np.int64)

    def statistics(self) -> tuple[FileClass, ...]:
        """Of the classes that have files, the one of most operations first."""
        files = np.bincount(self._classes.of, minlength=len(self._classes.names)).tolist()
        rows = zip(self._classes.names, files, *self._counts.tolist(), strict=True)
        return tuple(
            FileClass(
                name=name,
                files=count,
                operations=operations,
                reads=reads,
                writes=writes,
                read_bytes=read,
                written_bytes=written,
            )
            for name, count, operations, reads, writes, read, written in sorted(
                rows, key=lambda row: -row[2]
            )
            if count
        )
