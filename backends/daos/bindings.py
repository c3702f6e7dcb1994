"""DAOS's own library libdfs by ctypes, in processes that may be ended: folders of runs.

From outside: `folders`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.libc import libc
from fsmatrix.results.evidence.stored import Json, JsonObject

# A small binding of libdfs.so: a container mounted, directories made and removed.  Blocking.
#
# For the child process of `folders` alone: calls wait for ever when agents or servers hang, and
# the process that makes them must be one that may be killed.


DAOS, DFS = "libdaos.so.2", "libdfs.so"
READ_WRITE = 2  # DAOS_PC_RW, DAOS_COO_RW
MODE = 0o755
_OPEN = [c_char_p, c_uint, POINTER(c_uint64), c_void_p, c_void_p]
# name: arguments; every result is an int
_DAOS: dict[str, list[Any]] = {
    "daos_init": [],
    "daos_fini": [],
    "daos_pool_connect2": [c_char_p, *_OPEN],
    "daos_pool_disconnect": [c_uint64, c_void_p],
    "daos_cont_open2": [c_uint64, *_OPEN],
    "daos_cont_close": [c_uint64, c_void_p],
}
_DFS: dict[str, list[Any]] = {
    "dfs_mount": [c_uint64, c_uint64, c_int, POINTER(c_void_p)],
    "dfs_umount": [c_void_p],
    "dfs_lookup_rel": [
        *(c_void_p, c_void_p, c_char_p, c_int),
        *(POINTER(c_void_p), POINTER(c_uint), c_void_p),
    ],
    "dfs_release": [c_void_p],
    "dfs_mkdir": [c_void_p, c_void_p, c_char_p, c_uint, c_uint32],
    "dfs_remove": [c_void_p, c_void_p, c_char_p, c_bool, c_void_p],
}


class DfsError(BackendError):
    """A call of libdaos or libdfs failed; `errno` is 0 for what has only a DER code."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.errno = number


def load(folder: str) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """libdaos and libdfs, from a folder (empty: where the loader finds them)."""
    os.environ.setdefault("D_LOG_FILE", "/dev/null")  # else clients print a log
    os.environ.setdefault("DD_STDERR", "CRIT")
    libraries = []
    for name, functions in ((DAOS, _DAOS), (DFS, _DFS)):
        try:
            library = ctypes.CDLL(str(Path(folder, name)) if folder else name)
            for function, arguments in functions.items():
                getattr(library, function).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise DfsError(
                f"{name} cannot be used (package daos-client): {error}; option library names the "
                "folder that holds it"
            ) from error
        libraries.append(library)
    return libraries[0], libraries[1]


