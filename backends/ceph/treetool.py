"""Child process of `trees`: does one thing in a CephFS and says what came of it.

The request is one JSON object on standard input, the answer the last line of standard output:
{"result": ...} or {"error", "errno", "nothing_done"}.  Lines {"progress": n} before it show that a
long removal goes on.  The parent kills the process when neither comes in time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fsmatrix.backends.ceph.bindings.capi import CephError, harmless
from fsmatrix.backends.ceph.bindings.cephfs import Cephfs
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.journal.tree import LIMIT, MARKER, marker_of, tag_in, whose
from fsmatrix.backends.system.libc import libc
from fsmatrix.results.evidence.stored import Json, Stored, read

DATA = "data"
LAYOUT = "ceph.dir.layout"
ATTEMPTS = 1000  # at a directory that other nodes are emptying too
WORKERS = 8
BEAT = 0.5  # seconds between two signs of life
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Request(Stored):
    """What is to be done: with directory `name` of `directory`, both as of `Tree`."""

    do: str
    timeout: float  # seconds
    conf: str
    user: str
    keyring: str
    filesystem: str
    directory: str
    name: str
    tag: str
    layout: Mapping[str, str] = field(default_factory=dict)  # extended attributes
    run: str = ""
    unmarked: bool = False
    parent: int = 0  # pid


class NothingDone(Exception):
    """A failure before anything was made."""


def _mount(request: Request) -> Cephfs:
    login = Login(request.conf, request.user, request.keyring)
    return Cephfs(login, request.filesystem, request.directory, request.timeout)


def _tag(mount: Cephfs, folder: str) -> str | None:
    """The tag in the marker of a folder; None if there is none."""
    with harmless(errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return tag_in(mount.read(f"{folder}/{MARKER}", LIMIT))
    return None


def make(request: Request) -> None:
    """Make directory `name`, mark it, make its `data`, set the layout.  EEXIST: not ours."""
    name = request.name
    try:
        connection = _mount(request)
    except CephError as error:
        raise NothingDone(error) from error
    with connection as mount:
        try:
            mount.mkdir(name)
        except CephError as error:
            raise NothingDone(error) from error
        mount.write_new(f"{name}/{MARKER}", marker_of(request.tag))
        mount.mkdir(f"{name}/{DATA}", 0o777)
        for attribute, value in request.layout.items():
            mount.set_attribute(f"{name}/{DATA}", attribute, value)


def tag(request: Request) -> str | None:
    """The tag of directory `name`; None if it is no tree of ours."""
    with _mount(request) as mount:
        return _tag(mount, request.name)


def layout(request: Request) -> str:
    """The layout that files of the tree get."""
    name = request.name
    with _mount(request) as mount:
        with contextlib.suppress(CephError):  # not set on it: inherited, as the marker's
            return mount.get_attribute(f"{name}/{DATA}", LAYOUT)
        return mount.get_attribute(f"{name}/{MARKER}", "ceph.file.layout")


def make_run(request: Request) -> None:
    """Make the folder `run` of a tree of ours; harmless if it is there."""
    with _mount(request) as mount:
        _require(request, _tag(mount, request.name))
        with harmless(errno.EEXIST):
            mount.mkdir(f"{request.name}/{DATA}/{request.run}", 0o777)


def remove_run(request: Request) -> int:
    """Remove the folder `run` of a tree of ours with all in it; harmless if it is gone."""
    with _mount(request) as mount:
        _require(request, _tag(mount, request.name))
        folder = mount.open_folder(DATA, mount.open_folder(request.name))
        return Removal(mount).whole(request.run, folder)


def remove(request: Request) -> bool:
    """Remove the whole tree; False if there is none.  Its marker goes last.

    With `unmarked` an empty directory without a marker goes too: what a crash left between
    making and marking, or between removing both.
    """
    name = request.name
    with _mount(request) as mount:
        try:
            folder = mount.open_folder(name)
        except CephError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        marker_tag = _tag(mount, name)
        if marker_tag is not None or not request.unmarked:
            _require(request, marker_tag)
            Removal(mount).empty(folder, keep=MARKER)
            mount.unlink(MARKER, folder)
        mount.close(folder)
        mount.rmdir(name)
    return True


def _require(request: Request, marker_tag: str | None) -> None:
    if marker_tag != request.tag:
        place = f"{request.directory.rstrip('/')}/{request.name}"
        raise CephError(f"{place} {whose(marker_tag)}: not touched (expected {request.tag!r})")


class Removal:
    """Removes directories by descriptors, never through a link; tells that it goes on."""

    def __init__(self, mount: Cephfs) -> None:
        self._mount, self._removed, self._told = mount, 0, time.monotonic()

    def whole(self, name: str, at: int) -> int:
        """Remove a directory and all in it; returns how many entries there were."""
        for _ in range(ATTEMPTS):
            try:
                folder = self._mount.open_folder(name, at)
                self.empty(folder)
                self._mount.close(folder)
                self._mount.rmdir(name, at)
            except CephError as error:
                if error.errno == errno.ENOENT:
                    return self._removed
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return self._removed
        raise CephError(f"{name} in CephFS cannot be emptied", errno.ENOTEMPTY)

    def empty(self, top: int, keep: str = "") -> None:
        """Remove all in an open directory but `keep`; a list of levels, no recursion."""
        levels = [(top, "", self._unlinked(top, keep))]
        while levels:
            folder, name, below = levels[-1]
            if below:
                child = below.pop()
                with self._gone():
                    opened = self._mount.open_folder(child, folder)
                    levels.append((opened, child, self._unlinked(opened)))
                continue
            levels.pop()
            if levels:
                self._mount.close(folder)
                with self._gone():
                    self._mount.rmdir(name, levels[-1][0])

    def _unlinked(self, folder: int, keep: str = "") -> list[str]:
        """Remove what is no directory; the names of the directories."""
        entries = self._mount.entries(folder)
        files = [name for name, is_folder in entries if not is_folder and name != keep]
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(lambda name: self._unlink(name, folder), files))
        return [name for name, is_folder in entries if is_folder]

    def _unlink(self, name: str, folder: int) -> None:
        with self._gone():
            self._mount.unlink(name, folder)

    @contextlib.contextmanager
    def _gone(self) -> Iterator[None]:
        """Another node may have removed it: no error.  Counts, and shows life."""
        with harmless(errno.ENOENT):
            yield
        self._removed += 1
        now = time.monotonic()
        if now - self._told >= BEAT:
            self._told = now
            print(json.dumps({"progress": self._removed}), flush=True)


ACTIONS: dict[str, Callable[[Request], Any]] = {
    action.__name__: action for action in (make, tag, layout, make_run, remove_run, remove)
}


def main() -> None:
    """Read the request, do it, answer, and end without the library's own farewell.

    When the parent dies, so does this process: it may hang, and nobody else would end it.
    """
    request = read(Request, json.load(sys.stdin), "request")
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request.parent:
        os._exit(1)  # it died before that
    try:
        answer: dict[str, Json] = {"result": ACTIONS[request.do](request)}
    except CephError as error:
        answer = {"error": str(error), "errno": error.errno, "nothing_done": False}
    except NothingDone as error:
        cause = error.args[0]
        answer = {"error": str(cause), "errno": cause.errno, "nothing_done": True}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
