"""A file that HDF5 may write to on a device that fills up.

The HDF5 library does not survive a write that fails: closing the file fails too, and the
process crashes later.  So no write fails here: the first error of the system is kept, what
could not be written stays in memory until the file is closed, and whoever writes asks
`check` often and stops.
"""

from __future__ import annotations

import os
from pathlib import Path


class FaultTolerantFile:
    """A new file with the methods that h5py's driver for Python file objects calls."""

    def __init__(self, path: Path) -> None:
        """OSError if it cannot be made."""
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = 0
        self._size = 0
        self._kept: list[tuple[int, bytes]] = []
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error that the system gave."""
        if self._error is not None:
            raise self._error

    def sync(self) -> None:
        """Make the contents durable; raises what `check` raises."""
        self.check()
        os.fsync(self._handle)

    def close(self) -> None:
        """End it; HDF5 must have closed the file before."""
        os.close(self._handle)

    def write(self, data: memoryview) -> int:
        """Write at the position, or keep what cannot be written."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._handle, data[done:], self._position + done)
        except OSError as error:
            self._error = self._error or error
            self._kept.append((self._position + done, bytes(data[done:])))
        self._position += len(data)
        self._size = max(self._size, self._position)
        return len(data)

    def readinto(self, buffer: memoryview) -> int:
        """Read what was written, kept parts included; zeros where there is nothing."""
        length = len(buffer)
        content = os.pread(self._handle, length, self._position)
        buffer[:] = content + bytes(length - len(content))
        for start, data in self._kept:
            low = max(start, self._position)
            high = min(start + len(data), self._position + length)
            if low < high:
                part = data[low - start : high - start]
                buffer[low - self._position : high - self._position] = part
        self._position += length
        return length

    def read(self, size: int) -> bytes:
        """As `readinto` (h5py takes this method as the sign of a file)."""
        buffer = bytearray(size)
        self.readinto(memoryview(buffer))
        return bytes(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position as `io.RawIOBase.seek` does; returns it, bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        """The position, bytes from the beginning."""
        return self._position

    def truncate(self, size: int) -> int:
        """Set the length, bytes; the position stays."""
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            self._error = self._error or error
        self._size = size
        return size

    def flush(self) -> None:
        """Nothing to do: nothing is buffered here."""
