"""What may be compared: engines, caches, devices and options must agree; bad input is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import xarray as xr

from fsmatrix.analysis.comparison.compare import compare, comparisons
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions, VerdictOptions, together
from tests.analysis.comparison.compared_campaigns import PATTERNS, SPEED, Row, made


def refused(ds: xr.Dataset, *words: str, **options: Any) -> None:
    """Refused with a message that tells these words."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        comparisons(ds, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_mixed_engines_are_compared_only_when_it_is_meant() -> None:
    def mixed(row: Row) -> Row:
        return row | {"engine": "fio" if row["target"] == "b" else "player-c"}

    ds = made({"a": 1.5, "b": 1.0}, change=mixed)
    refused(ds, "4 cells would mix engines", "a has player-c, b has fio", "--across-engines")
    found = compare(ds, "a", "b", options=ComparisonOptions(across_engines=True))
    assert found.counts == {"faster": 4}
    assert any("engine" in line and "(as requested)" in line for line in found.remarks)
    assert any("player-c 1 (a) against fio 1 (b)" in line for line in found.remarks)


def test_mixed_cache_states_are_compared_only_when_it_is_meant() -> None:
    def mixed(row: Row) -> Row:
        warm = row["target"] == "b"
        work = row["work_id"] + "-warm" * warm
        return row | {"cache": "warm" if warm else "cold", "work_id": work}

    ds = made({"a": 1.5, "b": 1.0}, change=mixed)
    refused(ds, "mix caches", "--across-cache")
    # without the cases' text the suite cannot know that only the cache differs
    found = compare(ds, "a", "b", options=ComparisonOptions(across_cache=True, ignore=("work_id",)))
    assert found.counts == {"faster": 4}


def test_both_sides_with_both_engines_are_compared_engine_by_engine() -> None:
    def both(row: Row) -> Row:
        return row | {"engine": "fio" if row["block"] % 2 else "player-c"}

    ds = made({"a": 1.5, "b": 1.0}, blocks=24, change=both)
    found = comparisons(ds, sides=("a", "b"))
    assert [{cell.levels["engine"] for cell in one.cells} for one in found] == [
        {"fio"},
        {"player-c"},
    ]
    assert [len(one.cells) for one in found] == [4, 4]
    with pytest.raises(ValueError, match="have fio, player-c: never in one comparison"):
        compare(ds, "a", "b")


def test_device_states_are_not_compared_silently() -> None:
    def aged(row: Row) -> Row:
        return row | {"device_state": "aged" if row["target"] == "b" else "fresh"}

    ds = made({"a": 1.5, "b": 1.0}, change=aged)
    refused(ds, "no case is on both sides", "device_state fresh (a) against aged (b)", "--ignore")
    assert compare(ds, "a", "b", options=ComparisonOptions(ignore=("device_state",))).counts == {
        "faster": 4
    }


def test_campaigns_without_common_cases_name_the_nearest() -> None:
    a = made({"x": 1.0}, seed=1, chunks=(4096, 1 << 20), patterns=("rand-read",))
    b = made({"x": 1.0}, seed=2, chunks=(4096, 1 << 20), patterns=("seq-read",))
    whole = together({"old.h5": a, "new.h5": b})
    refused(whole, "old.h5 and new.h5 do not do the same work", by="campaign")
    c = made({"x": 1.0}, seed=3, chunks=(4096,), patterns=PATTERNS)
    d = made(
        {"x": 1.0},
        seed=4,
        chunks=(1 << 20,),
        patterns=("seq-write", "rand-write"),
        change=lambda row: row | {"device_state": f"s{row['block'] % 2}"},
    )
    whole = together({"old.h5": c, "new.h5": d})
    refused(
        whole,
        "no case is on both sides",
        "nearest",
        "device_state fresh (old.h5) against",
        by="campaign",
    )


