"""A small binding of librados.so.2 by ctypes: connect, commands, objects.

The library is loaded when the first cluster is opened.  Every call has a deadline and every
failure is a CephError.  Debian's own binding exists only for the system's Python.

    with Cluster("/etc/ceph/ceph.conf") as cluster:
        cluster.mon("osd pool create", pool="p", pg_num=32)
        with cluster.ioctx("p", namespace="mine") as pool:
            pool.write_full("object", b"data")
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref, c_char_p, c_long, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.capi import Abandoned, CephError, bounded, harmless
from fsmatrix.results.evidence.stored import JsonObject

# Objects of one pool and namespace, for small things: markers, checks, clean-up.
#
# A name may have any bytes except NUL: here it is text as os.fsdecode gives it.


T = TypeVar("T")
ALL_NAMESPACES = "\x01"  # LIBRADOS_ALL_NSPACES: for listing only
LISTED = 256  # names per call
IN_FLIGHT = 64  # removals at once


class Caller(Protocol):
    """What makes a library call with a deadline."""

    abandoned: bool  # whether a call may still be using the handles

    def call(self, what: str, call: Callable[[], T]) -> T:
        """The result of `call`; CephError if it does not return in time."""


class IoCtx:
    """A pool and a namespace; CephError with ENOENT if there is no such pool.

    A full pool is an error (EDQUOT or ENOSPC), not librados's endless wait.
    """

    def __init__(
        self,
        caller: Caller,
        library: ctypes.CDLL,
        cluster: c_void_p,
        pool: str,
        namespace: str = "",
    ) -> None:
        self.pool, self.namespace = pool, namespace
        self._caller, self._library, self._handle = caller, library, c_void_p()
        self._call(
            f"open pool {pool}",
            lambda: library.rados_ioctx_create(cluster, pool.encode(), byref(self._handle)),
        )
        library.rados_ioctx_set_namespace(self._handle, namespace.encode())
        library.rados_set_pool_full_try(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the handle back, unless an abandoned call may still use it."""
        if self._caller.abandoned:
            return
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self._library.rados_ioctx_destroy(handle)

    def _call(self, what: str, call: Callable[[], int]) -> int:
        code = self._caller.call(what, call)
        if code < 0:
            raise CephError(what, code)
        return code

    def _name(self, verb: str, name: str) -> str:
        inside = f" (namespace {self.namespace})" if self.namespace else ""
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        return f"{verb} object {shown} in pool {self.pool}{inside}"

    def write_full(self, name: str, data: bytes) -> None:
        """Replace an object as a whole; it is made if it is not there."""
        self._call(
            self._name("write", name),
            lambda: self._library.rados_write_full(
                self._handle, os.fsencode(name), data, len(data)
            ),
        )

    def write(self, name: str, data: bytes, offset: int = 0) -> None:
        """Write into an object at an offset, bytes; it is made if it is not there."""
        self._call(
            self._name("write", name),
            lambda: self._library.rados_write(
                self._handle, os.fsencode(name), data, len(data), offset
            ),
        )

    def read(self, name: str, size: int = 1 << 22, offset: int = 0) -> bytes:
        """Up to `size` bytes; fewer at the object's end."""
        buffer = ctypes.create_string_buffer(size)
        read = self._call(
            self._name("read", name),
            lambda: self._library.rados_read(self._handle, os.fsencode(name), buffer, size, offset),
        )
        return buffer.raw[:read]

    def stat(self, name: str) -> tuple[int, int]:
        """(bytes, time of change in Unix seconds)."""
        size, changed = c_uint64(), c_long()
        self._call(
            self._name("stat", name),
            lambda: self._library.rados_stat(
                self._handle, os.fsencode(name), byref(size), byref(changed)
            ),
        )
        return size.value, changed.value

    def exists(self, name: str) -> bool:
        """Whether the object is there."""
        with harmless(errno.ENOENT):
            self.stat(name)
            return True
        return False

    def truncate(self, name: str, size: int) -> None:
        """Cut or extend an object."""
        self._call(
            self._name("truncate", name),
            lambda: self._library.rados_trunc(self._handle, os.fsencode(name), size),
        )

    def remove(self, name: str) -> None:
        """Remove one object; CephError with ENOENT if it is not there."""
        self._call(
            self._name("remove", name),
            lambda: self._library.rados_remove(self._handle, os.fsencode(name)),
        )

    def names(self) -> Iterator[str]:
        """Names of the objects of this namespace, in no order."""
        return (name for name, _ in self.entries())

    def entries(self) -> Iterator[tuple[str, str]]:
        """(name, namespace) of each object; of every namespace if it is ALL_NAMESPACES."""
        library, listing = self._library, c_void_p()
        what = f"list pool {self.pool}"
        self._call(what, lambda: library.rados_nobjects_list_open(self._handle, byref(listing)))
        try:
            while batch := self._caller.call(what, partial(self._next, what, listing)):
                yield from batch
        finally:
            if not self._caller.abandoned:
                library.rados_nobjects_list_close(listing)

    def _next(self, what: str, listing: c_void_p) -> list[tuple[str, str]]:
        name, key, space = c_char_p(), c_char_p(), c_char_p()
        page: list[tuple[str, str]] = []
        while len(page) < LISTED:
            code = self._library.rados_nobjects_list_next(
                listing, byref(name), byref(key), byref(space)
            )
            if code == -errno.ENOENT:
                break
            if code < 0:
                raise CephError(what, code)
            page.append((os.fsdecode(name.value or b""), os.fsdecode(space.value or b"")))
        return page

    def remove_all(self) -> int:
        """Remove every object of this namespace; returns how many there were."""
        if self.namespace in ("", ALL_NAMESPACES):
            raise CephError(f"pool {self.pool}: only a namespace of its own can be emptied")
        return self.remove_many(self.names())

    def remove_many(self, names: Iterable[str]) -> int:
        """Remove objects, several at once; one that is gone already is no error."""
        removed, waiting = 0, iter(names)
        while batch := list(islice(waiting, IN_FLIGHT)):
            call = partial(self._remove, batch)
            removed += self._caller.call(f"remove objects in pool {self.pool}", call)
        return removed

    def _remove(self, names: list[str]) -> int:
        library, completions, codes = self._library, [], []
        for name in names:
            completion = c_void_p()
            library.rados_aio_create_completion2(None, None, byref(completion))
            code = library.rados_aio_remove(self._handle, os.fsencode(name), completion)
            completions.append((name, completion, code))
        for name, completion, code in completions:
            if code == 0:
                library.rados_aio_wait_for_complete(completion)
                code = library.rados_aio_get_return_value(completion)
            library.rados_aio_release(completion)
            codes.append((name, code))
        for name, code in codes:
            if code < 0 and code != -errno.ENOENT:
                raise CephError(self._name("remove", name), code)
        return sum(code == 0 for _, code in codes)


