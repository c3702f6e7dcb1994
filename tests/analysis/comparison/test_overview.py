"""The few lines of `compare`: who is ahead over all cells, a row a pattern, what is against it."""

from __future__ import annotations

import dataclasses
import math

import pytest
import xarray as xr

from fsmatrix.analysis.comparison import overview
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.stats.certainty import Certainty
from tests.analysis.comparison.compared_campaigns import made


def seen(ds: xr.Dataset) -> list[overview.Seen]:
    return [overview.Seen.pair(pair) for pair in comparisons(ds)]


def test_the_best_is_named_with_its_lead_over_each_other() -> None:
    pairs = seen(made({"a": 1.0, "b": 2.0, "c": 0.5}, blocks=8, seed=2))
    assert overview.answer(pairs).startswith(
        "Bandwidth, all cells together: b is 2 times as fast as a in all 8 blocks; 4.0"
    )
    assert overview.answer(pairs).endswith(" as c in all 8 blocks, proven.")
    heads, rows = overview.overview(pairs)
    assert heads == ["", "b over a", "a over c", "b over c"]
    assert rows[-1][0] == "all cells"
    assert all(cell.startswith("● ×") for row in rows for cell in row[1:])
    assert overview.counted(pairs).endswith("comparisons proven, none of them the other way.")


def test_pairs_of_the_side_that_is_ahead_most_often_come_first() -> None:
    pairs = seen(made({"a": 1.0, "b": 4.0, "c": 2.0, "d": 0.5}, blocks=6, seed=2))
    fronts = [pair.front for pair in overview.ranked(pairs)]
    assert fronts == ["b", "b", "b", "c", "c", "a"]


def test_cells_of_the_other_side_are_counted_and_named() -> None:
    """a is ahead over all cells, b in one pattern."""
    ds = made({"a": 2.0, "b": 1.0}, blocks=8, seed=2)
    turned = (ds["target"] == "b") & (ds["pattern"] == "rand-read")
    ds["bandwidth"] = ds["bandwidth"].where(~turned, ds["bandwidth"] * 3)
    (pair,) = comparisons(ds, "bandwidth")
    one = overview.Seen.pair(pair)
    rows = one.rows
    entry, whole = rows["rand-read"], rows[overview.ALL]
    assert (entry.certainty, entry.proven, entry.against) == (Certainty.PROVEN, 0, entry.cells)
    assert entry.says.startswith("● -3")
    assert (whole.against, whole.proven) == (entry.cells, whole.cells - entry.cells)
    assert f", {entry.cells} the other way: b over a (rand-read" in overview.counted([one])
    logs = [math.log(cell.ratio.ratio) for cell in pair.cells]
    assert whole.ratio == pytest.approx(math.exp(sum(logs) / len(logs)), rel=0.02)


def test_of_times_less_is_ahead() -> None:
    (pair,) = comparisons(made({"a": 1.0, "b": 2.0}, blocks=8, seed=2), "latency_p99")
    one = overview.Seen.pair(pair)
    slower = pair.mean_ratio > 1
    assert one.front == ("b" if slower else "a")
    assert all(entry.ratio > 1 for entry in one.rows.values())


def test_nothing_is_proven_of_equal_sides() -> None:
    pairs = seen(made({"a": 1.0, "b": 1.0, "c": 1.0}, blocks=6, seed=2))
    assert "nothing is proven to be ahead of all others." in overview.answer(pairs)
    _, rows = overview.overview(pairs)
    assert not [cell for row in rows for cell in row[1:] if cell.startswith("●")]
    assert overview.counted(pairs) == ""
    assert "= no difference larger than 5 %" in overview.legend(pairs)
    assert "● proven" not in overview.legend(pairs)


def test_without_blocks_a_pattern_is_proven_where_all_its_cells_are() -> None:
    (pair,) = comparisons(made({"a": 2.0, "b": 1.0}, blocks=8, seed=2), "bandwidth")
    alone = dataclasses.replace(pair, questions=())
    rows = overview.Seen.pair(alone).rows
    assert {entry.certainty for entry in rows.values()} == {Certainty.PROVEN}
    one, *rest = alone.cells
    unsure = dataclasses.replace(one, verdict=dataclasses.replace(one.verdict, kind="too few"))
    open_ = overview.Seen.pair(dataclasses.replace(alone, cells=(unsure, *rest)))
    name = overview.Seen.named(next(iter(open_.patterns)))
    assert open_.rows[name].certainty is Certainty.UNDECIDED


def test_without_blocks_the_mean_is_corrected_over_the_pairs() -> None:
    (pair,) = comparisons(made({"a": 2.0, "b": 1.0}, blocks=8, seed=2), "bandwidth")
    assert pair.pairs == 1
    assert pair.mean is not None
    many = math.ceil(1 / pair.mean.mean.p)
    for pairs, kind in ((1, "faster"), (many, "too few")):
        alone = dataclasses.replace(pair, questions=(), pairs=pairs)
        assert alone.mean_kind == kind
    three = comparisons(made({"a": 1.0, "b": 2.0, "c": 0.5}, blocks=6, seed=2))
    assert {one.pairs for one in three} == {3}
