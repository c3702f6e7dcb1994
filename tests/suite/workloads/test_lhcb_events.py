"""The events of the LHCb analysis: the same everywhere, and something to be found in them."""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.suite.workloads.streams.lhcb import analysis as generator
from fsmatrix.suite.workloads.streams.lhcb.analysis import (
    ALL,
    BINS,
    EVENT_BYTES,
    HIGH,
    KAON,
    LOW,
    READ,
    READ_BYTES,
    Selected,
    select,
    share,
)
from tests.suite.rntuple_workload import finite, sample

MANY = 200_000


@pytest.fixture(scope="module")
def many() -> dict[str, np.ndarray]:
    return sample(MANY, seed=18)


def test_the_columns_are_those_of_the_open_data(many: dict[str, np.ndarray]) -> None:
    assert (len(ALL), EVENT_BYTES, len(READ), READ_BYTES) == (26, 184, 18, 132)
    assert list(many) == list(ALL)
    assert {name: values.dtype.str[1:] for name, values in many.items()} == ALL
    assert finite(many)
    for hadron in ("H1", "H2", "H3"):
        assert set(np.unique(many[f"{hadron}_Charge"])) == {-1, 1}
        assert set(np.unique(many[f"{hadron}_isMuon"])) == {0, 1}
        for name in ("ProbK", "ProbPi"):
            values = many[f"{hadron}_{name}"]
            assert 0 <= values.min() < values.max() <= 1
    charges = sum(many[f"{hadron}_Charge"] for hadron in ("H1", "H2", "H3"))
    assert set(np.unique(charges)) == {-1, 1}


def test_a_peak_stands_at_the_mass_of_the_b(many: dict[str, np.ndarray]) -> None:
    selected = select(many)
    assert 0.0025 < selected.no_pions / MANY < 0.0035
    masses = LOW + (np.arange(BINS) + 0.5) * (HIGH - LOW) / BINS
    near = np.abs(masses - generator.B_MASS) < 40
    beside = selected.counts[~near].sum() / (~near).sum()
    assert selected.counts[near].sum() / near.sum() > 5 * beside
    assert abs(np.average(masses[near], weights=selected.counts[near]) - generator.B_MASS) < 5


def test_events_are_known_by_seed_and_index() -> None:
    """Another digest would make results of before incomparable: it is no detail."""
    made = generator.events(18, 16_300, 16_500)  # of two blocks
    digest = hashlib.sha256(b"".join(values.tobytes() for values in made.values()))
    assert digest.hexdigest()[:16] == "6575ad6d9edf1920"
    other = generator.events(19, 16_300, 16_500)
    assert not np.array_equal(made["H1_PX"], other["H1_PX"])


@given(st.integers(1, 40_000), st.integers(1, 7))
def test_any_number_of_writers_makes_the_same_events(events: int, parts: int) -> None:
    spans = [share(events, part, parts) for part in range(parts)]
    assert spans[0][0] == 0
    assert spans[-1][1] == events
    assert all(left[1] == right[0] for left, right in pairwise(spans))
    assert {last - first for first, last in spans} <= {events // parts, events // parts + 1}


def test_parts_put_together_are_the_whole() -> None:
    whole = generator.events(5, 0, 20_000)
    parts = [generator.events(5, *share(20_000, part, 3)) for part in range(3)]
    for name, values in whole.items():
        assert np.array_equal(values, np.concatenate([part[name] for part in parts]))
    together = Selected()
    for part in parts:
        together.add(select(part))
    assert together.document() == select(whole).document()
    assert Selected.of(together.document()).document() == together.document()


def test_the_analysis_is_the_loop_over_events(many: dict[str, np.ndarray]) -> None:
    """The same in plain Python, event by event, in the order of cuts of the original."""
    cuts, counts = [0, 0, 0, 0], [0] * BINS
    hadrons = ("H1", "H2", "H3")
    few = {name: values[:30_000].tolist() for name, values in many.items()}
    for i in range(30_000):
        cuts[0] += 1
        if any(few[f"{h}_isMuon"][i] for h in hadrons):
            continue
        cuts[1] += 1
        if any(few[f"{h}_ProbK"][i] < 0.5 for h in hadrons):
            continue
        cuts[2] += 1
        if any(few[f"{h}_ProbPi"][i] > 0.5 for h in hadrons):
            continue
        cuts[3] += 1
        energy, px, py, pz = 0.0, 0.0, 0.0, 0.0
        for h in hadrons:
            x, y, z = (few[f"{h}_P{axis}"][i] for axis in "XYZ")
            energy += math.sqrt(x * x + y * y + z * z + KAON * KAON)
            px, py, pz = px + x, py + y, pz + z
        mass = math.sqrt(energy * energy - (px * px + py * py + pz * pz))
        if LOW <= mass < HIGH:
            counts[int((mass - LOW) * (BINS / (HIGH - LOW)))] += 1
    selected = select({name: values[:30_000] for name, values in many.items()})
    assert [selected.events, selected.no_muon, selected.kaons, selected.no_pions] == cuts
    assert cuts[3] > 50
    assert selected.counts.tolist() == counts
    assert selected.below + selected.above + sum(counts) == selected.no_pions
