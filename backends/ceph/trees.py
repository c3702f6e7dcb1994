"""Directories of the suite's own in a CephFS, made and removed through libcephfs.

A child process does it (`treetool`), because a call of libcephfs may wait for ever when an MDS
or OSD is gone; it is killed by its pid after `QUIET` seconds without an answer or a sign of life.
As on any file system, a tree is `fsmatrix-<tag>...` with a marker, and only a tree whose marker
holds the tag is ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsmatrix.backends.ceph import facts
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import TIMEOUT, Cluster, Login
from fsmatrix.backends.ceph.ceph_options import CephfsOptions, ClientOptions
from fsmatrix.backends.ceph.mounts import evict
from fsmatrix.backends.ceph.treetool import Request
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import PREFIX
from fsmatrix.results.evidence.stored import Json, JsonObject, read, whole

QUIET = TIMEOUT + 1.5  # seconds without an answer until the child is killed
REMOVAL = 60.0  # seconds without a removed file: a large one, or a busy MDS
_SHOWN = 300  # characters of a child's complaint
HINTS = {
    errno.ENOENT: "is there such a user, key and directory?",
    errno.EACCES: "the user's capabilities do not allow it",
    errno.EPERM: "the user's capabilities do not allow it",
    errno.ETIMEDOUT: "no monitor or MDS answered in time",
}


_lost: list[int] = []  # children that were killed, whose sessions an MDS may still keep


class NothingDone(CephError):
    """It failed before anything was made."""


@dataclass(frozen=True)
class Tree:
    """`name` in `directory` of a file system, with the tag that its marker holds."""

    login: Login
    filesystem: str
    directory: str
    name: str
    tag: str

    @property
    def path(self) -> str:
        """Where it is, from the root of the file system."""
        return f"{self.directory.rstrip('/')}/{self.name}"

    @property
    def facts(self) -> dict[str, str]:
        """For accesses and journal entries; `of` reads them."""
        names = ("filesystem", "directory", "name", "tag")
        return {**self.login.facts, **{name: getattr(self, name) for name in names}}

    @classmethod
    def of(cls, facts: JsonObject) -> Tree:
        """The tree that such facts describe."""
        names = ("filesystem", "directory", "name", "tag")
        return cls(Login.of(facts), *(str(facts[name]) for name in names))

    def make(self, layout: Mapping[str, str]) -> None:
        """Make it, with `data` in it, which gets the extended attributes `layout`.

        NothingDone with EEXIST if the name is taken.
        """
        try:
            self._ask("make", layout=dict(layout))
        except CephError as error:
            if layout and error.errno in (errno.EACCES, errno.EPERM):
                raise CephError(
                    f"{error}; a layout needs the MDS capability `p` (allow rwp)", 0
                ) from error
            raise

    def found_tag(self) -> str | None:
        """The tag of what is there; None if there is nothing, or nothing of ours."""
        tag = self._ask("tag")
        return None if tag is None else str(tag)

    def layout(self) -> str:
        """The layout that its files get: "stripe_unit=... stripe_count=... object_size=... ..."."""
        return str(self._ask("layout"))

    def make_run(self, run: str) -> None:
        """Make a run's folder in `data`; harmless if it is there."""
        self._ask("make_run", run=run)

    def remove_run(self, run: str) -> None:
        """Remove it with all in it, also while other nodes do."""
        self._ask("remove_run", quiet=REMOVAL, run=run)

    def remove(self, unmarked: bool = False) -> bool:
        """Remove the tree; False if it is gone.  CephError, nothing removed, if it is foreign."""
        return bool(self._ask("remove", quiet=REMOVAL, unmarked=unmarked))

    def _ask(self, do: str, quiet: float | None = None, **more: Any) -> Any:
        if _lost:  # what they held would be waited for
            with contextlib.suppress(BackendError):
                evict(self.login, self.filesystem, *({"pid": str(pid)} for pid in _lost))
                _lost.clear()
        own = {"do": do, "timeout": TIMEOUT, "parent": os.getpid()}
        request = read(Request, {**own, **self.facts, **more}, "request")
        return ask(request, QUIET if quiet is None else quiet)


def ask(request: Request, quiet: float) -> Any:
    """The child's result; CephError with its error, or if nothing is heard for `quiet` seconds."""
    argv = [sys.executable, "-P", "-m", "fsmatrix.backends.ceph.treetool"]
    what = f"{request.do} {request.directory.rstrip('/')}/{request.name} in CephFS"
    pipe = subprocess.PIPE
    child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        assert child.stdin is not None
        with child.stdin:
            child.stdin.write(json.dumps(request.document()).encode())
        answer, complaint = _listen(child, what, quiet)
    except CephError:
        _lost.append(child.pid)
        raise
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    if answer is None:
        raise CephError(f"{what}: libcephfs ended without an answer: {complaint[-_SHOWN:]}")
    if "error" in answer:
        code = whole(answer, "errno")
        hint = f" ({HINTS[code]})" if code in HINTS else ""
        kind = NothingDone if answer["nothing_done"] else CephError
        error = kind(f"{answer['error']}{hint}")
        error.errno = code
        raise error
    return answer["result"]


