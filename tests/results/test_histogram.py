"""The bin layout: exact below 128 ns, within 1/64 above, and fio's own indices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results import histogram


def fio_index(value: int) -> int:
    """The layout as fio states it: linear up to 2**6, then 64 bins per octave."""
    msb = value.bit_length() - 1 if value else 0
    if msb <= 6:
        return value
    error_bits = msb - 6
    return min((error_bits << 6) + 64 + (value >> error_bits & 63), histogram.BINS - 1)


@given(st.integers(0, 2**50))
def test_bin_is_fios(value: int) -> None:
    assert int(histogram.bin_of(value)) == fio_index(value)


@given(st.integers(0, 2**34 - 1))
def test_value_lies_in_its_bin(value: int) -> None:
    index = int(histogram.bin_of(value))
    low, high = histogram.lower_edges()[index], histogram.upper_edges()[index]
    assert low <= value < high
    assert (high - low) <= max(1, low / 64)


def test_edges_are_contiguous_and_map_back() -> None:
    edges = histogram.lower_edges()
    assert (np.diff(edges) > 0).all()
    np.testing.assert_array_equal(histogram.bin_of(edges), np.arange(histogram.BINS))


def test_percentile_against_samples() -> None:
    samples = np.random.default_rng(1).lognormal(10, 1, 100_000).astype(np.int64)
    counts = np.bincount(histogram.bin_of(samples), minlength=histogram.BINS)
    for q in (0.5, 0.95, 0.99, 0.999):
        assert histogram.percentile(counts, q) * 1e9 == pytest.approx(
            np.quantile(samples, q), rel=0.01
        )


def test_percentile_needs_enough_operations() -> None:
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    counts[100] = 999
    assert np.isnan(histogram.percentile(counts, 0.99))
    counts[100] = 1000
    assert histogram.percentile(counts, 0.99) == pytest.approx(100e-9)
    with pytest.raises(ValueError, match="between 0 and 1"):
        histogram.percentile(counts, 1.0)


@given(st.integers(0, 2**34 - 1))
def test_a_coarse_bin_takes_whole_bins(value: int) -> None:
    counts = np.zeros((2, histogram.BINS), dtype=np.int64)
    counts[1, histogram.bin_of(value)] = 3
    coarse, edges = histogram.coarse(counts), histogram.coarse_edges()
    assert coarse.shape == (2, histogram.COARSE)
    index = int(np.flatnonzero(coarse[1])[0])
    assert (int(coarse[0].sum()), int(coarse[1, index])) == (0, 3)
    assert edges[index] <= value < edges[index + 1]
