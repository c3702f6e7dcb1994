"""Events that look like LHCb's B -> h h h sample, and the analysis that must find them again.

Made in blocks of a fixed number: a block is a function of the seed and its index, so that any
number of writers makes the same events.  Random numbers are the raw ones of Philox, which numpy
keeps for ever; results are rounded to a binary fraction, so that the last bit of a library's sine
or logarithm shows nowhere.

The decay: the mass m12 of two hadrons from three-body phase space (dN/dm12 = p* q*, PDG review
Kinematics, eq. 49.23: tabulated for the kaons), both decays isotropic, then boosted to a B as the
forward spectrometer sees them.  Each momentum is measured to 0.5 %.  A combination's mass is
exponential.  Probabilities of being a kaon or a pion follow from what the hadron is.

The analysis: cuts, the mass of the B under the kaon hypothesis, and its histogram.  Every step is
one IEEE operation in a fixed order, here and in the loop of ROOT (with_root.py): the same events
give the same counts, bit by bit, whatever they were stored in.
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

Floats = npt.NDArray[np.float64]
EVENTS = 8_556_118  # of the open data
BLOCK = 1 << 14  # events made together
B_MASS, PION = 5279.34, 139.570  # MeV (PDG)
SIGNAL = 0.004  # share of B -> K K K; as many B -> K pi pi
BACKGROUND_KAON = 0.16  # share of kaons among the hadrons of a combination
MUON = 0.01  # share of hadrons taken for muons
RESOLUTION = 0.005
LOWEST, HIGHEST, SLOPE = 5000.0, 6000.0, 600.0  # MeV: masses of combinations
MOMENTUM_STEP = 2.0**-24  # MeV
STEP = 2.0**-36  # of the other numbers
_TABLE = 2048  # points of the phase space's table


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


def events(seed: int, first: int, last: int) -> dict[str, npt.NDArray[np.generic]]:
    """Events first <= i < last of a seed: name -> values, [event]."""
    whole: dict[str, npt.NDArray[np.generic]] = {
        name: np.empty(last - first, kind) for name, kind in ALL.items()
    }
    for index in range(first // BLOCK, -(-last // BLOCK)):
        columns, begin = block(seed, index), index * BLOCK
        low, high = max(first, begin), min(last, begin + BLOCK)
        for name, values in columns.items():
            whole[name][low - first : high - first] = values[low - begin : high - begin]
    return whole


def block(seed: int, index: int) -> dict[str, npt.NDArray[np.generic]]:
    """The BLOCK events of one block."""
    draw = _Draw(seed, index)
    kind = draw.uniform()
    kaons = [draw.uniform() < BACKGROUND_KAON for _ in HADRONS]
    signal = kind < 2 * SIGNAL
    kaons = [
        np.where(signal, (kind < SIGNAL) | (number == 0), own) for number, own in enumerate(kaons)
    ]
    masses = [np.where(kaon, KAON, PION) for kaon in kaons]
    span = 1 - np.exp((LOWEST - HIGHEST) / SLOPE)
    combination = LOWEST - SLOPE * np.log(1 - span * draw.uniform())
    momenta = _decay(draw, np.where(signal, B_MASS, combination), masses)
    columns: dict[str, npt.NDArray[np.generic]] = {}
    life = -np.log(1 - draw.uniform())
    columns["B_FlightDistance"] = _rounded(life * np.where(signal, 12.0, 5.0), STEP)
    columns["B_VertexChi2"] = _rounded(-3.0 * np.log(1 - draw.uniform()), STEP)
    turned = draw.uniform() < 0.5
    for number, hadron in enumerate(HADRONS):
        measured = 1 + RESOLUTION * draw.normal()
        for axis, component in zip("XYZ", momenta[number], strict=True):
            columns[f"{hadron}_P{axis}"] = _rounded(component * measured, MOMENTUM_STEP)
        near, far = 1 - draw.uniform() ** 3, 0.9 * draw.uniform() ** 5
        columns[f"{hadron}_ProbK"] = _rounded(np.where(kaons[number], near, far), STEP)
        other = np.where(kaons[number], draw.uniform() ** 4, 1 - draw.uniform() ** 3)
        columns[f"{hadron}_ProbPi"] = _rounded(other, STEP)
        away = np.where(signal, 200.0, 30.0)
        columns[f"{hadron}_IpChi2"] = _rounded(-away * np.log(1 - draw.uniform()), STEP)
        sign = np.where(turned, -1, 1) * (1 if number != 1 else -1)
        columns[f"{hadron}_Charge"] = sign.astype(np.int32)
        columns[f"{hadron}_isMuon"] = (draw.uniform() < MUON).astype(np.int32)
    return {name: columns[name] for name in ALL}


@dataclass
class _Draw:
    """Random numbers of one block."""

    seed: int
    index: int

    def __post_init__(self) -> None:
        self._bits = np.random.Philox(key=[self.seed, self.index])

    def uniform(self) -> Floats:
        """BLOCK numbers in [0, 1)."""
        bits = self._bits.random_raw(BLOCK) >> np.uint64(11)
        raw: Floats = bits.astype(np.float64) * 2.0**-53
        return raw

    def normal(self) -> Floats:
        """BLOCK numbers of a normal distribution (Box and Muller)."""
        radius = np.sqrt(-2 * np.log(1 - self.uniform()))
        deviates: Floats = radius * np.cos(2 * np.pi * self.uniform())
        return deviates

    def direction(self) -> tuple[Floats, Floats, Floats]:
        """Isotropic unit vectors."""
        z = 2 * self.uniform() - 1
        flat, angle = np.sqrt(1 - z * z), 2 * np.pi * self.uniform()
        return flat * np.cos(angle), flat * np.sin(angle), z


Vector = tuple[Floats, Floats, Floats]


def _decay(draw: _Draw, mass: Floats, masses: list[Floats]) -> list[Vector]:
    """Momenta of the three hadrons in the laboratory, MeV; [hadron][axis], [event] each."""
    first, second, third = masses
    fraction = np.interp(draw.uniform(), *_PHASE_SPACE)
    pair = first + second + fraction * (mass - first - second - third)
    inner = _scaled(draw.direction(), _momentum(pair, first, second))
    outer = _scaled(draw.direction(), _momentum(mass, pair, third))
    back = _scaled(outer, np.full(BLOCK, -1.0))
    pair_energy = np.sqrt(_length2(outer) + pair * pair)
    in_rest = [
        (_boosted(inner, first, outer, pair_energy, pair), first),
        (_boosted(_scaled(inner, np.full(BLOCK, -1.0)), second, outer, pair_energy, pair), second),
        (back, third),
    ]
    across, forward = 4000.0 * -np.log(1 - draw.uniform()), 2.0 + 2.5 * draw.uniform()
    angle = 2 * np.pi * draw.uniform()
    flight = (across * np.cos(angle), across * np.sin(angle), across * np.sinh(forward))
    energy = np.sqrt(_length2(flight) + mass * mass)
    return [_boosted(vector, own, flight, energy, mass) for vector, own in in_rest]


def _momentum(mass: Floats, first: Floats, second: Floats) -> Floats:
    """Of two bodies of a decay at rest (PDG review Kinematics, eq. 49.17)."""
    sum2, difference2 = (first + second) ** 2, (first - second) ** 2
    square = np.maximum((mass * mass - sum2) * (mass * mass - difference2), 0.0)
    momentum: Floats = np.sqrt(square) / (2 * mass)
    return momentum


def _boosted(vector: Vector, own: Floats, frame: Vector, energy: Floats, mass: Floats) -> Vector:
    """A momentum in the rest frame of a body of this momentum, energy and mass, seen from outside.

    `own`: mass of what the momentum is of.
    """
    inner = np.sqrt(_length2(vector) + own * own)
    along = sum(v * f for v, f in zip(vector, frame, strict=True)) / mass
    factor = (along / (energy + mass)) + inner / mass
    x, y, z = (v + f * factor for v, f in zip(vector, frame, strict=True))
    return x, y, z


def _scaled(vector: Vector, by: Floats) -> Vector:
    return vector[0] * by, vector[1] * by, vector[2] * by


def _length2(vector: Vector) -> Floats:
    return vector[0] ** 2 + vector[1] ** 2 + vector[2] ** 2


def _rounded(values: Floats, step: float) -> Floats:
    rounded: Floats = np.rint(values / step) * step
    return rounded


def _phase_space() -> tuple[Floats, Floats]:
    """Cumulated share of decays, and how far m12 is from its least to its largest; [point]."""
    fraction = np.linspace(0.0, 1.0, _TABLE)
    kaon = np.full(_TABLE, KAON)
    pair = 2 * KAON + fraction * (B_MASS - 3 * KAON)
    density = _momentum(pair, kaon, kaon) * _momentum(np.full(_TABLE, B_MASS), pair, kaon)
    cumulated = np.cumsum(density)
    return cumulated / cumulated[-1], fraction


_PHASE_SPACE = _phase_space()
