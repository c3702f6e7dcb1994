"""What generators counted, put together over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fsmatrix.results.histogram import dense, sparse
from fsmatrix.suite.session.comm import SoloComm
from fsmatrix.suite.session.stream import put_together
from tests.suite.thread_ranks import in_ranks


def merged(*tallies: Any) -> tuple[list[Any], list[str]]:
    return in_ranks(len(tallies), lambda comm: put_together(tallies[comm.rank], comm))


def test_sums_and_largest_of_numbers_and_arrays() -> None:
    first = {"played": 3, "late": np.array([0, 5, 0]), "late_max": np.array([-9, 1]), "at_max": 7}
    second = {"at_max": -1, "late_max": np.array([-2, -3]), "late": np.array([1, 1, 0])}
    given, raised = merged(first, second | {"played": np.uint32(1 << 31)}, None, {})
    assert raised == []
    assert given[1:] == [{}, {}, {}]
    assert given[0] == {
        "played": 3 + (1 << 31),
        "late": {"length": 3, "at": [0, 1], "values": [1, 6]},
        "late_max": {"length": 2, "at": [0, 1], "values": [-2, 1]},
        "at_max": 7,
    }


def test_what_only_one_rank_counted() -> None:
    given, _ = merged(None, {"a_max": -5, "none": np.zeros(0, dtype=np.int64), "b": 2}, {"c": 1})
    assert given[0] == {
        "a_max": -5,
        "none": {"length": 0, "at": [], "values": []},
        "b": 2,
        "c": 1,
    }
    assert merged(None, None)[0][0] == {}
    assert put_together({"a": 1, "b": np.array([0, 2])}, SoloComm()) == {
        "a": 1,
        "b": {"length": 2, "at": [1], "values": [2]},
    }


@pytest.mark.parametrize("other", [np.zeros(4, dtype=np.int64), 3])
def test_different_lengths_are_an_error_at_every_rank(other: Any) -> None:
    _, raised = merged({"h": np.zeros(3, dtype=np.int64)}, {"x": 1}, {"h": other})
    assert len(raised) == 3
    assert all(text.startswith("tally 'h' has") and "at rank 2" in text for text in raised)


@pytest.mark.parametrize("wrong", [1.5, "text", np.zeros((2, 2), dtype=np.int64), [0.1]])
def test_what_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="tally 'x' is neither a whole number nor an array"):
        put_together({"x": wrong}, SoloComm())


def test_a_stored_array_comes_back() -> None:
    values = np.zeros(1856, dtype=np.int64)
    values[[0, 77, 1855]] = [1, 1 << 40, 3]
    assert (dense(sparse(values)) == values).all()
    for wrong in (
        {"length": 2, "at": [2], "values": [1]},
        {"length": 2, "at": [-1], "values": [1]},
        {"length": 2, "at": [0, 1], "values": [1]},
    ):
        with pytest.raises(ValueError, match="places of 2"):
            dense(wrong)