def test_other_options_that_are_no_factor_are_other_work() -> None:
    def larger(row: Row) -> Row:
        return row | {"work_id": row["work_id"] + "-large" * (row["target"] == "b")}

    ds = made({"a": 1.5, "b": 1.0}, change=larger)
    refused(ds, "do not do the same work", "--ignore work_id")
    assert compare(ds, "a", "b", options=ComparisonOptions(ignore=("work_id",))).counts == {
        "faster": 4
    }


@pytest.mark.parametrize(
    ("ds", "options", "words"),
    [
        (made({"a": 1.0}).isel(run=slice(0)), {}, ["no runs"]),
        (made({"a": 1.0}, blocks=1).isel(run=slice(1)), {}, ["one level, a", "nothing to compare"]),
        (made({"a": 1.0, "b": 1.0}, change=lambda r: r | {"status": "failed"}), {},
         ["no run gave any bandwidth", "96 runs failed"]),
        (made({"a": 1.0, "b": 1.0}, change=lambda r: r | {"bandwidth": math.nan}), {},
         ["no run gave any bandwidth"]),
        (made({"a": 1.0}), {}, ["one level, a"]),
        (made({"a": 1.0, "b": 1.0}), {"sides": ("a", "c")}, ["'c' is not there", "a, b"]),
        (made({"a": 1.0, "b": 1.0}), {"by": "colour"}, ["no factor 'colour'", "pattern"]),
        (made({"a": 1.0, "b": 1.0}), {"metric": "colour"}, ["no metric 'colour'", "bandwidth"]),
        (made({"a": 1.0, "b": 1.0}), {"options": ComparisonOptions(unit="ms")}, ["'ms'", "MiB/s"]),
        (made({"a": 1.0, "b": 1.0}), {"options": ComparisonOptions(where={"chunk": 8192})},
         ["8192", "4 KiB"]),
        (made({"a": 1.0, "b": 1.0}), {"metric": "block"}, ["no rate and no time"]),
    ],
    ids=["empty", "one-run", "all-failed", "nan", "one-target", "side", "factor", "metric",
         "unit", "level", "no-rate"],
)  # fmt: skip
def test_bad_input(ds: xr.Dataset, options: dict[str, Any], words: list[str]) -> None:
    refused(ds, *words, **options)


@pytest.mark.parametrize("options", [VerdictOptions, ComparisonOptions])
def test_a_tolerance_and_an_alpha_that_make_no_sense(options: type[VerdictOptions]) -> None:
    for tolerance in (0.0, -0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"tolerance must be positive.*not {tolerance}"):
            options(tolerance=tolerance)
    for alpha in (0.0, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"between 0 and 1.*not {alpha}"):
            options(alpha=alpha)


def test_constant_data_differ_by_nothing() -> None:
    def constant(row: Row) -> Row:
        return row | {"bandwidth": SPEED[row["chunk"]], "latency_p99": 1e-3}

    found = compare(made({"a": 1.0, "b": 1.0}, change=constant), "a", "b")
    assert found.counts == {"no difference": 4}
    assert all(cell.ratio.low == cell.ratio.high == 1 for cell in found.cells)
    assert not any(cell.doubts for cell in found.cells)
    assert found.figure().axes


def test_zero_rates_have_no_ratio_and_are_named() -> None:
    def broken(row: Row) -> Row:
        stuck = row["target"] == "a" and row["chunk"] == 4096 and row["block"] == 0
        return row | ({"bandwidth": 0.0} if stuck else {})

    found = compare(made({"a": 1.5, "b": 1.0}, change=broken), "a", "b")
    assert len(found.cells) == 2
    assert {why for *_, why in found.alone} == {"a value of 0 has no ratio"}


def test_an_unbalanced_design_uses_what_both_have() -> None:
    def some(row: Row) -> Row | None:
        return None if row["target"] == "b" and row["block"] % 3 == 0 else row

    found = compare(made({"a": 1.5, "b": 1.0}, change=some), "a", "b")
    assert all(cell.ratio.units == (8,) for cell in found.cells)
    assert found.counts == {"faster": 4}
