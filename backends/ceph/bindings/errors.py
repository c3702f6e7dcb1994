"""Errors of Ceph: an errno and a text that says what was asked and what Ceph answered."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from fsmatrix.backends.errors import BackendError


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
