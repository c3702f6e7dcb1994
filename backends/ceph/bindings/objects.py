"""Objects of one pool and namespace, for small things: markers, checks, clean-up.

A name may have any bytes except NUL: here it is text as os.fsdecode gives it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, c_char_p, c_long, c_uint64, c_void_p
from functools import partial
from itertools import islice
from typing import Protocol, Self, TypeVar

from fsmatrix.backends.ceph.bindings.errors import CephError, harmless

T = TypeVar("T")
ALL_NAMESPACES = "\x01"  # LIBRADOS_ALL_NSPACES: for listing only
LISTED = 256  # names per call
IN_FLIGHT = 64  # removals at once
_XATTR_SIZE = 65536


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

    def get_xattr(self, name: str, attribute: str) -> bytes:
        """An attribute's value; CephError with ENODATA if it has none of that name."""
        buffer = ctypes.create_string_buffer(_XATTR_SIZE)
        size = self._call(
            self._name(f"get {attribute} of", name),
            lambda: self._library.rados_getxattr(
                self._handle, os.fsencode(name), attribute.encode(), buffer, len(buffer)
            ),
        )
        return buffer.raw[:size]

    def set_xattr(self, name: str, attribute: str, value: bytes) -> None:
        """Set an attribute; makes the object if it is not there."""
        self._call(
            self._name(f"set {attribute} of", name),
            lambda: self._library.rados_setxattr(
                self._handle, os.fsencode(name), attribute.encode(), value, len(value)
            ),
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