def _listen(
    child: subprocess.Popen[bytes], what: str, quiet: float
) -> tuple[dict[str, Json] | None, str]:
    """(the answer or None, what was said on standard error)."""
    assert child.stdout is not None
    assert child.stderr is not None
    heard = {child.stdout: b"", child.stderr: b""}
    last = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for stream in heard:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            events = selector.select(max(0.0, last + quiet - time.monotonic()))
            if not events:
                raise CephError(what, errno.ETIMEDOUT, f"nothing happened for {quiet:g} s")
            for key, _ in events:
                stream = child.stdout if key.fileobj is child.stdout else child.stderr
                data = stream.read1(65536)  # type: ignore[attr-defined]
                if not data:
                    selector.unregister(stream)
                    continue
                heard[stream] += data
                if stream is child.stdout:
                    last = time.monotonic()
                    answer = _answer(heard[stream])
                    if answer is not None:
                        return answer, ""
    return None, " ".join(heard[child.stderr].decode(errors="replace").split())


def _answer(text: bytes) -> dict[str, Json] | None:
    for line in text.split(b"\n")[:-1]:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and ("result" in data or "error" in data):
            return data
    return None


# A directory of the suite's own in a CephFS, journalled: made before use, removed after it.


ENTRY = "cephfs-tree"  # kind of journal entry


def refusal(options: CephfsOptions) -> str:
    """Why these options cannot work: no cluster, access, file system, data pool, or option."""
    client = options.client if isinstance(options, ClientOptions) else {}
    try:
        with options.login.connect(options=client) as cluster:
            return _unfit(cluster, options)
    except BackendError as error:
        return str(error)


def _unfit(cluster: Cluster, options: CephfsOptions) -> str:
    found = facts.filesystem_of(cluster, options.filesystem)
    if options.data_pool and (reason := unfit(cluster, options.filesystem, options.data_pool)):
        return reason
    if not facts.active_mdss(cluster, found.name):
        return f"file system {found.name} has no active MDS"
    return ""


def unfit(cluster: Cluster, filesystem: str, pool: str) -> str:
    """Why a pool cannot hold files of a file system (empty: it can)."""
    found = facts.filesystem_of(cluster, filesystem)
    if pool in found.data_pools:
        return ""
    return (
        f"pool {pool} is no data pool of file system {found.name} (it has: "
        f"{', '.join(found.data_pools)}): ceph fs add_data_pool {found.name} {pool}"
    )


def make(options: CephfsOptions, context: ProvisionContext) -> Tree:
    """Make `fsmatrix-<tag>` (or `...-2` where that exists) in the given directory.

    An existing directory is never taken over, not even one with our tag.  BackendError if it
    cannot be made; what was made of it then is removed.
    """
    reason = refusal(options)
    if reason:
        raise BackendError(reason)
    with options.login.connect() as cluster:
        filesystem = facts.filesystem_of(cluster, options.filesystem).name
    for number in itertools.count(1):
        name = f"{PREFIX}{context.tag}" if number == 1 else f"{PREFIX}{context.tag}-{number}"
        tree = Tree(options.login, filesystem, options.directory, name, context.tag)
        entry = context.journal.begin(ENTRY, target=context.target, path=tree.path, **tree.facts)
        try:
            tree.make(options.layout)
        except NothingDone as error:
            context.journal.end(entry)
            if error.errno == errno.EEXIST:
                continue
            raise
        except CephError as error:
            if error.errno != errno.ETIMEDOUT:  # else the entry stays, and `finish` does it
                with contextlib.suppress(BackendError):
                    tree.remove(unmarked=True)
                    context.journal.end(entry)
            raise
        return tree
    raise AssertionError("itertools.count does not end")


def release(tree: Tree, context: ProvisionContext) -> None:
    """Remove it with everything in it; nothing if it is gone.  CephError if it is foreign."""
    tree.remove()
    context.journal.end_all(ENTRY, directory=tree.directory, name=tree.name)


def finish(context: ProvisionContext) -> None:
    """Remove what a failed provision or release of this process left."""
    context.journal.undo_own(
        ENTRY, context.target, lambda facts: Tree.of(facts).remove(unmarked=True)
    )
