"""Where reads and writes begin, against where the one before them on the handle ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, Kind
from fsmatrix.results.evidence.trace import Order

FRESH = -1  # end of a slot on which nothing was done since it was opened
FIRST, CONSECUTIVE, AHEAD, BACK = range(4)


class Places:
    """Remembers the end of each slot's last read or write: 8 bytes for each slot."""

    def __init__(self, slots: int) -> None:
        self._end = np.full(slots, FRESH, dtype=np.int64)
        self._counts = {kind: np.zeros(4, dtype=np.int64) for kind in (Kind.READ, Kind.WRITE)}

    def add(
        self,
        kind: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.uint32],
        offset: Integers,
        moved: Integers,
    ) -> None:
        """Opens, creates, reads and writes, in the order of their issue."""
        order = np.argsort(slot, kind="stable")
        kind, slot, offset, moved = kind[order], slot[order], offset[order], moved[order]
        transfer = (kind == Kind.READ) | (kind == Kind.WRITE)
        end = np.where(transfer, offset + moved, FRESH)
        before = np.append(FRESH, end[:-1])
        begins = np.append(True, slot[1:] != slot[:-1])[: len(slot)]
        before = before[: len(slot)]
        before[begins] = self._end[slot[begins]]
        where = np.select(
            [before == FRESH, offset == before, offset > before], [FIRST, CONSECUTIVE, AHEAD], BACK
        )
        for each, counts in self._counts.items():
            counts += np.bincount(where[kind == each], minlength=4)
        last = np.append(begins[1:], True)[: len(slot)]
        self._end[slot[last]] = end[last]

    def order(self, kind: Kind) -> Order:
        """As evidence."""
        first, consecutive, ahead, back = self._counts[kind].tolist()
        return Order(first=first, consecutive=consecutive, ahead=ahead, back=back)
