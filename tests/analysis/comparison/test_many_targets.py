"""Many targets: the cost of lessons, tables and reports grows with the cells, not with pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.comparison import compare as comparing
from fsmatrix.analysis.comparison import matched_cells as pairing
from fsmatrix.analysis.data.summary import MOST_TARGETS, summarise
from fsmatrix.analysis.draw import charts
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.report import pivot, report
from tests.analysis.lesson_data import targets
from tests.analysis.study_data import MIB

PATTERNS = {"seq-read": 2e8, "rand-read": 1e8}


def campaign(count: int, **columns: Any) -> xr.Dataset:
    """Targets t000, t001, ... of rising speed, one attachment each."""
    speed = {
        f"t{i:03}": {pattern: rate * (1 + i) for pattern, rate in PATTERNS.items()}
        for i in range(count)
    }
    return targets(speed, attachments=1, spread=1e-3, **columns)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts the pairs of sides whose cells are matched."""
    made: Counter[str] = Counter()
    original = pairing.matched

    def counted(*given: Any) -> Any:
        made["pairs"] += 1
        return original(*given)

    monkeypatch.setattr(pairing, "matched", counted)
    yield made


def entries(ds: xr.Dataset) -> int:
    """Places for a value in all tables of a campaign."""
    return sum(
        len(line.entries)
        for made in pivot.pivots(summarise(ds))
        for part in made.parts
        for line in part.lines
    )


def test_two_of_many_targets_are_corrected_over_themselves(pairs: Counter[str]) -> None:
    found = comparing.compare(campaign(40), "t000", "t001")
    assert pairs["pairs"] == 1
    assert any("780 pairs would be too many" in remark for remark in found.remarks)


def test_few_targets_are_compared_in_pairs(pairs: Counter[str]) -> None:
    lessons(campaign(4))
    assert pairs["pairs"] == 6


def test_many_targets_are_ranked_without_a_pair(pairs: Counter[str]) -> None:
    made = lessons(campaign(MOST_TARGETS + 28))
    assert pairs["pairs"] == 0
    backend = [one for one in made.lessons if one.question == "backend"]
    assert {one.levels for one in backend} == {(("pattern", name),) for name in PATTERNS}
    for one in backend:
        assert len(one.cells) == 40
        assert one.cells[0].startswith("t039 ")
        assert one.cells[-1].startswith("t000 ")
        assert one.state == "undecided"
        assert one.choice == ()
        assert "no comparison" in one.answer
        assert "40 targets are 780 pairs" in one.why


def test_a_ranking_says_in_what_its_targets_differ() -> None:
    same = lessons(campaign(20)).lessons[0]
    assert "they differ in" not in same.answer
    ds = campaign(20, nodes=lambda target, _: int(target[1:]) % 3 + 1)
    ds.attrs["factors"] = ds.attrs["factors"].replace("}", ', "nodes": "nodes"}')
    assert "nodes" in lessons(ds).lessons[0].answer.split("they differ in")[1]


def test_each_phase_is_ranked_by_its_own_metric() -> None:
    """Metadata has no bandwidth, and its order is another one here."""
    ds = campaign(20)
    stat = ds["pattern"].values == "rand-read"
    ds["phase"].values[:] = np.where(stat, "stat", ds["phase"].values)
    rates = np.array([1000.0 - int(str(name)[1:]) for name in ds["target"].values])
    ds = ds.assign(iops=("run", np.where(stat, rates, 1.0)))
    ds["bandwidth"].values[stat] = np.nan
    found = {
        dict(one.levels)["pattern"]: one for one in lessons(ds).lessons if one.question == "backend"
    }
    assert found["seq-read"].cells[0].startswith("t019 ")
    assert "MiB/s" in found["seq-read"].cells[0]
    assert found["rand-read"].cells[0].startswith("t000 1000 ")
    assert "MiB/s" not in found["rand-read"].cells[0]


def test_engines_are_never_in_one_ranking() -> None:
    ds = campaign(20, engine=lambda target, _: "ior" if target < "t010" else "fio")
    backend = [one for one in lessons(ds).lessons if one.question == "backend"]
    assert {dict(one.levels)["engine"] for one in backend} == {"ior", "fio"}
    assert {len(one.cells) for one in backend} == {10}


def test_tables_grow_with_the_cells() -> None:
    """A column for each target would be four times as many places for twice the targets."""
    for one, two in ((20, 40), (40, 80)):
        assert entries(campaign(two)) == 2 * entries(campaign(one))


def test_every_value_of_many_targets_stands_in_the_tables() -> None:
    ds = campaign(20)
    (bandwidth,) = [one for one in pivot.pivots(summarise(ds)) if one.metric == "bandwidth"]
    (part,) = bandwidth.parts
    assert part.columns == (pivot.MEDIAN,)
    assert part.factors[-1] == "target"
    assert len(part.lines) == 2 * 20
    assert len({line.levels for line in part.lines}) == 2 * 20


def test_there_are_no_charts_of_many_targets_and_the_page_says_so(tmp_path: Path) -> None:
    few, many = campaign(MOST_TARGETS), campaign(MOST_TARGETS + 1)
    assert charts.charts(summarise(few))
    assert charts.charts(summarise(many)) == []
    assert "too many for bars" in report.write_report(many, tmp_path / "many.html").read_text()
    assert "too many for bars" not in report.write_report(few, tmp_path / "few.html").read_text()


def test_pairs_that_nobody_named_are_refused(pairs: Counter[str]) -> None:
    ds = campaign(26)
    with pytest.raises(ValueError, match="26 levels, 325 pairs: name those"):
        comparing.comparisons(ds)
    assert pairs["pairs"] == 0
    assert len(comparing.comparisons(ds, sides=("t000", "t001", "t002"))) == 3
    assert len(comparing.comparisons(ds, baseline="t000")) == 25


def test_factors_of_many_rows_follow_as_they_did() -> None:
    """What follows what is told from codes: 1 and 2 MiB belong to the pattern here."""
    ds = campaign(3)
    size = np.where(ds["pattern"].values == "seq-read", MIB, 2 * MIB)
    summary = summarise(ds.assign(chunk=("run", size)))
    assert summary.derived == {"chunk": "pattern"}
    assert summary.varying == ("pattern", "phase", "target") or "phase" in summary.constants
    mixed = ds.assign(chunk=("run", np.resize([MIB, 2 * MIB, MIB], size.size)))
    assert summarise(mixed).derived == {}
