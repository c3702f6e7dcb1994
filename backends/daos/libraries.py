"""DAOS's client libraries on this machine: where they are, and whether they may be loaded.

Ranks load libdaos and libdfs, and programs get libioil or libpil4dfs: whoever can change such a
file runs as root wherever the suite does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import elf, tools
from fsmatrix.backends.system.trusted import distrust_file

CLIENT = ("libdaos.so.2", "libdfs.so")
_CACHE = re.compile(r"=> (/.*)$", re.MULTILINE)
_SYSTEM = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")


def in_path(name: str) -> Iterator[Path]:
    """Where LD_LIBRARY_PATH leads the loader: paths that need not be there, as all of these."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    yield from (Path(folder, name) for folder in folders if folder.startswith("/"))


def beside(program: str, name: str) -> Iterator[Path]:
    """In lib64 and lib of the folder that has `program` in its bin."""
    if (installed := tools.find(program)) is not None:
        prefix = Path(installed).resolve().parent.parent
        yield from (prefix / folder / name for folder in ("lib64", "lib"))


def of_loader(name: str) -> Iterator[Path]:
    """Where the loader looks without being told to."""
    try:
        cache = _CACHE.findall(tools.run(["ldconfig", "-p"], deadline=10.0, check=False).stdout)
    except ToolError:
        cache = []
    yield from (Path(path) for path in cache if Path(path).name == name)
    yield from (Path(folder, name) for folder in _SYSTEM)


def distrust(library: Path) -> str:
    """Why a library is not loaded (empty: it may be).

    It must be a shared library, of root or of this user, that nobody else can change.
    """
    try:
        if reason := distrust_file(library):
            return reason
    except OSError as error:
        return f"{library}: {error.strerror}"
    return "" if elf.is_shared_library(library) else f"{library} is no shared library"


def folder(given: str) -> str:
    """Folder that libdaos and libdfs are loaded from; empty: where the loader finds them.

    The one that is `given`; else, where the loader finds none, the one beside the tool `daos`.
    BackendError if what is there may not be loaded.
    """
    if not given:
        if any(path.is_file() for path in (*in_path(CLIENT[0]), *of_loader(CLIENT[0]))):
            return ""
        library = next((path for path in beside("daos", CLIENT[0]) if path.is_file()), None)
        if library is None:
            return ""  # loading it says what is missing
        given = str(library.parent)
    if reason := folder_refusal(given):
        raise BackendError(reason)
    return given


def folder_refusal(given: str) -> str:
    """Why libdaos and libdfs are not loaded from a folder (empty: they may be; or no folder)."""
    reasons = (distrust(Path(given, name)) for name in CLIENT) if given else ()
    return next((f"library: {reason}" for reason in reasons if reason), "")
