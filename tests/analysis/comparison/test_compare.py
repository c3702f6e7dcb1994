"""Comparisons: known truth is found, equal sides are not told apart, bad input is refused."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix import analysis
from fsmatrix.analysis.comparison.chart import MOST_ROWS, ratio_ticks
from fsmatrix.analysis.comparison.compare import Comparison, compare, comparisons
from fsmatrix.analysis.comparison.compared import SINGLE
from fsmatrix.analysis.comparison.options import ComparisonOptions, VerdictOptions
from fsmatrix.analysis.comparison.rows import together
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.overall import TOGETHER
from fsmatrix.analysis.report.export import results
from fsmatrix.analysis.result import Result
from tests.analysis.study_data import dataset

PATTERNS = ("rand-read", "seq-write")
CHUNKS = (4096, 1 << 20)
SPEED = {4096: 4e7, 1 << 20: 8e8}
Row = dict[str, Any]


def made(
    truth: Mapping[str, float],
    blocks: int = 12,
    seed: int = 1,
    change: Callable[[Row], Row | None] = lambda row: row,
    patterns: Sequence[str] = PATTERNS,
    chunks: Sequence[int] = CHUNKS,
    spread: float = 0.01,
    **attrs: Any,
) -> xr.Dataset:
    """Targets with these speeds; one attachment of each in a block; `change` edits a row."""
    rng = np.random.default_rng(seed)
    rows = []
    for target, block in itertools.product(truth, range(blocks)):
        session = rng.normal(0, spread)
        for pattern, chunk in itertools.product(patterns, chunks):
            noise = math.exp(session + rng.normal(0, spread))
            row: Row = {
                "target": target,
                "pattern": pattern,
                "chunk": chunk,
                "block": block,
                "attachment": f"{target}-{seed}-{block}",
                "cache": "cold",
                "device_state": "fresh",
                "bandwidth": truth[target] * SPEED.get(chunk, 1e8) * noise,
                "latency_p99": 1e-3 / (truth[target] * noise),
                "began": float(len(rows)),
                "phase": pattern.split("-")[1],
                "work_id": f"{pattern}-{chunk}",
                "engine_version": "1",
                "run_id": f"{seed}-{target}-{pattern}-{chunk}-{block}",
                "session": f"s{seed}",
                "started": f"2026-11-20T10:00:{len(rows) % 60:02d}Z",
            }
            rows.append(change(row))
    kept = [row for row in rows if row is not None]
    ds = dataset(kept, ["pattern", "chunk", "cache", "device_state"], **attrs)
    units = {"bandwidth": "B s-1", "latency_p99": "s"}
    return ds.assign({n: ds[n].assign_attrs(units=u) for n, u in units.items()})


def kinds(found: Comparison) -> set[str]:
    return {cell.kind for cell in found.cells}


def test_the_direction_of_a_ratio_does_not_hang_on_the_order_of_runs() -> None:
    """`compare`, `lessons` and the report's export: the same target above the line."""
    ds = made({"temporary": 4.0, "home": 1.0}, blocks=6)
    for rows in (ds, ds.isel(run=slice(None, None, -1))):
        (found,) = comparisons(rows, "bandwidth")
        assert (found.a, found.b) == ("home", "temporary")
        assert found.mean_ratio == pytest.approx(0.25, rel=0.05)
        (whole,) = [one for one in lessons(rows).lessons if one.where == TOGETHER]
        assert whole.cells == ("home against temporary: 4 cells",)
        names = [name for name, _ in results(rows) if name.startswith("compare-bandwidth")]
        assert names == ["compare-bandwidth-home-temporary"]
    named = comparisons(ds, "bandwidth", sides=("temporary", "home"))  # what a user orders stays
    assert (named[0].a, named[0].b) == ("temporary", "home")


def test_sides_of_numbers_are_ordered_by_size() -> None:
    ds = made({"a": 1.0, "b": 1.0, "c": 1.0}, blocks=6)
    size = {"a": 10, "b": 2, "c": 9}
    ds["chunk"] = ("run", np.array([size[name] for name in ds["target"].values]))
    found = comparisons(ds, by="chunk", options=ComparisonOptions(ignore=("work_id", "target")))
    assert [(one.a, one.b) for one in found] == [
        ("2 B", "9 B"),
        ("2 B", "10 B"),
        ("9 B", "10 B"),
    ]


