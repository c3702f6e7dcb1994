"""Times of IOR's ranks, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results import iterations
from fsmatrix.results.formats import ior
from fsmatrix.results.formats.ior.as_text import RankTimes
from fsmatrix.results.formats.ior.ior_json import join, with_ranks
from fsmatrix.results.formats.parsed import Note, ParseError
from fsmatrix.results.record import Phase, bandwidth
from tests.results.ior_outputs import MIB, text_of


def test_times_of_ranks() -> None:
    times = ior.parse_ranks(text_of("ior-4.1-ranks.csv"), "ranks")
    assert [part.access for part in times] == ["write", "read"] * 3
    assert times[0].seconds.tolist() == [3.0428171158e-02, 3.0539035797e-02]
    assert times[0].transfer.tolist() == [3.0264139175e-02, 3.0264854431e-02]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_times_of_ranks(data: st.DataObject) -> None:
    text = text_of("ior-4.1-ranks.csv")
    lines = text.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["double", "drop", "encode", "cut"]))
    if how == "double":
        lines.insert(at, lines[at])
    elif how == "drop":
        del lines[at]
    elif how == "encode":
        lines[at] = "\ufffd" + lines[at][1:]
    else:
        lines = text[: data.draw(st.integers(0, len(text) - 1))].split("\n")
    if "\n".join(lines) in (text, text + "\n"):
        return
    try:
        times = ior.parse_ranks("\n".join(lines), "ranks")
    except ParseError:
        return
    # what is missing at the end cannot be seen here: with_ranks knows how many there must be
    whole = ior.parse_ranks(text, "ranks")
    for part, known in zip(times, whole, strict=False):
        assert part.seconds.tolist() == known.seconds.tolist()[: len(part.seconds)]
    assert sum(len(part.seconds) for part in times) < sum(len(part.seconds) for part in whole)


def single(seconds: float = 1.0) -> Phase:
    part = {"bytes": 8 * MIB, "operations": 8, "seconds": seconds}
    return Phase(
        "write",
        np.zeros(1),
        np.array([seconds]),
        np.array([8 * MIB]),
        np.array([8]),
        np.array([0]),
        facts={"window": "open to close"},
        iterations=iterations.columns([part]),
    )


def times_of(*seconds: float) -> list[RankTimes]:
    return [RankTimes("write", np.array(seconds), np.array(seconds))]


def test_ranks_make_arrays_and_leave_the_window() -> None:
    made, notes = with_ranks(single(), times_of(0.5, 0.99), 2, even=True)
    assert notes == ()
    assert made.bytes.tolist() == [4 * MIB, 4 * MIB]
    assert made.end.tolist() == pytest.approx([0.51, 1.0])
    assert bandwidth(made) == bandwidth(single())
    assert made.iterations["slowest_rank"].tolist() == [1]


def test_a_clock_that_is_being_corrected_contradicts_nothing() -> None:
    """Seen: a rank took 6.6621 s of a window of 6.65973 s."""
    made, notes = with_ranks(single(6.65973), times_of(6.1, 6.6621), 2, even=True)
    assert notes == ()
    assert made.end.max() == pytest.approx(6.65973)
    assert bandwidth(made) == bandwidth(single(6.65973))
    _, notes = with_ranks(single(6.65973), times_of(6.1, 6.68), 2, even=True)
    assert [note.key for note in notes] == ["contradiction"]


def test_ranks_whose_shares_are_not_known_stay_totals() -> None:
    made, notes = with_ranks(single(), times_of(0.5, 0.99), 2, even=False)
    assert (made.bytes.tolist(), notes) == ([8 * MIB], ())
    assert made.iterations["rank_max"].tolist() == [0.99]


@pytest.mark.parametrize(
    ("times", "key"), [(times_of(0.5), "recovered"), (times_of(0.5, 1.1), "contradiction")]
)
def test_ranks_that_do_not_fit_are_not_used(times: list[RankTimes], key: str) -> None:
    made, notes = with_ranks(single(), times, 2, even=True)
    assert made.facts == single().facts
    assert made.iterations == single().iterations
    assert [note.key for note in notes] == [key]
    assert isinstance(notes[0], Note)


def test_invocations_are_joined() -> None:
    made = join([single(1.0), single(3.0)])
    assert bandwidth(made) == 4 * MIB
    assert made.iterations["number"].tolist() == [0, 1]
    assert made.iterations["seconds"].tolist() == [1.0, 3.0]
    assert (made.bytes.tolist(), made.operations.tolist()) == ([16 * MIB], [16])
