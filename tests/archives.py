"""Unpacking a bundle as a careful user does; no test in here."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a bundle into a folder, which nothing may leave; the one folder that it held."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extractall(folder, filter="data")
        else:  # Python 3.11.2, as Debian 12 has it, knows no filters; these archives are ours
            opened.extractall(folder)
    (inside,) = folder.iterdir()
    return inside
