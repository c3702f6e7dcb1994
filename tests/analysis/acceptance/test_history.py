"""Histories and conditions: known changes are found, null data gives none beyond the rate."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from fsmatrix.analysis.acceptance.acceptance import Condition, acceptance, outcomes, parse
from fsmatrix.analysis.acceptance.acceptance_result import Change, History, changes
from fsmatrix.analysis.acceptance.history import history
from fsmatrix.analysis.comparison.counted_rows import VerdictOptions, together
from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.stats.estimates.intervals import Ratio, from_logs
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.results.record import RunRecord
from tests.analysis.upgrades import measured

SLOWER = {("seq-read", 4096): 1.15, ("rand-write", 1 << 20): 1.15}
CELLS = 8


def over(*files: Path, **options: object) -> History:
    """The history of these files, in the order of time."""
    ds = together({file.stem: open_campaign(file) for file in files})
    return history(ds, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> History:
    """January, February, a slower March with another kernel, April that lost two cells."""
    folder = tmp_path_factory.mktemp("history")

    def lose(record: RunRecord, pattern: str, chunk: int, _: int) -> RunRecord | None:
        if chunk != 4096 or pattern not in ("seq-write", "rand-write"):
            return record
        if pattern == "seq-write":
            return None
        return replace(record, status="failed", phases=(), error="rank 0: EIO")

    ceph = {"ceph version 17.2.6 (abc) quincy": 3}
    new = {"kernel": "6.6.1", "versions": {"osd": ceph}}
    old = {"versions": {"osd": {"ceph version 16.2.15 (def) pacific": 3}}}
    return over(
        measured(folder / "apr.h5", month=4, slower=SLOWER, change=lose, environment=new),
        measured(folder / "mar.h5", month=3, slower=SLOWER, environment=new),
        measured(folder / "jan.h5", month=1, environment=old),
        measured(folder / "feb.h5", month=2, environment=old),
    )


def test_campaigns_stand_in_the_order_of_time(found: History) -> None:
    assert isinstance(found, Result)
    assert [one.name for one in found.campaigns] == ["jan", "feb", "mar", "apr"]
    assert found.campaigns[0].date == "2026-01-03"
    assert len(found.lines) == CELLS
    assert all(point.independent == 12 for line in found.lines for point in line.points[:3])


def test_a_step_is_found_where_it_is_and_nowhere_else(found: History) -> None:
    steps = {
        (line.levels["pattern"], line.levels["chunk"], found.campaigns[step.new].name, step.against)
        for line in found.lines
        for step in line.steps
        if step.decided
    }
    cells = [(pattern, chunk) for pattern, chunk in SLOWER]
    assert steps == {(*cell, "mar", "previous") for cell in cells} | {
        (*cell, month, "first") for cell in cells for month in ("mar", "apr")
    }
    for line in found.lines:
        step = line.step("previous", 2)
        assert step is not None
        truth = 1 / SLOWER.get((str(line.levels["pattern"]), int(line.levels["chunk"])), 1.0)
        assert step.verdict.interval.low <= truth <= step.verdict.interval.high


def test_what_changed_and_what_was_lost_stand_beside_it(found: History) -> None:
    assert [len(some) for some in found.changes] == [0, 2, 0]
    assert {(one.name, one.new) for one in found.changes[1]} == {
        ("kernel", "6.6.1"),
        ("versions.osd", "ceph version 17.2.6 (abc) quincy"),
    }
    assert {(one.side, one.why) for one in found.lost} == {("apr", "missing"), ("apr", "failed")}
    said = "\n".join(found.says)
    assert "apr against jan: slower in 2 of 6" in said
    assert "kernel: 6.1.0-18-amd64 → 6.6.1" in said
    assert "rank 0: EIO" in said


def test_figure_and_table_hold_every_point(found: History) -> None:
    axes = [ax for ax in found.figure().axes if ax.axison]
    assert len(axes) == CELLS
    assert all(ax.get_ylim()[0] == 0 for ax in axes)
    assert axes[0].get_ylabel() == "MiB/s"
    frame = found.table()
    assert len(frame) == CELLS * 4 - 2
    assert {"median, MiB/s", "low, MiB/s", "high, MiB/s", "over first low"} <= set(frame.columns)
    assert (frame["against previous"] == "slower").sum() == 2


def test_null_histories_make_few_claims(tmp_path: Path) -> None:
    claims = 0
    for number in range(3):
        files = [
            measured(tmp_path / f"{number}-{month}.h5", month=month, seed=100 * number + month)
            for month in (1, 2, 3)
        ]
        steps = [step for line in over(*files).lines for step in line.steps]
        assert len(steps) == 3 * CELLS
        claims += any(step.decided for step in steps)
    # two families, each at 5 %: all of 3 histories claim with probability 0.001
    assert claims <= 2


def test_every_correction_is_taken_as_acceptance_takes_it(tmp_path: Path) -> None:
    files = [
        measured(tmp_path / f"{month}.h5", month=month, blocks=7, slower=slower)
        for month, slower in ((1, None), (2, SLOWER))
    ]
    found = {
        name: over(*files, options=VerdictOptions(correction=name)).to_dict()
        for name in get_args(Correction)
    }
    assert found["max-t"] == found["holm"], "campaigns share no blocks: Holm stands for max-t"
    assert {name: of["correction"] for name, of in found.items()} == {
        name: "holm" if name == "max-t" else name for name in get_args(Correction)
    }


def test_tables_say_undecided_where_the_data_say_open(tmp_path: Path) -> None:
    files = [measured(tmp_path / f"{month}.h5", month=month, blocks=3) for month in (1, 2)]
    ds = together({file.stem: open_campaign(file) for file in files})
    result = acceptance(ds, "1", "bandwidth", conditions=(parse("slower > 10 %"),))
    assert set(result.table()["slower > 10 %"]) == {"undecided"}
    states = {o["state"] for cell in result.to_dict()["cells"] for o in cell["outcomes"]}
    assert states == {"open"}


def test_a_target_that_is_renamed_goes_on_and_is_a_change(tmp_path: Path) -> None:
    old = measured(tmp_path / "old.h5", month=1, target="ceph-16")
    new = measured(tmp_path / "new.h5", month=2, target="ceph-17")
    found = over(old, new)
    assert len(found.lines) == CELLS
    assert all(len(line.steps) == 1 for line in found.lines)
    assert Change("target", "ceph-16", "ceph-17") in found.changes[0]


def test_engines_and_other_work_are_never_one_line(tmp_path: Path) -> None:
    old = measured(tmp_path / "old.h5", month=1)
    fio = measured(
        tmp_path / "fio.h5", month=2, change=lambda record, *_: replace(record, engine="fio")
    )
    found = over(old, fio)
    assert len(found.lines) == 2 * CELLS
    assert not any(line.steps for line in found.lines)
    other = measured(
        tmp_path / "other.h5", month=2, change=lambda record, *_: replace(record, work_id="x")
    )
    found = over(old, other)
    assert not any(line.steps for line in found.lines)
    assert any("other work" in line for line in found.says)


def test_bad_histories_are_refused(tmp_path: Path) -> None:
    old = measured(tmp_path / "old.h5", month=1, blocks=2)
    with pytest.raises(ValueError, match="two campaigns"):
        history(open_campaign(old))
    undated = measured(
        tmp_path / "undated.h5",
        month=2,
        blocks=2,
        change=lambda record, *_: replace(record, started=""),
    )
    with pytest.raises(ValueError, match="no start times in undated"):
        over(old, undated)
    assert over(old, undated, order="given").campaigns[1].began is None
    with pytest.raises(ValueError, match="no factor 'colour'"):
        over(old, undated, order="given", by="colour")


def test_a_fact_that_varies_inside_a_campaign_did_not_change() -> None:
    assert changes({"osds": {"2", "3"}}, {"osds": {"3"}}) == ()
    assert changes({"a": {"1"}, "kernel": {"6.1"}}, {"kernel": {"6.6"}}) == (
        Change("kernel", "6.1", "6.6"),
        Change("a", "1", ""),
    )


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("slower > 10 %", Condition("slower", 0.1)), ("slower>10%", Condition("slower", 0.1)),
        ("Faster > 2.5 %", Condition("faster", 0.025)), ("slower", Condition("slower")),
        ("missing", Condition("missing")),
    ],
)  # fmt: skip
def test_conditions_are_read(text: str, condition: Condition) -> None:
    assert parse(text) == condition
    assert parse(str(condition)) == condition


@pytest.mark.parametrize(
    "text", ["", "slow", "slower > 10", "slower < 10 %", "slower > 0 %", "missing > 1 %",
             "slower > -1 %", "slower > 1e3 %", "slower > 5000 %", "slower; faster"],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no condition|magnitude"):
        parse(text)


def cells_at(truth: float, rng: np.random.Generator, attachments: int = 12) -> list[Ratio]:
    """Cells of one campaign whose logs of new and old have medians `truth` apart."""
    return [
        from_logs((rng.normal(truth, 0.02, attachments), rng.normal(0, 0.02, attachments)))
        for _ in range(CELLS)
    ]


@pytest.mark.parametrize("rate", [True, False])
def test_at_the_limit_neither_answer_is_given_beyond_the_nominal_rate(rate: bool) -> None:
    condition = parse("slower > 10 %")
    limit = math.log(1.1) * (-1 if rate else 1)
    rng = np.random.default_rng(7)
    failed = passed = 0
    for _ in range(400):
        states = [
            one.state
            for one in outcomes(condition, cells_at(limit, rng), [""] * CELLS, rate, 0.05, "holm")
        ]
        failed += "met" in states
        passed += set(states) == {"not met"}
    # nominal 5 % of 400: more than 32 has probability below 0.3 %
    assert failed <= 32
    assert passed <= 32


@pytest.mark.parametrize(("rate", "slow"), [(True, -1), (False, 1)])
def test_direction_and_power(rate: bool, slow: int) -> None:
    rng = np.random.default_rng(8)

    def states(word: str, change: float) -> set[str]:
        ratios = cells_at(change, rng)
        return {
            one.state for one in outcomes(parse(word), ratios, [""] * CELLS, rate, 0.05, "holm")
        }

    assert states("slower > 10 %", slow * math.log(1.25)) == {"met"}
    assert states("slower > 10 %", -slow * math.log(1.25)) == {"not met"}
    assert states("faster > 10 %", -slow * math.log(1.25)) == {"met"}
    assert states("slower > 10 %", 0.0) == {"not met"}
    few = [from_logs((np.full(3, -slow), np.zeros(3)))]
    assert outcomes(parse("slower > 10 %"), few, [""], rate, 0.05, "holm")[0].state == "open"
