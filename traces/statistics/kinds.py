"""Operations of each kind: how many, how large, how they ended, how long they took."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import DATA_KINDS, Integers, Kind
from fsmatrix.results import histogram
from fsmatrix.results.evidence.trace import KindStatistics, Latencies
from fsmatrix.traces.model import UNKNOWN, Columns
from fsmatrix.traces.statistics.spectrum import Spectrum


def moved_bytes(block: Columns) -> Integers:
    """Bytes that each operation moved; what it asked for where its outcome was not captured.

    0 for what failed.
    """
    result, size = block["result"], block["size"].astype(np.int64)
    moved = np.where(result == UNKNOWN, size, np.clip(result, 0, size))
    moved[(block["kind"] != Kind.READ) & (block["kind"] != Kind.WRITE)] = 0
    return moved


class _Kind:
    def __init__(self) -> None:
        self.operations = self.failed = self.short = self.asked = self.moved = 0
        self.sizes = Spectrum()
        self.latency = np.zeros(histogram.BINS, dtype=np.int64)
        self.total = self.longest = 0  # ns


class Kinds:
    """Takes blocks of a trace."""

    def __init__(self) -> None:
        self._kinds = {kind: _Kind() for kind in Kind}

    def add(self, block: Columns, moved: Integers) -> None:
        """Operations in any order; `moved` as `moved_bytes` says."""
        for number in np.unique(block["kind"]).tolist():
            chosen = block["kind"] == number
            self._add(Kind(number), {name: block[name][chosen] for name in block}, moved[chosen])

    def _add(self, kind: Kind, block: Columns, moved: Integers) -> None:
        of, result = self._kinds[kind], block["result"]
        captured = result != UNKNOWN
        of.operations += len(result)
        of.failed += int(np.count_nonzero(captured & (result < 0)))
        if kind in DATA_KINDS:
            size = block["size"].astype(np.int64)
            of.short += int(np.count_nonzero(captured & (result >= 0) & (result < size)))
            of.asked += int(size.sum())
            of.moved += int(moved.sum())
            of.sizes.add(size)
        latency: npt.NDArray[np.int64] = block["latency"][block["latency"] >= 0]
        if len(latency):
            of.latency += np.bincount(histogram.bin_of(latency), minlength=histogram.BINS)
            of.total += int(latency.sum())
            of.longest = max(of.longest, int(latency.max()))

    def statistics(self) -> tuple[KindStatistics, ...]:
        """Of the kinds that occur, the most frequent first."""
        there = [(kind, of) for kind, of in self._kinds.items() if of.operations]
        return tuple(
            KindStatistics(
                kind=kind.name.lower(),
                operations=of.operations,
                failed=of.failed,
                short=of.short,
                asked=of.asked,
                moved=of.moved,
                sizes=of.sizes.sizes(),
                latencies=_latencies(of),
            )
            for kind, of in sorted(there, key=lambda pair: -pair[1].operations)
        )


def _latencies(of: _Kind) -> Latencies | None:
    count = int(of.latency.sum())
    if not count:
        return None
    p50, p95, p99, p99_9 = (
        None if math.isnan(value) else value
        for value in (histogram.percentile(of.latency, q) for q in (0.5, 0.95, 0.99, 0.999))
    )
    return Latencies(
        operations=count,
        total=of.total / 1e9,
        mean=of.total / count / 1e9,
        p50=p50,
        p95=p95,
        p99=p99,
        p99_9=p99_9,
        longest=of.longest / 1e9,
    )
