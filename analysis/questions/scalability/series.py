"""One line over the number of storage nodes, and its points."""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.analysis.data.roles import Key
from fsmatrix.analysis.questions.scalability.laws import Laws
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median


@dataclass(frozen=True)
class NodePoint:
    """One number of nodes in a series; SI units."""

    nodes: float
    median: Median
    ratio: float  # to the fewest nodes; 1 there
    low: float
    high: float
    decides: bool  # low..high is an interval of at least 95 %
    efficiency: float  # ratio / ratio of nodes; NaN for a latency
    doubts: tuple[str, ...] = ()  # audits that warn, values far off


@dataclass(frozen=True)
class NodeSeries:
    """One line: everything else is constant."""

    key: Key
    steps: tuple[NodePoint, ...]
    laws: Laws | None
    why_no_laws: str

    @property
    def certainty(self) -> Certainty:
        """Of what the laws say: a misfit is proven, a law that fits is not refuted."""
        if self.laws is None:
            return Certainty.INVALID
        fits = self.laws.hold or self.laws.superlinear
        return Certainty.LIKELY if fits else Certainty.PROVEN