class Dfs:
    """A POSIX container, mounted.  DfsError if it cannot be; nothing is ever created."""

    def __init__(self, pool: str, container: str, system: str, library: str) -> None:
        self._daos, self._dfs = load(library)
        self._pool, self._container, self._mount = c_uint64(), c_uint64(), c_void_p()
        self._call("daos_init", "initialise DAOS")
        name = pool.encode()
        self._call(
            "daos_pool_connect2", f"open pool {pool}",
            name, system.encode() or None, READ_WRITE, byref(self._pool), None, None,
        )  # fmt: skip
        what = f"open container {container} of pool {pool}"
        self._call(
            "daos_cont_open2", what,
            self._pool, container.encode(), READ_WRITE, byref(self._container), None, None,
        )  # fmt: skip
        self._call(
            "dfs_mount", f"mount container {container} of pool {pool} (is it of type POSIX?)",
            self._pool, self._container, os.O_RDWR, byref(self._mount),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._dfs.dfs_umount(self._mount)
        self._daos.daos_cont_close(self._container, None)
        self._daos.daos_pool_disconnect(self._pool, None)
        self._daos.daos_fini()

    def _call(self, function: str, what: str, *arguments: Any) -> None:
        library = self._daos if function.startswith("daos_") else self._dfs
        code = int(getattr(library, function)(*arguments))
        if code > 0:
            raise DfsError(f"{what}: errno {code} ({errno.errorcode.get(code, '?')}), "
                           f"{os.strerror(code)}", code)  # fmt: skip
        if code < 0:
            raise DfsError(f"{what}: {self._words(code)}")

    def _words(self, code: int) -> str:
        """What the library itself says of a DER code."""
        words = []
        for name in ("d_errstr", "d_errdesc"):
            function = getattr(self._daos, name, None)
            if function is not None:
                function.restype, function.argtypes = c_char_p, [c_int]
                words.append((function(code) or b"").decode(errors="replace"))
        return f"{words[0]}({code}), {words[1]}" if all(words) and words else f"DAOS error {code}"

    def make(self, path: str) -> None:
        """Make the directories of a path; those that are there stay."""
        self._walk(path, make=True)

    def remove(self, path: str) -> None:
        """Remove a directory with all in it; none is there, or it goes meanwhile: no error."""
        above, _, name = path.strip("/").rpartition("/")
        try:
            self._walk(above, make=False, remove=name)
        except DfsError as error:
            if error.errno != errno.ENOENT:
                raise

    def _walk(self, path: str, *, make: bool, remove: str = "") -> None:
        """Go down name by name, never through a link; then remove an entry there."""
        parent, mode = c_void_p(), c_uint()
        try:
            for name in (part.encode() for part in path.split("/") if part):
                if make:
                    code = self._dfs.dfs_mkdir(self._mount, parent, name, MODE, 0)
                    if code not in (0, errno.EEXIST):
                        self._raise(f"make directory {path}", code)
                child = c_void_p()
                code = self._dfs.dfs_lookup_rel(
                    self._mount, parent, name, os.O_RDWR | os.O_NOFOLLOW,
                    byref(child), byref(mode), None,
                )  # fmt: skip
                if code:
                    self._raise(f"open directory {path}", code)
                if parent:
                    self._dfs.dfs_release(parent)
                parent = child
            if remove:
                code = self._dfs.dfs_remove(self._mount, parent, remove.encode(), True, None)
                if code:
                    self._raise(f"remove {remove}", code)
        finally:
            if parent:
                self._dfs.dfs_release(parent)

    @staticmethod
    def _raise(what: str, code: int) -> None:
        raise DfsError(f"{what}: {os.strerror(code)}", code)


# Child process of `folders`: makes or removes one directory of a container and says so.
#
# The request is one JSON object on standard input; the answer is the last line of standard output:
# {"error": reason}, empty if it is done.  The parent kills the process if it does not come in
# time.


_PR_SET_PDEATHSIG = 1


def main() -> None:
    """When the parent dies, so does this process: it may hang, and nobody else would end it."""
    request = json.load(sys.stdin)
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:
        os._exit(1)  # it died before that
    reason = ""
    try:
        where = (request[name] for name in ("pool", "container", "system", "library"))
        with Dfs(*where) as dfs:
            {"make": dfs.make, "remove": dfs.remove}[request["do"]](request["path"])
    except DfsError as error:
        reason = str(error)
    print(json.dumps({"error": reason}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()


# Directories in a container, made and removed through libdfs by a process that may be ended.
#
# A call of libdfs waits for ever when an agent, or the servers, hang.


MAKING = 60.0  # seconds; a machine whose engines poll on all cores took 16 to answer
REMOVAL = 600.0  # of a directory with all in it
_SHOWN = 300  # characters of a child's complaint


@dataclass(frozen=True)
class Folders:
    """The container, and the folder of DAOS's libraries (empty: the loader finds them)."""

    pool: str
    container: str
    system: str = ""
    library: str = ""

    def make(self, path: str) -> None:
        """Make a directory and those above it; harmless if it is there."""
        self._ask("make", path, MAKING)

    def remove(self, path: str) -> None:
        """Remove a directory with all in it; harmless if it is gone."""
        self._ask("remove", path, REMOVAL)

    def _ask(self, do: str, path: str, seconds: float) -> None:
        what = f"{do} {path} in container {self.container} of pool {self.pool}"
        request: dict[str, Json] = {**asdict(self), "do": do, "path": path, "parent": os.getpid()}
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "fsmatrix.backends.daos.bindings"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, complaint = child.communicate(json.dumps(request).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{what}: nothing happened for {seconds:g} s: daos_agent, or the pool's engines, "
                "do not answer"
            ) from None
        finally:
            child.kill()
            child.wait()
        answer = _answer(out)
        if answer is None:
            words = " ".join(complaint.decode(errors="replace").split())
            raise BackendError(f"{what}: libdfs ended without an answer: {words[-_SHOWN:]}")
        if answer["error"]:
            raise BackendError(f"{what}: {answer['error']}")


def _answer(text: bytes) -> JsonObject | None:
    for line in reversed(text.splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and "error" in data:
            return data
    return None
