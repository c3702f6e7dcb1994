"""Looks at a campaign that grows: what each may spend, and the advice to add blocks."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.comparison.compare import compare, comparisons
from fsmatrix.analysis.comparison.comparison_result import extension_of
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.comparison.extension import MOST, Extension, Record, extension, record_of
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.results.files.store import MARKER
from tests.analysis.comparison.compared_campaigns import made

ALPHA = 0.05


def planned(*turns: int, block: int = 1) -> str:
    return json.dumps({"repetitions": turns[-1], "block": block, "looks": list(turns)})


def test_all_looks_together_spend_no_more_than_alpha() -> None:
    levels = [signflips.look_level(ALPHA, k) for k in range(1, 30)]
    assert sum(levels) == pytest.approx(ALPHA)
    assert all(later < earlier for earlier, later in itertools.pairwise(levels))
    assert signflips.look_level(ALPHA, 0) == ALPHA
    assert levels[0] >= 2 / 2**6  # six blocks decide in a first look


@pytest.mark.parametrize(
    ("turns", "spent"),
    [([6], (6,)), ([6, 10], (6, 10)), ([2, 10], (10,)), ([6, 6], (6,)), ([10, 6, 12], (10, 12)),
     ([0], ()), ([5], ()), ([], ())],
)  # fmt: skip
def test_looks_that_can_give_a_verdict_count(turns: list[int], spent: tuple[int, ...]) -> None:
    assert signflips.spending_looks(turns) == spent


def test_two_looks_err_too_often_at_alpha_and_not_at_their_levels() -> None:
    """Extended only where the first look decided nothing: known truth, nothing differs."""
    random = np.random.default_rng(1)
    campaigns, naive, spent = 400, 0, 0
    for _ in range(campaigns):
        drawn = random.standard_normal((10, 8))
        p = [float(signflips.max_t(drawn[:n], ALPHA).p.min()) for n in (8, 10)]
        naive += min(p) <= ALPHA
        both = signflips.max_t_over_looks(drawn, np.arange(10), (8, 10), ALPHA).p.min()
        assert (both <= signflips.look_level(ALPHA, 2)) == (
            p[0] <= signflips.look_level(ALPHA, 1) or p[1] <= signflips.look_level(ALPHA, 2)
        )
        spent += both <= signflips.look_level(ALPHA, 2)
    assert naive > stats.binom.ppf(0.9, campaigns, ALPHA)
    assert spent <= stats.binom.ppf(0.99, campaigns, ALPHA)


def test_the_record_of_a_campaign_says_its_looks() -> None:
    truth = {"a": 1.0, "b": 1.0}
    assert record_of(made(truth, blocks=6)).looks == ()
    assert record_of(made(truth, blocks=6, campaign=planned(6))).looks == (6,)
    assert record_of(made(truth, blocks=6, campaign=planned(12, 20, block=2))).looks == (6, 10)
    old = json.dumps({"repetitions": 8})  # of a version that kept no looks
    assert record_of(made(truth, blocks=6, campaign=old)).looks == (8,)
    for foreign in ("[]", '{"repetitions": "x", "looks": {}}', '{"looks": ["6", -1, 1e9]}'):
        assert record_of(made(truth, blocks=6, campaign=foreign)).looks == ()


def test_a_look_after_an_extension_is_tested_at_what_is_left_of_alpha() -> None:
    """Six blocks decide (p = 3.1 %) in a first look and not in a second one, where ten do."""
    truth = {"a": 1.5, "b": 1.0}
    without = compare(made(truth, blocks=6), "a", "b")
    first = compare(made(truth, blocks=6, campaign=planned(6)), "a", "b")
    second = compare(made(truth, blocks=6, campaign=planned(6, 10), change=late), "a", "b")
    assert without.counts == first.counts == {"faster": 4}
    assert second.counts == {"too few": 4}
    assert [one.level for one in (without, first, second)] == pytest.approx(
        [ALPHA, ALPHA * 2 / 3, ALPHA * 2 / 9]
    )
    assert any("first look" in line and "tested at 3.3 %" in line for line in first.says)
    (said,) = [line for line in second.says if "look at this" in line]
    assert "second look" in said
    assert "after 6 blocks" in said
    assert "tested at 1.1 %" in said
    assert not any("look at this" in line for line in without.says)
    grown = compare(made(truth, blocks=10, campaign=planned(6, 10), change=late), "a", "b")
    assert grown.counts == {"faster": 4}
    data = second.to_dict()
    assert (data["looks"], data["alpha"]) == ([6, 10], ALPHA)
    assert data["level"] == pytest.approx(ALPHA * 2 / 9)


def test_what_was_tested_is_said_with_the_stricter_test_beside_it() -> None:
    """Six blocks cannot show by signs that medians of four cells differ (Holm): eight can."""
    truth = {"a": 1.5, "b": 1.0}
    said = {6: "whatever shape they have, takes more blocks", 8: "is proven in 4 of 4"}
    for blocks, sure in ((6, 0), (8, 4)):
        found = compare(made(truth, blocks=blocks), "a", "b")
        assert found.counts == {"faster": 4}
        assert [cell.verdict.median_differs for cell in found.cells] == [bool(sure)] * 4
        assert any(said[blocks] in line for line in found.says)
        assert found.to_dict()["cells"][0]["verdict"]["median_differs"] is bool(sure)
    screened = compare(
        made(truth, blocks=8), "a", "b", options=ComparisonOptions(correction="benjamini-hochberg")
    )
    assert any("For screening" in line for line in screened.says)
    same = compare(made({"a": 1.0, "b": 1.0}, blocks=8), "a", "b")
    assert not any("typical ratio" in line for line in same.says)


def late(row: dict[str, Any]) -> dict[str, Any]:
    """The first of these blocks was lost: it is the block after the first look's."""
    return row | {"block": row["block"] + 1}


