"""What the LHCb analysis tells of a phase beside its rates: made by the workload `rntuple`.

It stands in the phase's facts as "lhcb".  Amounts are in bytes, times in seconds.  Of a phase that
writes, the counts are those that the analysis must find in what was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.results.evidence.stored import Stored, StoredError, read
from fsmatrix.results.evidence.values import JsonObject

FACT = "lhcb"
LOW, HIGH = 5050.0, 5500.0  # MeV: the histogram's range
CUTS = ("events", "no_muon", "kaons", "no_pions", "below", "above")


@dataclass(frozen=True, kw_only=True)
class Selection(Stored):
    """Events left by each cut, in their order, and the histogram of the mass of what is left."""

    events: int
    no_muon: int
    kaons: int
    no_pions: int
    below: int  # of those left, outside the histogram
    above: int
    counts: tuple[int, ...]  # [bin]

    def differing(self, other: Selection) -> int:
        """Events that the two have not in the same place, at least."""
        cuts: int = max(abs(getattr(self, name) - getattr(other, name)) for name in CUTS)
        if len(self.counts) != len(other.counts):
            return max(self.no_pions, cuts)
        apart = [own - others for own, others in zip(self.counts, other.counts, strict=True)]
        more, fewer = sum(max(n, 0) for n in apart), sum(max(-n, 0) for n in apart)
        return max(more, fewer, cuts)


@dataclass(frozen=True, kw_only=True)
class Analysed(Stored):
    """The phase `write` or `read` of one run, over all its processes."""

    data: str  # what was stored: seed and events, or the digest of a user's file
    found: Selection
    wanted: Selection | None  # of a phase that reads: what was written
    uncompressed: int  # bytes of the columns that were written or read
    stored: int  # of these in files or containers, compressed
    initialisation: float  # of the slowest process: file and columns open
    loop: float  # of the slowest process: the events
    closing: float  # of the slowest process: commit, fsync, close
    start: float  # of the slowest process, before: libraries, compiling, making events
    files: int


def analysed(facts: JsonObject) -> Analysed | None:
    """What the facts of a phase tell of the analysis; None if they tell nothing, or nonsense."""
    if FACT not in facts:
        return None
    try:
        return read(Analysed, facts[FACT], FACT)
    except StoredError:
        return None
