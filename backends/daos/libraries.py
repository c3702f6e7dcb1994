"""DAOS's client libraries in processes of this machine: where they are, and what loads them.

Ranks load libdaos and libdfs, and programs get libioil or libpil4dfs: whoever can change such a
file runs as root wherever the suite does.

Interception.  libioil and libpil4dfs are put before a program's own libraries, where the loader
does that.  A program on a DFUSE mount then reads and writes (libioil), or does everything
(libpil4dfs, DAOS 2.4 or later), without the kernel.  Whether it really did, the library says at the
program's end: the sums of its calls are the proof that is kept, and a run without any is invalid.

Beside MPI.  Both may bring a libfabric, and a process has one only.  With DAOS's folders in
LD_LIBRARY_PATH, as its modules set it, the Open MPI that pip installs gets theirs, and may not
load.  mpi4py then takes another libmpi where the machine has one, and does not say so.
"""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fsmatrix.backends.daos.bindings import DAOS, DFS
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.trusted import distrust_file
from fsmatrix.results.evidence.evidence import Interception

_MAGIC = b"\x7fELF"
_INTERPRETER = 3  # PT_INTERP of a program header
_DYNAMIC = 3  # ET_DYN of the header
_LIMIT = 1 << 20  # bytes of the program headers

CLIENT = ("libdaos.so.2", "libdfs.so")
_CACHE = re.compile(r"=> (/.*)$", re.MULTILINE)
_SYSTEM = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")

NONE = "none"
LIBRARIES = {"ioil": "libioil.so", "pil4dfs": "libpil4dfs.so"}
# D_IL_REPORT with which each prints its sums, and nothing for each call
_REPORT = {"ioil": "0", "pil4dfs": "1"}
_PRELOADED = re.compile(r"/[^\s:$\0]*")  # blanks and colons part the names in LD_PRELOAD
_IOIL = re.compile(r"\[libioil\] Performed (\d+) reads and (\d+) writes from \d+ files")
_PIL4DFS = re.compile(r"libpil4dfs intercepting summary for ops on DFS:")
_PIL4DFS_SUM = re.compile(r"^\[(\w+) *\] +(\d+)$", re.MULTILINE)
_PIL4DFS_ALL = "op_sum"

MPI_PATH = "LD_LIBRARY_PATH"
MPI_SECONDS = 60.0  # for a process that loads them
_CURE = (
    "the folders in it bring other libraries than MPI's own, such as libfabric. "
    f"Unset {MPI_PATH}: DAOS's programs know where theirs are, and option library names the folder "
    "of libdfs; or use the MPI of the cluster"
)
_SCRIPT = """
import ctypes, json, re, sys
stage, libraries, library = "DAOS", sys.argv[2:], ""
try:
    if sys.argv[1] == "MPI":
        stage = "MPI"
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        with open("/proc/self/maps") as maps:
            library = next(iter(re.findall(r"(/.*/libmpi(?:ch)?\\.so.*)", maps.read())), "")
        stage = "DAOS"
    for name in libraries:
        ctypes.CDLL(name)
    stage = ""
    error = ""
except (ImportError, OSError, RuntimeError) as problem:
    error = " ".join(str(problem).split())
print(json.dumps([stage, error, library]))
"""


def preload_refusal(program: str) -> str:
    """Why LD_PRELOAD has no effect on a program (empty: it has, or the file is a script).

    Statically linked: an ELF file without PT_INTERP.  With other rights than the caller's
    (setuid, setgid, capabilities): the loader leaves out what is not its own (ld.so(8)).
    """
    path = Path(program)
    try:
        facts = path.stat()
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                return ""
            file.seek(0)
            kinds = _segments(file.read(64), file.fileno())
    except (OSError, struct.error) as error:
        return f"{program} cannot be looked at: {error}"
    if _INTERPRETER not in kinds:
        return f"{program} is statically linked"
    if facts.st_mode & (stat.S_ISUID | stat.S_ISGID) or _capable(program):
        return f"{program} runs with other rights than its caller's"
    return ""


def is_shared_library(path: Path) -> bool:
    """Whether a file is one, for any machine (ET_DYN)."""
    try:
        with path.open("rb") as file:
            header = file.read(18)
        return (
            header[:4] == _MAGIC
            and struct.unpack_from(_order(header) + "H", header, 16)[0] == _DYNAMIC
        )
    except OSError:
        return False


def _order(header: bytes) -> str:
    return "<" if header[5] == 1 else ">"


def _segments(header: bytes, descriptor: int) -> set[int]:
    """Types of the program headers of an ELF file (elf(5))."""
    wide, order = header[4] == 2, _order(header)
    offset = struct.unpack_from(f"{order}{'Q' if wide else 'I'}", header, 32 if wide else 28)[0]
    size, count = struct.unpack_from(f"{order}HH", header, 54 if wide else 42)
    if size * count > _LIMIT:
        raise struct.error(f"{size * count} bytes of program headers")
    table = os.pread(descriptor, size * count, offset)
    return {struct.unpack_from(f"{order}I", table, size * i)[0] for i in range(count)}