def test_what_a_look_called_stays_called_unless_it_turned_round() -> None:
    random = np.random.default_rng(2)
    clear = 0.3 + 0.05 * random.standard_normal((6, 3))
    after = np.array([[0.3, -0.25, -0.7]]) + 0.05 * random.standard_normal((4, 3))
    whole = np.vstack([clear, after])
    alone = signflips.max_t(whole, signflips.look_level(ALPHA, 2)).p
    p = signflips.max_t_over_looks(whole, np.arange(10), (6, 10), ALPHA).p
    assert list(alone <= signflips.look_level(ALPHA, 2)) == [True, False, False]
    assert list(p <= signflips.look_level(ALPHA, 2)) == [True, True, False]
    assert p[1] == pytest.approx(2 / 2**6 / 3)  # in the scale of this look: a third of the first's
    late_rows = signflips.max_t_over_looks(whole, np.arange(10) + 6, (6, 10), ALPHA).p
    assert late_rows == pytest.approx(alone)  # blocks of no earlier look


def test_several_campaigns_count_the_looks_of_the_one_looked_at_most() -> None:
    from fsmatrix.analysis.comparison.counted_rows import together

    both = together(
        {
            "old": made({"a": 1.0}, blocks=6, seed=1, campaign=planned(6)),
            "new": made({"a": 1.5}, blocks=6, seed=2, campaign=planned(6, 10)),
        }
    )
    (found,) = comparisons(both, by="campaign")
    assert found.record.looks == (6, 10)
    assert extension_of([found]).command == ""


def store(folder: Path, queued: bool = False) -> str:
    folder.mkdir()
    (folder / MARKER).touch()
    if queued:
        (folder / "slurm").mkdir()
    return str(folder / "campaign.h5")