def test_a_reference_is_compared_only_if_it_is_named() -> None:
    ds = made({"ext4": 1.0, "memory": 30.0, "xfs": 2.0}, blocks=6)
    marks = np.array([str(name == "memory") for name in ds["target"].values], dtype=object)
    factors = json.loads(ds.attrs["factors"]) | {"reference": "reference"}
    ds = ds.assign(reference=("run", marks)).assign_attrs(factors=json.dumps(factors))
    (only,) = comparisons(ds, "bandwidth")
    assert (only.a, only.b) == ("ext4", "xfs")
    (asked,) = comparisons(ds, "bandwidth", sides=("ext4", "memory"))
    assert kinds(asked) == {"slower"}
    assert "memory is a reference, here because it was named." in asked.says
    with pytest.raises(ValueError, match="'tmpfs' is not there"):
        comparisons(ds, "bandwidth", sides=("ext4", "tmpfs"))


def test_what_needs_more_repetitions_is_said_of_differences_only() -> None:
    """Cells are shown to be equal: it is not so that none can be decided."""

    def change(row: Row) -> Row:
        row["bandwidth"] *= math.exp(0.5 * math.sin(9 * row["block"]) * (row["chunk"] > 8192))
        return row

    ds = made(
        {"a": 1.0, "b": 1.0},
        blocks=10,
        chunks=tuple(4096 << i for i in range(24)),
        change=lambda row: change(row) if row["target"] == "a" else row,
        spread=0.001,
    )
    (found,) = comparisons(ds, "bandwidth", options=ComparisonOptions(correction="holm"))
    assert found.counts["no difference"] >= 2
    (said,) = [line for line in found.says if line.startswith("Add ")]
    open_cells = found.counts["too few"]
    assert f"of the {open_cells} cells that are not proven yet" in said
    assert not [line for line in found.says if "can be decided" in line or "prove nothing" in line]


def test_a_known_difference_is_found_in_every_cell() -> None:
    found = compare(made({"a": 1.5, "b": 1.0}), "a", "b")
    assert isinstance(found, Result)
    assert found.counts == {"faster": 4}
    assert all(cell.ratio.low <= 1.5 <= cell.ratio.high for cell in found.cells)
    assert all(cell.ratio.design == "paired by block" for cell in found.cells)
    assert all(cell.effect.a == 1.0 for cell in found.cells)
    assert found.mean is not None
    assert found.mean.mean.low <= 1.5 <= found.mean.mean.high
    assert found.mean_kind == "faster"
    other = compare(made({"a": 1.5, "b": 1.0}), "b", "a")
    assert other.counts == {"slower": 4}
    assert other.mean is not None
    assert other.mean.mean.ratio == pytest.approx(1 / found.mean.mean.ratio)


def test_a_shorter_time_is_faster() -> None:
    found = compare(made({"a": 1.5, "b": 1.0}), "a", "b", "latency_p99")
    assert found.counts == {"faster": 4}
    assert all(cell.ratio.high < 1 for cell in found.cells)
    assert "left" in found.figure().axes[0].get_xlabel()


def test_equal_sides_are_no_different_or_undecided_and_never_told_apart() -> None:
    claims = 0
    for seed in range(40):
        found = compare(made({"a": 1.0, "b": 1.0}, seed=seed, spread=0.05), "a", "b")
        claims += bool(kinds(found) & {"faster", "slower"})
    # nominal 5 % of 40 campaigns: 7 or more have probability 0.003
    assert claims <= 6
    calm = compare(
        made({"a": 1.0, "b": 1.0}, blocks=20), "a", "b", options=ComparisonOptions(tolerance=0.05)
    )
    assert calm.counts == {"no difference": 4}


def test_few_attachments_decide_nothing_and_say_how_many_would() -> None:
    found = compare(made({"a": 2.0, "b": 1.0}, blocks=3), "a", "b")
    assert found.counts == {"too few": 4}
    assert all(cell.ratio.kind == "range" for cell in found.cells)
    said = " ".join(cell.says for cell in found.cells)
    assert "3 blocks prove nothing, 6 can" in said
    assert found.mean_kind == "too few"
    undecided = compare(made({"a": 1.04, "b": 1.0}, blocks=12, spread=0.06), "a", "b")
    assert undecided.counts == {"too few": 4}
    assert any("would take" in line for line in undecided.says)


