"""Plumbing of the ctypes bindings: load a library lazily, call with a deadline, free buffers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, TypeVar

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.tools import Overdue, within

# Errors of Ceph: an errno and a text that says what was asked and what Ceph answered.


class CephError(BackendError):
    """Ceph refused something or did not answer in time.

    `errno` is positive (errno.ENOENT...; 0: not from a call), `text` is what Ceph said.
    """

    def __init__(self, what: str, code: int = 0, text: str = "") -> None:
        self.errno = abs(code)
        self.text = text.strip()
        words = [self.text] if self.text else []
        if self.errno:
            words.append(f"{os.strerror(self.errno)} ({errno.errorcode.get(self.errno, code)})")
        super().__init__(f"{what}: {'; '.join(words)}" if words else what)


@contextlib.contextmanager
def harmless(*numbers: int) -> Iterator[None]:
    """A CephError with one of these errnos ends the block and is no error."""
    try:
        yield
    except CephError as error:
        if error.errno not in numbers:
            raise


RADOS = "librados.so.2"
CEPHFS = "libcephfs.so.2"
T = TypeVar("T")

_COMMAND = [
    POINTER(c_char_p), c_size_t, c_char_p, c_size_t,
    POINTER(c_void_p), POINTER(c_size_t), POINTER(c_void_p), POINTER(c_size_t),
]  # fmt: skip
# name: (result, arguments), after librados.h and libcephfs.h
_SIGNATURES: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    RADOS: {
        "rados_create2": (c_int, [POINTER(c_void_p), c_char_p, c_char_p, c_uint64]),
        "rados_conf_read_file": (c_int, [c_void_p, c_char_p]),
        "rados_conf_set": (c_int, [c_void_p, c_char_p, c_char_p]),
        "rados_conf_get": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
        "rados_connect": (c_int, [c_void_p]),
        "rados_shutdown": (None, [c_void_p]),
        "rados_cluster_fsid": (c_int, [c_void_p, c_char_p, c_size_t]),
        "rados_buffer_free": (None, [c_void_p]),
        "rados_mon_command": (c_int, [c_void_p, *_COMMAND]),
        "rados_mgr_command": (c_int, [c_void_p, *_COMMAND]),
        "rados_osd_command": (c_int, [c_void_p, c_int, *_COMMAND]),
        "rados_ioctx_create": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
        "rados_ioctx_destroy": (None, [c_void_p]),
        "rados_ioctx_set_namespace": (None, [c_void_p, c_char_p]),
        "rados_set_pool_full_try": (None, [c_void_p]),
        "rados_write_full": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
        "rados_write": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, c_uint64]),
        "rados_read": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_uint64]),
        "rados_remove": (c_int, [c_void_p, c_char_p]),
        "rados_trunc": (c_int, [c_void_p, c_char_p, c_uint64]),
        "rados_stat": (c_int, [c_void_p, c_char_p, POINTER(c_uint64), POINTER(ctypes.c_long)]),
        "rados_nobjects_list_open": (c_int, [c_void_p, POINTER(c_void_p)]),
        "rados_nobjects_list_next": (
            c_int, [c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_char_p)]),
        "rados_nobjects_list_close": (None, [c_void_p]),
        "rados_aio_create_completion2": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
        "rados_aio_remove": (c_int, [c_void_p, c_char_p, c_void_p]),
        "rados_aio_wait_for_complete": (c_int, [c_void_p]),
        "rados_aio_get_return_value": (c_int, [c_void_p]),
        "rados_aio_release": (None, [c_void_p]),
    },
    CEPHFS: {
        "ceph_create": (c_int, [POINTER(c_void_p), c_char_p]),
        "ceph_conf_read_file": (c_int, [c_void_p, c_char_p]),
        "ceph_conf_set": (c_int, [c_void_p, c_char_p, c_char_p]),
        "ceph_init": (c_int, [c_void_p]),
        "ceph_mount": (c_int, [c_void_p, c_char_p]),
        "ceph_unmount": (c_int, [c_void_p]),
        "ceph_setxattr": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, c_int]),
        "ceph_release": (c_int, [c_void_p]),
        "ceph_buffer_free": (None, [c_void_p]),
        "ceph_mds_command": (c_int, [c_void_p, c_char_p, *_COMMAND]),
    },
}  # fmt: skip


@functools.cache
def load(name: str) -> ctypes.CDLL:
    """The library with its functions declared; CephError if it is not installed."""
    try:
        library = ctypes.CDLL(name)
        for function, (result, arguments) in _SIGNATURES[name].items():
            entry = getattr(library, function)
            entry.restype, entry.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise CephError(f"{name} cannot be used: {error}; {tools.install(name)}") from error
    return library


def available(name: str) -> str:
    """Why a library cannot be used here (empty: it can)."""
    try:
        load(name)
    except CephError as error:
        return str(error)
    return ""


class Abandoned(CephError):
    """A call did not return within its deadline; its thread still waits inside the library."""


def bounded(what: str, seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`, made in a thread of its own; Abandoned after `seconds`.

    The libraries have calls without a deadline of their own.  The caller must not free what
    an abandoned call still uses.
    """
    try:
        return within(seconds, call, f"ceph: {what}")
    except Overdue:
        raise Abandoned(what, errno.ETIMEDOUT, f"no answer within {seconds:g} s") from None


def command(
    library: ctypes.CDLL,
    free: str,
    call: Callable[..., int],
    request: str,
    data: bytes = b"",
) -> tuple[int, bytes, str]:
    """Make a `*_command` call; returns (code, output, status text)."""
    requests = (c_char_p * 1)(request.encode())
    out, text = c_void_p(), c_void_p()
    out_size, text_size = c_size_t(), c_size_t()
    code = call(
        requests, 1, data, len(data),
        ctypes.byref(out), ctypes.byref(out_size), ctypes.byref(text), ctypes.byref(text_size),
    )  # fmt: skip
    answers = []
    for pointer, size in ((out, out_size), (text, text_size)):
        value = pointer.value
        answers.append(ctypes.string_at(value, size.value) if value else b"")
        if value:
            getattr(library, free)(pointer)
    return code, answers[0], answers[1].decode(errors="replace")


def client_options(timeout: float, keyring: str, more: Mapping[str, str]) -> dict[str, str]:
    """Ceph options of a client that neither waits for ever nor writes logs of its own."""
    whole = str(max(1, int(timeout)))
    options = {
        "client_mount_timeout": whole,
        "rados_mon_op_timeout": whole,
        "log_to_stderr": "false",
        "err_to_stderr": "false",
        "log_file": "/dev/null",
        "admin_socket": "",
    }
    if keyring:
        options["keyring"] = keyring
    return {**options, **more}
