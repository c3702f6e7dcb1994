"""How often each number occurs, in bounded memory."""

from __future__ import annotations

import numpy as np

from fsmatrix.backends.player.ops import Integers
from fsmatrix.results import histogram
from fsmatrix.results.evidence.trace import Frequent, Sizes

MOST_VALUES = 1 << 16  # told apart; beyond, values are rounded down to edges of histogram bins
FREQUENT, RARE = 5, 0.01  # sizes that are named, if they have this share


class Spectrum:
    """Counts of numbers from 0 to 2^31."""

    def __init__(self) -> None:
        self.exact = True
        self._values = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._sum = 0
        self._least, self._most = 1 << 62, 0

    def add(self, values: Integers) -> None:
        """Count some more."""
        if not len(values):
            return
        self._sum += int(values.sum())
        self._least = min(self._least, int(values.min()))
        self._most = max(self._most, int(values.max()))
        self._merge(*np.unique(values, return_counts=True))

    def _merge(self, values: Integers, counts: Integers) -> None:
        values = np.concatenate([self._values, values])
        counts = np.concatenate([self._counts, counts])
        self.exact = self.exact and len(values) <= MOST_VALUES
        if not self.exact:
            values = histogram.lower_edges()[histogram.bin_of(values)]
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.zeros(len(self._values), dtype=np.int64)
        np.add.at(self._counts, place, counts)

    def sizes(self) -> Sizes | None:
        """As evidence; None if nothing was counted."""
        total = int(self._counts.sum())
        if not total:
            return None
        reached = np.cumsum(self._counts)
        p50, p90, p99 = (
            int(self._values[np.searchsorted(reached, max(np.ceil(q * total - 1e-9), 1))])
            for q in (0.5, 0.9, 0.99)
        )
        bits = np.frexp(self._values.astype(np.float64))[1]
        often = np.argsort(-self._counts, kind="stable")[:FREQUENT]
        return Sizes(
            smallest=self._least,
            mean=self._sum / total,
            p50=p50,
            p90=p90,
            p99=p99,
            largest=self._most,
            exact=self.exact,
            frequent=tuple(
                Frequent(bytes=int(self._values[i]), operations=int(self._counts[i]))
                for i in often
                if self._counts[i] >= RARE * total
            ),
            by_bits=tuple(np.bincount(bits, self._counts).astype(int).tolist()),
        )
