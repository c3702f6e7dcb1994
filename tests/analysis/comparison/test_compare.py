"""Comparisons: known truth is found, equal sides are not told apart, bad input is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fsmatrix import analysis
from fsmatrix.analysis.comparison.compare import Comparison, compare, comparisons
from fsmatrix.analysis.comparison.compared import OPPOSED, SINGLE
from fsmatrix.analysis.comparison.comparison_result import extension_of
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions, together
from fsmatrix.analysis.lessons.backend import TOGETHER
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.report.sections import results
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.stats.testing.tests import Correction
from tests.analysis.comparison.compared_campaigns import PATTERNS, Row, made


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
    advice = extension_of([found])
    assert advice.cells == found.counts["too few"]
    assert not [line for line in found.says if "can be decided" in line or "too few" in line]


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
    assert "3 blocks are too few; 6 are needed" in said
    assert found.mean_kind == "too few"
    assert extension_of([found]).says == (
        "Add 3 blocks (6 in all), the fewest that can prove anything."
    )
    undecided = compare(made({"a": 1.1, "b": 1.0}, blocks=12, spread=0.09), "a", "b")
    assert undecided.counts["too few"] >= 2
    assert " in all would be likely to prove 1 of the 4 " in extension_of([undecided]).says


def test_of_noise_no_number_of_blocks_is_advised() -> None:
    """Identical targets: five in a hundred campaigns at most name one."""
    advised = 0
    for seed in range(40):
        found = compare(made({"a": 1.0, "b": 1.0}, blocks=8, seed=seed, spread=0.1), "a", "b")
        advised += extension_of([found]).target > 0
    assert advised <= 4  # of 40: 5 or more have probability 0.05 at 5 %


def test_correction_counts_the_cells_of_all_pairs() -> None:
    ds = made({"a": 1.5, "b": 1.0, "c": 0.5}, blocks=9)
    every = comparisons(ds)
    assert [(one.a, one.b) for one in every] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert every[0].family == 12
    by_holm = comparisons(ds, options=ComparisonOptions(correction="holm"))[0].cells[0].verdict
    assert by_holm.p == pytest.approx(12 * by_holm.raw_p)


@pytest.mark.parametrize("correction", ["max-t", "holm"])
def test_what_is_displayed_changes_no_verdict(correction: Correction) -> None:
    """Three targets in 7 blocks, near the limit: two of them alone would prove more."""
    options = ComparisonOptions(correction=correction)
    ds = made({"a": 1.04, "b": 1.02, "c": 1.0}, blocks=7, spread=0.02)
    every = {(one.a, one.b): one for one in comparisons(ds, options=options)}
    for a, b in every:
        cells, whole = every[a, b].cells, every[a, b].questions
        alone = compare(ds, a, b, options=options)
        assert repr(alone.cells) == repr(cells)
        assert alone.mean_kind == every[a, b].mean_kind
        assert [q.p for q in alone.questions] == [q.p for q in whole]
        turned = compare(ds, b, a, options=options)
        assert [cell.verdict.p for cell in turned.cells] == pytest.approx(
            [cell.verdict.p for cell in cells]
        )
        for pattern in PATTERNS:
            some = compare(ds, a, b, options=replace(options, where={"pattern": pattern}))
            shown = [c.verdict.p for c in cells if c.levels["pattern"] == pattern]
            assert [cell.verdict.p for cell in some.cells] == shown
            asked = {q.named: q for q in whole}
            assert [q.named for q in some.questions] == [""] * (correction == "max-t")
            for question in some.questions:  # its pattern's: all cells that are shown
                assert question.p == asked[pattern].p
                assert some.mean_kind == asked[pattern].kind


def test_over_cells_that_no_question_is_about_nothing_is_said() -> None:
    ds = made({"a": 1.5, "b": 1.0})
    some = compare(ds, "a", "b", options=ComparisonOptions(where={"chunk": "4 KiB"}))
    assert (some.mean, some.questions) == (None, ())
    assert any("how sure that is cannot be said: over just these cells" in x for x in some.says)


def test_a_cell_without_common_blocks_takes_nothing_from_the_others() -> None:
    """b's runs of one cell lie in blocks of their own: Holm for this cell, max-T for the others."""

    def later(row: Row) -> Row:
        if row["target"] == "b" and (row["pattern"], row["chunk"]) == ("rand-read", 4096):
            return row | {"block": row["block"] + 50, "attachment": f"late-{row['block']}"}
        return row

    found = compare(made({"a": 1.5, "b": 1.0}, change=later), "a", "b")
    corrections = {cell.verdict.correction: cell.verdict.alpha for cell in found.cells}
    assert found.counts == {"faster": 4}
    assert corrections == {"holm": pytest.approx(0.0125), "max-t": pytest.approx(0.0375)}
    assert found.mean is None
    assert any("cannot be said: no block has all cells" in line for line in found.says)
    (patterns,) = [line for line in found.says if line.startswith("By pattern ")]
    assert patterns.startswith("By pattern a is, against b: seq-write ")
    assert "nan" not in " ".join(found.says).split()
    assert found.family == 4


def test_a_ratio_that_its_medians_contradict_is_undecided() -> None:
    """In each block a is 5 % faster; half of the blocks are ten times as fast, and a lacks most."""

    def fast_half(row: Row) -> Row | None:
        if (row["pattern"], row["chunk"]) != ("rand-read", 4096):
            return row
        if row["target"] == "a" and row["block"] in (8, 9, 10, 11, 12):
            return None
        return row | {"bandwidth": row["bandwidth"] * (10 if row["block"] >= 7 else 1)}

    found = compare(
        made({"a": 1.05, "b": 1.0}, blocks=14, change=fast_half, spread=0.002), "a", "b"
    )
    first = next(c for c in found.cells if c.named == "rand-read, chunk 4 KiB")
    assert first.ratio.low > 1
    assert first.a.median < first.b.median
    assert first.kind == "too few"
    assert OPPOSED in first.doubts
    assert found.counts["faster"] == 3
    assert any(OPPOSED in line for line in found.says)


def test_called_cells_whose_lead_may_be_small_are_counted() -> None:
    """What is called first is what chance made large."""
    near = compare(made({"a": 1.08, "b": 1.0}, spread=0.04), "a", "b")
    called = near.counts["faster"]
    assert any(f"of the {called} called cells the lead may be below 5 %" in x for x in near.says)
    far = compare(made({"a": 2.0, "b": 1.0}), "a", "b")
    assert not any("may be below" in line for line in far.says)


def test_where_the_whole_campaign_cannot_be_compared_it_is_said() -> None:
    """c has no case in common with the others."""
    ds = made(
        {"a": 1.5, "b": 1.0, "c": 1.0},
        change=lambda row: row | ({"work_id": "other"} if row["target"] == "c" else {}),
    )
    found = compare(ds, "a", "b")
    assert found.family == 4
    assert any(x.startswith("Corrected over these cells alone; ") for x in found.remarks)


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