def _capable(program: str) -> bool:
    """Whether the file gives capabilities."""
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def in_path(name: str) -> Iterator[Path]:
    """Where LD_LIBRARY_PATH leads the loader: paths that need not be there, as all of these."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    yield from (
        Path(library_folder, name) for library_folder in folders if library_folder.startswith("/")
    )


def beside(program: str, name: str) -> Iterator[Path]:
    """In lib64 and lib of the folder that has `program` in its bin."""
    if (installed := tools.find(program)) is not None:
        prefix = Path(installed).resolve().parent.parent
        yield from (prefix / library_folder / name for library_folder in ("lib64", "lib"))


def of_loader(name: str) -> Iterator[Path]:
    """Where the loader looks without being told to."""
    try:
        cache = _CACHE.findall(tools.run(["ldconfig", "-p"], deadline=10.0, check=False).stdout)
    except ToolError:
        cache = []
    yield from (Path(path) for path in cache if Path(path).name == name)
    yield from (Path(library_folder, name) for library_folder in _SYSTEM)


def distrust(library: Path) -> str:
    """Why a library is not loaded (empty: it may be).

    It must be a shared library, of root or of this user, that nobody else can change.
    """
    try:
        if reason := distrust_file(library):
            return reason
    except OSError as error:
        return f"{library}: {error.strerror}"
    return "" if is_shared_library(library) else f"{library} is no shared library"


def library_folder(given: str) -> str:
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
    if reason := library_folder_refusal(given):
        raise BackendError(reason)
    return given


def library_folder_refusal(given: str) -> str:
    """Why libdaos and libdfs are not loaded from a folder (empty: they may be; or no folder)."""
    reasons = (distrust(Path(given, name)) for name in CLIENT) if given else ()
    return next((f"library: {reason}" for reason in reasons if reason), "")


def find_interception(kind: str, given: str = "", program: str = "dfuse") -> str:
    """Path of the library of that kind; BackendError if there is none that may be loaded.

    The one that is `given`, or the first in LD_LIBRARY_PATH, beside `program`, or where the
    loader looks.
    """
    if given:
        if reason := program_distrust(given):
            raise BackendError(f"interception_library: {reason}")
        return given
    name = LIBRARIES[kind]
    path = next((str(p) for p in _places(name, program) if p.is_file()), "")
    if not path:
        raise BackendError(
            f"no {name} in LD_LIBRARY_PATH, beside {program}, or in the loader's folders: "
            "install the DAOS client, or name it by interception_library"
        )
    if reason := program_distrust(path):
        raise BackendError(reason)
    return path


def _places(name: str, program: str) -> Iterator[Path]:
    yield from in_path(name)
    yield from beside(program, name)
    yield from of_loader(name)


def program_distrust(library: str) -> str:
    """Why a library is not put into programs (empty: it may be).

    It must be a shared library, of root or of this user, that nobody else can change.
    """
    if not _PRELOADED.fullmatch(library):
        return f"{library!r} is no absolute path without blanks, colons and $"
    return distrust(Path(library))


def interception_environment(kind: str, library: str) -> dict[str, str]:
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
    reason = preload_refusal(program or sys.executable)  # the player works in a Python
    return f"interception {kind} has no effect: {reason}" if reason else ""


def interception_facts(kind: str, library: str) -> Mapping[str, str]:
    """For `describe`."""
    return {"interception": kind} | ({"interception_library": library} if library else {})


def mpi_clash(library: str = "") -> str:
    """Why they cannot be in one process (empty: they can, or one of them cannot be at all).

    `library`: folder of DAOS's libraries; empty: where the loader finds them.
    """
    return _clash(library, os.environ.get(MPI_PATH, ""))


@functools.cache
def _clash(library: str, path: str) -> str:
    names = [str(Path(library, name)) if library else name for name in (DAOS, DFS)]
    stage, error, library = _loaded("MPI", names, os.environ)
    if path:
        without = {name: value for name, value in os.environ.items() if name != MPI_PATH}
        stage_without, _, own = _loaded("MPI", [], without)
        if stage_without == "" and stage == "MPI":
            return f"MPI does not load with {MPI_PATH}={path} ({error}): {_CURE}"
        if stage_without == "" and own != library and not _holds(path, library):
            return (
                f"with {MPI_PATH}={path} mpi4py takes {library} without a word, since {own} does "
                f"not load: {_CURE}"
            )
    if not stage:
        return ""
    if stage == "DAOS" and _loaded("alone", names, os.environ)[0] == "":
        return (
            f"libdaos does not load beside MPI ({error}): both bring a libfabric. Use the MPI of "
            "the cluster (MPI4PY_LIBMPI names its library), built with the same one"
        )
    return ""


def _holds(path: str, library: str) -> bool:
    """Whether a library lies in a folder of LD_LIBRARY_PATH: then it is meant to be taken."""
    folders = (Path(folder).resolve() for folder in path.split(":") if folder)
    return Path(library).resolve().parent in folders


def _loaded(what: str, names: list[str], environment: Mapping[str, str]) -> tuple[str, str, str]:
    """What did not load (empty: all did), why, and the file of the MPI library."""
    argv = [sys.executable, "-P", "-c", _SCRIPT, what, *names]
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            timeout=MPI_SECONDS,
            check=False,
            start_new_session=True,  # a Ctrl-C is not for it
        )
        stage, error, library = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as problem:
        return what, f"the process that tried gave no answer: {problem}", ""
    return str(stage), str(error), str(library)
