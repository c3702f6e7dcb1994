"""Laws by which messages and bytes of a session grow with nodes and ranks: see bench/scale.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.session import stream

QUANTITIES = ("messages", "bytes", "frames", "frame_bytes")
Table2 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One size; of each quantity the largest among the ranks, per run."""

    nodes: int
    per_node: int
    messages: float  # by MPI, sent and received
    bytes: float
    frames: float  # on sockets, sent and received
    frame_bytes: float
    cpu: float  # seconds, mean of the ranks
    cpu_busiest: float
    start: float  # seconds of wall time until the session is up
    wall: float  # seconds of wall time per run

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Law:
    """A quantity as a sum of terms of (nodes, processes per node), by least squares."""

    name: str
    coefficients: tuple[float, ...]
    misfit: float  # root mean square of the relative differences

    def at(self, nodes: int, per_node: int) -> float:
        return float(terms(self.name, nodes, per_node) @ np.array(self.coefficients))


def terms(name: str, nodes: int, per_node: int) -> Table2:
    """What a law multiplies its coefficients with.

    log: trees over nodes and ranks; linear: one by one; per rank: a constant for each; log +
    rank: both, such as histograms that a tree sums up and times that it only passes on.  All
    know how many kernels ask rank 0 for the time, which the program itself says.
    """
    asking = sum(knowing == 0 for knowing, _ in stream.pairs(nodes))
    return np.array(
        {
            "log": (1.0, asking, np.log2(nodes), np.log2(per_node)),
            "linear": (1.0, asking, nodes, per_node),
            "per rank": (1.0, asking, nodes, nodes * per_node),
            "log + rank": (1.0, asking, np.log2(nodes), np.log2(per_node), nodes * per_node),
        }[name]
    )


def fit(name: str, rows: Sequence[Row], quantity: str) -> Law:
    """Weighted so that relative differences count, as small sizes matter as large ones."""
    values = np.array([getattr(row, quantity) for row in rows])
    matrix = np.array([terms(name, row.nodes, row.per_node) for row in rows])
    scaled = np.linalg.lstsq(matrix / values[:, None], np.ones(len(rows)), rcond=None)[0]
    misfit = float(np.sqrt(np.mean((matrix @ scaled / values - 1) ** 2)))
    return Law(name, tuple(scaled.tolist()), misfit)


def laws(rows: Sequence[Row]) -> dict[str, list[Law]]:
    """The laws tried for each quantity, best first.

    Bytes of times and counts grow with the ranks whatever the way they take: a law without
    them is not tried, since at the sizes here other bytes hide them.
    """
    tried = {"messages": ("log", "linear", "per rank"), "frames": ("log", "linear", "per rank")}
    return {
        quantity: sorted(
            (fit(name, rows, quantity) for name in tried.get(quantity, ("log + rank", "per rank"))),
            key=lambda law: law.misfit,
        )
        for quantity in QUANTITIES
    }
