"""The table of files of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt


class Files:
    """Names (bytes, relative), sizes at the start, which are directories."""

    def __init__(
        self,
        names: bytes,
        ends: npt.NDArray[np.uint64],
        size: npt.NDArray[np.int64],
        directory: npt.NDArray[np.bool_],
    ) -> None:
        """`names`: all paths, one after the other; `ends`: where each ends in it."""
        self._names, self._ends = names, ends
        self.size = size  # bytes; model.ABSENT: not there
        self.directory = directory

    @classmethod
    def of(cls, names: Sequence[bytes], sizes: Sequence[int]) -> Files:
        """Files, none of them a directory, that were there with these sizes."""
        ends = np.cumsum([len(name) for name in names], dtype=np.uint64)
        size = np.array(sizes, dtype=np.int64)
        return cls(b"".join(names), ends, size, np.zeros(len(names), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self._ends)

    def name(self, row: int) -> bytes:
        """Path of a file."""
        begin = int(self._ends[row - 1]) if row else 0
        return self._names[begin : int(self._ends[row])]

    def names(self) -> Iterator[bytes]:
        """All paths, in the order of the rows."""
        begin = 0
        for end in self._ends.tolist():
            yield self._names[begin:end]
            begin = end