def test_correction_counts_the_cells_of_all_pairs() -> None:
    ds = made({"a": 1.5, "b": 1.0, "c": 0.5}, blocks=9)
    alone = compare(ds, "a", "b")
    every = comparisons(ds)
    assert [(one.a, one.b) for one in every] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert (alone.family, every[0].family) == (4, 12)
    assert every[0].cells[0].verdict.raw_p == alone.cells[0].verdict.raw_p
    assert every[0].cells[0].verdict.p >= alone.cells[0].verdict.p
    by_holm = comparisons(ds, options=ComparisonOptions(correction="holm"))[0].cells[0].verdict
    assert by_holm.p == pytest.approx(12 * by_holm.raw_p)


def test_a_factor_can_be_compared_and_what_follows_it_is_no_obstacle() -> None:
    found = compare(made({"a": 1.0}), "1 MiB", "4 KiB", by="chunk")
    assert found.counts == {"faster": 2}
    assert found.cells[0].ratio.ratio == pytest.approx(20, rel=0.1)
    by_pattern = made({"a": 1.0}, patterns=("rand-read", "seq-read"))
    assert set(compare(by_pattern, "rand-read", "seq-read", by="pattern").counts) == {
        "no difference"
    }


def test_two_campaigns_are_compared_without_pairing_their_blocks() -> None:
    old, new = made({"a": 1.0}, seed=1), made({"a": 1.3}, seed=2)
    found = compare(together({"old.h5": old, "new.h5": new}), "new.h5", "old.h5", by="campaign")
    assert found.counts == {"faster": 4}
    assert all(cell.ratio.design == "independent" for cell in found.cells)
    assert all(cell.ratio.low <= 1.3 <= cell.ratio.high for cell in found.cells)
    assert any("share no block" in line for line in found.remarks)


def test_a_campaign_is_not_compared_with_itself() -> None:
    ds = made({"a": 1.0})
    with pytest.raises(ValueError, match="48 runs are in more than one of"):
        together({"old.h5": ds, "new.h5": ds})


def test_factors_that_only_one_target_has_do_not_hide_its_cells() -> None:
    def nodes(row: Row) -> Row:
        levels = {"ceph": 2 + row["block"] % 2 * 3}
        return row | {"storage_nodes": levels.get(row["target"], math.nan)}

    ds = made({"xfs": 2.0, "ceph": 1.0}, blocks=24, change=nodes)
    ds.attrs["factors"] = json.dumps(
        json.loads(ds.attrs["factors"]) | {"storage_nodes": "storage_nodes"}
    )
    found = compare(ds, "xfs", "ceph")
    assert len(found.cells) == 8
    assert {cell.differs["storage_nodes"][1] for cell in found.cells} == {2.0, 5.0}
    assert not found.alone
    assert any("differ in storage_nodes" in line for line in found.remarks)


def test_one_value_per_cell_gives_ratios_and_no_verdict() -> None:
    ds = analysis.open("published:cern-lhcb-rntuple")
    found = compare(ds, "cascade-lake", "ice-lake", by="cluster")
    assert found.counts == {"single": 32}
    assert all(cell.says.startswith(SINGLE) for cell in found.cells)
    assert all(math.isnan(cell.verdict.p) for cell in found.cells)
    assert found.mean is None
    assert found.mean_ratio == pytest.approx(1.391, abs=0.001)
    assert not found.effects.effects
    assert all("background-load-suspected" in cell.doubts[0] for cell in found.cells)
    assert any("32 cells of ice-lake (trial 2)" in line for line in found.says)
    trials = comparisons(ds, by=("target", "trial"))
    assert [(one.a, one.b) for one in trials][-1] == ("ice-lake / 1", "ice-lake / 2")
    assert all(len(one.cells) == 32 for one in trials)


def test_the_dataset_and_the_result_agree_and_are_plain() -> None:
    found = compare(made({"a": 1.5, "b": 1.0}), "a", "b", options=ComparisonOptions(unit="MB/s"))
    frame = found.table()
    assert list(frame["ratio"]) == [cell.ratio.ratio for cell in found.cells]
    assert frame["a, MB/s"].iloc[0] == pytest.approx(found.cells[0].a.median / 1e6)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["cells"][0]["a"]["median"] == found.cells[0].a.median
    assert plain["counts"] == {"faster": 4}


# ---- doubts -------------------------------------------------------------------------------


def test_a_drift_of_one_side_is_said() -> None:
    def drifting(row: Row) -> Row:
        slower = 0.97 ** row["block"] if row["target"] == "a" else 1.0
        return row | {"bandwidth": row["bandwidth"] * slower}

    found = compare(made({"a": 1.0, "b": 1.0}, change=drifting), "a", "b")
    drifts = "a becomes steadily faster or slower from block to block"
    assert all(drifts in cell.doubts for cell in found.cells)
    assert not any("b becomes" in doubt for cell in found.cells for doubt in cell.doubts)
    assert not any(cell.doubts for cell in compare(made({"a": 1.0, "b": 1.0}), "a", "b").cells)


