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
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.capi import Abandoned, bounded
from fsmatrix.backends.ceph.bindings.errors import CephError
from fsmatrix.backends.ceph.bindings.objects import IoCtx
from fsmatrix.results.evidence.values import JsonObject

__all__ = ["Abandoned", "CephError", "Cluster", "IoCtx"]

T = TypeVar("T")
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

    def pool_id(self, name: str) -> int:
        """The number of a pool; CephError with ENOENT if there is none."""
        what = f"pool {name}"
        code = self.call(
            what, lambda: int(self._library.rados_pool_lookup(self._handle, name.encode()))
        )
        return self._check(what, code)

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
