"""libioil and libpil4dfs: put before a program's own libraries, they speak DFS for it.

A program on a DFUSE mount then reads and writes (libioil), or does everything (libpil4dfs, DAOS
2.4 or later), without the kernel.  Whether it really did, the library says at the program's end:
the sums of its calls are the proof that is kept, and a run without any is invalid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fsmatrix.backends.daos import libraries
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import elf
from fsmatrix.results.evidence.evidence import Interception

NONE = "none"
LIBRARIES = {"ioil": "libioil.so", "pil4dfs": "libpil4dfs.so"}
# D_IL_REPORT with which each prints its sums, and nothing for each call
_REPORT = {"ioil": "0", "pil4dfs": "1"}
_PRELOADED = re.compile(r"/[^\s:$\0]*")  # blanks and colons part the names in LD_PRELOAD
_IOIL = re.compile(r"\[libioil\] Performed (\d+) reads and (\d+) writes from \d+ files")
_PIL4DFS = re.compile(r"libpil4dfs intercepting summary for ops on DFS:")
_PIL4DFS_SUM = re.compile(r"^\[(\w+) *\] +(\d+)$", re.MULTILINE)
_PIL4DFS_ALL = "op_sum"


def find(kind: str, given: str = "", program: str = "dfuse") -> str:
    """Path of the library of that kind; BackendError if there is none that may be loaded.

    The one that is `given`, or the first in LD_LIBRARY_PATH, beside `program`, or where the
    loader looks.
    """
    if given:
        if reason := distrust(given):
            raise BackendError(f"interception_library: {reason}")
        return given
    name = LIBRARIES[kind]
    path = next((str(p) for p in _places(name, program) if p.is_file()), "")
    if not path:
        raise BackendError(
            f"no {name} in LD_LIBRARY_PATH, beside {program}, or in the loader's folders: "
            "install the DAOS client, or name it by interception_library"
        )
    if reason := distrust(path):
        raise BackendError(reason)
    return path


def _places(name: str, program: str) -> Iterator[Path]:
    yield from libraries.in_path(name)
    yield from libraries.beside(program, name)
    yield from libraries.of_loader(name)


def distrust(library: str) -> str:
    """Why a library is not put into programs (empty: it may be).

    It must be a shared library, of root or of this user, that nobody else can change.
    """
    if not _PRELOADED.fullmatch(library):
        return f"{library!r} is no absolute path without blanks, colons and $"
    return libraries.distrust(Path(library))


def environment(kind: str, library: str) -> dict[str, str]:
    """What a program gets into its environment; nothing without interception."""
    if kind == NONE:
        return {}
    return {"LD_PRELOAD": library, "D_IL_REPORT": _REPORT[kind]}


def counted(kind: str, texts: Iterable[str]) -> Interception:
    """What the library said in all that the programs of a step printed.

    libioil is silent in a process that opened no file on a mount; libpil4dfs speaks in each.
    """
    whole = "\n".join(texts)
    if kind == "ioil":
        sums = _IOIL.findall(whole)
        calls = {"read": sum(int(s[0]) for s in sums), "write": sum(int(s[1]) for s in sums)}
        return Interception(library=kind, summaries=len(sums), calls=calls)
    calls = {}
    for name, value in _PIL4DFS_SUM.findall(whole):
        if name != _PIL4DFS_ALL:
            calls[name] = calls.get(name, 0) + int(value)
    return Interception(library=kind, summaries=len(_PIL4DFS.findall(whole)), calls=calls)


def program_refusal(kind: str, program: str) -> str:
    """Why a program (empty: the player) cannot be intercepted; empty: it can, by its file."""
    if kind == NONE:
        return ""
    reason = elf.preload_refusal(program or sys.executable)  # the player works in a Python
    return f"interception {kind} has no effect: {reason}" if reason else ""


def facts(kind: str, library: str) -> Mapping[str, str]:
    """For `describe`."""
    return {"interception": kind} | ({"interception_library": library} if library else {})
