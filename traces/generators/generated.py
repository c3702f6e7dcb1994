"""A trace that is made, not captured: every operation follows from its position alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.mixing import Integers
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.files import Files
from fsmatrix.traces.model import BLOCK, COLUMNS, NOT_CAPTURED, Columns, Header

Make = Callable[[Integers], Columns]


@dataclass(frozen=True)
class Generated:
    """As model.Operations.  Any block can be made without those before it.

    Each slot is opened by its thread first (position = slot) and closed at the end; between
    stand the reads and writes, which `make` gives for their numbers (0, 1, ...): columns kind,
    slot, offset and size.  Thread t has slot t.
    """

    header: Header
    files: Files
    slots: npt.NDArray[np.uint32]
    threads: npt.NDArray[np.uint64]
    transfers: int  # reads and writes
    read_only: bool
    make: Make

    @property
    def operations(self) -> int:
        """Opens, transfers and closes."""
        return self.transfers + 2 * len(self.slots)

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[Columns]:
        """Operations first, first + 1, ... stop - 1, `block` of them at a time."""
        stop = self.operations if stop is None else min(stop, self.operations)
        for begin in range(first, stop, block):
            whole = self._block(begin, min(begin + block, stop))
            yield {name: whole[name] for name in columns}

    def _block(self, begin: int, end: int) -> dict[str, npt.NDArray[np.generic]]:
        slots, count = len(self.slots), end - begin
        values = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
        position = np.arange(begin, end, dtype=np.int64)
        opens, closes = position < slots, position >= slots + self.transfers
        made = self.make(position[~(opens | closes)] - slots)
        for name, numbers in made.items():
            values[name][~(opens | closes)] = numbers
        values["kind"][opens] = Kind.OPEN
        values["flags"][opens] = Flag.READ_ONLY if self.read_only else 0
        values["slot"][opens] = position[opens]
        values["kind"][closes] = Kind.CLOSE
        values["slot"][closes] = position[closes] - slots - self.transfers
        values["thread"][:] = values["slot"]
        values["time"][:] = position  # only the order means something
        values["latency"][:] = NOT_CAPTURED
        values["result"][:] = values["size"]  # all of it is there
        return values