def test_a_difference_in_spread_is_said() -> None:
    rng = np.random.default_rng(7)

    def restless(row: Row) -> Row:
        factor = math.exp(rng.normal(0, 0.3)) if row["target"] == "b" else 1.0
        return row | {"bandwidth": row["bandwidth"] * factor}

    found = compare(made({"a": 1.0, "b": 1.0}, blocks=20, change=restless), "a", "b")
    assert all(cell.doubts[0].startswith("a varies by ") for cell in found.cells)
    assert found.spreads[1].typical > 5 * found.spreads[0].typical


def test_failed_and_invalid_runs_are_left_out_and_counted() -> None:
    def troubled(row: Row) -> Row:
        if row["target"] == "a" and row["block"] == 0:
            return row | {"status": "failed", "bandwidth": math.nan}
        if row["target"] == "a" and row["block"] == 1:
            return row | {"worst_finding": "invalid", "bandwidth": 1e15}
        return row

    found = compare(made({"a": 1.5, "b": 1.0}, change=troubled), "a", "b")
    assert all(cell.a.runs == 10 for cell in found.cells)
    assert all(cell.ratio.units == (10,) for cell in found.cells)
    assert any(line == "Left out of a: 4 failed runs and 4 invalid runs." for line in found.remarks)


def test_a_combination_that_one_side_lacks_is_listed() -> None:
    def without(row: Row) -> Row | None:
        return None if row["target"] == "b" and row["chunk"] == 4096 else row

    found = compare(made({"a": 1.0, "b": 1.0}, change=without), "a", "b")
    assert len(found.cells) == 2
    assert [(side, levels["chunk"]) for side, levels, _ in found.alone] == [("a", 4096)] * 2
    assert any("2 cells of a" in line for line in found.says)


# ---- bad input ----------------------------------------------------------------------------


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
    assert any("engine" in line and "asked for" in line for line in found.remarks)
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


# ---- the figure ---------------------------------------------------------------------------


def test_the_figure_shows_every_cell_sorted_with_interval_and_symbol() -> None:
    found = compare(made({"a": 1.5, "b": 1.0}), "a", "b")
    ax = found.figure().axes[0]
    assert ax.get_xscale() == "log"
    labels = [text.get_text() for text in ax.get_yticklabels()]
    ordered = sorted(found.cells, key=lambda cell: -cell.ratio.ratio)
    assert labels == ["geometric mean", *(cell.named for cell in ordered)]
    lines = {tuple(line.get_xdata()) for line in ax.lines}
    assert {(cell.ratio.low, cell.ratio.high) for cell in found.cells} <= lines
    markers = [line for line in ax.lines if line.get_marker() == "^"]
    assert [float(line.get_xdata()[0]) for line in markers] == [c.ratio.ratio for c in ordered]


def test_many_cells_go_to_pages() -> None:
    def many(row: Row) -> Row:
        return row | {
            "depth": row["block"] // 2,
            "work_id": f"{row['work_id']}-{row['block'] // 2}",
        }

    ds = made({"a": 1.5, "b": 1.0}, blocks=40, change=many)
    ds.attrs["factors"] = json.dumps(json.loads(ds.attrs["factors"]) | {"depth": "depth"})
    found = compare(ds, "a", "b")
    assert len(found.cells) == 80
    assert found.pages == math.ceil(80 / MOST_ROWS)
    shown = [len(found.figure(page).axes[0].get_yticks()) - 1 for page in range(found.pages)]
    assert sum(shown) == 80
    with pytest.raises(ValueError, match="pages 0 to 2"):
        found.figure(3)


@pytest.mark.parametrize("ends", [(0.97, 1.04), (0.8, 2.4), (0.5, 30), (1e-4, 1e5), (1.0, 1.0)])
def test_ticks_are_few_and_inside(ends: tuple[float, float]) -> None:
    ticks = ratio_ticks(*ends)
    assert 1 <= len(ticks) <= 9
    assert all(ends[0] <= tick <= ends[1] for tick in ticks)


def test_formulas_in_names_are_only_text() -> None:
    found = compare(made({r"$\frac": 1.5, "b": 1.0}), r"$\frac", "b")
    figure = found.figure()
    figure.canvas.draw()  # type: ignore[no-untyped-call, unused-ignore]
    assert r"\$\frac" in figure.get_suptitle()
