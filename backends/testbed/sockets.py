"""The folder of a bed's Unix sockets, whose paths must be short."""

from __future__ import annotations

import os
from pathlib import Path

from fsmatrix.backends.journal import proof
from fsmatrix.backends.testbed.home import Home

SHORT, PREFIX = Path("/run"), "fsmatrix-bed-"
LONGEST = 100  # bytes of a socket's path, with room for a suffix that a program may add


def make(home: Home, bed: str, longest: str) -> Path:
    """The bed's folder `run`, or a journalled one in /run if that path is too long.

    `longest`: the longest name of a socket in it.
    """
    own = home.folder / "run"
    if len(os.fsencode(own / longest)) <= LONGEST:
        return own
    folder = SHORT / f"{PREFIX}{bed}"
    entry = home.journal.begin("sockets", path=str(folder))
    folder.mkdir(mode=0o700)
    home.journal.confirm(entry)
    return folder


def remove(folder: Path) -> str:
    """Remove sockets only, in a folder where and as `make` makes it; what was done.

    NotProvenOurs if it is another one.
    """
    if not os.path.lexists(folder):
        return ""
    ours = folder.parent == SHORT and folder.name.startswith(PREFIX)
    if not ours or folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise proof.NotProvenOurs(f"{folder} is not as the test bed made it")
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    folder.rmdir()
    return f"removed {folder}"
