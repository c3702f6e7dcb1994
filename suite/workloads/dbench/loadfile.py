"""dbench's loadfiles: what they are known by, and what one client does with one.

A loadfile is known by the SHA-256 of its bytes, never by its path: two files with the same
content are the same work.  One line is one operation (traces/importing/dbench.py).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fsmatrix.backends.allowed import NUMBER, Form, Words, plain
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.suite.workloads.base import ContentFile, stored_digest
from fsmatrix.traces.importing.dbench import DIRECTORY, TRUNCATING, directive, integer

# Further arguments of dbench: which are handed on, and why others are not.


# What the suite says itself, or what makes a number that is none.
REFUSED = {
    "--fake-io": "it counts bytes that nobody moves",
    "--run-once": "dbench then ends before its time limit",
    "--machine-readable": "the suite reads the ordinary output",
    "--clients-per-process": "the number of clients comes from the geometry",
    "--directory": "the suite says where dbench works",
    "--loadfile": "use the option loadfile",
    "--timelimit": "use the option runtime",
    "--warmup": "use the option warm_up",
    "--backend": "the suite measures file systems",
    "--sync": "use the option sync",
    "--sync-dir": "use the option sync_directories",
    "--fsync": "use the option fsync",
    "-D": "the suite says where dbench works",
    "-c": "use the option loadfile",
    "-t": "use the option runtime",
    "-B": "the suite measures file systems",
    "-s": "use the option sync",
    "-S": "use the option sync_directories",
    "-F": "use the option fsync",
}

_RATE = Form("a rate", r"\d{1,9}(\.\d{1,9})?")
WORDS = Words(
    "dbench",
    {
        **plain(None, "--stat-check --one-byte-write-fix --per-client-results --no-resolve"),
        **plain(None, "-x --xattr --skip-cleanup"),
        **plain(_RATE, "-R --target-rate"),
        **plain(NUMBER, "--trunc-io"),
    },
)


LIMIT = 256 << 20  # bytes; dbench's own has 25 MB
OUTSIDE = re.compile(r"""(?:^|[\s"\\/])(\.\.)(?:[\s"\\/]|$)""", re.MULTILINE)


@dataclass(frozen=True)
class Survey:
    """What one pass of one client over a loadfile does."""

    written: int  # bytes
    space: int  # bytes of its files, at most at one time
    files: int  # files and directories, at most at one time


@dataclass(frozen=True)
class Loadfile(ContentFile):
    """A loadfile by its content; `path` and `survey` are known where it can be read."""

    survey: Survey | None = field(default=None, compare=False)


def loadfile(value: object) -> Loadfile:
    """The loadfile at an absolute path, or of a text "sha256:..."; ValueError with the reason."""
    if isinstance(value, Loadfile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a loadfile is the path of a file, not {value!r}")
    if digest := stored_digest(value, "loadfile"):
        return Loadfile(digest)
    path = Path(value)
    if not path.is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    try:
        state = path.stat()
        return _read(value, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ValueError(f"the loadfile {value!r} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _read(path: str, modified: int, size: int) -> Loadfile:  # noqa: ARG001
    """Read and survey a file; `modified` and `size` make a changed one be read again."""
    try:
        data = safefile.read(path, LIMIT, follow=True)
    except ResultError as error:
        raise ValueError(f"the loadfile {path!r} {error.reason}") from error
    if data.startswith(b"\x1f\x8b"):
        raise ValueError(f"the loadfile {path!r} is compressed: unpack it")
    text = data.decode("latin-1")
    if match := OUTSIDE.search(text):
        line = text.count("\n", 0, match.start(1)) + 1
        raise ValueError(f"{path!r}, line {line}: a name with '..' would leave dbench's directory")
    survey = survey_of(text)
    if survey is None:
        raise ValueError(f"{path!r} is no loadfile: no line of it is an operation of dbench")
    return Loadfile(hashlib.sha256(data).hexdigest(), path, survey)


def survey_of(text: str) -> Survey | None:
    """What one pass does; None if no line opens a file or makes a directory."""
    names: dict[str, str] = {}  # handle -> name
    sizes: dict[str, int] = {}  # of the files that there are
    directories: set[str] = set()
    written = total = space = files = 0
    for each in map(directive, text.split("\n")):
        if each is None or not each.ok or not each.parameters:
            continue
        verb, parameters = each.verb, each.parameters
        name = parameters[0].lower()
        if verb == "Mkdir" or (
            verb == "NTCreateX" and len(parameters) > 3 and integer(parameters[1]) & DIRECTORY
        ):
            directories.add(name)
        elif verb == "NTCreateX" and len(parameters) > 3:
            names[parameters[3]] = name
            if integer(parameters[2]) in TRUNCATING:
                total -= sizes.pop(name, 0)
            sizes.setdefault(name, 0)
        elif verb == "WriteX" and parameters[0] in names and len(parameters) > 2:
            written += integer(parameters[2])
            end = integer(parameters[1]) + integer(parameters[2])
            target = names[parameters[0]]
            total += max(end - sizes.get(target, 0), 0)
            sizes[target] = max(end, sizes.get(target, 0))
        elif verb == "Unlink":
            total -= sizes.pop(name, 0)
        elif verb == "Rename" and len(parameters) > 1 and name in sizes:
            moved, new = sizes.pop(name), parameters[1].lower()
            total -= sizes.pop(new, 0)
            sizes[new] = moved
        space = max(space, total)
        files = max(files, len(sizes) + len(directories))
    return Survey(written, space, files) if files else None
