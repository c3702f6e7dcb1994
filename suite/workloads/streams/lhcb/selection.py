"""The analysis: cuts, the mass of the B under the kaon hypothesis, and its histogram.

Every step is one IEEE operation in a fixed order, here and in the loop of ROOT (with_root.py): the
same events give the same counts, bit by bit, whatever they were stored in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# The columns of an event, B -> h h h, as LHCb's open data have them (B2HHH).


Columns = Mapping[str, npt.NDArray[np.generic]]  # name -> values, [event]

TREE = "DecayTree"
HADRONS = ("H1", "H2", "H3")
OF_HADRON = {
    "PX": "f8",
    "PY": "f8",
    "PZ": "f8",
    "ProbK": "f8",
    "ProbPi": "f8",
    "IpChi2": "f8",
    "Charge": "i4",
    "isMuon": "i4",
}
# name -> type; 26 of them
ALL: dict[str, str] = {"B_FlightDistance": "f8", "B_VertexChi2": "f8"} | {
    f"{hadron}_{name}": kind for hadron in HADRONS for name, kind in OF_HADRON.items()
}
READ_PARTS = ("isMuon", "ProbK", "ProbPi", "PX", "PY", "PZ")
# what the analysis reads; 18 of them
READ: dict[str, str] = {
    f"{hadron}_{part}": ALL[f"{hadron}_{part}"] for part in READ_PARTS for hadron in HADRONS
}


def width(columns: Mapping[str, str]) -> int:
    """Bytes of one event in these columns, uncompressed."""
    return sum(np.dtype(kind).itemsize for kind in columns.values())


EVENT_BYTES = width(ALL)  # 184
READ_BYTES = width(READ)  # 132


def share(events: int, part: int, parts: int) -> tuple[int, int]:
    """First and last (exclusive) event of a part, of several that differ by one at most."""
    return events * part // parts, events * (part + 1) // parts


KAON = 493.677  # MeV, mass of the charged kaon
LEAST_KAON = 0.5
MOST_PION = 0.5
LOW, HIGH, BINS = 5050.0, 5500.0, 500  # MeV
PER_MEV = BINS / (HIGH - LOW)
CUTS = ("events", "no_muon", "kaons", "no_pions", "below", "above")  # counts, in their order


@dataclass
class Selected:
    """How many events were left by each cut, and the histogram of what passed all."""

    events: int = 0
    no_muon: int = 0
    kaons: int = 0
    no_pions: int = 0  # passed all cuts
    below: int = 0  # of these, outside the histogram
    above: int = 0
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, other: Selected) -> None:
        """Take in other events."""
        for name in CUTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counts = self.counts + other.counts

    def document(self) -> dict[str, object]:
        """As JSON holds it."""
        return {**vars(self), "counts": self.counts.tolist()}

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Selected:
        """Inverse of `document`."""
        values = dict(document)
        values["counts"] = np.array(values["counts"], np.int64)
        return cls(**values)  # type: ignore[arg-type]


def select(columns: Columns) -> Selected:
    """Cuts in the analysis' order, and the histogram of the mass of what passes; [event] each."""
    selected = Selected(events=len(columns["H1_isMuon"]))
    kept = np.arange(selected.events)
    for hadron in HADRONS:
        kept = kept[columns[f"{hadron}_isMuon"][kept] == 0]
    selected.no_muon = len(kept)
    for hadron in HADRONS:
        kept = kept[_numbers(columns, f"{hadron}_ProbK")[kept] >= LEAST_KAON]
    selected.kaons = len(kept)
    for hadron in HADRONS:
        kept = kept[_numbers(columns, f"{hadron}_ProbPi")[kept] <= MOST_PION]
    selected.no_pions = len(kept)
    masses = mass({name: _numbers(columns, name)[kept] for name in _MOMENTA})
    selected.below, selected.above = int((masses < LOW).sum()), int((masses >= HIGH).sum())
    inside = masses[(masses >= LOW) & (masses < HIGH)]
    places = np.minimum(((inside - LOW) * PER_MEV).astype(np.int64), BINS - 1)
    selected.counts = np.bincount(places, minlength=BINS).astype(np.int64)
    return selected


_MOMENTA = tuple(f"{hadron}_P{axis}" for hadron in HADRONS for axis in "XYZ")


def mass(momenta: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Invariant mass of three kaons of these momenta, MeV; [event]."""
    energies = [
        np.sqrt(_square(*(momenta[f"{hadron}_P{axis}"] for axis in "XYZ")) + KAON * KAON)
        for hadron in HADRONS
    ]
    sums = [
        momenta[f"H1_P{axis}"] + momenta[f"H2_P{axis}"] + momenta[f"H3_P{axis}"] for axis in "XYZ"
    ]
    energy = energies[0] + energies[1] + energies[2]
    root: npt.NDArray[np.float64] = np.sqrt(np.maximum(energy * energy - _square(*sums), 0.0))
    return root


def _square(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], z: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    return x * x + y * y + z * z


def _numbers(columns: Columns, name: str) -> npt.NDArray[np.float64]:
    return np.asarray(columns[name], np.float64)
