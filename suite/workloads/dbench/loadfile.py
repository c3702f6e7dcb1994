"""dbench's loadfiles: what they are known by, and what one client does with one.

A loadfile is known by the SHA-256 of its bytes, never by its path: two files with the same
content are the same work.  One line is one operation:
`WriteX HANDLE OFFSET SIZE RETURNED STATUS`, `NTCreateX "NAME" OPTIONS DISPOSITION HANDLE
STATUS`, `Unlink "NAME" ATTRIBUTES STATUS`, `Rename "OLD" "NEW" STATUS` (dbench's child.c).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fsmatrix.results.files import safefile
from fsmatrix.results.files.errors import ResultError

OK = frozenset({"NT_STATUS_OK", "0x00000000", "0x0", "SUCCESS"})
TRUNCATING = frozenset({4, 5})  # dispositions FILE_OVERWRITE and FILE_OVERWRITE_IF
DIRECTORY = 1  # create option FILE_DIRECTORY_FILE
PREFIX = "sha256:"
LIMIT = 256 << 20  # bytes; dbench's own has 25 MB
OUTSIDE = re.compile(r"""(?:^|[\s"\\/])(\.\.)(?:[\s"\\/]|$)""", re.MULTILINE)


@dataclass(frozen=True)
class Survey:
    """What one pass of one client over a loadfile does."""

    written: int  # bytes
    space: int  # bytes of its files, at most at one time
    files: int  # files and directories, at most at one time


@dataclass(frozen=True)
class Loadfile:
    """A loadfile by its content; `path` and `survey` are known where it can be read."""

    sha256: str
    path: str = field(default="", compare=False)
    survey: Survey | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """What stands in cases and results."""
        return f"{PREFIX}{self.sha256}"


def loadfile(value: object) -> Loadfile:
    """The loadfile at an absolute path, or of a text "sha256:..."; ValueError with the reason."""
    if isinstance(value, Loadfile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a loadfile is the path of a file, not {value!r}")
    if value.startswith(PREFIX):
        digest = value.removeprefix(PREFIX)
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise ValueError(f"{value!r} is no SHA-256 of a loadfile")
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
    for line in text.split("\n"):
        words = line.split()
        if words and words[0][:1].isdigit():  # version 4: a time before the operation
            words = words[1:]
        if len(words) < 3 or words[-1] not in OK:
            continue
        quoted = line.split('"')
        name = quoted[1].lower() if len(quoted) > 2 else words[1].lower()
        if words[0] == "Mkdir" or (words[0] == "NTCreateX" and _number(words[-4]) & DIRECTORY):
            directories.add(name)
        elif words[0] == "NTCreateX":
            names[words[-2]] = name
            if _number(words[-3]) in TRUNCATING:
                total -= sizes.pop(name, 0)
            sizes.setdefault(name, 0)
        elif words[0] == "WriteX" and words[1] in names and len(words) > 4:
            written += _number(words[3])
            end = _number(words[2]) + _number(words[3])
            target = names[words[1]]
            total += max(end - sizes.get(target, 0), 0)
            sizes[target] = max(end, sizes.get(target, 0))
        elif words[0] == "Unlink":
            total -= sizes.pop(name, 0)
        elif words[0] == "Rename" and len(quoted) > 4 and name in sizes:
            moved = sizes.pop(name)
            total -= sizes.pop(quoted[3].lower(), 0)
            sizes[quoted[3].lower()] = moved
        space = max(space, total)
        files = max(files, len(sizes) + len(directories))
    return Survey(written, space, files) if files else None


def _number(word: str) -> int:
    """As strtol reads it, 0 for what is no number."""
    try:
        return int(word, 0)
    except ValueError:
        return 0
