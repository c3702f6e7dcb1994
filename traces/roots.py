"""Which paths belong to a trace: those below the roots, by the names that the program used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.traces.model import MOST_NAME

MOST_KEPT = 1 << 16  # paths whose name is remembered


def normal(base: bytes, path: bytes) -> bytes:
    """An absolute path without ".", ".." and empty parts; "/" is b"".

    `base`: normal itself; what a relative path begins at.  ".." takes the name before it away,
    even where that is a symbolic link.
    """
    parts = [] if path.startswith(b"/") else base.split(b"/")[1:]
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"".join(b"/" + part for part in parts)


class Roots:
    """The directories whose files are in the trace.

    With one root names are those below it; with several they begin with the last part of the
    root's name (and "-2", ... where two roots have the same).
    """

    def __init__(self, roots: Sequence[bytes]) -> None:
        """`roots`: absolute.  ValueError if one contains another."""
        self.paths = tuple(normal(b"", root) for root in roots)
        self.labels = _labels(self.paths)
        pairs = {}
        for root, label in zip(self.paths, self.labels, strict=True):
            pairs[root] = label
            pairs.setdefault(normal(b"", os.path.realpath(root or b"/")), label)
        for inner in pairs:
            for outer in pairs:
                if pairs[inner] != pairs[outer] and inner.startswith(outer + b"/"):
                    raise ValueError(f"{_shown(inner)} lies below {_shown(outer)}: give one")
        self._pairs = sorted(pairs.items(), key=lambda pair: -len(pair[0]))
        self._names: dict[bytes, bytes | None] = {}

    def name(self, path: bytes) -> bytes | None:
        """The name in the trace of a normal path: b"" is a single root itself; None: outside."""
        if path in self._names:
            return self._names[path]
        if len(self._names) >= MOST_KEPT:
            self._names.clear()
        name = self._name(path)
        if len(path) <= MOST_NAME:
            self._names[path] = name
        return name

    def _name(self, path: bytes) -> bytes | None:
        for root, label in self._pairs:
            if path == root:
                return label
            if path.startswith(root + b"/"):
                rest = path[len(root) + 1 :]
                return label + b"/" + rest if label else rest
        return None


def _labels(paths: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(paths) == 1:
        return (b"",)
    labels: list[bytes] = []
    for path in paths:
        last = path.rpartition(b"/")[2] or b"root"
        label, count = last, 1
        while label in labels:
            count += 1
            label = last + b"-%d" % count
        labels.append(label)
    return tuple(labels)


def _shown(path: bytes) -> str:
    return str(Path(os.fsdecode(path or b"/")))
