"""Operations given as arrays, for tests: as a trace file or a generator gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.traces.trace_model import COLUMNS, NOT_CAPTURED, UNKNOWN, Columns, Files, Header


@dataclass(frozen=True)
class Listed:
    """As model.Operations, in blocks of `size`."""

    header: Header
    files: Files
    slots: npt.NDArray[np.uint32]
    threads: npt.NDArray[np.uint64]
    columns: dict[str, npt.NDArray[Any]]
    size: int

    @property
    def operations(self) -> int:
        return len(self.columns["kind"])

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = 0,
    ) -> Iterator[Columns]:
        stop = self.operations if stop is None else min(stop, self.operations)
        for begin in range(first, stop, block or self.size):
            end = min(begin + (block or self.size), stop)
            yield {name: self.columns[name][begin:end] for name in columns}


def listed(
    count: int,
    names: Sequence[bytes] = (b"a",),
    sizes: Sequence[int] | None = None,
    slots: Sequence[int] | None = None,
    threads: int = 1,
    header: Header | None = None,
    block: int = 7,
    **columns: Any,
) -> Listed:
    """`count` operations with these columns; others are 0, and outcomes are not captured."""
    values = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    values["latency"][:], values["result"][:] = NOT_CAPTURED, UNKNOWN
    for name, given in columns.items():
        values[name][:] = given
    return Listed(
        header or Header("test"),
        Files.of(names, sizes or [0] * len(names)),
        np.array(range(len(names)) if slots is None else slots, dtype=np.uint32),
        np.array([(1, row, 0) for row in range(threads)], dtype=np.uint64),
        values,
        block,
    )
