"""A small binding of libcephfs.so.2: directories, markers, attributes.  Blocking.

For the child process of `trees` alone: many of these calls wait for ever when a server is
gone, and the process that makes them must be one that may be killed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import Any, Self

from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import NO_WAIT, Login

NAME_OFFSET = 19  # of d_name in struct dirent (64 bits): ino 8, off 8, reclen 2, type 1
TYPE_OFFSET = 18
DIRECTORY = 4  # DT_DIR
REMOVEDIR = 0x200  # AT_REMOVEDIR
HERE = -100  # AT_FDCWD: the root of the mount
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ATTRIBUTE = 4096  # bytes of an attribute's value
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ceph_select_filesystem": (c_int, [c_void_p, c_char_p]),
    "ceph_mount": (c_int, [c_void_p, c_char_p]),
    "ceph_unmount": (c_int, [c_void_p]),
    "ceph_mkdir": (c_int, [c_void_p, c_char_p, c_uint]),
    "ceph_chmod": (c_int, [c_void_p, c_char_p, c_uint]),
    "ceph_openat": (c_int, [c_void_p, c_int, c_char_p, c_int, c_uint]),
    "ceph_unlinkat": (c_int, [c_void_p, c_int, c_char_p, c_int]),
    "ceph_fdopendir": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "ceph_open": (c_int, [c_void_p, c_char_p, c_int, c_uint]),
    "ceph_close": (c_int, [c_void_p, c_int]),
    "ceph_read": (c_int, [c_void_p, c_int, c_char_p, c_int64, c_int64]),
    "ceph_write": (c_int, [c_void_p, c_int, c_char_p, c_int64, c_int64]),
    "ceph_fsync": (c_int, [c_void_p, c_int, c_int]),
    "ceph_closedir": (c_int, [c_void_p, c_void_p]),
    "ceph_readdir": (c_void_p, [c_void_p, c_void_p]),
    "ceph_lgetxattr": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t]),
    "ceph_lsetxattr": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, c_int]),
}


def load() -> ctypes.CDLL:
    """The library with what this module uses; CephError if it is not installed."""
    library = capi.load(capi.CEPHFS)
    for function, (result, arguments) in _SIGNATURES.items():
        try:
            entry = getattr(library, function)
        except AttributeError as error:
            raise CephError(
                f"{capi.CEPHFS} is too old: it has no {function} (16.2.15 has)"
            ) from error
        entry.restype, entry.argtypes = result, arguments
    return library


class Cephfs:
    """A mount of the directory `root`: nothing above it can be reached.

    It should be "/" where the user may mount that: unmounting anything else takes a second
    (seen with 16.2.15).
    """

    def __init__(
        self,
        login: Login,
        filesystem: str,
        root: str,
        timeout: float,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._library, self._mount = load(), c_void_p()
        library, conf = self._library, login.conf.encode() or None
        self._check("create a client", library.ceph_create(byref(self._mount), login.user.encode()))
        where = login.conf or "Ceph's default places (/etc/ceph/ceph.conf)"
        self._check(
            f"read the Ceph configuration in {where}",
            library.ceph_conf_read_file(self._mount, conf),
        )
        values = capi.client_options(timeout, login.keyring, {**NO_WAIT, **(options or {})})
        for name, value in values.items():
            self._check(
                f"set the Ceph option {name}={value}",
                library.ceph_conf_set(self._mount, name.encode(), value.encode()),
            )
        if filesystem:
            code = library.ceph_select_filesystem(self._mount, filesystem.encode())
            self._check(f"choose file system {filesystem}", code)
        what = f"mount {root} of CephFS {filesystem or '(the only one)'} as client.{login.user}"
        self._check(what, library.ceph_mount(self._mount, root.encode()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.ceph_unmount(self._mount)
        self._library.ceph_release(self._mount)

    @staticmethod
    def _check(what: str, code: int) -> int:
        if code < 0:
            raise CephError(what, code)
        return code

    def _call(self, what: str, name: str, path: str, *arguments: Any) -> int:
        function = getattr(self._library, name)
        code = int(function(self._mount, os.fsencode(path), *arguments))
        return self._check(f"{what} {path} in CephFS", code)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Make a directory; the mode is the one given, whatever the umask."""
        self._call("make directory", "ceph_mkdir", path, mode)
        self._call("set the mode of", "ceph_chmod", path, mode)

    def open_folder(self, name: str, at: int = HERE) -> int:
        """Descriptor of the directory `name` in the directory `at`; never through a link there."""
        return self._at("open directory", self._library.ceph_openat, at, name, FOLDER, 0)

    def close(self, descriptor: int) -> None:
        """Close a descriptor of `open_folder`."""
        self._library.ceph_close(self._mount, descriptor)

    def unlink(self, name: str, at: int = HERE) -> None:
        """Remove what is no directory; a link itself, not what it points to."""
        self._at("remove", self._library.ceph_unlinkat, at, name, 0)

    def rmdir(self, name: str, at: int = HERE) -> None:
        """Remove a directory that is empty; CephError with ENOTEMPTY if it is not."""
        self._at("remove directory", self._library.ceph_unlinkat, at, name, REMOVEDIR)

    def _at(self, what: str, function: Any, at: int, name: str, *arguments: Any) -> int:
        code = int(function(self._mount, at, os.fsencode(name), *arguments))
        return self._check(f"{what} {name} in CephFS", code)

    def entries(self, folder: int) -> list[tuple[str, bool]]:
        """(name, is a directory) of everything in an open directory."""
        handle, listed = c_void_p(), []
        code = self._library.ceph_fdopendir(self._mount, folder, byref(handle))
        self._check("read a directory in CephFS", code)
        try:
            while entry := self._library.ceph_readdir(self._mount, handle):
                name = os.fsdecode(ctypes.string_at(entry + NAME_OFFSET))
                kind = ctypes.string_at(entry + TYPE_OFFSET, 1)[0]
                if name not in (".", ".."):
                    listed.append((name, kind == DIRECTORY))
        finally:
            self._library.ceph_closedir(self._mount, handle)
        return listed

    def write_new(self, path: str, data: bytes) -> None:
        """Write a small file that must not exist, down to the disks."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = self._call("make", "ceph_open", path, flags, 0o644)
        try:
            function = self._library.ceph_write
            code = function(self._mount, descriptor, data, len(data), 0)
            self._check(f"write {path} in CephFS", code)
            self._check(
                f"sync {path} in CephFS", self._library.ceph_fsync(self._mount, descriptor, 0)
            )
        finally:
            self._library.ceph_close(self._mount, descriptor)

    def read(self, path: str, limit: int) -> bytes:
        """The first `limit` bytes of a file; never through a link."""
        descriptor = self._call("open", "ceph_open", path, os.O_RDONLY | os.O_NOFOLLOW, 0)
        try:
            buffer = ctypes.create_string_buffer(limit)
            code = self._library.ceph_read(self._mount, descriptor, buffer, limit, 0)
            return buffer.raw[: self._check(f"read {path} in CephFS", code)]
        finally:
            self._library.ceph_close(self._mount, descriptor)

    def get_attribute(self, path: str, name: str) -> str:
        """An extended attribute; CephError with ENODATA if there is none."""
        buffer = ctypes.create_string_buffer(_ATTRIBUTE)
        arguments = (name.encode(), buffer, _ATTRIBUTE)
        size = self._call(f"read {name} of", "ceph_lgetxattr", path, *arguments)
        return buffer.raw[:size].rstrip(b"\0").decode(errors="replace")

    def set_attribute(self, path: str, name: str, value: str) -> None:
        """Set an extended attribute of a file; a link is not followed."""
        data = value.encode()
        self._call(f"set {name} of", "ceph_lsetxattr", path, name.encode(), data, len(data), 0)