def test_the_advice_is_a_command_for_the_store_that_was_opened(tmp_path: Path) -> None:
    ds = made({"a": 1.1, "b": 1.0}, blocks=6, spread=0.04, campaign=planned(6))
    advice = extension_of([compare(ds, "a", "b")])
    assert (advice.command, advice.says[-1]) == ("", ".")
    ds.encoding["source"] = store(tmp_path / "my results")
    advice = extension_of([compare(ds, "a", "b")])
    assert shlex.split(advice.command) == [
        "fsmatrix",
        "run",
        "-o",
        str(tmp_path / "my results"),
        "--resume",
        "--set",
        f"repetitions={advice.target}",
    ]
    assert advice.says.startswith(f"Add {advice.target - 6} block")
    assert advice.says.endswith(f": {advice.command}")
    ds.encoding["source"] = store(tmp_path / "jobs", queued=True)
    assert extension_of([compare(ds, "a", "b")]).command.startswith("fsmatrix submit -o ")


def test_blocks_that_are_planned_and_missing_need_no_setting() -> None:
    record = Record(looks=(10,), planned=10, store="out")
    found = extension(record, [6, 6], [8, 9], ALPHA, 1)
    assert found.says == "Finish the campaign first: fsmatrix run -o out --resume"


def test_the_advice_counts_blocks_and_repetitions_and_what_they_would_decide() -> None:
    record = Record(looks=(6,), planned=12, block=2, store="out")
    found = extension(record, [6, 6, 6, 6], [9, 9, 40, None], ALPHA, 1)
    assert found.target == 9
    assert found.says == (
        "Add 3 blocks (9 in all), likely to prove 2 of the 4 open comparisons; 2 would take more "
        "than 24: fsmatrix run -o out --resume --set repetitions=18"
    )
    names = ["xfs over ext4 for writes"] * 2 + [
        "ext4 over xfs for reads",
        "xfs over ext4 for reads",
    ]
    named = extension(record, [6] * 4, [9, 9, 9, 40], ALPHA, 1, names)
    assert named.advice == (
        "Add 3 blocks (9 in all), likely to prove 3 of the 4 open comparisons (2 cells of xfs over "
        "ext4 for writes; ext4 over xfs for reads); 1 would take more than 24"
    )
    alone = extension(record, [6], [9], ALPHA, 1)
    assert alone.advice == "Add 3 blocks (9 in all), likely to prove the open comparison"


def test_more_than_four_times_the_blocks_are_no_advice() -> None:
    record = Record(looks=(6,), planned=6, store="out")
    found = extension(record, [6, 6], [25, None], ALPHA, 1)
    assert (found.target, found.command) == (0, "")
    assert found.says == (
        "More blocks are not worth it: 24 would not be likely to prove any of the 2 open "
        "comparisons."
    )


def test_many_blocks_for_few_of_many_cells_are_hardly_worth_it() -> None:
    record = Record(looks=(10,), planned=10, store="out")
    found = extension(record, [10] * 20, [34, 34, *[None] * 18], ALPHA, 1, ["xfs over ext4"] * 20)
    assert (found.target, found.reach, found.command) == (0, 34, "")
    assert found.says == (
        "More blocks are hardly worth it: 34 in all would be likely to prove 2 of the 20 open "
        "comparisons (2 cells of xfs over ext4)."
    )
    half = extension(record, [10] * 4, [34, 34, None, None], ALPHA, 1)
    assert half.target == 34


def test_the_advice_is_never_a_number_that_cannot_decide() -> None:
    """In a second look, at 1.1 %, 8 blocks are the fewest: 2 / 2**8 = 0.8 %."""
    record = Record(looks=(6,), planned=6, store="out")
    found = extension(record, [6], [7], ALPHA, 1)
    assert found.target == 8
    assert 2 / 2**8 <= record.next_level(ALPHA) < 2 / 2**7


@pytest.mark.parametrize("needed", [[], [None], [None, None]])
def test_without_a_number_there_is_no_advice(needed: list[int | None]) -> None:
    found = extension(
        Record(looks=(6,), planned=6, store="out"), [6] * len(needed), needed, ALPHA, 1
    )
    assert found.command == ""
    assert found.says.startswith("More blocks are not worth it: ") == bool(needed)


def test_no_command_asks_for_more_than_a_campaign_may_have() -> None:
    found = Extension(Record((6,), 6, 100, "out"), 600, (MOST // 100 + 1,), 1, 6)
    assert found.command == ""