__all__ = ["Abandoned", "CephError", "Cluster", "IoCtx"]

GRACE = 1.0  # seconds that the library's own deadline gets before a call is abandoned
_FSID_SIZE = 37


class Cluster:
    """A connection.  Use it as a context manager, or call `close`.

    `conf` "": Ceph's own search path (CEPH_CONF, /etc/ceph/ceph.conf...).  `user` without
    "client.".  `timeout`: seconds for connecting and for each command and operation.
    CephError if the cluster cannot be reached within it, or the user is refused.
    """

    def __init__(
        self,
        conf: str = "",
        user: str = "admin",
        *,
        keyring: str = "",
        timeout: float = 10.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.conf, self.user, self.keyring, self.timeout = conf, user, keyring, timeout
        self.options = dict(options or {})
        self._library = capi.load(capi.RADOS)
        self._handle = ctypes.c_void_p()
        self.abandoned = False  # a call may still use the handle: it can no longer be freed
        self._contexts: list[IoCtx] = []
        self._check(
            "create a client",
            self._library.rados_create2(
                ctypes.byref(self._handle), b"ceph", f"client.{user}".encode(), 0
            ),
        )
        try:
            self._configure()
            self._connect()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        where = self.conf or "Ceph's default places (/etc/ceph/ceph.conf)"
        code = self._library.rados_conf_read_file(
            self._handle, self.conf.encode() if self.conf else None
        )
        self._check(f"read the Ceph configuration in {where}", code)
        values = capi.client_options(max(1.0, self.timeout - GRACE), self.keyring, {})
        values["rados_osd_op_timeout"] = values["rados_mon_op_timeout"]
        for name, value in {**values, **self.options}.items():
            code = self._library.rados_conf_set(self._handle, name.encode(), value.encode())
            self._check(f"set the Ceph option {name}={value}", code)

    def _connect(self) -> None:
        what = f"connect to the Ceph cluster of {self.conf or 'the default configuration'}"
        what += f" as client.{self.user}"
        code = self.call(what, lambda: int(self._library.rados_connect(self._handle)))
        if code == -errno.ETIMEDOUT:
            raise CephError(what, code, f"no monitor answered within {self.timeout:g} s")
        hints = {
            -errno.ENOENT: "no key for this user: check `keyring`, or the user's name",
            -errno.EACCES: "the monitors refuse this user's key",
            -errno.EPERM: "the monitors refuse this user's key",
        }
        self._check(what, code, hints.get(code, ""))

    def call(self, what: str, call: Callable[[], T]) -> T:
        """Make a blocking call of the library with the deadline of this connection."""
        if self.abandoned:
            raise CephError(what, 0, "an earlier call still hangs; open a new connection")
        if not self._handle:
            raise CephError(what, 0, "the connection is closed")
        try:
            result: T = bounded(what, self.timeout + GRACE, call)
        except (Abandoned, KeyboardInterrupt, SystemExit):  # the last two: a signal while waiting
            self.abandoned = True
            raise
        return result

    @staticmethod
    def _check(what: str, code: int, text: str = "") -> int:
        if code < 0:
            raise CephError(what, code, text)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pools and the connection.  What an abandoned call uses is left to it."""
        if self.abandoned:
            return
        for context in self._contexts:
            context.close()
        self._contexts = []
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            with contextlib.suppress(Abandoned):
                bounded(
                    "disconnect", self.timeout, lambda: self._library.rados_shutdown(handle) or True
                )

    def mon(self, prefix: str, **arguments: Any) -> Any:
        """A monitor command: parsed JSON if the answer is JSON, else its text."""
        function = self._library.rados_mon_command
        return self._ask(
            f"ceph {prefix}", prefix, arguments, lambda *rest: function(self._handle, *rest)
        )

    def mon_bytes(self, prefix: str, **arguments: Any) -> bytes:
        """A monitor command whose answer is binary (maps)."""
        function, what = self._library.rados_mon_command, f"ceph {prefix}"
        request = json.dumps({"prefix": prefix, **arguments})
        code, out, text = self.call(
            what,
            lambda: capi.command(
                self._library,
                "rados_buffer_free",
                lambda *rest: function(self._handle, *rest),
                request,
            ),
        )
        self._check(what, code, text)
        return out

    def mgr(self, prefix: str, **arguments: Any) -> Any:
        """A command of the active manager."""
        function = self._library.rados_mgr_command
        return self._ask(
            f"ceph {prefix} (mgr)", prefix, arguments, lambda *rest: function(self._handle, *rest)
        )

    def osd(self, osd: int, prefix: str, **arguments: Any) -> Any:
        """What `ceph tell osd.N PREFIX` does."""
        function = self._library.rados_osd_command
        return self._ask(
            f"ceph tell osd.{osd} {prefix}",
            prefix,
            arguments,
            lambda *rest: function(self._handle, osd, *rest),
        )

    def mds(self, mds: str, prefix: str, **arguments: Any) -> Any:
        """What `ceph tell mds.NAME PREFIX` does; `mds` is a name, "0", "fs:0" or "*".

        librados has no such call: libcephfs makes it, over a connection of its own.
        """
        library, mount = capi.load(capi.CEPHFS), ctypes.c_void_p()
        what = f"ceph tell mds.{mds} {prefix}"
        self._check(what, library.ceph_create(ctypes.byref(mount), self.user.encode()))
        unused = False  # whether no call can be using `mount` any more
        try:
            conf = self.conf.encode() if self.conf else None
            self._check(f"read {self.conf}", library.ceph_conf_read_file(mount, conf))
            values = capi.client_options(max(1.0, self.timeout - GRACE), self.keyring, self.options)
            for name, value in values.items():
                library.ceph_conf_set(mount, name.encode(), value.encode())
            request = _request(prefix, arguments)
            answer = bounded(what, self.timeout, lambda: _ask_mds(library, mount, mds, request))
            unused = True
        except CephError as error:
            unused = not isinstance(error, Abandoned)
            raise
        finally:
            if unused:
                library.ceph_release(mount)
        return _answer(what, *answer)

    def _ask(self, what: str, prefix: str, arguments: JsonObject, function: Any) -> Any:
        request = _request(prefix, arguments)
        code, out, text = self.call(
            what, lambda: capi.command(self._library, "rados_buffer_free", function, request)
        )
        return _answer(what, code, out, text)

    @property
    def fsid(self) -> str:
        """The cluster's id, a UUID."""
        buffer = ctypes.create_string_buffer(_FSID_SIZE)
        self._check("fsid", self._library.rados_cluster_fsid(self._handle, buffer, _FSID_SIZE))
        return buffer.value.decode()

    @property
    def version(self) -> str:
        """What the monitor says of itself: "ceph version 16.2.15 (...) pacific (stable)"."""
        return str(self.mon("version")["version"])

    def option(self, name: str) -> str:
        """The value of a Ceph option in this client."""
        buffer = ctypes.create_string_buffer(4096)
        code = self._library.rados_conf_get(self._handle, name.encode(), buffer, len(buffer))
        self._check(f"Ceph option {name}", code)
        return buffer.value.decode()

    def ioctx(self, pool: str, namespace: str = "") -> IoCtx:
        """A pool for reading and writing objects in one namespace."""
        context = IoCtx(self, self._library, self._handle, pool, namespace)
        self._contexts.append(context)
        return context


def _ask_mds(
    library: ctypes.CDLL, mount: ctypes.c_void_p, mds: str, request: str
) -> tuple[int, bytes, str]:
    code = int(library.ceph_init(mount))
    if code < 0:
        return code, b"", "no connection"
    return capi.command(
        library,
        "ceph_buffer_free",
        lambda *rest: library.ceph_mds_command(mount, mds.encode(), *rest),
        request,
    )


def _request(prefix: str, arguments: JsonObject) -> str:
    return json.dumps({"prefix": prefix, "format": "json", **arguments})


def _answer(what: str, code: int, out: bytes, text: str) -> Any:
    if code < 0:
        raise CephError(what, code, text)
    answer = out.decode(errors="replace").strip()
    if not answer:
        return text.strip()
    try:
        return json.loads(answer)
    except ValueError:
        return answer


# Who speaks to which cluster, and a connection as that user.


# A client of CephFS tests by a write whether it may write to a pool, and a write to a full pool
# waits: without that test it can read and remove there, and a write is refused (ENOSPC).
NO_WAIT = {"client_check_pool_perm": "false"}
TIMEOUT = 8.0  # seconds for connecting and for each call: an error is told within 10


@dataclass(frozen=True)
class Login:
    """Configuration, user and file of its key; empty: Ceph's default.  No secrets."""

    conf: str = ""
    user: str = "admin"  # without "client."
    keyring: str = ""

    @classmethod
    def expanded(cls, conf: str, user: str, keyring: str) -> Login:
        """From a user's words, with `~` in front replaced by the home directory."""
        return cls(*(os.path.expanduser(text) for text in (conf, user, keyring)))  # noqa: PTH111

    @classmethod
    def of(cls, facts: JsonObject) -> Login:
        """From an access's details or a journal entry."""
        return cls(*(str(facts.get(name, "")) for name in ("conf", "user", "keyring")))

    @property
    def facts(self) -> dict[str, str]:
        """As plain text for accesses and journal entries; `of` reads it."""
        return asdict(self)

    def connect(
        self, timeout: float | None = None, options: Mapping[str, str] | None = None
    ) -> Cluster:
        """A connection; CephError within about `timeout` seconds (default TIMEOUT)."""
        seconds = TIMEOUT if timeout is None else timeout
        keyring = self.keyring
        return Cluster(self.conf, self.user, keyring=keyring, timeout=seconds, options=options)


def root_text(values: JsonObject, client: JsonObject) -> str:
    """What a Ceph driver of the player gets as its root: lines key=value."""
    lines = [f"{name}={value}" for name, value in values.items() if value not in ("", None)]
    return "\n".join([*lines, *(f"option.{name}={value}" for name, value in client.items())])
