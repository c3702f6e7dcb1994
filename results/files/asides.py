"""Files that are written aside and then renamed: named by who writes them.

A writer that is killed leaves its file; the name tells that nobody will rename it any more.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = re.compile(r"\.(?P<what>.+)\.(?P<pid>[1-9]\d{0,9})(\.tmp|\.[0-9a-f]{8})?")


def beside(path: Path, end: str = ".tmp") -> Path:
    """Where this process writes what is to become `path`."""
    return path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}{end}")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a write says which file it was: the system names it only where it opens it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def remove_abandoned(folders: Iterable[Path]) -> list[Path]:
    """Remove the regular files in `folders` that a process of this host wrote and that is gone.

    Those of other hosts stay: whether their writers live cannot be told here.
    """
    gone = []
    for folder in folders:
        for path in folder.glob(".*"):
            if _abandoned(path):
                path.unlink(missing_ok=True)
                gone.append(path)
    return gone


def _abandoned(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    if match is None or not match["what"].endswith(f".{os.uname().nodename}"):
        return False
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    return regular and not Path(f"/proc/{match['pid']}").exists()
